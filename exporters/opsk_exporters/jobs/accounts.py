"""How much has each job used of its GPUs since it began? Counters that grow from one look at the node to the next.

What a source counts by itself is taken from there (CPU time by the control group, allocated time from the start that
the prolog wrote down). Energy, busy time and idle time of a GPU are differences between two looks, and are kept here:
what lies between is lost only when no exporter ran and nothing was saved.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opsk.telemetry.gpu.gres_order import parents
from opsk.telemetry.gpu.job_gpus import JobGpu
from opsk.telemetry.gpu.samples import GpuReading
from opsk.telemetry.jobs.job_map import JobRun
from opsk.telemetry.power.balance import JobUse, share_energy
from opsk.units import MIB

_VERSION = 1
_MAX_BYTES = 16 * MIB


def state_file() -> Path | None:
    """Return where systemd gives the exporter a folder (``RuntimeDirectory=``); ``None`` elsewhere."""
    folder = os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    return Path(folder) / "jobs.json" if folder else None


def load_state(path: Path, boot: str) -> dict[str, Any] | None:
    """Return what was saved in this boot; ``None`` when there is nothing of use."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            return None
        said = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or said.get("version") != _VERSION or said.get("boot") != boot:
        return None
    return said


def save_state(path: Path, boot: str, accounts: dict[str, Any], settled: dict[str, list[str]]) -> bool:
    """Write the file, whole or not at all; return whether that worked."""
    said = {"version": _VERSION, "boot": boot, "accounts": accounts, "settled": settled}
    made = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        made.write_text(json.dumps(said), encoding="utf-8")
        made.replace(path)
    except OSError:
        return False
    return True


def boot_id(procfs: Path) -> str:
    """Return the kernel's name of this boot; empty where it has none."""
    try:
        return (procfs / "sys" / "kernel" / "random" / "boot_id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


LONGEST_GAP_S = 300.0
"""Looks further apart say nothing of the utilisation in between."""
_IDLE_BELOW = 0.005
"""Drivers tell utilisation in whole percent."""
KINDS = ("no_process", "no_work")


@dataclass(slots=True, kw_only=True)
class GpuAccount:
    """What one job used of one GPU so far; ``meter_j`` is the GPU's own counter at the last look [J]."""

    allocated_s: float = 0.0
    busy_s: float | None = None
    idle_s: dict[str, float] = field(default_factory=dict)
    energy_j: float | None = None
    meter_j: float | None = None


@dataclass(slots=True, kw_only=True)
class JobAccount:
    """What one run of a job used so far, and when it was last seen.

    ``grown`` holds counters of the control group so that they never fall, ``raw`` what they last read.
    """

    job: str
    since_unix_s: float
    seen_s: float
    looked_s: float | None = None
    ended_looks: int = 0
    gpus: dict[str, GpuAccount] = field(default_factory=dict)
    energy_j: float | None = None
    run: JobRun | None = None
    grown: dict[str, float] = field(default_factory=dict)
    raw: dict[str, float] = field(default_factory=dict)

    def grow(self, name: str, value: float | None) -> None:
        """Take over a counter; one that fell (a step's group is gone, with what it had counted) goes on from there."""
        if value is None:
            return
        last = self.raw.get(name)
        self.grown[name] = value if last is None else self.grown[name] + max(0.0, value - last)
        self.raw[name] = value


class JobAccounts:
    """The accounts of all runs that are on the node, and of those that have just left it."""

    def __init__(self) -> None:
        self.accounts: dict[str, JobAccount] = {}
        self._processors_j: float | None = None

    def look(
        self,
        runs: Iterable[JobRun],
        reading: GpuReading | None,
        *,
        now_s: float,
        now_unix_s: float,
        processors_j: float | None = None,
        cpus: int = 0,
    ) -> None:
        """Bring all accounts up to date.

        Parameters
        ----------
        runs
            Jobs that are there now.
        reading
            GPUs now; ``None`` when they cannot be read.
        now_s, now_unix_s
            Monotonic time, and time since 1970 [s].
        processors_j
            Energy of all processors so far [J]; ``None`` when nobody tells.
        cpus
            CPUs of the node.
        """
        current = tuple(runs)
        sharers = _sharers(current)
        for run in current:
            account = self.accounts.get(run.run)
            if account is None:
                began = min(run.start_unix_s or now_unix_s, now_unix_s)
                account = self.accounts[run.run] = JobAccount(job=run.job, since_unix_s=began, seen_s=now_s)
            _add(account, run, reading, sharers, now_s, now_unix_s)
        self._add_processors(current, processors_j, cpus)
        here = {run.run for run in current}
        labels = {run.job for run in current}
        for key, account in list(self.accounts.items()):
            if key in here:
                continue
            account.ended_looks += 1
            if account.job in labels:
                # The job was requeued and runs again: its next run has its name now.
                del self.accounts[key]

    def drop_ended(self, *, now_s: float, after_s: float, after_looks: int) -> None:
        """Forget runs that have been gone for so long and for so many looks."""
        for key, account in list(self.accounts.items()):
            if account.ended_looks >= after_looks and now_s - account.seen_s >= after_s:
                del self.accounts[key]

    def drop_beyond(self, limit: int) -> frozenset[str]:
        """Forget the runs that ended first until no more than so many are left; return which."""
        ended = sorted((account.seen_s, key) for key, account in self.accounts.items() if account.ended_looks)
        dropped = frozenset(key for _, key in ended[: max(0, len(self.accounts) - limit)])
        for key in dropped:
            del self.accounts[key]
        return dropped

    def _add_processors(self, runs: tuple[JobRun, ...], processors_j: float | None, cpus: int) -> None:
        """Divide what processors used since the last look by allocated CPUs, where both looks could read it."""
        before, self._processors_j = self._processors_j, processors_j
        if before is None or processors_j is None or processors_j < before or cpus <= 0:
            return
        uses = [
            JobUse(
                job=run.run,
                gpu_energy_j=0.0,
                cpu_share=min(1.0, ((run.cgroup.cpus if run.cgroup else None) or 0) / cpus),
            )
            for run in runs
        ]
        shares = share_energy(processors_j - before, 0.0, uses)
        for key, joules in shares.by_job.items():
            account = self.accounts[key]
            account.energy_j = (account.energy_j or 0.0) + joules

    def saved(self) -> dict[str, Any]:
        """Return what the next exporter of this boot needs, as JSON would have it."""
        return {
            key: {
                "job": account.job,
                "since": account.since_unix_s,
                "energy": account.energy_j,
                "gpus": {
                    uuid: {
                        "allocated": gpu.allocated_s,
                        "busy": gpu.busy_s,
                        "idle": gpu.idle_s,
                        "energy": gpu.energy_j,
                        "meter": gpu.meter_j,
                    }
                    for uuid, gpu in account.gpus.items()
                },
            }
            for key, account in self.accounts.items()
            if account.ended_looks == 0
        }

    def restore(self, saved: Mapping[str, Any], now_s: float) -> None:
        """Take over what an earlier exporter saved.

        Raises
        ------
        KeyError, TypeError, ValueError, AttributeError
            It is not what `saved` gives.
        """
        restored = {}
        for key, said in saved.items():
            account = JobAccount(job=str(said["job"]), since_unix_s=float(said["since"]), seen_s=now_s)
            account.energy_j = _number(said["energy"])
            for uuid, gpu in said["gpus"].items():
                account.gpus[str(uuid)] = GpuAccount(
                    allocated_s=float(gpu["allocated"]),
                    busy_s=_number(gpu["busy"]),
                    idle_s={kind: float(gpu["idle"][kind]) for kind in KINDS if kind in gpu["idle"]},
                    energy_j=_number(gpu["energy"]),
                    meter_j=_number(gpu["meter"]),
                )
            restored[str(key)] = account
        self.accounts = restored | self.accounts


def _add(
    account: JobAccount,
    run: JobRun,
    reading: GpuReading | None,
    sharers: Mapping[str, int],
    now_s: float,
    now_unix_s: float,
) -> None:
    """Add to one account what happened since the last look; what processors used is added apart."""
    gap_s = 0.0 if account.looked_s is None else now_s - account.looked_s
    for gpu in run.gpus:
        if not gpu.allocated:
            continue
        own = account.gpus.setdefault(gpu.uuid, GpuAccount())
        own.allocated_s = max(own.allocated_s, now_unix_s - account.since_unix_s)
        if reading is None:
            continue
        if 0.0 < gap_s <= LONGEST_GAP_S:
            _add_time(own, gpu, reading, gap_s)
        spent_j = _add_energy(own, gpu, reading, sharers[gpu.uuid])
        if spent_j is not None:
            # At once, for the meter has moved on: whether processors can be read does not matter to it.
            account.energy_j = (account.energy_j or 0.0) + spent_j
    account.job, account.run = run.job, run
    account.seen_s = account.looked_s = now_s
    account.ended_looks = 0
    for name, value in _counted(run).items():
        account.grow(name, value)


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


def _sharers(runs: Iterable[JobRun]) -> dict[str, int]:
    """Count the jobs that each GPU is given to: MPS and shards give one to several."""
    found: dict[str, int] = {}
    for run in runs:
        for gpu in run.gpus:
            if gpu.allocated:
                found[gpu.uuid] = found.get(gpu.uuid, 0) + 1
    return found


def _counted(run: JobRun) -> dict[str, float | None]:
    """Return the counters of a run's control group by the name of the metric that shows them."""
    group = run.cgroup
    if group is None:
        return {}
    return {
        "user": group.cpu_user_s,
        "system": group.cpu_system_s,
        "throttled": group.throttled_s,
        "oom_kills": group.oom_kills,
        "limit_hits": group.limit_hits,
        "read": group.read_bytes,
        "written": group.written_bytes,
        **{f"stalled_{name}": seconds for name, seconds in group.stalled_s.items()},
    }


def _add_time(own: GpuAccount, gpu: JobGpu, reading: GpuReading, gap_s: float) -> None:
    """Add the time since the last look to busy and idle time, by how busy the GPU is now."""
    ratio, processes = _activity(gpu, reading)
    if ratio is not None:
        own.busy_s = (own.busy_s or 0.0) + min(1.0, ratio) * gap_s
    if processes is None and ratio is None:
        return
    for kind in KINDS:
        own.idle_s.setdefault(kind, 0.0)
    if processes == 0:
        own.idle_s["no_process"] += gap_s
    elif ratio is not None and ratio < _IDLE_BELOW:
        own.idle_s["no_work"] += gap_s


def _activity(gpu: JobGpu, reading: GpuReading) -> tuple[float | None, int | None]:
    """Return how busy a GPU or MIG instance is, 0 to 1, and how many processes of anyone are on it."""
    for sample in reading.gpus:
        if sample.uuid == gpu.uuid:
            return sample.utilisation.get("gpu"), None if sample.processes is None else len(sample.processes)
        for mig in sample.mig:
            if mig.uuid == gpu.uuid:
                ratio = mig.activity.ratios.get("graphics") if mig.activity else None
                return ratio, None if mig.processes is None else len(mig.processes)
    return None, None


def _add_energy(own: GpuAccount, gpu: JobGpu, reading: GpuReading, sharers: int) -> float | None:
    """Add what the GPU used since the last look, divided among those that have it; return it [J], if it tells."""
    metered = _meter(gpu, reading)
    if metered is None:
        return None
    meter_j, part = metered
    before, own.meter_j = own.meter_j, meter_j
    own.energy_j = own.energy_j or 0.0
    if before is None:
        return 0.0
    # A counter that fell has begun anew with the driver: what it shows was used since.
    used = (meter_j - before if meter_j >= before else meter_j) * part / sharers
    own.energy_j += used
    return used


def _meter(gpu: JobGpu, reading: GpuReading) -> tuple[float, float] | None:
    """Return a GPU's counter of energy [J], and the part of it that is this instance's: by multiprocessors."""
    parent = parents(reading).get(gpu.uuid, gpu.uuid)
    for sample in reading.gpus:
        if sample.uuid != parent or sample.power.energy_j is None:
            continue
        if parent == gpu.uuid:
            return sample.power.energy_j, 1.0
        sizes = {mig.uuid: mig.multiprocessors for mig in sample.mig}
        total = sum(size or 0 for size in sizes.values())
        equal = None in sizes.values() or total == 0
        return sample.power.energy_j, 1.0 / len(sizes) if equal else (sizes[gpu.uuid] or 0) / total
    return None
