"""From rounds of questions to states: laid once, handed over, whatever Slurm does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opsk.app.interference import jobs as interference_jobs
from opsk.config import SiteConfig
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.cluster_state.state import LiveReader, LiveState, LiveWriter, fingerprint
from opsk_jobcheck.workers.watcher import ALL_AGAIN_ROUNDS, Poller, StateBuilder, watch
from tests.fakes.live_cluster import CountingSlurm, node_records, round_of, small_adviser, training_job


@pytest.fixture(scope="module")
def adviser() -> Adviser:
    return small_adviser()


def test_only_jobs_that_are_new_are_laid(adviser: Adviser, monkeypatch: pytest.MonkeyPatch) -> None:
    with_traffic: list[str] = []
    lay = interference_jobs.default_load
    monkeypatch.setattr(
        interference_jobs,
        "default_load",
        lambda name, *rest, **more: with_traffic.append(name) or lay(name, *rest, **more),
    )
    watching = StateBuilder(SiteConfig(), adviser, CountingSlurm())
    one, two, three = (training_job(number, [f"n{number}", f"n{number + 8}"]) for number in (1, 2, 3))
    watching.state(round_of(one, two))
    watching.state(round_of(replace(one, run_time_s=60), two))
    assert with_traffic == ["1", "2"]
    state = watching.state(round_of(two, three))
    assert with_traffic == ["1", "2", "3"]
    assert state.wire is not None
    assert [load.name for load in state.wire.running.loads] == ["2", "3"]
    # a job that has ended is forgotten
    watching.state(round_of(one))
    assert with_traffic == ["1", "2", "3", "1"]


def test_nodes_that_no_visible_job_holds_are_counted(adviser: Adviser) -> None:
    job = training_job(1, ["n0", "n1"])
    found = round_of(job)
    hidden = replace(found, nodes=node_records([job, training_job(2, ["n2", "n3", "n4"])]))
    assert StateBuilder(SiteConfig(), adviser, CountingSlurm()).state(hidden).hidden_nodes == 3


def test_partitions_are_asked_for_now_and_then_and_kept_where_slurm_does_not_say(adviser: Adviser) -> None:
    slurm = CountingSlurm()
    watching = StateBuilder(SiteConfig(), adviser, slurm)
    for _ in range(ALL_AGAIN_ROUNDS):
        assert watching.state(round_of()).default_partition == "gpu"
    assert slurm.asked == ["partitions"]
    slurm.is_down = True
    state = watching.state(round_of())
    assert slurm.asked == ["partitions"] * 2
    assert (state.default_partition, state.min_nodes) == ("gpu", {"big": 4})
    assert [part.min_nodes for part in state.partitions.values()] == [1, 4]


def test_only_a_site_with_a_fabric_is_watched() -> None:
    with pytest.raises(ValueError, match="fabric"):
        StateBuilder(SiteConfig(), Adviser(), CountingSlurm())


def test_rounds_are_handed_over_and_failures_keep_the_last_good_state(adviser: Adviser, tmp_path: Path) -> None:
    slurm = CountingSlurm(training_job(1, ["n0", "n1"]))
    now_s, seen = [0.0], []
    assert adviser.fabric_links is not None
    reader = LiveReader(tmp_path, lambda: now_s[0], fingerprint(adviser.fabric_links))

    def is_over(pause_s: float) -> bool:
        state = reader.state()
        seen.append((state.running if state else None, state.age_s if state else None, pause_s))
        now_s[0] += pause_s
        slurm.is_down = len(seen) in (1, 2)
        if len(seen) == 3:
            slurm.found = ()
        return len(seen) == 4

    poller = Poller(slurm=slurm, clock=lambda: now_s[0], interval_s=15.0)
    watch(
        poller,
        StateBuilder(SiteConfig(), adviser, slurm),
        LiveWriter(tmp_path, fingerprint(adviser.fabric_links)),
        is_over=is_over,
    )
    assert seen == [(1, 0.0, 15.0), (1, 15.0, 30.0), (1, 45.0, 60.0), (0, 0.0, 15.0)]


def test_a_mistake_of_ours_ends_a_round_and_not_the_watch(
    adviser: Adviser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slurm = CountingSlurm()
    watching = StateBuilder(SiteConfig(), adviser, slurm)
    rounds: list[float] = []

    def broken(self: StateBuilder, *_: object, **__: object) -> LiveState:
        raise KeyError("as ordered")

    monkeypatch.setattr(StateBuilder, "state", broken)

    def is_over(pause_s: float) -> bool:
        rounds.append(pause_s)
        return len(rounds) == 3

    poller = Poller(slurm=slurm, clock=lambda: 0.0, interval_s=15.0)
    watch(poller, watching, LiveWriter(tmp_path, ""), is_over=is_over)
    assert len(rounds) == 3
    assert "as ordered" in caplog.text


def test_a_folder_that_went_with_its_advisor_is_told_of_in_one_line(
    adviser: Adviser, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    slurm = CountingSlurm()
    poller = Poller(slurm=slurm, clock=lambda: 0.0, interval_s=15.0)
    writer = LiveWriter(tmp_path / "gone", "")
    watch(poller, StateBuilder(SiteConfig(), adviser, slurm), writer, is_over=lambda pause_s: pause_s > 15.0)
    assert "cannot be written" in caplog.text
    assert "Traceback" not in caplog.text
