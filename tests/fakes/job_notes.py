"""A node as the mapper of jobs sees it: the prolog's folder, control groups, and processes, written where a test wants.

What ``note`` writes is what ``deploy/slurm/opsk-prolog`` writes; ``tests/deploy`` holds the two together.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from opsk.telemetry.host.cgroups import CgroupReader
from opsk.telemetry.jobs.job_map import JobMapper
from tests.fakes.cgroup_tree import CgroupV2

BOOTED = 1_700_000_000
NOW = BOOTED + 10_000.0


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self, now_s: float = NOW) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


class Node:
    """One node below a folder."""

    def __init__(self, root: Path) -> None:
        self.jobs, self.proc, self.groups = root / "jobs", root / "proc", root / "cgroup"
        self.clock = Clock()
        self.jobs.mkdir()
        (self.proc / "sys" / "kernel" / "random").mkdir(parents=True)
        (self.proc / "sys" / "kernel" / "random" / "boot_id").write_text("one\n", encoding="ascii")
        (self.proc / "stat").write_text(f"cpu 1 2 3\nbtime {BOOTED}\n", encoding="ascii")
        self.cgroups = CgroupV2(self.groups)
        self.process(1, comm="systemd")

    def mapper(self, gres_conf: Path | None = None) -> JobMapper:
        return JobMapper(
            CgroupReader(self.groups),
            folder=self.jobs,
            procfs=self.proc,
            gres_conf=gres_conf,
            places=(),
            clock=self.clock,
        )

    def note(self, job: int, gpus: Sequence[int] = (), *, age_s: float = 0.0, **more: object) -> Path:
        """Write what the prolog would, ``age_s`` ago."""
        said: Mapping[str, object] = {
            "job": job,
            "uid": 1000,
            "user": "ann",
            "account": "phys",
            "partition": "gpu",
            "gpus": ",".join(map(str, gpus)),
            "devices": ",".join(map(str, gpus)),
            "start": int(self.clock.now_s - age_s),
            **more,
        }
        lines = "".join(f"{name}={value}\n" for name, value in said.items() if value != "")
        name = f"{more['cluster']}.{job}" if "cluster" in more else str(job)
        path = self.jobs / (f"{name}.{more['sluid']}" if "sluid" in more else name)
        path.write_text(f"opsk-job 1\n{lines}whole\n", encoding="utf-8")
        os.utime(path, (self.clock.now_s - age_s, self.clock.now_s - age_s))
        return path

    def process(self, pid: int, *, comm: str = "python", cmdline: str = "", ticks: int = 0, **environ: object) -> None:
        """Let there be a process with these variables of Slurm's in its environment.

        It has used ``ticks`` of user time, half as many of system time, and its children a tenth of each; it has 4
        threads.
        """
        folder = self.proc / str(pid)
        folder.mkdir(parents=True)
        (folder / "comm").write_text(f"{comm}\n", encoding="ascii")
        (folder / "cmdline").write_text(f"{cmdline}\0", encoding="ascii")
        times = f"{ticks} {ticks // 2} {ticks // 10} {ticks // 20}"
        stat = f"{pid} ({comm}) ) S 1 1 1 0 -1 0 0 0 0 0 {times} 20 0 4 0 12345 0 0"
        (folder / "stat").write_text(stat, encoding="ascii")
        said = {"PATH": "/bin", **{f"SLURM_{name}": value for name, value in environ.items()}}
        (folder / "environ").write_text("".join(f"{name}={value}\0" for name, value in said.items()), encoding="utf-8")
