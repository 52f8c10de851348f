"""The advisor starts its watcher, names what is known, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from pathlib import Path

import pytest

from opsk.config import AdvisorConfig, SiteConfig
from opsk_jobcheck.workers.forked_processes import ForkServer
from opsk_jobcheck.workers.supervision import FOLDER_VARIABLE, WatcherSupervisor, execute, is_watched

WATCHED = SiteConfig(fabric=(Path("/nowhere/fabric.ib"),))
PROGRAM = "import os, sys, pathlib; pathlib.Path(sys.argv[1], 'seen').write_text('x'); sys.stdin.read()"


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    return tmp_path


def test_without_a_fabric_or_an_interval_nothing_is_watched(runtime: Path) -> None:
    unwatched = WATCHED.model_copy(update={"advisor": AdvisorConfig(live_interval_s=0)})
    assert not is_watched(SiteConfig())
    assert not is_watched(unwatched)
    watching = WatcherSupervisor(unwatched, execute)
    assert watching.environment(unwatched) == {}
    assert (watching.generation(), list(runtime.iterdir())) == ("", [])


def test_the_folder_is_the_advisors_alone(runtime: Path) -> None:
    folder = Path(WatcherSupervisor(WATCHED, execute).environment(WATCHED)[FOLDER_VARIABLE])
    assert folder.parent == runtime
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_the_watcher_runs_as_long_as_the_advisor() -> None:
    async def life() -> tuple[Path, int]:
        watching = WatcherSupervisor(WATCHED, execute, command=(sys.executable, "-c", PROGRAM))
        folder = Path(watching.environment(WATCHED)[FOLDER_VARIABLE])
        watching.start()
        async with asyncio.timeout(20):
            while not (folder / "seen").exists():
                await asyncio.sleep(0.02)
        assert watching.pid is not None
        pid = watching.pid
        await watching.close()
        return folder, pid

    folder, pid = asyncio.run(life())
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_real_watcher_ends_with_its_input_and_takes_the_folder_along(runtime: Path) -> None:
    async def life() -> Path:
        folder = Path(WatcherSupervisor(WATCHED, execute).environment(WATCHED)[FOLDER_VARIABLE])
        forks = ForkServer()
        process = await forks.start(("watcher", str(folder)), {})
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(30):
            await process.wait()
        await forks.close()
        return folder

    folder = asyncio.run(life())
    assert folder.parent == runtime
    assert not folder.exists()
