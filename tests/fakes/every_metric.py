"""A node that has everything that a collector can tell of, so that one scrape has all metrics that there are.

GPUs are samples made by hand: H100s, one of them cut into MIG devices and one lost, and two of AMD's. Every counter
file of every RDMA driver is there.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from opsk.telemetry.background_reader import Latest
from opsk.telemetry.gpu.samples import GpuReading, GpuSample, LostGpu, RetiredPages
from opsk.telemetry.gpu.services import ImexSample, ServiceSample
from opsk.telemetry.power.ipmi import DcmiPower
from opsk.telemetry.power.node_power import GpuPowerTotal
from opsk_exporters.catalogue import COLLECTORS, Sources
from opsk_exporters.core.collector import Collector
from opsk_exporters.gpu.collector import GpuCollector
from opsk_exporters.jobs import reports
from opsk_exporters.network.names import COUNTERS, EXTENDED, HARDWARE
from opsk_exporters.power import collector as power
from opsk_exporters.slurm import collector as slurm
from tests.fakes.amdgpu_tree import AmdTree, Table15
from tests.fakes.full_node import FullNode, full_node
from tests.fakes.gpus import FixedGpus, gpu_uuid, h100, with_mig
from tests.fakes.progress_logs import training_collector
from tests.fakes.slurm_questions import busy_cluster

GPUS = 8


class Controller:
    """A node's controller that answers at once."""

    def read(self) -> tuple[DcmiPower, float]:
        return DcmiPower(current_w=9000.0, minimum_w=400.0, maximum_w=10000.0, average_w=8000.0, period_s=1.0), 0.0


def readings() -> tuple[GpuReading, GpuReading]:
    """Two looks at the GPUs, a quarter of a minute apart."""
    lost = LostGpu(uuid=gpu_uuid(7), index=7, pci="0000:21:00.0", model="NVIDIA H100 80GB HBM3", why="GPU is lost")
    gpus = (*(h100(index) for index in range(5)), ailing(h100(5)), with_mig(h100(6)))
    first = GpuReading(read_at_s=0.0, driver="570.124.06", nvml="12.570.124.06", cuda="12.8", gpus=gpus, lost=(lost,))
    return first, replace(first, read_at_s=15.0)


def ailing(gpu: GpuSample) -> GpuSample:
    """The same GPU with a link that is down, errors on another, and pages retired, as GPUs before the A100 tell."""
    first, second, *others = gpu.nvlinks
    down, erring = replace(first, state="inactive"), replace(second, errors={"replay": 5})
    pages = RetiredPages(single_bit=1, double_bit=2, pending=True)
    return replace(gpu, nvlinks=(down, erring, *others), retired_pages=pages, row_remap=None)


def every_node(root: Path) -> FullNode:
    """Write the node."""
    node = full_node(root, hcas=2, jobs=2, gpus=GPUS)
    for folder, names in (("counters", COUNTERS), ("counters_ext", EXTENDED), ("hw_counters", HARDWARE)):
        for number, name in enumerate(names):
            node.sysfs.write(node.sysfs.port("mlx5_0") / folder / name, str(number))
    for number, name in enumerate(HARDWARE):
        node.sysfs.write(node.sysfs.root / "class" / "infiniband" / "mlx5_0" / "hw_counters" / name, str(number))
    node.sysfs.write(node.sysfs.port("mlx5_1") / "counters" / "symbol_error", "65535")
    node.power.chip(9, "nct6775", fan1_input=5400, in0_input=1000)
    write_amd(node)
    write_kernel(node)
    return node


def write_amd(node: FullNode) -> None:
    """Write AMD's GPUs, one with the table that its firmware gives."""
    tree = AmdTree(node.sysfs.root)
    for card in range(2):
        device = tree.add(card, bus=0x60 + card, unique_id=f"{0xABCDEF00 + card:016x}")
        tree.write(device / "xgmi_hive_info" / "xgmi_hive_id", "123456789")
        tree.write(device / "xgmi_error", "0")
        tree.write(device / "ras" / "gpu_vram_bad_pages", "0x00000001 : 0x00001000 : R")
        values = {
            name: [1] * getattr(kind, "_length_", 1) if hasattr(kind, "_length_") else 1
            for name, kind, *_ in Table15._fields_
            if name not in ("size", "format", "content")
        }
        (device / "gpu_metrics").write_bytes(Table15().packed(5, values))


def write_kernel(node: FullNode) -> None:
    """Write what the kernel says of itself, and of GPUs and switches."""
    said = (
        "NVRM: Xid (PCI:0000:1a:00): 79, pid=1, name=x, GPU has fallen off the bus.",
        "Out of memory: Killed process 4242 (python) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB",
        "nvidia-nvswitch2: SXid (PCI:0000:c5:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    )
    lines = (f"3,{number},{number * 1_000_000},-;{text}\n" for number, text in enumerate(said, 1))
    node.kernel_log.write_text("".join(lines), encoding="ascii")
    for resource in ("cpu", "io", "memory"):
        node.sysfs.write(
            node.root / "proc" / "pressure" / resource,
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=500000",
        )
    node.sysfs.write(node.root / "proc" / "vmstat", "oom_kill 3")
    for number in (0, 1):
        fields = (("MemTotal", 1000), ("MemFree", 400), ("FilePages", 100))
        text = "\n".join(f"Node {number} {name}:  {value} kB" for name, value in fields)
        node.sysfs.write(node.sysfs.root / "devices" / "system" / "node" / f"node{number}" / "meminfo", text)


def reported_on(folder: Path) -> Path:
    """Return a folder of evidence with one report."""
    (folder / "classes" / "gpu_hardware").mkdir(parents=True)
    (folder / "classes" / "gpu_hardware" / "4711@1763770000").touch()
    return folder


def every_collector(node: FullNode) -> Sequence[Collector]:
    """Return all collectors on that node, by name."""
    sources = Sources(node.settings, nvidia=FixedGpus(*readings()))
    services = (ServiceSample(name="nvidia-fabricmanager", enabled=True, running=True),)
    imex = Latest(value=ImexSample(daemon="READY", domain="UP", nodes=18, nodes_ready=18), age_s=1.0)
    own: dict[str, Collector] = {
        "gpu": GpuCollector(
            sources.nvidia,
            services=lambda: services,
            slurm_order=lambda reading: {gpu.uuid: gpu.index for gpu in reading.gpus},
            imex=lambda: imex,
        ),
        "power": power.make(
            node.settings.sysfs,
            lambda: GpuPowerTotal(watts=5000.0, gpus=GPUS, age_s=0.0),
            rapl=sources.processors,
            dcmi=Controller(),
            every_s=30.0,
            deadline_s=60.0,
        ),
        "reports": reports.make(reported_on(node.root / "kept"), socket.gethostname(), deadline_s=60.0),
        "slurm": slurm.make(socket.gethostname(), users=2, deadline_s=60.0, slurm=busy_cluster()),
        "training": training_collector(node.root / "training"),
    }
    return [own.get(name) or make(sources) for name, make in sorted(COLLECTORS.items())]
