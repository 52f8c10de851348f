"""Accumulates the resource use of each job since its start, in counters that survive a restart of the exporter.

What a source counts by itself is taken from there (CPU time from the control group, allocated time from the start that
the prolog recorded). Energy, busy time and idle time of a GPU are differences between two readings, and are accumulated
here: the time between them is lost only when no exporter ran and nothing was saved.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opsk.telemetry.gpu.job_gpus import JobGpu, map_mig_parents
from opsk.telemetry.gpu.samples import GpuReading
from opsk.telemetry.jobs.job_map import JobRun
from opsk.telemetry.power.node_power import JobUse, share_energy
from opsk.units import MIB

_VERSION = 1
_MAX_BYTES = 16 * MIB
LONGEST_GAP_S = 300.0
"""Readings further apart do not show the utilisation in between."""
_IDLE_BELOW = 0.005
"""Drivers report utilisation in whole percent."""
KINDS = ("no_process", "no_work")


def find_state_file() -> Path | None:
    """Return where systemd gives the exporter a folder (``RuntimeDirectory=``); ``None`` elsewhere."""
    folder = os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    return Path(folder) / "jobs.json" if folder else None


def load_state(path: Path, boot: str) -> dict[str, Any] | None:
    """Return what was saved in this boot; ``None`` when there is nothing usable."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            return None
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("version") != _VERSION or document.get("boot") != boot:
        return None
    return document


def save_state(path: Path, boot: str, accounts: dict[str, Any], settled: dict[str, list[str]]) -> bool:
    """Write the file, whole or not at all; return whether that worked."""
    document = {"version": _VERSION, "boot": boot, "accounts": accounts, "settled": settled}
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(document), encoding="utf-8")
        temporary.replace(path)
    except OSError:
        return False
    return True


def read_boot_id(procfs: Path) -> str:
    """Return the kernel's name of this boot; empty where it has none."""
    try:
        return (procfs / "sys" / "kernel" / "random" / "boot_id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


@dataclass(slots=True, kw_only=True)
class GpuAccount:
    """What one job used of one GPU so far; ``meter_j`` is the GPU's own counter at the last reading [J]."""

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
        """Update a counter; one that fell (a step's group is gone, with its count) continues from there."""
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

    def update(
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
            Energy of all processors so far [J]; ``None`` when it is unknown.
        cpus
            CPUs of the node.
        """
        current = tuple(runs)
        sharers = _count_sharers(current)
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
        """Drop runs that have been gone for this time and this many readings."""
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
        """Divide the energy of the processors since the last reading by allocated CPUs, where both readings have it."""
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

    def export(self) -> dict[str, Any]:
        """Return the state for the next exporter of this boot, as JSON values."""
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
        """Restore what an earlier exporter saved.

        Raises
        ------
        KeyError, TypeError, ValueError, AttributeError
            It is not in the format of `export`.
        """
        restored = {}
        for key, values in saved.items():
            account = JobAccount(job=str(values["job"]), since_unix_s=float(values["since"]), seen_s=now_s)
            account.energy_j = _number(values["energy"])
            for uuid, gpu in values["gpus"].items():
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
    """Add the use since the last reading to one account; the energy of processors is added separately."""
    gap_s = 0.0 if account.looked_s is None else now_s - account.looked_s
    for gpu in run.gpus:
        if not gpu.allocated:
            continue
        gpu_account = account.gpus.setdefault(gpu.uuid, GpuAccount())
        gpu_account.allocated_s = max(gpu_account.allocated_s, now_unix_s - account.since_unix_s)
        if reading is None:
            continue
        if 0.0 < gap_s <= LONGEST_GAP_S:
            _add_time(gpu_account, gpu, reading, gap_s)
        spent_j = _add_energy(gpu_account, gpu, reading, sharers[gpu.uuid])
        if spent_j is not None:
            # At once, for the meter has moved on: whether processors can be read does not matter to it.
            account.energy_j = (account.energy_j or 0.0) + spent_j
    account.job, account.run = run.job, run
    account.seen_s = account.looked_s = now_s
    account.ended_looks = 0
    for name, value in _list_counters(run).items():
        account.grow(name, value)


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


def _count_sharers(runs: Iterable[JobRun]) -> dict[str, int]:
    """Count the jobs that each GPU is allocated to: MPS and shards allocate one to several."""
    counts: dict[str, int] = {}
    for run in runs:
        for gpu in run.gpus:
            if gpu.allocated:
                counts[gpu.uuid] = counts.get(gpu.uuid, 0) + 1
    return counts


def _list_counters(run: JobRun) -> dict[str, float | None]:
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


def _add_time(account: GpuAccount, gpu: JobGpu, reading: GpuReading, gap_s: float) -> None:
    """Add the time since the last reading to busy and idle time, by how busy the GPU is now."""
    ratio, processes = _find_activity(gpu, reading)
    if ratio is not None:
        account.busy_s = (account.busy_s or 0.0) + min(1.0, ratio) * gap_s
    if processes is None and ratio is None:
        return
    for kind in KINDS:
        account.idle_s.setdefault(kind, 0.0)
    if processes == 0:
        account.idle_s["no_process"] += gap_s
    elif ratio is not None and ratio < _IDLE_BELOW:
        account.idle_s["no_work"] += gap_s


def _find_activity(gpu: JobGpu, reading: GpuReading) -> tuple[float | None, int | None]:
    """Return how busy a GPU or MIG instance is, 0 to 1, and how many processes of anyone are on it."""
    for sample in reading.gpus:
        if sample.uuid == gpu.uuid:
            return sample.utilisation.get("gpu"), None if sample.processes is None else len(sample.processes)
        for mig in sample.mig:
            if mig.uuid == gpu.uuid:
                ratio = mig.activity.ratios.get("graphics") if mig.activity else None
                return ratio, None if mig.processes is None else len(mig.processes)
    return None, None


def _add_energy(account: GpuAccount, gpu: JobGpu, reading: GpuReading, sharers: int) -> float | None:
    """Add the energy since the last reading, divided among the sharers; return it [J]; ``None`` if not reported."""
    metered = _read_meter(gpu, reading)
    if metered is None:
        return None
    meter_j, part = metered
    before, account.meter_j = account.meter_j, meter_j
    account.energy_j = account.energy_j or 0.0
    if before is None:
        return 0.0
    # A counter that fell was reset with the driver: its value was used since.
    used = (meter_j - before if meter_j >= before else meter_j) * part / sharers
    account.energy_j += used
    return used


def _read_meter(gpu: JobGpu, reading: GpuReading) -> tuple[float, float] | None:
    """Return a GPU's counter of energy [J], and the part of it that is this instance's: by multiprocessors."""
    parent = map_mig_parents(reading).get(gpu.uuid, gpu.uuid)
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
