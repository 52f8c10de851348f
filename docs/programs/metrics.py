"""Writes ``docs/reference/metrics.md`` from the collectors themselves; ``--check`` only compares.

Every collector runs on a node that has everything it can tell of (`tests.fakes.every_metric`). What it names while it
runs is listed, also what has no value on that node; counts of series are those of scrapes of smaller nodes. The page
depends on the code alone.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "exporters")]

import psutil  # noqa: E402

from opsk_exporters.catalogue import COLLECTORS, Sources  # noqa: E402
from opsk_exporters.core.collector import NoDataError, Scraper  # noqa: E402
from opsk_exporters.core.exposition import Families  # noqa: E402
from opsk_exporters.core.server import build_registry  # noqa: E402
from opsk_exporters.slurm.queue import MAX_JOBS, PREDICTED  # noqa: E402
from tests.fakes.every_metric import every_collector, every_node  # noqa: E402
from tests.fakes.full_node import full_node  # noqa: E402
from tests.fakes.gpus import FixedGpus, h100, reading  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "metrics.md"
ITSELF = "exporter"
SOURCES = {
    "amdgpu": "AMD GPUs: sysfs and hwmon of amdgpu, its RAS and XGMI files, and the table that the firmware gives.",
    "gpu": "NVIDIA GPUs: NVML; services of the NVLink fabric from systemd's files, IMEX from nvidia-imex-ctl.",
    "host": "Processors, memory, network, disks, pressure: procfs, and sysfs for NUMA nodes.",
    "infiniband": "InfiniBand and RoCE ports: class/infiniband of sysfs; places in the fabric from the rails file.",
    "jobs": "Jobs: control groups, what opsk-prolog wrote, GPUs' processes, and RAPL for their energy.",
    "power": "Power of the node: RAPL, hwmon, and DCMI by IPMI, asked in the background.",
    "reports": "Reports on failed jobs: marks in the folder of evidence, counted by the node that asks Slurm.",
    "slurm": "Queue, nodes and partitions: Slurm, asked by one node of the cluster only.",
    "training": "Progress of training jobs: their logs.",
    "xids": "XIDs, SXids and other events: NVML's events and the kernel log.",
    ITSELF: "The exporter and its collectors themselves.",
}
UNITS = (
    ("bytes_per_second", "B/s"),
    ("joules", "J"),
    ("watts", "W"),
    ("celsius", "°C"),
    ("hertz", "Hz"),
    ("volts", "V"),
    ("timestamp_seconds", "s since 1970"),
    ("boot_time_seconds", "s since 1970"),
    ("start_time_seconds", "s since 1970"),
    ("seconds", "s"),
    ("bytes", "B"),
    ("ratio", "0 to 1"),
)
CLUSTERS = (100, 1_000, 10_000)
INTERVAL_S = 15
_HEAD = """# Metrics

<!-- Written by docs/programs/metrics.py from the collectors themselves: change their help texts, not this page. -->

`opsk exporter` on each node serves these; `opsk exporter --once` prints them. Units are base units. A value that is not
known has no series: absent is never 0. Names of devices, GPUs and jobs are in few labels; join the others from the
`_info` series: `opsk_gpu_power_watts * on (gpu) group_left (index, model) opsk_gpu_info`.

"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A metric as a collector names it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help_text: str

    @property
    def unit(self) -> str:
        """The unit that the name ends in; empty for plain numbers."""
        stem = self.name.removesuffix("_total")
        return next((unit for ending, unit in UNITS if stem.endswith(f"_{ending}")), "")


@contextmanager
def note_names(found: dict[str, Named]) -> Iterator[None]:
    """Note what is named while this lasts, whether it has a value or not."""

    def noting(kind: str, write: Callable[..., None]) -> Callable[..., None]:
        def note(self: Families, name: str, help_text: str, /, *value: Any, **labels: Any) -> None:
            before = found.get(name)
            both = dict.fromkeys((*(before.labels if before else ()), *labels))
            found[name] = Named(name=name, kind=kind, labels=tuple(both), help_text=help_text)
            write(self, name, help_text, *value, **labels)

        return note

    with (
        mock.patch.object(Families, "gauge", noting("gauge", Families.gauge)),
        mock.patch.object(Families, "counter", noting("counter", Families.counter)),
        mock.patch.object(Families, "info", noting("info", Families.info)),
    ):
        yield


def metrics() -> dict[str, list[Named]]:
    """Return all metrics by collector, those of the exporter itself last."""
    found: dict[str, list[Named]] = {}
    with tempfile.TemporaryDirectory() as folder, procfs_given_back():
        for collector in every_collector(every_node(Path(folder))):
            named: dict[str, Named] = {}
            with note_names(named):
                for _ in range(2):  # what needs two looks is there at the second
                    tuple(collector.collect())
            found[collector.name] = sorted(named.values(), key=lambda each: each.name)
    found[ITSELF] = sorted(about_itself(), key=lambda each: each.name)
    return found


def about_itself() -> Iterator[Named]:
    """Yield what the exporter says of itself and of its collectors."""
    named: dict[str, Named] = {}
    with note_names(named):
        access: Any = mock.Mock(problem="", refused={"password": 0})
        shown = tuple(build_registry(Scraper([Nothing()], missing={"none": "not installed"}), access=access).collect())
    yield from named.values()
    for metric in shown:
        suffix = {"counter": "_total", "info": "_info"}.get(metric.type, "")
        if metric.name + suffix not in named:
            labels = tuple(metric.samples[0].labels) if metric.samples else ()
            yield Named(name=metric.name + suffix, kind=metric.type, labels=labels, help_text=metric.documentation)


class Nothing:
    """A collector on a node that has nothing of its kind."""

    name = "nothing"

    def collect(self) -> tuple[()]:
        """Say so."""
        raise NoDataError("nothing")


@contextmanager
def procfs_given_back() -> Iterator[None]:
    """Give psutil its own procfs back after a fake one was read."""
    before = psutil.PROCFS_PATH
    try:
        yield
    finally:
        psutil.PROCFS_PATH = before


def series(*, gpus: int = 0, hcas: int = 0, jobs: int = 0) -> dict[str, int]:
    """Return how many series each collector gives on a node, at its second scrape."""
    with tempfile.TemporaryDirectory() as folder, procfs_given_back():
        node = full_node(Path(folder), hcas=hcas, jobs=jobs, gpus=gpus)
        source = FixedGpus(reading(*(h100(index) for index in range(gpus)))) if gpus else None
        sources = Sources(node.settings, nvidia=source)
        counts = {}
        for name, make in sorted(COLLECTORS.items()):
            if name == "amdgpu":
                continue
            collector = make(sources)
            try:
                for _ in range(2):
                    found = tuple(collector.collect())
            except NoDataError:
                found = ()
            counts[name] = sum(len(metric.samples) for metric in found)
        alone, with_one = (
            sum(len(metric.samples) for metric in build_registry(Scraper(each)).collect()) for each in ([], [Nothing()])
        )
        counts[ITSELF] = alone + (with_one - alone) * len(COLLECTORS)
    return counts


def cardinality(of_logs: int) -> str:
    """Return the section on how many series there are; ``of_logs`` are those of a job whose log is read."""
    bare, gpus, hcas = series(), series(gpus=8), series(hcas=8)
    whole, job = series(gpus=8, hcas=8), series(gpus=8, hcas=8, jobs=1)
    # What the first job brings and the second does not is the node's.
    # A job of eight GPUs and one of four on the same node differ by what a GPU of a job has.
    two = series(gpus=8, hcas=8, jobs=2)
    with_job = series(jobs=1)
    rows = []
    for name in whole:
        per_gpu = (gpus[name] - bare[name]) / 8
        per_hca = (hcas[name] - bare[name]) / 8
        per_job = two[name] - job[name]
        once = with_job[name] - bare[name] - per_job
        per_job_gpu = (job[name] - whole[name] - per_job - once) / 8
        rows.append((name, bare[name] + once, per_gpu, per_hca, per_job, per_job_gpu, job[name]))
    total = tuple(sum(row[column] for row in rows) for column in range(1, 7))
    lines = [
        "| collector | a node | + a GPU | + an HCA | + a job | + a GPU of a job | 8 GPUs, 8 HCAs, a job |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        *(f"| `{row[0]}` | " + " | ".join(_count(value) for value in row[1:]) + " |" for row in rows),
        "| **all** | " + " | ".join(f"**{_count(value)}**" for value in total) + " |",
    ]
    node, per_gpu, per_hca, per_job, per_job_gpu, typical = total
    per_record = len(PREDICTED)
    sizes = [
        "| nodes | series | samples a second | new series when each node gets a new job |",
        "| ---: | ---: | ---: | ---: |",
        *(
            f"| {nodes:,} | {nodes * typical:,.0f} | {nodes * typical / INTERVAL_S:,.0f} "
            f"| {nodes * (per_job + 8 * per_job_gpu):,.0f} |"
            for nodes in CLUSTERS
        ),
    ]
    return (
        "## How many series\n\n"
        "Counted in scrapes of fake nodes: two sockets with RAPL, H100s with 18 NVLinks, ConnectX-7 with one\n"
        "port each, cgroup v2. Other GPUs and NICs have fewer or more.\n\n"
        + "\n".join(lines)
        + "\n\nA cluster has `nodes × ("
        + f"{_count(node)} + {_count(per_gpu)} × GPUs + {_count(per_hca)} × HCAs + "
        + f"{_count(per_job)} × jobs + {_count(per_job_gpu)} × GPUs of jobs)` series, all counted on one "
        f"node. With 8 GPUs, 8 HCAs and one job on each node, scraped every {INTERVAL_S} s:\n\n"
        + "\n".join(sizes)
        + "\n\nSlurm's series are the cluster's and come from one node: as many as it has partitions and states,\n"
        f"and {per_record} for each running job with a record of opsk, of {MAX_JOBS:,} jobs at most.\n"
        f"A job whose log is read has up to {of_logs} more, on the node of its batch script.\n"
        "Only series of jobs come and go. `opsk exporter --without host` is for sites whose node_exporter has\n"
        "that already.\n"
    )


def _count(value: float) -> str:
    """Write a number of series."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def page() -> str:
    """Return the page."""
    found = metrics()
    contents = "".join(f"- [{name}](#{name}): {SOURCES[name]} {len(found[name])} metrics.\n" for name in found)
    sections = "".join(_section(name, named) for name, named in found.items())
    # Three bounds of what was predicted are series of one metric.
    of_logs = sum(3 if "bound" in each.labels else 1 for each in found["training"] if "job" in each.labels)
    return _HEAD + contents + "\n" + cardinality(of_logs) + sections


def _section(name: str, named: list[Named]) -> str:
    """Return the section on one collector."""
    lines = [
        f"\n## {name}\n\n{SOURCES[name]}\n",
        "| metric | type | unit | labels | |\n| --- | --- | --- | --- | --- |",
    ]
    for each in named:
        labels = ", ".join(f"`{label}`" for label in each.labels)
        about = " ".join(each.help_text.split()).replace("|", "\\|")
        lines.append(f"| `{each.name}` | {each.kind} | {each.unit} | {labels} | {about} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the page, or with ``--check`` only say whether it is as the code says."""
    now = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(now, encoding="utf-8")
        return 0
    if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != now:
        print(
            f"{PAGE.relative_to(ROOT)} is not what the collectors say: run python docs/programs/metrics.py",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
