"""Runs tests in processes that are forked once all are collected: ``pytest -p tests.side_by_side --processes=all``.

Each takes one file after another, and sends its reports to the first, which prints them. pytest-xdist can do more and
costs more: each of its workers imports and collects all tests again, and sends six messages for each. Half of the
core's 14,600 tests take a millisecond: what it needed for them was twice that.
"""

from __future__ import annotations

import atexit
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from mmap import mmap
from multiprocessing.connection import Connection, Pipe, wait
from struct import Struct
from time import monotonic
from types import ModuleType
from typing import Never

import pytest

_MOST_PROCESSES = 16
_QUICK_S = 0.005
"""``--durations`` lists no phase of a test that is quicker."""
_SENT_EVERY_S = 0.5
_RUNNING = Struct("=I")
"""Where a process says which test it runs: should it crash, the first reads it there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    pid: int
    running: mmap


@dataclass(frozen=True, slots=True, kw_only=True)
class _Warned:
    text: str
    place: tuple[str, int]
    nodeid: str

    def record(self, config: pytest.Config) -> None:
        """Let pytest print it at the end."""
        warning = warnings.WarningMessage(Warning(self.text), Warning, *self.place)
        config.hook.pytest_warning_recorded.call_historic(
            kwargs={"warning_message": warning, "nodeid": self.nodeid, "when": "runtest", "location": None}
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", default="1", help="how many run tests; 'all': one a processor, 16 at the most")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run all tests in processes; ``None`` leaves it to pytest: to list them, say, or to run the tests of one file."""
    files = [list(items) for _, items in groupby(session.items, lambda item: item.path)]
    asked = session.config.getoption("processes")
    count = min(_MOST_PROCESSES if asked == "all" else int(asked), len(os.sched_getaffinity(0)), len(files))
    if count < 2 or session.config.option.collectonly or session.testsfailed:
        return None
    dealer = _Dealer(session, files)
    for _ in range(count):
        dealer.fork()
    dealer.run()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


class _Dealer:
    """The first process: deals files out to the others, and prints what they report."""

    def __init__(self, session: pytest.Session, files: Sequence[Sequence[pytest.Item]]) -> None:
        self._session, self._files = session, files
        self._dealt = 0
        self._processes: dict[Connection, _Process] = {}

    def fork(self) -> None:
        """Start one more process."""
        own, other = Pipe()
        running = mmap(-1, _RUNNING.size)
        self._session.config.get_terminal_writer().flush()
        pid = os.fork()
        if pid == 0:
            for connection in (own, *self._processes):
                connection.close()
            _work(self._session, self._files, other, running)
        other.close()
        self._processes[own] = _Process(pid=pid, running=running)

    def run(self) -> None:
        """Serve the processes until all have ended."""
        try:
            while self._processes:
                for connection in wait(list(self._processes)):
                    assert isinstance(connection, Connection)
                    self._serve(connection)
        finally:
            for connection, process in self._processes.items():
                connection.close()
                os.waitpid(process.pid, 0)

    def _serve(self, connection: Connection) -> None:
        try:
            message = connection.recv()
        except (EOFError, ConnectionResetError):
            self._end(connection)
            return
        if message is None:
            over = self._session.shouldfail or self._session.shouldstop or self._dealt == len(self._files)
            connection.send(None if over else self._dealt)
            self._dealt += not over
            return
        config = self._session.config
        for sent in message:
            if isinstance(sent, _Warned):
                sent.record(config)
                continue
            report = config.hook.pytest_report_from_serializable(config=config, data=sent)
            config.hook.pytest_runtest_logreport(report=report)
            config.hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)

    def _end(self, connection: Connection) -> None:
        process = self._processes.pop(connection)
        connection.close()
        status = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
        if status:
            (index,) = _RUNNING.unpack_from(process.running)
            test = self._session.items[index].nodeid
            raise self._session.Interrupted(f"{test} ended its process with status {status}")


class _Reporter:
    """Sends the reports of a process to the first, several at once."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config, self._connection = config, connection
        self._reports: list[dict[str, object] | _Warned] = []
        self._sent_at = 0.0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send what there is to print; of a set-up that succeeded at once there is nothing."""
        if report.when == "call" or not report.passed or report.duration >= _QUICK_S:
            hook = self._config.hook
            self._reports.append(hook.pytest_report_to_serializable(config=self._config, report=report))
        if not report.passed or monotonic() > self._sent_at + _SENT_EVERY_S:
            self.send()

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, nodeid: str) -> None:
        """Send a warning with the next reports."""
        text = f"{warning_message.category.__name__}: {warning_message.message}"
        place = (warning_message.filename, warning_message.lineno)
        self._reports.append(_Warned(text=text, place=place, nodeid=nodeid))

    def send(self) -> None:
        """Send what was not sent."""
        if self._reports:
            self._connection.send(self._reports)
        self._reports, self._sent_at = [], monotonic()


def _work(
    session: pytest.Session, files: Sequence[Sequence[pytest.Item]], connection: Connection, running: mmap
) -> Never:
    """Run tests in a process that was forked, and end it."""
    status = 1
    try:
        reporter = _Reporter(session.config, connection)
        _stand_alone(session.config, reporter)
        numbers = {item: number for number, item in enumerate(session.items)}
        for item, following in pairwise(chain(_dealt(files, connection), [None])):
            assert item is not None
            _RUNNING.pack_into(running, 0, numbers[item])
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail or session.shouldstop:
                break
        reporter.send()
        status = 0
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        pass  # the first process ends as well, and says why
    except BaseException:  # noqa: BLE001 (an error of pytest itself: nothing of it may go on in a fork)
        traceback.print_exc(file=sys.__stderr__)
    finally:
        with suppress(Exception):
            session._setupstate.teardown_exact(None)
        atexit._run_exitfuncs()
        os._exit(status)


def _stand_alone(config: pytest.Config, reporter: _Reporter) -> None:
    """Let a process write files and start processes as if it were the only one."""
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(reporter)
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    # A process that multiprocessing starts imports the main module of this one: it is to be none of pytest's.
    sys.modules["__main__"] = ModuleType("__main__")


def _dealt(files: Sequence[Sequence[pytest.Item]], connection: Connection) -> Iterator[pytest.Item]:
    while True:
        connection.send(None)
        dealt = connection.recv()
        if dealt is None:
            return
        yield from files[dealt]
