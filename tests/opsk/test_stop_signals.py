"""A process that waits for its end hears SIGTERM and SIGINT in every state, and nothing else."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

WAITS = """
import signal, sys, threading
from opsk.stop_signals import StopSignals
signal.signal(signal.SIGUSR1, lambda *_: None)
stops = StopSignals()
print("ready", flush=True)
{wait}
print("stopped", flush=True)
"""


def start(wait: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WAITS.format(wait=wait)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("wait", ["stops.wait()", "while not stops.wait(0.0001): pass"])
def test_it_ends_by_either_signal_whether_it_waits_or_looks(number: signal.Signals, wait: str) -> None:
    with start(wait) as process:
        process.send_signal(number)
        said, _ = process.communicate(timeout=60)
    assert (said, process.returncode) == ("stopped\n", 0)


def test_another_signal_does_not_end_it() -> None:
    with start("print(stops.wait(0.5), flush=True); stops.wait()") as process:
        process.send_signal(signal.SIGUSR1)
        assert process.stdout is not None
        assert process.stdout.readline() == "False\n"
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=60)[0] == "stopped\n"


def test_a_signal_that_came_before_the_wait_is_not_lost() -> None:
    with start("signal.raise_signal(signal.SIGTERM); assert stops.wait(0); assert stops.wait()") as process:
        assert process.stdout is not None
        assert process.stdout.read() == "stopped\n"  # communicate() would lose what came together with the first line


def test_it_is_heard_when_another_thread_got_it() -> None:
    blocked = (
        "mask = {signal.SIGTERM}\n"
        "thread = threading.Thread(target=threading.Event().wait, daemon=True)\n"
        "thread.start()\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, mask)\n"
        "stops.wait()"
    )
    with start(blocked) as process:
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=60)[0] == "stopped\n"


def test_the_kernel_ends_it_where_something_holds_up_its_end_and_it_says_what() -> None:
    program = (
        "import atexit, threading\n"
        "from opsk.stop_signals import StopSignals\n"
        "lock = threading.Lock()\n"
        "def hold_up() -> None:\n"
        "    lock.acquire()\n"
        "    lock.acquire()\n"
        "atexit.register(hold_up)\n"
        "stops = StopSignals(0.5)\n"
        "print('ready', flush=True)\n"
        "stops.wait()\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGALRM
    assert "in hold_up" in said
