"""Converts the Prometheus series of one node's exporter into observations of its GPUs and ports.

Pure: the caller gets the series, from an exporter's page or from Prometheus, and passes them as name, labels and value.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from opsk.diagnosis.events.observations import GpuSeen, JobSeen, NodeSeen, PortSeen, SxidSeen, XidSeen
from opsk.metrics import names as metric_names
from opsk.metrics.exposition import Sample
from opsk.slurm.records import JobRecord, NodeRecord

_ACTIVE = 4.0
_INDEX = re.compile(r"index-([0-9]{1,3})")
_MIG_TYPE = re.compile(r"(?:^|_)[0-9]g\.")
_POWER_WORDS = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWERING_UP", "POWER_UP", "REBOOT_ISSUED"})
"""A node that Slurm itself turns off and on does not fail."""
NAMES = frozenset(
    {
        metric_names.GPU_UP,
        metric_names.GPU_INFO,
        metric_names.GPU_XID_ERRORS_TOTAL,
        metric_names.GPU_XID_LAST_SEEN_TIMESTAMP_SECONDS,
        metric_names.GPU_ECC_VOLATILE_ERRORS_TOTAL,
        metric_names.GPU_ROW_REMAP_PENDING,
        metric_names.GPU_ROW_REMAP_FAILED,
        metric_names.GPU_RECOVERY_ACTION,
        metric_names.GPU_NVLINKS,
        metric_names.GPU_FABRIC_HEALTHY,
        metric_names.GPU_FABRIC_FAULT,
        metric_names.GPU_FABRIC_INFO,
        metric_names.GPU_FABRIC_JOINED,
        metric_names.GPU_FABRIC_STATE,
        metric_names.NVSWITCH_SXID_ERRORS_TOTAL,
        metric_names.NVSWITCH_SXID_LAST_SEEN_TIMESTAMP_SECONDS,
        metric_names.INFINIBAND_PORT_STATE,
        metric_names.INFINIBAND_PORT_INFO,
        metric_names.INFINIBAND_PORT_RATE_BYTES_PER_SECOND, metric_names.INFINIBAND_PORT_LINK_DOWNED_TOTAL,
    }
)  # fmt: skip
"""Names of all series that are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeParts:
    """The parts in one node's series; ``domain`` is the multi-node NVLink domain that most of its GPUs are in."""

    gpus: tuple[GpuSeen, ...] = ()
    ports: tuple[PortSeen, ...] = ()
    sxids: tuple[SxidSeen, ...] = ()
    domain: str = ""


@dataclass(slots=True)
class _Gpu:
    """The series of one GPU so far; fabric states are collected until all series are read."""

    index: int | None = None
    is_up: bool = True
    xids: dict[int, int] = field(default_factory=dict)
    xid_times: dict[int, float] = field(default_factory=dict)
    uncorrected: int | None = None
    remap: set[str] = field(default_factory=set)
    recovery: str = ""
    links: int | None = None
    faults: set[str] = field(default_factory=set)
    states: set[str] = field(default_factory=set)


def build_node_parts(node: str, samples: Iterable[Sample]) -> NodeParts:
    """Return the parts of one node; other and damaged series are skipped."""
    gpus: defaultdict[str, _Gpu] = defaultdict(_Gpu)
    ports: defaultdict[tuple[str, str], dict[str, Sample]] = defaultdict(dict)
    switches: defaultdict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    domains: Counter[str] = Counter()
    for sample in samples:
        if sample.name not in NAMES or not math.isfinite(sample.value):
            continue
        if sample.name.startswith("opsk_infiniband_"):
            ports[sample.labels.get("device", ""), sample.labels.get("port", "1")][sample.name] = sample
        elif sample.name.startswith("opsk_nvswitch_"):
            key = tuple(sample.labels.get(name, "") for name in ("pci", "sxid", "severity"))
            switches[key[0], key[1], key[2]][sample.name] = sample.value
        elif sample.name == metric_names.GPU_FABRIC_INFO:
            domains[_name_domain(sample.labels)] += 1
        elif gpu := sample.labels.get("gpu"):
            _record_sample(gpus[gpu], sample)
    return NodeParts(
        gpus=tuple(
            _build_gpu(node, uuid, gpu) for uuid, gpu in sorted(gpus.items()) if gpu.index is not None or not gpu.is_up
        ),
        ports=tuple(
            _build_port(node, device, port, values) for (device, port), values in sorted(ports.items()) if device
        ),
        sxids=tuple(_build_sxids(switches)),
        domain=max(domains, key=lambda name: (domains[name], name), default=""),
    )


def _name_domain(labels: Mapping[str, str]) -> str:
    """Return the name of an NVLink domain of several nodes, as `opsk.fabric.hb_domains` has it; empty within one."""
    cluster, clique = labels.get("cluster_uuid", ""), labels.get("clique", "")
    return f"{cluster.lower()}.{_parse_whole(clique) or 0}" if cluster.strip("0-") else ""


def _record_sample(gpu: _Gpu, sample: Sample) -> None:
    """Add one series of a GPU."""
    labels, value = sample.labels, sample.value
    match sample.name.removeprefix("opsk_gpu_"):
        case "up":
            gpu.is_up = value > 0
        case "info":
            gpu.index = _parse_whole(labels.get("index", ""))
        case "xid_errors_total":
            if (code := _parse_whole(labels.get("xid", ""))) is not None:
                gpu.xids[code] = gpu.xids.get(code, 0) + int(value)
        case "xid_last_seen_timestamp_seconds":
            if (code := _parse_whole(labels.get("xid", ""))) is not None:
                gpu.xid_times[code] = max(value, gpu.xid_times.get(code, value))
        case "ecc_volatile_errors_total":
            if labels.get("error") == "uncorrected":
                gpu.uncorrected = (gpu.uncorrected or 0) + int(value)
        case "row_remap_pending" | "row_remap_failed" as name if value:
            gpu.remap.add(name)
        case "recovery_action" if value:
            gpu.recovery = labels.get("action", "")
        case "nvlinks":
            gpu.links = (gpu.links or 0) + (int(value) if labels.get("state") == "active" else 0)
        case "fabric_healthy" if not value:
            gpu.faults.add("unhealthy")
        case "fabric_fault" if value:
            gpu.faults.add(labels.get("fault", ""))
        case "fabric_joined" if not value:
            gpu.faults.add("not joined")
        case "fabric_state" if value:
            gpu.states.add(labels.get("state", ""))
        case _:
            pass


def _build_gpu(node: str, uuid: str, gpu: _Gpu) -> GpuSeen:
    """Return one GPU; while it joins its fabric it has no fault for not having joined."""
    named = _INDEX.fullmatch(uuid)
    faults = gpu.faults if "in_progress" not in gpu.states else gpu.faults - {"not joined"}
    return GpuSeen(
        node=node,
        index=int(named[1]) if named else gpu.index,
        uuid="" if named else uuid,
        is_up=gpu.is_up,
        xids=tuple(
            XidSeen(code=code, count=count, last_s=gpu.xid_times.get(code)) for code, count in sorted(gpu.xids.items())
        ),
        uncorrected=gpu.uncorrected,
        remap_pending="row_remap_pending" in gpu.remap,
        remap_failed="row_remap_failed" in gpu.remap,
        recovery=gpu.recovery,
        links_active=gpu.links,
        fabric_faults=tuple(sorted(faults - {""})),
    )


def _build_port(node: str, device: str, port: str, samples: Mapping[str, Sample]) -> PortSeen:
    def value(name: str) -> float | None:
        sample = samples.get(f"opsk_infiniband_port_{name}")
        return sample.value if sample is not None else None

    info = samples.get(metric_names.INFINIBAND_PORT_INFO)
    labels = info.labels if info is not None else {}
    state, downs = value("state"), value("link_downed_total")
    return PortSeen(
        node=node,
        device=device,
        port=_parse_whole(port) or 1,
        is_up=None if state is None else state == _ACTIVE,
        rate_bytes_per_s=value("rate_bytes_per_second"),
        downs=None if downs is None else int(downs),
        leaf=labels.get("leaf", ""),
        rail=_parse_whole(labels.get("rail", "")),
        role=labels.get("role", ""),
    )


def _build_sxids(switches: Mapping[tuple[str, str, str], Mapping[str, float]]) -> Iterator[SxidSeen]:
    for (_, sxid, severity), values in sorted(switches.items()):
        code = _parse_whole(sxid)
        if code is not None and (count := values.get(metric_names.NVSWITCH_SXID_ERRORS_TOTAL)):
            last_s = values.get(metric_names.NVSWITCH_SXID_LAST_SEEN_TIMESTAMP_SECONDS)
            yield SxidSeen(code=code, severity=severity, count=int(count), last_s=last_s)


def _parse_whole(text: str) -> int | None:
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else None


def build_node(
    record: NodeRecord, *, domain: str = "", is_read: bool = True, parts: NodeParts | None = None
) -> NodeSeen:
    """Return a node from Slurm's record; of MIG instances Slurm counts more GPUs than there are."""
    words = {record.state, *record.state_flags}
    is_whole = record.gpu_type is None or _MIG_TYPE.search(record.gpu_type) is None
    return NodeSeen(
        name=record.name,
        is_read=is_read,
        is_down="DOWN" in words and not words & _POWER_WORDS,
        is_silent="NOT_RESPONDING" in words and not words & _POWER_WORDS,
        state="+".join([record.state, *record.state_flags]),
        reason=record.reason or "",
        gpus=record.gpus if record.gpus and is_whole else None,
        domain=domain or (parts.domain if parts is not None else ""),
        sxids=parts.sxids if parts is not None else (),
    )


def build_job(record: JobRecord) -> JobSeen:
    """Return a running job from Slurm's record."""
    return JobSeen(id=record.id, nodes=record.nodes, gpus=dict(record.gpu_indices))
