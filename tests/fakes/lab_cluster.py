"""A made-up cluster as Prometheus would have scraped it: four nodes, three jobs, some faults, half an hour.

The real collectors write the metrics, from the samples of ``lab_node``: names and labels cannot differ from the
exporter's. By hand are only `training` and `slurm`, what the exporter says of itself, and power (its sources are
files). ``tests/integration/exporters/test_lab_dashboards.py`` checks that real exporters of a lab give series
of the very same names and labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import Metric
from prometheus_client.utils import floatToGoString

from opsk.telemetry.gpu.samples import GpuReading
from opsk.telemetry.gpu.services import ServiceSample
from opsk.telemetry.host.usage import HostSample
from opsk.telemetry.jobs.job_map import JobMap
from opsk.telemetry.network.infiniband import CongestionMeter
from opsk.telemetry.network.rails_file import RailsReading
from opsk_exporters.gpu.collector import GpuCollector
from opsk_exporters.gpu.xids import XidCollector
from opsk_exporters.host.collector import HostCollector
from opsk_exporters.jobs.collector import JobsCollector
from opsk_exporters.network.infiniband import InfinibandCollector
from tests.fakes.lab_node import NODES, STEP_S, TRAINING, Moment, Node, uuid, wave

CLUSTER = "lab"
STEPS = 61
COLLECTORS = ("gpu", "infiniband", "power", "host", "jobs", "xids", "training", "slurm")


class _Rails:
    def __init__(self, node: Node) -> None:
        self._node = node

    def read(self, _guids: Iterable[str]) -> RailsReading:
        return self._node.rails()


class _Host:
    def __init__(self, node: Node) -> None:
        self._node = node

    def sample(self) -> HostSample:
        return self._node.host()


class _Mapper:
    def __init__(self, node: Node) -> None:
        self._node = node

    def read(self, _reading: GpuReading | None) -> JobMap:
        return self._node.jobs()

    def settled(self) -> dict[str, tuple[str, ...]]:
        return {}


class Scraped:
    """What a scrape of one node gives, moment after moment."""

    def __init__(self, node: Node) -> None:
        self.node = node
        now = node.now
        services = (ServiceSample(name="nvidia-fabricmanager", running=node.number != 3, enabled=True),)
        self._xids = XidCollector(None, node, clock=lambda: now.unix_s)
        self._collectors = (
            GpuCollector(node, services=lambda: services),
            InfinibandCollector(node, rails=_Rails(node), meter=CongestionMeter(clock=lambda: now.since_s)),
            HostCollector(_Host(node)),
            JobsCollector(
                _Mapper(node), node, lambda: 300.0 * now.since_s, clock=lambda: now.since_s, wall=lambda: now.unix_s
            ),
        )

    def lines(self) -> Iterator[str]:
        """The scrape, a line a series, without time stamps."""
        node = self.node
        for collector in self._collectors:
            yield from _lines(collector.collect())
        if node.number == 3 and node.now.step == 40:
            self._xids.tally.record(uuid(3, 3), None, 79, node.now.unix_s, "nvml")
        if node.number == 3 and node.now.step == 22:
            self._xids.tally.record(uuid(3, 0), None, 94, node.now.unix_s, "nvml")
        if node.number == 2 and node.now.step in (10, 11, 12):
            self._xids.tally.record(uuid(2, 0), None, 31, node.now.unix_s, "nvml")
        if self._xids.tally.counts():
            yield from _lines(self._xids.collect())
        yield from self._by_hand()

    def _by_hand(self) -> Iterator[str]:
        node, step, since_s = self.node, self.node.now.step, self.node.now.since_s
        gpus_w = sum(node.power_w)
        node_w = gpus_w + 900.0 + 30.0 * wave(node.number, step)
        dcmi = 'source="dcmi",sensor="node",part="node"'
        yield f"opsk_power_draw_watts{{{dcmi}}} {node_w}"
        yield f'opsk_power_source_age_seconds{{source="dcmi"}} {step % 3 * 10}'
        for source in ("rapl", "hwmon", "dcmi"):
            yield f'opsk_power_source_present{{source="{source}"}} 1'
            yield f'opsk_power_source_success{{source="{source}"}} {int((node.number, source) != (3, "rapl"))}'
        for reason in ("permission", "error", "malformed"):
            bad = int(reason == "permission" and node.number == 3)
            yield f'opsk_power_unreadable_sensors{{source="rapl",reason="{reason}"}} {bad}'
        for socket in (0, 1):
            zone = f'source="rapl",sensor="package-{socket}",part="package"'
            yield f"opsk_power_energy_joules_total{{{zone}}} {150.0 * since_s}"
        for part, watts in (("node", node_w), ("cpu", 300.0), ("gpu", gpus_w)):
            yield f'opsk_power_balance_watts{{part="{part}"}} {watts}'
        yield f"opsk_power_unaccounted_watts {node_w - gpus_w - 300.0}"
        for fan in (1, 2):
            yield f'opsk_power_fan_speed_hertz{{chip="nct6775",sensor="fan{fan}"}} {90 + 10 * fan}'
        for collector in COLLECTORS:
            failed = node.number == 3 and collector == "power" and step > 50
            late = failed * (step - 50) * STEP_S
            yield f'opsk_collector_success{{collector="{collector}"}} {int(not failed)}'
            yield f'opsk_collector_source_present{{collector="{collector}"}} 1'
            yield f'opsk_collector_duration_seconds{{collector="{collector}"}} {5.0 if failed else 0.01}'
            yield f'opsk_collector_age_seconds{{collector="{collector}"}} {late}'
            for kind in ("error", "deadline"):
                count = max(0, step - 50) if node.number == 3 and (collector, kind) == ("power", "deadline") else 0
                yield f'opsk_collector_failures_total{{collector="{collector}",kind="{kind}"}} {count}'
        yield 'opsk_exporter_info{version="0.7.0"} 1'
        yield f"opsk_exporter_process_cpu_seconds_total {0.012 * since_s}"
        yield f"opsk_exporter_process_resident_memory_bytes {42e6 + 1e5 * node.number}"
        yield f"opsk_kernel_log_readable {int(node.number != 3)}"
        if node.number != 3:
            seen = node.now.start_unix_s + step // 5 * 150.0
            yield f'opsk_kernel_log_events_total{{kind="pcie_corrected"}} {step // 5}'
            yield f'opsk_kernel_log_event_last_seen_timestamp_seconds{{kind="pcie_corrected"}} {seen}'
        if node.number == 0:
            yield from self._training()
            yield from self._slurm()

    def _training(self) -> Iterator[str]:
        step_s = 11.2 + 0.2 * wave(5, self.node.now.step)
        tokens = 256 * 8192
        job = f'job="{TRAINING}"'
        yield f'opsk_training_info{{{job},framework="megatron"}} 1'
        yield f"opsk_training_step_seconds{{{job}}} {step_s}"
        yield f"opsk_training_tokens_per_second{{{job}}} {tokens / step_s}"
        yield f"opsk_training_tflops_per_gpu{{{job}}} {4400 / step_s}"
        yield f"opsk_training_iteration{{{job}}} {1000 + int(self.node.now.since_s // 11.2)}"
        for bound, seconds in (("low", 8.8), ("expected", 9.3), ("high", 9.9)):
            yield f'opsk_training_predicted_step_seconds{{{job},bound="{bound}"}} {seconds}'
        yield f'opsk_slurm_job_predicted_memory_bytes{{{job},job_id="{TRAINING}"}} 7.1e10'
        yield f"opsk_training_iterations{{{job}}} 5000"
        yield f"opsk_training_loss{{{job}}} {2.4 - 0.002 * self.node.now.step}"
        yield "opsk_training_logs_unreadable 0"

    def _slurm(self) -> Iterator[str]:
        step = self.node.now.step
        for state, count in (("running", 3), ("pending", 2 + step // 12), ("completing", 0)):
            yield f'opsk_slurm_jobs{{state="{state}",partition="gpu"}} {count}'
            yield f'opsk_slurm_cluster_jobs{{state="{state}"}} {count}'
        for state, count in (("allocated", 3), ("mixed", int(step < 40)), ("drained", int(step >= 40)), ("idle", 0)):
            yield f'opsk_slurm_nodes{{state="{state}",partition="gpu"}} {count}'
            yield f'opsk_slurm_cluster_nodes{{state="{state}"}} {count}'
        for state, count in (("allocated", 13), ("idle", 3)):
            yield f'opsk_slurm_gpus{{state="{state}",partition="gpu"}} {count}'
            yield f'opsk_slurm_cluster_gpus{{state="{state}"}} {count}'
        yield f'opsk_slurm_pending_jobs{{reason="resources",partition="gpu"}} {2 + step // 12}'
        for name, wait_s in (("p50", 600), ("p90", 3600)):
            yield f'opsk_slurm_pending_wait_{name}_seconds{{partition="gpu"}} {wait_s + 20 * step}'


def _lines(metrics: Iterable[Metric]) -> Iterator[str]:
    """Series as Prometheus has them."""
    for metric in metrics:
        for sample in metric.samples:
            labels = ",".join(f'{key}="{value}"' for key, value in sorted(sample.labels.items()))
            yield f"{sample.name}{{{labels}}} {floatToGoString(sample.value)}"


def with_target(line: str, node: str) -> str:
    """Give a series the labels that a scrape gives it: those of the target, and ``job`` where it has none."""
    head, _space, value = line.rpartition(" ")
    name, brace, labels = head.partition("{")
    inside = labels.removesuffix("}") if brace else ""
    target = [f'cluster="{CLUSTER}"', f'instance="{node}:9876"', f'node="{node}"']
    if not any(label.startswith("job=") for label in inside.split(",")):
        target.append('job="opsk"')
    return f"{name}{{{','.join([*target, *([inside] if inside else [])])}}} {value}"


def openmetrics(start_unix_s: float) -> Iterator[str]:
    """All scrapes of all nodes, with time stamps, as ``promtool tsdb create-blocks-from openmetrics`` reads them."""
    moment = Moment(start_unix_s)
    scrapes = [Scraped(Node(number, moment)) for number in range(len(NODES))]
    for step in range(STEPS):
        moment.step = step
        for scraped in scrapes:
            node = scraped.node.name
            lines = list(scraped.lines())
            own = ["up{} 1", "scrape_duration_seconds{} 0.03", f"scrape_samples_scraped{{}} {len(lines)}"]
            for line in [*lines, *own]:
                yield f"{with_target(line, node)} {moment.unix_s:.3f}"
    yield "# EOF"
