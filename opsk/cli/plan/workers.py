"""How do several processes search one space? Each has a part; what they know is joined as it comes in.

The first process is this one. The others know nothing of the terminal: Ctrl-C is this one's to handle, which ends them.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from opsk.errors import UnavailableError
from opsk.planning.search.cases import searched_cases
from opsk.planning.search.found import Found
from opsk.planning.search.front import Front
from opsk.planning.search.parts import FIRST_ROWS, all_joined, lists_of, part_of, with_lists
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.search import WALKED, searched
from opsk.planning.search.space import Space, space_of
from opsk.spawning import safe_imports

TOLD_EVERY_S = 0.1
"""A worker says at most so often how far it is."""
_END_S = 2.0
"""A worker that was told to end has so long before it is killed."""
_WAIT_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What one process does: search its part of a space, bounded by what is known of the whole."""

    number: int
    space: Space
    known: Found | None
    walk: bool
    front: bool

    def run(self) -> Iterator[Found]:
        """Yield what is known of the part after every batch."""
        return searched(self.space, known=self.known, walk=self.walk, front=self.front)


def shared_search(
    requests: Sequence[PlanRequest], workers: int, *, walk: bool | None = None, front: bool = False
) -> Generator[Found, None, None]:
    """Yield what several processes know together of the spaces of some requests, at last of all of them.

    Until the others are up this process searches alone: what takes no longer than that needs none of them. Closing the
    iterator ends them.

    Raises
    ------
    UnavailableError
        A process was killed, as happens where memory runs out.
    """
    if workers <= 1:
        yield from searched_cases(requests, walk=walk, front=front)
        return
    with _started(workers - 1) as others:
        done: Found | None = None
        for request in requests:
            found = done
            for part in _shared(others, space_of(request), walk=walk, front=front):
                found = done.joined(part) if done else part
                yield found
            done = found


def _shared(others: _Others, space: Space, *, walk: bool | None, front: bool) -> Iterator[Found]:
    """Yield what is known of one space: first by this process alone, then by all."""
    walks = space.size <= WALKED if walk is None else walk
    known = Found(most=space.request.most)
    for known in searched(space, walk=walks, front=front):
        yield known
        if space.size > WALKED and known.evaluated >= FIRST_ROWS and known.best and others.are_up():
            break
    else:
        return
    lists, parts = lists_of(known), len(others.processes) + 1
    tasks = [
        Task(
            number=number, space=part_of(space, number, parts), known=None if walks else lists, walk=walks, front=front
        )
        for number in range(parts)
    ]
    latest = [Found(most=known.most, space=task.space.size, front=Front() if front else None) for task in tasks]
    others.give(tasks[1:])
    told_s = time.monotonic()
    for found in tasks[0].run():
        latest[0] = found
        if time.monotonic() - told_s >= TOLD_EVERY_S:  # joining long lists takes longer than a batch of plans
            others.take(latest)
            yield with_lists(all_joined(latest), lists)
            told_s = time.monotonic()
    while others.busy:
        yield with_lists(all_joined(latest), lists)
        others.take(latest, wait_s=_WAIT_S)
    yield with_lists(all_joined(latest), lists)


class _Others:
    """The processes that were started, with a pipe to each; those that are up, and those that have a task."""

    def __init__(self) -> None:
        self.processes: dict[int, SpawnProcess] = {}
        self.pipes: dict[int, Connection] = {}
        self.up: set[int] = set()
        self.busy: set[int] = set()

    def start(self, number: int) -> None:
        """Start the process of one part."""
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=_work, args=(there,), daemon=True, name=f"opsk-plan-{number}")
        with safe_imports():
            process.start()
        there.close()  # so that its end is seen here when the process ends
        self.processes[number], self.pipes[number] = process, here

    def are_up(self) -> bool:
        """Return whether all processes have said that they are ready for a task."""
        for number in self.processes.keys() - self.up:
            if self.pipes[number].poll():
                self._said(number)
                self.up.add(number)
        return len(self.up) == len(self.processes)

    def give(self, tasks: Sequence[Task]) -> None:
        """Give each process its task."""
        for task in tasks:
            try:
                self.pipes[task.number].send(task)
            except OSError as error:
                raise self._lost(task.number) from error
            self.busy.add(task.number)

    def take(self, latest: list[Found], *, wait_s: float = 0.0) -> None:
        """Take what the processes that have a task have said since."""
        ready = wait([self.pipes[number] for number in self.busy], timeout=wait_s)
        for number in [number for number in self.busy if self.pipes[number] in ready]:
            while number in self.busy and self.pipes[number].poll():
                latest[number], is_last = self._said(number)
                if is_last:
                    self.busy.remove(number)

    def end(self) -> None:
        """End all processes that still run, each by its own id."""
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

    def _said(self, number: int) -> Any:
        """Return the next that a process has said.

        Raises
        ------
        UnavailableError
            It ended before it had said all.
        """
        try:
            return self.pipes[number].recv()
        except (EOFError, OSError) as error:
            raise self._lost(number) from error

    def _lost(self, number: int) -> UnavailableError:
        """Return the error that says that a process is gone."""
        process = self.processes[number]
        process.join(_END_S)
        return UnavailableError(
            f"process {process.pid}, one of {len(self.processes) + 1} that search, ended with status "
            f"{process.exitcode} before it was done",
            hint="was it killed for memory? ask for fewer --workers, or for --array",
        )


@contextmanager
def _started(count: int) -> Iterator[_Others]:
    """Start so many processes, for parts 1 and up, and end all of them however this ends."""
    others = _Others()
    try:
        with _ctrl_c_ignored():
            for number in range(1, count + 1):
                others.start(number)
        yield others
    finally:
        others.end()


@contextmanager
def _ctrl_c_ignored() -> Iterator[None]:
    """Let processes that are started inherit that Ctrl-C is not for them; it takes milliseconds."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _work(pipe: Connection) -> None:
    """Search each part that comes and say how far it is; the first process may be gone, then nobody listens."""
    with suppress(BrokenPipeError, ConnectionResetError, EOFError):
        pipe.send(None)
        while True:
            task: Task = pipe.recv()
            found, told_s = Found(), time.monotonic()
            for found in task.run():
                if time.monotonic() - told_s >= TOLD_EVERY_S:
                    pipe.send((replace(found, accepts=None), False))
                    told_s = time.monotonic()
            pipe.send((replace(found, accepts=None), True))
