"""Is a process beside the advisor there for as long as it is wanted, and no longer?"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

import pytest

from opsk_jobcheck.workers.supervision import RunningProcess, SupervisedProcess

WAITS = (sys.executable, "-c", "import sys; sys.stdin.read()")
ENDS = (sys.executable, "-c", "import os, sys; open(sys.argv[1], 'a').write(os.environ['SAID'] + '\\n')")


async def until(is_so: object) -> None:
    """Wait for something that comes soon, but not for ever."""
    for _ in range(600):
        if is_so():  # type: ignore[operator]
            return
        await asyncio.sleep(0.05)
    pytest.fail("that did not come to pass within 30 s")


def test_one_process_runs_until_it_is_stopped() -> None:
    begun: list[int] = []

    async def told(process: RunningProcess) -> None:
        begun.append(process.pid)

    async def scene() -> None:
        kept = SupervisedProcess("nothing is waited for", 60.0, told)
        kept.start(WAITS)
        kept.start(WAITS)
        await until(lambda: begun)
        assert kept.process is not None
        assert [kept.process.pid] == begun
        await kept.stop()
        assert kept.process is None
        with pytest.raises(ProcessLookupError):
            os.kill(begun[0], 0)

    asyncio.run(scene())


def test_one_that_ends_is_started_again(tmp_path: Path) -> None:
    path = tmp_path / "said"

    async def scene() -> None:
        kept = SupervisedProcess("nothing is said", 0.01)
        kept.start((*ENDS, str(path)), {"SAID": "again"})
        await until(lambda: path.exists() and path.read_text().count("again\n") >= 3)
        await kept.stop()

    asyncio.run(scene())
    assert path.read_text().splitlines()[:3] == ["again"] * 3


def test_one_that_cannot_be_started_is_told_of_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        kept = SupervisedProcess("nothing is done", 0.01)
        kept.start(("/nowhere/opsk",))
        await until(lambda: len(caplog.records) >= 2)
        await kept.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(scene())
    assert caplog.records[0].getMessage() == "nothing is done: No such file or directory"


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_one_that_dies_before_it_is_handed_anything_is_started_again(loop: str) -> None:
    """On a busy machine seconds lie between the start of a process and what it is given first."""
    begun: list[int] = []

    async def hand_over(process: RunningProcess) -> None:
        begun.append(process.pid)
        if len(begun) < 3:
            process.kill()
            await asyncio.sleep(0.2)  # its pipes are closed now
        assert process.stdin is not None
        for _ in range(64):
            process.stdin.write(b"x" * 65536)

    async def scene() -> None:
        kept = SupervisedProcess("nothing is handed over", 0.01, hand_over)
        kept.start(WAITS)
        await until(lambda: len(begun) == 3)
        assert kept.process is not None
        await kept.stop()

    new_loop = pytest.importorskip("uvloop").new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scene())
