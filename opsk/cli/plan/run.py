"""Runs a search, in one process or several, with a progress bar after one second; Ctrl-C keeps the best result so far.

Of several processes each searches a part, and their results are joined as they arrive. The first process is this one.
The others ignore the terminal: this process handles Ctrl-C and ends them.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from opsk.errors import UnavailableError
from opsk.planning.search.parts import FIRST_ROWS, add_lists, extract_lists, join_all, select_part
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.result import Front, SearchResult
from opsk.planning.search.search import WALKED, search_cases, search_space
from opsk.planning.search.space import Space, build_space
from opsk.spawning import safe_imports
from opsk.text import format_duration

QUIET_S = 1.0
"""No bar is shown before."""
_BAR = 12
REPORT_INTERVAL_S = 0.1
"""Minimum time between two reports of a worker."""
_END_S = 2.0
"""Time between terminating and killing a worker."""
_WAIT_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRun:
    """The result of a search, its duration, and whether it was interrupted."""

    result: SearchResult
    seconds: float
    interrupted: bool


def run_search(search: Iterator[SearchResult]) -> SearchRun:
    """Run a search to its end, or until it is interrupted: then some plans are neither evaluated nor bounded.

    Raises
    ------
    KeyboardInterrupt
        It was interrupted before any plan was found that fits.
    """
    start, result, interrupted = time.monotonic(), SearchResult(), False
    try:
        with _open_bar(start) as show:
            for result in search:
                show(result)
    except KeyboardInterrupt:
        if not result.best:
            raise
        interrupted = True
    return SearchRun(result=result, seconds=time.monotonic() - start, interrupted=interrupted)


class _Bar:
    """A bar on stderr that appears after a second."""

    def __init__(self, start_s: float) -> None:
        self.start_s, console = start_s, Console(file=sys.stderr)
        self.progress = Progress(
            TextColumn("opsk:"),
            BarColumn(bar_width=_BAR),
            TextColumn("{task.fields[done]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.task: TaskID | None = None

    def __call__(self, result: SearchResult) -> None:
        """Show the progress of a search."""
        if self.task is None:
            if time.monotonic() - self.start_s < QUIET_S:
                return
            self.progress.start()
            self.task = self.progress.add_task("", total=float(result.space or 1), done="")
        best = f", best {format_duration(result.best[0].step_s)} a step" if result.best else ""
        done = result.evaluated + result.bounded
        words = f"{done:,} of {result.space:,} plans{best}"
        self.progress.update(self.task, completed=float(done), total=float(result.space or 1), done=words)


@contextmanager
def _open_bar(start_s: float) -> Iterator[_Bar]:
    """Provide a progress bar, and remove it at the end."""
    bar = _Bar(start_s)
    try:
        yield bar
    finally:
        if bar.task is not None:
            bar.progress.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The task of one process: search its part of a space, bounded by the known results of the whole."""

    number: int
    space: Space
    known: SearchResult | None
    walk: bool
    front: bool

    def run(self) -> Iterator[SearchResult]:
        """Yield the result of the part after every batch."""
        return search_space(self.space, known=self.known, walk=self.walk, front=self.front)


def search_in_processes(
    requests: Sequence[PlanRequest], workers: int, *, walk: bool | None = None, front: bool = False
) -> Generator[SearchResult, None, None]:
    """Yield the joint results of several processes for some requests; the last result covers all of them.

    Until the workers are up this process searches alone: short searches need no workers. Closing the iterator ends
    them.

    Raises
    ------
    UnavailableError
        A process was killed, for example when memory ran out.
    """
    if workers <= 1:
        yield from search_cases(requests, walk=walk, front=front)
        return
    with _start_workers(workers - 1) as pool:
        done: SearchResult | None = None
        for request in requests:
            result = done
            for part in _search_shared(pool, build_space(request), walk=walk, front=front):
                result = done.merge(part) if done else part
                yield result
            done = result


def _search_shared(pool: _WorkerPool, space: Space, *, walk: bool | None, front: bool) -> Iterator[SearchResult]:
    """Yield the results of one space: first of this process alone, then of all."""
    walks = space.size <= WALKED if walk is None else walk
    known = SearchResult(most=space.request.most)
    for known in search_space(space, walk=walks, front=front):
        yield known
        if space.size > WALKED and known.evaluated >= FIRST_ROWS and known.best and pool.are_up():
            break
    else:
        return
    lists, parts = extract_lists(known), len(pool.processes) + 1
    tasks = [
        Task(
            number=number,
            space=select_part(space, number, parts),
            known=None if walks else lists,
            walk=walks,
            front=front,
        )
        for number in range(parts)
    ]
    latest = [SearchResult(most=known.most, space=task.space.size, front=Front() if front else None) for task in tasks]
    pool.send_tasks(tasks[1:])
    reported_s = time.monotonic()
    for result in tasks[0].run():
        latest[0] = result
        if time.monotonic() - reported_s >= REPORT_INTERVAL_S:  # joining long lists takes longer than a batch of plans
            pool.receive(latest)
            yield add_lists(join_all(latest), lists)
            reported_s = time.monotonic()
    while pool.busy:
        yield add_lists(join_all(latest), lists)
        pool.receive(latest, wait_s=_WAIT_S)
    yield add_lists(join_all(latest), lists)


class _WorkerPool:
    """The worker processes, with a pipe to each; those that are ready, and those that have a task."""

    def __init__(self) -> None:
        self.processes: dict[int, SpawnProcess] = {}
        self.pipes: dict[int, Connection] = {}
        self.up: set[int] = set()
        self.busy: set[int] = set()

    def start(self, number: int) -> None:
        """Start the process of one part."""
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=_run_worker, args=(there,), daemon=True, name=f"opsk-plan-{number}")
        with safe_imports():
            process.start()
        there.close()  # so that this end sees EOF when the process ends
        self.processes[number], self.pipes[number] = process, here

    def are_up(self) -> bool:
        """Return whether all processes have reported that they are ready."""
        for number in self.processes.keys() - self.up:
            if self.pipes[number].poll():
                self._receive_one(number)
                self.up.add(number)
        return len(self.up) == len(self.processes)

    def send_tasks(self, tasks: Sequence[Task]) -> None:
        """Send each process its task."""
        for task in tasks:
            try:
                self.pipes[task.number].send(task)
            except OSError as error:
                raise self._build_lost_error(task.number) from error
            self.busy.add(task.number)

    def receive(self, latest: list[SearchResult], *, wait_s: float = 0.0) -> None:
        """Receive the reports of the busy processes."""
        ready = wait([self.pipes[number] for number in self.busy], timeout=wait_s)
        for number in [number for number in self.busy if self.pipes[number] in ready]:
            while number in self.busy and self.pipes[number].poll():
                latest[number], is_last = self._receive_one(number)
                if is_last:
                    self.busy.remove(number)

    def end(self) -> None:
        """End all running processes, each by its own id."""
        for process in self.processes.values():
            process.terminate()
        deadline = time.monotonic() + _END_S
        for process in self.processes.values():
            process.join(max(deadline - time.monotonic(), 0.0))
            if process.exitcode is None:
                process.kill()
                process.join()
        for pipe in self.pipes.values():
            pipe.close()

    def _receive_one(self, number: int) -> Any:
        """Return the next report of a process.

        Raises
        ------
        UnavailableError
            It ended before its last report.
        """
        try:
            return self.pipes[number].recv()
        except (EOFError, OSError) as error:
            raise self._build_lost_error(number) from error

    def _build_lost_error(self, number: int) -> UnavailableError:
        """Return the error for a process that has ended."""
        process = self.processes[number]
        process.join(_END_S)
        return UnavailableError(
            f"process {process.pid}, one of {len(self.processes) + 1} that search, ended with status "
            f"{process.exitcode} before it was done",
            hint="was it killed for memory? ask for fewer --workers, or for --array",
        )


@contextmanager
def _start_workers(count: int) -> Iterator[_WorkerPool]:
    """Start ``count`` processes, for parts 1 and up, and end all of them at exit."""
    pool = _WorkerPool()
    try:
        with _ignore_ctrl_c():
            for number in range(1, count + 1):
                pool.start(number)
        yield pool
    finally:
        pool.end()


@contextmanager
def _ignore_ctrl_c() -> Iterator[None]:
    """Let started processes inherit an ignored SIGINT; it takes milliseconds."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _run_worker(pipe: Connection) -> None:
    """Search each received part and report progress; errors of a closed pipe are ignored."""
    with suppress(BrokenPipeError, ConnectionResetError, EOFError):
        pipe.send(None)
        while True:
            task: Task = pipe.recv()
            result, reported_s = SearchResult(), time.monotonic()
            for result in task.run():
                if time.monotonic() - reported_s >= REPORT_INTERVAL_S:
                    pipe.send((replace(result, accepts=None), False))
                    reported_s = time.monotonic()
            pipe.send((replace(result, accepts=None), True))
