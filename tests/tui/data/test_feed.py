"""Does every source arrive in the view by itself, and does none that is silent keep another waiting?"""

from __future__ import annotations

import asyncio
import getpass
import json
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from opsk.config import SiteConfig
from opsk.errors import InputError, SlurmError
from opsk.slurm.commands.remap_commands import Who
from opsk.slurm.records import JobRecord, NodeRecord
from opsk_tui.data import feed as feed_module
from opsk_tui.data.feed import ClusterFeed
from opsk_tui.data.view import ClusterView, Metric, Source
from tests.fakes.lab_node import GPUS, NODES
from tests.tui.data.sources.conftest import pages, slurm_nodes, training_job

if TYPE_CHECKING:
    from tests.tui.data.sources.conftest import Pages

__all__ = ["pages"]
PATIENCE_S = 30.0
Answer = TypeVar("Answer")


class Slurm:
    """Answers what a test wants, as slowly as it wants."""

    def __init__(self, *jobs: JobRecord) -> None:
        self.found = jobs
        self.is_down = False
        self.takes_s = 0.0

    def jobs(self, *, details: bool = False, finished: bool = False) -> tuple[JobRecord, ...]:
        time.sleep(self.takes_s)
        if self.is_down:
            raise SlurmError("squeue did not answer within 10 s", hint="see `scontrol ping`")
        return self.found

    def nodes(self) -> tuple[NodeRecord, ...]:
        return slurm_nodes()

    def job(self, job_id: str) -> JobRecord:
        raise InputError("not asked")

    def release(self) -> tuple[int, int]:
        return (24, 11)

    def config(self) -> dict[str, str]:
        return {"ClusterName": "lab"}


@pytest.fixture(autouse=True)
def own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.setenv(name, str(folder))


def feed_of(slurm: Slurm, **top: object) -> ClusterFeed:
    said = {"exporter_port": 0, "refresh_s": 1, "slurm_interval_s": 0.2, **top}
    site = SiteConfig.model_validate({"advisor": {"socket": "/nonexistent/advisor.sock"}, "top": said})
    return ClusterFeed(site, slurm=slurm, rights=lambda: (Who.USER,))


async def closing(feed: ClusterFeed, run: Coroutine[Any, Any, Answer]) -> Answer:
    """Run something within its time, and close the feed."""
    try:
        return await asyncio.wait_for(run, PATIENCE_S)
    finally:
        await feed.close()


async def until(feed: ClusterFeed, is_so: Callable[[ClusterView], bool]) -> ClusterView:
    async def look() -> ClusterView:
        async for view in feed.views():
            if is_so(view):
                return view
        raise AssertionError("the views ended")

    return await closing(feed, look())


def states(view: ClusterView) -> dict[Source, str]:
    return {state.source: state.problem for state in view.sources}


def test_slurm_alone_is_enough_and_it_is_said() -> None:
    view = asyncio.run(until(feed_of(Slurm(training_job())), lambda view: bool(view.nodes and view.rights)))
    assert view.cluster == "lab"
    assert states(view) == {Source.SLURM: ""}
    assert view.gpus is not None
    assert view.gpus.values == {}
    assert (view.gpus.job[:2] == 4711).all()
    assert view.jobs[0].advice is not None
    assert view.jobs[0].measured is None
    assert view.rights == (Who.USER,)


def test_exporters_join_in(pages: tuple[Pages, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    feed = feed_of(Slurm(training_job()), exporter_port=1)
    monkeypatch.setattr(feed_module, "find_exporters", lambda nodes, top: pages[1])
    view = asyncio.run(until(feed, lambda view: view.gpus is not None and Metric.POWER in view.gpus.values))
    assert states(view)[Source.EXPORTERS] == ""
    assert view.fabric is not None
    assert len(view.fabric.ports.rails) == GPUS
    assert view.jobs[0].measured is not None
    assert view.gpus is not None
    assert view.gpus.uuids[NODES[0], 0].startswith("GPU-")


def test_what_a_silent_slurm_said_last_stays_with_the_reason() -> None:
    slurm = Slurm(training_job())
    feed = feed_of(slurm)

    async def run() -> tuple[ClusterView, ClusterView]:
        first: ClusterView | None = None
        async for view in feed.views():
            if view.nodes and first is None:
                first, slurm.is_down = view, True
                feed.ask_now()
            if first is not None and states(view)[Source.SLURM]:
                return first, view
        raise AssertionError

    first, silent = asyncio.run(closing(feed, run()))
    assert silent.jobs is first.jobs
    assert silent.nodes is first.nodes
    assert "did not answer" in states(silent)[Source.SLURM]
    (before,) = (state for state in first.sources if state.source is Source.SLURM)
    (after,) = (state for state in silent.sources if state.source is Source.SLURM)
    assert after.taken_at_s == before.taken_at_s


def test_a_slow_source_keeps_no_other_waiting(
    pages: tuple[Pages, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = Slurm(training_job())
    feed = feed_of(slurm, exporter_port=1)
    monkeypatch.setattr(feed_module, "find_exporters", lambda nodes, top: pages[1])

    async def run() -> None:
        measured = 0
        async for view in feed.views():
            if view.nodes and not slurm.takes_s:
                slurm.takes_s = 3.0
            if slurm.takes_s and view.gpus is not None and view.gpus.values:
                measured += 1
            if measured >= 2:
                return

    began = time.monotonic()
    asyncio.run(closing(feed, run()))
    assert time.monotonic() - began < PATIENCE_S


@pytest.mark.parametrize(("nodes", "answers_after_s"), [((), PATIENCE_S), (slurm_nodes(), 0.5)])
def test_what_is_being_asked_is_waited_for_but_not_before_anything_is_seen(
    monkeypatch: pytest.MonkeyPatch, nodes: tuple[NodeRecord, ...], answers_after_s: float
) -> None:
    """Else a refresh would be two views: one of what Slurm said, and one of what the exporters said a moment later."""
    monkeypatch.setattr(feed_module, "MAX_SETTLE_S", PATIENCE_S)
    feed = feed_of(Slurm())
    feed._view = replace(feed._view, nodes=nodes)

    async def run() -> bool:
        feed._pending.add(Source.SLURM)
        asyncio.get_running_loop().call_later(answers_after_s, feed._pending.discard, Source.SLURM)
        await feed._settle()
        return Source.SLURM not in feed._pending

    assert asyncio.run(closing(feed, run())) is bool(nodes)


def test_one_job_is_told_in_full(tmp_path: Path) -> None:
    log = tmp_path / "train-4711.out"
    log.write_text("iteration 7\n")
    job = training_job(user=getpass.getuser(), std_out=str(tmp_path / "train-%j.out"))
    feed = feed_of(Slurm(job))

    async def run() -> None:
        async for view in feed.views():
            if view.jobs:
                details = await feed.job_details(4711)
                assert details.log_path == str(log)
                assert details.log == ("iteration 7",)
                assert details.ranks is not None
                assert details.ranks.nodes == (NODES[0],) * GPUS + (NODES[1],) * GPUS
                assert details.ranks.gpus.tolist() == [*range(GPUS), *range(GPUS)]
                assert details.ranks.places[5] == "tp1 dp1"
                with pytest.raises(InputError, match="no job 99"):
                    await feed.job_details(99)
                with pytest.raises(InputError, match="no report"):
                    await feed.report_text("/etc/passwd")
                return

    asyncio.run(closing(feed, run()))


def test_reports_of_the_folder_are_listed_and_opened(tmp_path: Path) -> None:
    (tmp_path / "71").mkdir()
    kept = {"state": "FAILED", "root_cause": {"class": "storage", "what": "no space left"}, "job": {"job_id": "71"}}
    (tmp_path / "71" / "report.json").write_text(json.dumps(kept))
    site = SiteConfig.model_validate(
        {"postmortem": {"folder": str(tmp_path)}, "advisor": {"socket": "/nonexistent/advisor.sock"},
         "top": {"exporter_port": 0, "refresh_s": 1, "slurm_interval_s": 0.2}}
    )  # fmt: skip
    feed = ClusterFeed(site, slurm=Slurm(), rights=lambda: (Who.USER,))

    async def run() -> str:
        async for view in feed.views():
            if view.reports:
                assert view.reports[0].title == "storage: no space left"
                return await feed.report_text(view.reports[0].path)
        raise AssertionError("the views ended")

    assert "no space left" in asyncio.run(closing(feed, run()))


def test_nothing_that_did_not_change_is_made_anew() -> None:
    feed = feed_of(Slurm(training_job()))

    async def run() -> None:
        last: ClusterView | None = None
        async for view in feed.views():
            if last is not None and last.nodes:
                assert view.nodes is last.nodes
                assert view.gpus is last.gpus
                assert view.jobs is last.jobs
                return
            last = view

    asyncio.run(closing(feed, run()))
