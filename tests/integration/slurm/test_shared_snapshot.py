"""On a real slurmctld: five screens on one host, and Slurm is asked once an interval for all of them."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from opsk.config import load_site
from opsk.slurm.commands.command import CommandClient
from opsk.slurm.records import JobRecord, NodeRecord
from opsk.slurm.snapshot import SnapshotReader
from opsk_tui.data.feed import ClusterFeed
from opsk_tui.data.sources.advisor import ask_cluster
from opsk_tui.data.sources.slurm import SlurmSource
from opsk_tui.data.view import ClusterView, Source
from tests.fakes.advised_lab import FITS, PATIENT, AdvisedLab, wait_until
from tests.integration.conftest import OLDEST_AND_NEWEST

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600), OLDEST_AND_NEWEST]

INTERVAL_S = 3.0
WATCHED_S = 15.0
FEEDS = 5
TOP = f"\n[top]\nexporter_port = 0\nrefresh_s = 1\nslurm_interval_s = {INTERVAL_S:g}\n"


class Silent:
    """A Slurm that a test does not want to be asked."""

    def __init__(self) -> None:
        self.asked = 0

    def jobs(self, *, details: bool = False, finished: bool = False) -> tuple[JobRecord, ...]:
        self.asked += 1
        raise AssertionError("asked for jobs")

    def nodes(self) -> tuple[NodeRecord, ...]:
        raise AssertionError("asked for nodes")

    def job(self, job_id: str) -> JobRecord:
        raise AssertionError("asked for a job")

    def release(self) -> tuple[int, int]:
        raise AssertionError("asked for its release")

    def config(self) -> dict[str, str]:
        raise AssertionError("asked for its configuration")


@pytest.fixture
def lab(lab_programs: None, advised_lab: AdvisedLab) -> Iterator[AdvisedLab]:
    advised_lab.configure(PATIENT + TOP)
    advised_lab.cancel()
    yield advised_lab
    advised_lab.cancel()


def requests(lab: AdvisedLab, kind: str) -> int:
    """Return how often slurmctld was asked this since its counters were cleared."""
    found = re.search(rf"{kind}\s*\(\s*\d+\)\s*count:(\d+)", lab.run("sdiag").stdout)
    return int(found[1]) if found else 0


async def watch(feed: ClusterFeed, until_s: float, seen: list[ClusterView]) -> None:
    async for view in feed.views():
        seen.append(view)
        if time.monotonic() > until_s:
            break


async def watched(feeds: list[ClusterFeed], for_s: float) -> list[list[ClusterView]]:
    seen: list[list[ClusterView]] = [[] for _ in feeds]
    end = time.monotonic() + for_s
    tasks = [watch(feed, end, views) for feed, views in zip(feeds, seen, strict=True)]
    await asyncio.wait_for(asyncio.gather(*tasks), for_s + 30)
    return seen


def test_five_screens_cost_slurm_what_one_costs(lab: AdvisedLab) -> None:
    job = lab.sbatch(FITS.replace("torchrun", "sleep 120; torchrun", 1)).job
    wait_until(lambda: lab.shown(job).get("JobState") == "RUNNING")
    site = load_site(lab.record.folder.site)
    lab.run("sdiag", "--reset")
    silent = Silent()

    async def run() -> list[list[ClusterView]]:
        return await watched([ClusterFeed(site, slurm=silent) for _ in range(FEEDS)], WATCHED_S)

    seen = asyncio.run(run())
    assert silent.asked == 0
    # squeue and `scontrol show job` once an interval, one more at its two ends
    rounds = WATCHED_S / INTERVAL_S + 2
    assert 2 <= requests(lab, "REQUEST_JOB_INFO") <= 2 * rounds
    assert requests(lab, "REQUEST_NODE_INFO") <= 2 * rounds
    for views in seen:
        last = views[-1]
        assert [each.record.id for each in last.jobs] == [job]
        assert last.jobs[0].advice is not None
        assert {node.name for node in last.nodes} == {"n0", "n1"}
        (slurm,) = (state for state in last.sources if state.source is Source.SLURM)
        assert slurm.where == "shared by the advisor"
        assert not slurm.problem
        assert last.gpus is not None
        assert (last.gpus.job == job).sum() == 16


def test_nobody_asks_slurm_when_nobody_looks(lab: AdvisedLab) -> None:
    ask_cluster(lab.socket, deadline_s=20.0)
    time.sleep(32 + INTERVAL_S)  # it is asked for half a minute more
    lab.run("sdiag", "--reset")
    time.sleep(2 * INTERVAL_S)
    assert requests(lab, "REQUEST_NODE_INFO") == 0


def test_without_an_advisor_a_users_screens_share_a_file(
    lab: AdvisedLab, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    client = CommandClient(environment={**os.environ, **lab.environ})
    lab.run("sdiag", "--reset")
    sources = [SlurmSource(None, client, 30.0) for _ in range(FEEDS)]
    answers = [source.read() for source in sources]
    assert {answer.route for answer in answers} == {"asked directly"}
    assert len({answer.snapshot.taken_at_s for answer in answers}) == 1
    assert requests(lab, "REQUEST_JOB_INFO") <= 2


def asked_as(uid: int, path: Path) -> bytes:
    """Return what the advisor tells another user: asked in a process that has become him."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setuid(uid)
            with os.fdopen(writes, "wb") as out:
                out.write(ask_cluster(path))
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_what_slurm_hides_is_not_shared(lab: AdvisedLab) -> None:
    conf = lab.record.folder.etc / "slurm.conf"
    plain = conf.read_text()
    job = lab.sbatch(FITS.replace("torchrun", "sleep 120; torchrun", 1)).job
    try:
        conf.write_text(f"{plain}\nPrivateData=jobs,nodes\n")
        lab.run("scontrol", "reconfigure")
        wait_until(lambda: "jobs" in CommandClient(environment=lab.environ).config()["PrivateData"])
        lab.start_advisor()
        own = SnapshotReader().read(ask_cluster(lab.socket, deadline_s=30.0))
        assert job in [each.id for each in own.jobs], "root is shown everything"
        assert own.private == {"jobs", "nodes"}
        found = SnapshotReader().read(asked_as(65534, lab.socket))
        assert found.is_partial
        assert found.jobs == ()
        assert found.nodes == ()
    finally:
        conf.write_text(plain)
        lab.run("scontrol", "reconfigure")
        lab.cancel()
