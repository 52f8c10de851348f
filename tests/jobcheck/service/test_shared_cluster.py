"""Does the advisor hand out what Slurm said as bytes, start who asks only when somebody wants it, and leave nothing?"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from opsk.config import SiteConfig
from opsk.slurm.records import JobRecord
from opsk.slurm.snapshot import Snapshot, SnapshotReader, pack
from opsk_jobcheck.cluster_state.snapshots import REQUEST_FILE, SNAPSHOT
from opsk_jobcheck.service.shared_cluster import SharedCluster

ASKER = """
import sys, time
from pathlib import Path
folder = Path(sys.argv[1])
(folder / ".draft").write_bytes(Path(sys.argv[0]).with_name("told").read_bytes())
(folder / ".draft").replace(folder / "cluster")
sys.stdin.read()
"""
WITHIN_S = 20.0


def told(*users: str, private: frozenset[str] = frozenset(), at_s: float = 1.0) -> bytes:
    jobs = tuple(JobRecord(id=at, label=str(at), user=user, name="n", state="RUNNING") for at, user in enumerate(users))
    uids = {"ada": 1000, "bob": 1001}
    return pack(Snapshot(taken_at_s=at_s, jobs=jobs, private=private), uids.get).to_bytes()


def read(frame: bytes | None) -> Snapshot:
    assert frame is not None
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return SnapshotReader().read(frame[4:])


async def eventually(look: Callable[[], bytes | None]) -> bytes:
    end = time.monotonic() + WITHIN_S
    while (found := look()) is None:
        assert time.monotonic() < end
        await asyncio.sleep(0.05)
    return found


@pytest.fixture
def asker(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "asker.py").write_text(ASKER)
    return (sys.executable, str(tmp_path / "asker.py"))


def test_the_first_who_asks_has_slurm_asked_and_gets_it_when_it_is_there(
    asker: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "told").write_bytes(told("ada", "bob"))

    async def run() -> None:
        shared = SharedCluster(SiteConfig(), lambda _: False, command=asker)
        assert shared._asker.process is None
        assert shared.frame_for(1000, "") is None
        first = await eventually(lambda: shared.frame_for(1000, ""))
        assert len(read(first).jobs) == 2
        assert shared.frame_for(1001, "") is first, "made once for all who see the same"
        folder = shared._folder
        assert folder is not None
        assert folder.stat().st_mode & 0o077 == 0
        await shared.close()
        assert not folder.exists()

    asyncio.run(run())


def test_a_folder_of_the_watchers_is_read_and_told_that_somebody_looks(tmp_path: Path) -> None:
    site = SiteConfig.model_validate({"advisor": {"live_folder": str(tmp_path)}})

    async def run() -> None:
        shared = SharedCluster(site, lambda uid: uid == 0)
        assert shared.frame_for(1000, "") is None
        assert (tmp_path / REQUEST_FILE).exists()
        (tmp_path / SNAPSHOT).write_bytes(told("ada", "bob", private=frozenset({"jobs"})))
        assert [job.user for job in read(shared.frame_for(1001, "")).jobs] == ["bob"]
        assert [job.user for job in read(shared.frame_for(1000, "")).jobs] == ["ada"]
        assert len(read(shared.frame_for(0, "")).jobs) == 2
        (tmp_path / "new").write_bytes(told("ada", private=frozenset({"jobs"}), at_s=2.0))
        (tmp_path / "new").replace(tmp_path / SNAPSHOT)
        assert read(shared.frame_for(1001, "")).jobs == ()
        (tmp_path / "new").write_bytes(b"rubbish")
        (tmp_path / "new").replace(tmp_path / SNAPSHOT)
        assert read(shared.frame_for(0, "")).taken_at_s == 2.0, "what is damaged changes nothing"
        await shared.close()
        assert tmp_path.exists(), "the folder is the watcher's"

    asyncio.run(run())


def test_a_process_that_cannot_be_started_costs_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        shared = SharedCluster(SiteConfig(), lambda _: False, command=(str(tmp_path / "absent"),))
        assert shared.frame_for(1000, "") is None
        await asyncio.sleep(0.1)
        assert shared.frame_for(1000, "") is None
        await shared.close()

    asyncio.run(run())


def test_a_site_that_shares_nothing_says_so() -> None:
    site = SiteConfig.model_validate({"top": {"slurm_interval_s": 0}})
    assert SharedCluster(site, lambda _: True).is_off
    assert not SharedCluster(SiteConfig(), lambda _: True).is_off
