"""Runs a soak: starts the site, submits jobs and injects faults as planned, and collects the results."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from opsk.lab.lifecycle import take_down
from opsk.lab.processes import identify
from tests.soak.checks import Check, Soaked, check
from tests.soak.daemons import read_name
from tests.soak.faults import FAULTS, FaultDone, do
from tests.soak.gauges import Gauges
from tests.soak.planned import Plan, planned
from tests.soak.site import OPSK, SLOWEST_S, Site, left_processes, site_up
from tests.soak.submitting import Submissions
from tests.soak.truth import caught_up, look, settled, spooled

CATCHES_UP_S = 600.0
"""What the store's writer had in its hands when it was killed is told again after 300 s (`missed_jobs.TELL_AGAIN_S`);
and the writer runs at a low priority, so that it is late where others use all processors."""
GONE_WITHIN_S = 10.0
"""What a daemon has started has so long to end after it."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How big a soak is.

    Parameters
    ----------
    alone
        Nodes of their own for what breaks nodes.
    hold_s
        How long a fault lasts that lasts.
    collect_every_s
        What opsk-collector.timer does in between.
    settle_s
        How long everything may take to come to rest.
    """

    nodes: int
    alone: int
    jobs: int
    span_s: float
    faults: int
    hold_s: float
    collect_every_s: float
    settle_s: float
    disk_bytes: int


LONG = Size(nodes=64, alone=4, jobs=1000, span_s=1200.0, faults=36, hold_s=20.0, collect_every_s=60.0,
            settle_s=1800.0, disk_bytes=512 << 20)  # fmt: skip
SHORT = Size(nodes=6, alone=2, jobs=40, span_s=110.0, faults=0, hold_s=6.0, collect_every_s=10.0, settle_s=300.0,
             disk_bytes=96 << 20)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a soak."""

    size: Size
    soaked: Soaked
    checks: list[Check]
    not_here: dict[str, str]
    began_s: float
    wall_s: dict[str, float]


def soak(size: Size, seed: int, top: Path, say: Say) -> Result:
    """Run a whole soak in an empty folder."""
    began_s, started = time.time(), time.monotonic()
    wall_s: dict[str, float] = {}
    with site_up(top, nodes=size.nodes, alone=size.alone, disk_bytes=size.disk_bytes) as site:
        wall_s["up"] = time.monotonic() - started
        allowed = [name for name in FAULTS if name not in site.not_here]
        for name, why in site.not_here.items():
            say(f"SKIPPED {name}: {why}")
        plan = planned(
            seed, jobs=size.jobs, span_s=size.span_s, alone=site.alone, users=len(site.users), faults=allowed,
            fault_count=size.faults,
        )  # fmt: skip
        say(f"{plan.job_count} jobs in {len(plan.jobs)} submissions, {len(plan.faults)} faults, seed {seed}")
        submissions, gauges = Submissions(site), _gauges(site)
        gauges.watch()
        faults = _run(plan, site, submissions, size, say)
        wall_s["jobs and faults"] = time.monotonic() - started - sum(wall_s.values())
        settled(site, size.settle_s, sum(job.kind.tasks for job in plan.jobs if job.number in submissions.ids))
        caught_up(site, CATCHES_UP_S)
        wall_s["to rest"] = time.monotonic() - started - sum(wall_s.values())
        gauges.leave()
        left = _end(site)
        soaked = Soaked(
            plan=plan, site=site, submissions=submissions, faults=faults, gauges=gauges, truth=look(site), left=left
        )
        site.daemons.leave()
        take_down(top / "lab", site.record)
        soaked = replace(soaked, left=(*left, *(f"process {pid}" for pid in left_processes(site))))
        checks = check(soaked)
        wall_s["looking"] = time.monotonic() - started - sum(wall_s.values())
        return Result(
            size=size, soaked=soaked, checks=checks, not_here=dict(site.not_here), began_s=began_s, wall_s=wall_s
        )


def _gauges(site: Site) -> Gauges:
    exporters = [f"exporter-{node}" for node in site.record.shape.names]
    return Gauges(site.daemons, ("advisor", "recorder", "devices", *exporters))


def _run(plan: Plan, site: Site, submissions: Submissions, size: Size, say: Say) -> list[FaultDone]:
    """Submit all jobs and do all faults; returns when both are over."""
    began, stopped = time.monotonic(), threading.Event()
    jobs = [job for job in plan.jobs if not job.node]
    threads = [*submissions.run_shared(jobs, began), *submissions.run_alone(plan.jobs, began)]
    helpers = [
        threading.Thread(target=submissions.cancel_running, args=(jobs, stopped), name="canceller", daemon=True),
        threading.Thread(target=_collect, args=(site, stopped, size.collect_every_s), name="timer", daemon=True),
    ]
    for helper in helpers:
        helper.start()
    done: list[FaultDone] = []
    for fault in plan.faults:
        time.sleep(max(0.0, began + fault.at_s - time.monotonic()))
        done.append(do(fault, site, size.hold_s))
        say(f"{done[-1].began_s - time.time() + time.monotonic() - began:7.1f} s  {fault.name}: {done[-1].what}")
    for thread in threads:
        thread.join()
    wanted = sum(job.kind.tasks for job in plan.jobs if job.number in submissions.ids)
    settled(site, size.settle_s, wanted)
    stopped.set()
    for helper in helpers:
        helper.join()
    return done


def _collect(site: Site, stopped: threading.Event, every_s: float) -> None:
    """Do what opsk-collector.timer does: what an epilog's collector left behind is done now."""
    while not stopped.wait(every_s):
        for node in site.record.shape.names:
            folder = site.node_folder(node)
            if any(folder.glob("spool/ended/[!.]*")) or any(folder.glob("spool/reports/[!.]*")):
                more = {
                    "OPSK_CONFIG": str(folder / "opsk.toml"), "OPSK_JOBS_FOLDER": str(folder / "jobs"),
                    "TMPDIR": str(site.top / "tmp"), "SLURMD_NODENAME": node,
                }  # fmt: skip
                with suppress(Exception):
                    site.run(*OPSK, "collect", "--ended", more=more, within_s=SLOWEST_S)


def _end(site: Site) -> list[str]:
    """End opsk's daemons well, and return what is left of them."""
    left: list[str] = []
    names = [name for name in site.daemons.names if name.startswith(("advisor", "recorder", "exporter-"))]
    for name in names:
        children = site.daemons.children(name)
        site.daemons.end(name)
        end = time.monotonic() + GONE_WITHIN_S
        while any(_is_there(pid, line) for pid, line in children.items()) and time.monotonic() < end:
            time.sleep(0.1)
        left += [f"{name} left {line[:80]}" for pid, line in children.items() if _is_there(pid, line)]
    if (socket := site.record.folder.run / "advisor.sock").exists():
        left.append(f"socket {socket.name}")
    left += [f"temporary file {name}" for name in site.left_in_tmp()]
    left += [f"note {path.name} in {path.parent}" for path in spooled(site)]
    left += [f"note {path.name} of a prolog" for path in site.record.folder.nodes.glob("*/jobs/*[!e]")]
    left += [f"snapshot {path.name} of a start" for path in site.record.folder.nodes.glob("*/spool/started/*")]
    return left


def _is_there(pid: int, line: str) -> bool:
    process = identify(pid)
    return process is not None and read_name(process) == line
