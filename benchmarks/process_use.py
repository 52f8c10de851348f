"""Reads a process's CPU time and memory, as the kernel counts them."""

from __future__ import annotations

import math
import os
import resource
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import psutil

Answer = TypeVar("Answer")
KIB = 1 << 10


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process, without its children [s]; the kernel counts in hundredths."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def family_cpu_s() -> float:
    """Return the CPU time of this process, and of all that it started and has waited for [s]."""
    return time.process_time() + children_cpu_s()


def children_cpu_s() -> float:
    """Return the CPU time of all processes that this one has started and waited for, and theirs [s]."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def rss_bytes(pid: int) -> int:
    """Return the resident memory of a process, pages shared with others included."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def own_peak_bytes() -> int:
    """Return the most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB


def time_call(what: Callable[[], Answer]) -> tuple[Answer, float, float]:
    """Return the answer of a call, its wall time and its CPU time [s]."""
    wall, cpu = time.perf_counter(), time.process_time()
    answer = what()
    return answer, time.perf_counter() - wall, time.process_time() - cpu


@contextmanager
def on_one_core(*pids: int) -> Iterator[None]:
    """Keep this process and others on one core for a while.

    Who asks and who answers are never busy at once. On cores of their own each of them goes to sleep in between, and
    how long a virtual core takes to wake up is the hypervisor's.
    """
    everyone, cores = (0, *pids), os.sched_getaffinity(0)
    for pid in everyone:
        os.sched_setaffinity(pid, {max(cores)})
    try:
        yield
    finally:
        for pid in everyone:
            os.sched_setaffinity(pid, cores)


def median_p99(times: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile of some times."""
    return statistics.median(times), sorted(times)[math.ceil(0.99 * (len(times) - 1))]


class Peak(threading.Thread):
    """Watches the resident memory of a process and its children."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.bytes = 0
        self._process = psutil.Process(pid)
        self._ends = threading.Event()

    def run(self) -> None:
        while not self._ends.wait(0.05):
            try:
                family = [self._process, *self._process.children(recursive=True)]
                used = sum(each.memory_info().rss for each in family)
            except psutil.Error:
                time.sleep(0.01)
                continue
            self.bytes = max(self.bytes, used)

    def stop(self) -> None:
        self._ends.set()
        self.join()
