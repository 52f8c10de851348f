"""What goes wrong during a soak: each fault by its name, done to the real thing, and undone."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from opsk.lab.processes import send
from tests.fakes.own_advisor import answers
from tests.soak.planned import PlannedFault
from tests.soak.site import CLOCKED, CTLD_TIMEOUT_S, Site

STEP_S = 3600
CHILD_WITHIN_S = 60.0
"""The advisor starts a child that has died again after up to half a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultDone:
    """What was done when; ``ended_s`` is when all of it was well again, ``killed`` whose own memory is lost."""

    name: str
    what: str
    began_s: float
    ended_s: float
    killed: tuple[str, ...] = ()

    def overlaps(self, from_s: float, until_s: float, *, slack_s: float = 0.0) -> bool:
        """Tell whether it fell into a time."""
        return self.began_s - slack_s <= until_s and from_s <= self.ended_s + slack_s


@dataclass(frozen=True, slots=True)
class Doing:
    """What a fault has to work with: the site, a number that was drawn, and how long a state holds [s]."""

    site: Site
    draw: int
    hold_s: float

    def rest(self, share: float = 1.0) -> None:
        """Let it be so for a while."""
        time.sleep(self.hold_s * share)


def do(fault: PlannedFault, site: Site, hold_s: float) -> FaultDone:
    """Do one fault and undo it."""
    began_s = time.time()
    what = FAULTS[fault.name](Doing(site, fault.draw, hold_s))
    killed = KILLS.get(fault.name, ())
    return FaultDone(name=fault.name, what=what, began_s=began_s, ended_s=time.time(), killed=killed)


def _kill(name: str) -> Callable[[Doing], str]:
    def kill(at: Doing) -> str:
        at.site.daemons.kill(name)
        time.sleep(0.5)
        at.site.daemons.await_running(name)
        return f"{name} killed, started again"

    return kill


def _kill_child(words: tuple[str, ...], shown: str) -> Callable[[Doing], str]:
    def kill(at: Doing) -> str:
        found: list[int] = []
        end = time.monotonic() + CHILD_WITHIN_S
        while not found and time.monotonic() < end:
            if answers(at.site.record.folder.run / "advisor.sock"):  # what dies at its start is its own affair
                children = at.site.daemons.children("advisor")
                found = [pid for pid, line in children.items() if any(word in line for word in words)]
            time.sleep(0.2)
        for pid in found[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return f"{shown} {found[0]} killed" if found else f"no {shown} was there"

    return kill


def _down(name: str, number: signal.Signals) -> Callable[[Doing], str]:
    """Return what ends a daemon, leaves it so for a while, and starts it."""

    def down(at: Doing) -> str:
        at.site.daemons.end(name, number)
        at.rest()
        at.site.daemons.start(name)
        return f"{name} ended by {number.name}, away for {at.hold_s:.0f} s"

    return down


def _exporter(at: Doing) -> str:
    names = [name for name in at.site.daemons.names if name.startswith("exporter-")]
    return _kill(names[at.draw % len(names)])(at)


def _slurmd(at: Doing) -> str:
    node = at.site.shared_nodes[at.draw % len(at.site.shared_nodes)]
    return _kill(f"slurmd-{node}")(at)


def _collectors(at: Doing) -> str:
    """Kill whatever just now keeps evidence or writes reports, as soon as anything does."""
    end = time.monotonic() + 15
    while time.monotonic() < end:
        found = [*at.site.daemons.of_lab("opsk", "collect"), *at.site.daemons.of_lab("opsk", "--automatic")]
        if found:
            for process in found:
                send(process, signal.SIGKILL)
            return f"{len(found)} processes killed that kept evidence or wrote reports"
        time.sleep(0.05)
    return "nobody kept evidence within 15 s"


def _hang(at: Doing) -> str:
    process = at.site.daemons.process("advisor")
    if process is None:
        return "no advisor was there"
    send(process, signal.SIGSTOP)
    at.rest(0.5)
    send(process, signal.SIGCONT)
    return f"advisor stopped for {at.hold_s / 2:.0f} s"


def _disk_full(at: Doing) -> str:
    filler = at.site.disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        room = os.fstatvfs(file.fileno())
        os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize)
    end = time.monotonic() + at.hold_s
    while time.monotonic() < end:
        with filler.open("ab", buffering=0) as file, suppress(OSError):  # what others give back is taken as well
            while True:
                file.write(bytes(4096))
        time.sleep(0.2)
    size_bytes = filler.stat().st_size
    filler.unlink()
    return f"disk of audit log, store and evidence full for {at.hold_s:.0f} s ({size_bytes >> 20} MiB taken)"


def _clock_step(at: Doing) -> str:
    name = CLOCKED[at.draw % len(CLOCKED)]
    step_s = STEP_S if at.draw // 8 % 2 else -STEP_S
    clock = at.site.clocks / name
    _set(clock, f"{step_s:+d}\n")
    at.rest()
    _set(clock, "+0\n")
    time.sleep(2.0)
    return f"clock of {name} {step_s:+d} s for {at.hold_s:.0f} s"


def _set(clock: Path, text: str) -> None:
    new = clock.with_suffix(".new")
    new.write_text(text)
    new.replace(clock)


def _controller(at: Doing) -> str:
    at.site.daemons.replace("slurmctld")
    return "slurmctld ended and started again"


def _fail_over(at: Doing) -> str:
    """Leave the first slurmctld away until the second one answers, then let it come back."""
    daemons, began = at.site.daemons, time.monotonic()
    daemons.end("slurmctld")
    took = None
    while time.monotonic() - began < 6 * CTLD_TIMEOUT_S:
        if at.site.run("sinfo", "-h", "-o", "%D").returncode == 0:
            took = time.monotonic() - began
            break
        time.sleep(0.5)
    at.rest()
    daemons.start("slurmctld")
    while time.monotonic() - began < 12 * CTLD_TIMEOUT_S:
        if at.site.run("scontrol", "ping").stdout.split("\n")[0].endswith("is UP"):
            break
        time.sleep(0.5)
    if took is None:
        return "the second slurmctld did not take over"
    back_s = time.monotonic() - began - took
    return f"second slurmctld took over after {took:.0f} s, the first came back {back_s:.0f} s later"


FAULTS: dict[str, Callable[[Doing], str]] = {
    "advisor killed": _kill("advisor"),
    "advisor's worker killed": _kill_child(("opsk worker",), "worker"),
    "advisor's watcher killed": _kill_child(("opsk watcher",), "watcher"),
    "advisor's writer killed": _kill_child(("opsk_jobcheck.records.recorder",), "writer of records"),
    "advisor hangs": _hang,
    "recorder killed": _kill("recorder"),
    "exporter killed": _exporter,
    "collectors killed": _collectors,
    "slurmd killed": _slurmd,
    "slurmdbd killed": _down("slurmdbd", signal.SIGKILL),
    "MariaDB restarted": _down("mariadbd", signal.SIGTERM),
    "disk full": _disk_full,
    "clock step": _clock_step,
    "slurmctld restarted": _controller,
    "fail-over": _fail_over,
}
KILLS = {
    "advisor killed": ("advisor",), "advisor's writer killed": ("writer",), "recorder killed": ("recorder",),
}  # fmt: skip
