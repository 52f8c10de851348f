"""Trees of control groups as Slurm makes them: version 1, version 2 by job number or by SLUID, several slurmd, both.

All numbers follow from the job's number ``j``, so that an expectation can be worked out by hand: ``j`` seconds of user
time and ``j / 4`` of system time, ``j`` MiB of anonymous memory and ``2 j`` of cached files, a limit of ``100 j`` MiB.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

MIB = 1 << 20
STEPD_PID = 90_000
"""Process ids of slurmstepd in a tree start here: they are no processes of the job."""
Steps = Mapping[str, Sequence[int]]
"""Processes by step; those of a step are put into its tasks one by one."""


def sluid(number: int) -> str:
    """Return an id of one run as Slurm writes it: ``s`` and 13 digits of Crockford's base 32."""
    signs = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    value = (7 << 52) | (1_760_000_000_000 << 10) | number
    return "s" + "".join(signs[(value >> 5 * place) & 31] for place in range(12, -1, -1))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n" if text else "", encoding="ascii")


class CgroupV2:
    """A mount of version 2; with ``node`` the slurmd of that name is one of several on the host."""

    def __init__(self, root: Path, *, cgroup_slice: str = "system.slice", node: str | None = None) -> None:
        self.root = root
        self.scope = root / cgroup_slice / f"{f'{node}_' if node else ''}slurmstepd.scope"
        write(self.scope / "system" / "cgroup.procs", str(STEPD_PID - 1))
        write(root / cgroup_slice / "cron.service" / "cgroup.procs", "17")

    def add(self, number: int, steps: Steps, *, by_sluid: bool = False, oom_kills: int = 0, io: bool = False) -> Path:
        """Write the groups of a job; return its folder."""
        job = self.scope / (sluid(number) if by_sluid else f"job_{number}")
        files = {
            "cgroup.procs": "",
            "cpu.stat": (
                f"usage_usec {number * 1_250_000}\nuser_usec {number * 1_000_000}\nsystem_usec {number * 250_000}\n"
                f"nr_periods 10\nnr_throttled 3\nthrottled_usec {number * 1000}"
            ),
            "cpu.pressure": f"some avg10=0.00 avg60=0.00 avg300=0.00 total={number * 2000}\nfull avg10=0.00 total=1",
            "cpuset.cpus.effective": f"0-{number - 1},100-{99 + number}",
            "memory.current": str(4 * number * MIB),
            "memory.peak": str(5 * number * MIB),
            "memory.max": str(100 * number * MIB),
            "memory.stat": f"anon {number * MIB}\nfile {2 * number * MIB}\nkernel 4096\nslab 1",
            "memory.events": f"low 0\nhigh 0\nmax {number}\noom {oom_kills}\noom_kill {oom_kills}\noom_group_kill 0",
            "pids.current": str(2 * sum(map(len, steps.values())) + len(steps)),
        }
        if io:
            files["io.stat"] = (
                f"259:0 rbytes={number * 1000} wbytes={number * 3000} rios=1 wios=1 dbytes=0 dios=0\n"
                f"8:0 rbytes={number} wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n7:0"
            )
        for name, text in files.items():
            write(job / name, text)
        for at, (step, pids) in enumerate(steps.items()):
            write(job / f"step_{step}" / "slurm" / "cgroup.procs", str(STEPD_PID + number * 10 + at))
            write(job / f"step_{step}" / "user" / "cgroup.procs", "")
            for task, pid in enumerate(pids):
                name = "task_special" if step == "extern" else f"task_{task}"
                path = job / f"step_{step}" / "user" / name / "cgroup.procs"
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("a", encoding="ascii") as file:
                    file.write(f"{pid}\n")
        return job

    @staticmethod
    def remove(job: Path) -> None:
        """Let a job end."""
        shutil.rmtree(job)


class CgroupV1:
    """Mounts of version 1; ``cpu,cpuacct`` are mounted together, as on most systems."""

    CONTROLLERS = ("cpu,cpuacct", "cpuset", "freezer", "memory")

    def __init__(self, root: Path, *, node: str | None = None) -> None:
        self.root = root
        self.top = f"slurm_{node}" if node else "slurm"
        for controller in self.CONTROLLERS:
            write(root / controller / self.top / "cgroup.procs", "")
            write(root / controller / "user.slice" / "user-1000.slice" / "cgroup.procs", "18")

    def add(self, number: int, steps: Steps, *, uid: int = 1000, oom_kills: int = 0) -> tuple[Path, ...]:
        """Write the groups of a job; return its folders."""
        jobs = tuple(self.root / name / self.top / f"uid_{uid}" / f"job_{number}" for name in self.CONTROLLERS)
        accounting, cpuset, _, memory = jobs
        write(accounting / "cpuacct.usage", str(number * 1_250_000_000))
        write(accounting / "cpuacct.stat", f"user {number * 100}\nsystem {number * 25}")
        write(accounting / "cpu.stat", f"nr_periods 10\nnr_throttled 3\nthrottled_time {number * 1_000_000}")
        write(cpuset / "cpuset.cpus", f"0-{number - 1},100-{99 + number}")
        write(memory / "memory.usage_in_bytes", str(4 * number * MIB))
        write(memory / "memory.max_usage_in_bytes", str(5 * number * MIB))
        write(memory / "memory.limit_in_bytes", str(100 * number * MIB))
        write(memory / "memory.failcnt", str(number))
        write(memory / "memory.stat", f"cache 0\nrss 0\ntotal_cache {2 * number * MIB}\ntotal_rss {number * MIB}")
        for job in jobs:
            for at, (step, pids) in enumerate(steps.items()):
                write(job / f"step_{step}" / "cgroup.procs", str(STEPD_PID + number * 10 + at))
                for task, pid in enumerate(pids):
                    write(job / f"step_{step}" / f"task_{task}" / "cgroup.procs", str(pid))
        # Version 1 counts a kill where the process was.
        for folder, kills in ((memory, 0), *((path, oom_kills) for path in memory.glob("step_0/task_0"))):
            write(folder / "memory.oom_control", f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}")
        return jobs
