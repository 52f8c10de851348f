"""A whole node in a folder: HCAs, power, procfs, jobs with control groups and prolog files, a kernel log, settings.

GPUs are not files: they come from the NVML stand-in, or from samples made by hand. Every number can be worked out from
the fakes that this puts together.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from opsk_exporters.core.settings import Settings
from tests.fakes.amdgpu_tree import AmdTree
from tests.fakes.cgroup_tree import CgroupV2
from tests.fakes.powercap import PowerTree
from tests.fakes.procfs import write_procfs
from tests.fakes.sysfs import SysfsTree

FIRST_JOB = 100
FIRST_PID = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class FullNode:
    """Where everything is."""

    root: Path
    sysfs: SysfsTree
    power: PowerTree
    cgroups: CgroupV2
    jobs_folder: Path
    kernel_log: Path

    @property
    def settings(self) -> Settings:
        """The settings that the file of the node says."""
        return Settings(
            sysfs=self.sysfs.root,
            procfs=self.root / "proc",
            cgroups=self.root / "cgroup",
            jobs_folder=self.jobs_folder,
            kernel_log=self.kernel_log,
            rails_file=self.root / "rails.json",
            ipmi_interval_s=0.0,
        )

    @property
    def site_file(self) -> Path:
        """A site configuration with these settings, for a process."""
        path = self.root / "opsk.toml"
        told = self.settings
        path.write_text(
            "[exporter]\n"
            f'sysfs = "{told.sysfs}"\nprocfs = "{told.procfs}"\ncgroups = "{told.cgroups}"\n'
            f'jobs_folder = "{told.jobs_folder}"\nkernel_log = "{told.kernel_log}"\nrails_file = "{told.rails_file}"\n'
            "ipmi_interval_s = 0\n",
            encoding="utf-8",
        )
        return path

    def add_job(self, number: int, gpus: tuple[int, ...]) -> Path:
        """Start a job on some GPUs; return its control group."""
        lines = [
            "opsk-job 1",
            f"job={number}",
            "node=node1",
            "uid=1000",
            "user=ada",
            "account=physics",
            "partition=gpu",
            "qos=normal",
            f"name=train-{number}",
            "start=1700000000",
            "restarts=0",
            f"gpus={','.join(map(str, gpus))}",
            f"devices={','.join(map(str, gpus))}",
            "whole",
        ]
        (self.jobs_folder / str(number)).write_text("\n".join(lines) + "\n", encoding="ascii")
        pids = [FIRST_PID + number * 10 + gpu for gpu in gpus]
        return self.cgroups.add(number, {"batch": pids[:1], "extern": [], "0": pids}, io=True)


def full_node(root: Path, *, hcas: int = 8, jobs: int = 2, gpus: int = 8, sockets: int = 2, amd: int = 0) -> FullNode:
    """Write a node whose jobs share its GPUs evenly."""
    tree = SysfsTree(root / "sys")
    for index in range(hcas):
        tree.add_hca(index)
    power = PowerTree(tree.root)
    for number in range(sockets):
        power.socket(number, energy_uj=10_000_000 * (number + 1), dram_uj=1_000_000)
        power.chip(number, "coretemp", temp1_input=50_000, temp1_label=f"Package id {number}", temp1_crit=100_000)
    if sockets:
        power.acpi_meter(sockets, watts=4000)
    if amd:
        cards = AmdTree(tree.root)
        for card in range(amd):
            cards.add(card, bus=0x60 + card, unique_id=f"{0xABCDEF00 + card:016x}")
    write_procfs(root / "proc")
    folder, log = root / "jobs", root / "kmsg"
    folder.mkdir()
    log.write_text("", encoding="ascii")
    node = FullNode(
        root=root,
        sysfs=tree,
        power=power,
        cgroups=CgroupV2(root / "cgroup"),
        jobs_folder=folder,
        kernel_log=log,
    )
    share = gpus // jobs if jobs else 0
    for job in range(jobs):
        node.add_job(FIRST_JOB + job, tuple(range(job * share, (job + 1) * share)))
    return node
