"""Finds the signs of failure in one round of observations, part by part, with the memory of the round before.

A sign is not yet an event: `opsk.diagnosis.events.merging` merges parts that fail from one cause, and
`opsk.diagnosis.events.detection` waits, ends and counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from operator import is_
from statistics import median_high
from typing import ParamSpec, TypeVar

from opsk.diagnosis.events.actions import Action, Hysteresis, actions, find_action
from opsk.diagnosis.events.observations import FailedPart, GpuSeen, NodeSeen, Observations, PortSeen, Severity, XidSeen
from opsk.hardware.xids import XidClass, xid

Params = ParamSpec("Params")
Result = TypeVar("Result")


def cache_last_call(work: Callable[Params, Result]) -> Callable[Params, Result]:
    """Return a function that reuses its last result where it is called with the same arguments again.

    For frozen arguments, given by position. Threads may compute a result twice, and never get that of other arguments.
    """
    last: tuple[tuple[object, ...], Result] | None = None

    @wraps(work)
    def wrapper(*args: Params.args, **kwargs: Params.kwargs) -> Result:
        nonlocal last
        known = last
        if known is not None and not kwargs and len(known[0]) == len(args) and all(map(is_, known[0], args)):
            return known[1]
        result = work(*args, **kwargs)
        if not kwargs:
            last = args, result
        return result

    return wrapper


GpuPlace = tuple[str, int]
_RANK = {Severity.FATAL: 0, Severity.DEGRADED: 1, Severity.WATCH: 2}
_NVLINK_CLASSES = frozenset({XidClass.NVLINK})
_NVLINK_XIDS = frozenset({74, 136, 155})
_BAD_SXIDS = frozenset({"fatal", "always_fatal"})
_FEW_PEERS = 3
_UNKNOWN = "not in the catalogue of XIDs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One sign of failure of one part.

    Parameters
    ----------
    part, failed
        The part, and how ``opsk remap --failed`` names it.
    what
        A word (``lost``, ``xid79``, ``port_down``).
    node
        The node that it is on; empty for a leaf or a domain.
    text
        The observation, with its numbers.
    of_domain
        Whether it is about the GPU's NVLink domain rather than the GPU alone.
    is_gone
        Whether the part does not work at all.
    leaf
        The leaf that a port is cabled to.
    hosts
        Nodes that it touches, where it is about more than one.
    """

    part: FailedPart
    failed: str
    what: str
    node: str
    text: str
    severity: Severity
    after_s: float
    action: str
    source: str
    of_domain: bool = False
    is_gone: bool = False
    leaf: str = ""
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The state of a round that the next one needs.

    Parameters
    ----------
    at_s, first_s
        When it was, and when the first round was [s since 1970].
    gpus
        GPUs that were there, by node and index.
    links
        The most NVLinks that were active, by node and index.
    ports
        Ports that were up, or that are known to be cabled.
    best_rates
        The best rate that each port had [bytes/s].
    downs
        The last value of each port's counter of downs; ``down_times`` when it grew [s since 1970].
    xids
        Count and time [s since 1970] of each XID by GPU and code, for sources without times.
    seen_gpus, seen_ports
        The observations: for the very same tuples all this is known already.
    """

    at_s: float = 0.0
    first_s: float = 0.0
    gpus: Mapping[GpuPlace, str] = field(default_factory=dict)
    links: Mapping[GpuPlace, int] = field(default_factory=dict)
    ports: frozenset[str] = frozenset()
    best_rates: Mapping[str, float] = field(default_factory=dict)
    downs: Mapping[str, int] = field(default_factory=dict)
    down_times: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    xids: Mapping[tuple[str, int], tuple[int, float]] = field(default_factory=dict)
    seen_gpus: tuple[GpuSeen, ...] = field(default=(), compare=False, repr=False)
    seen_ports: tuple[PortSeen, ...] = field(default=(), compare=False, repr=False)


def assign_indices(seen: Observations, memory: Memory) -> Observations:
    """Return observations in which each GPU has an index: a lost one its former index, else a free one of its node.

    Parameters
    ----------
    memory
        Memory of the round before.
    """
    if _have_indices(seen.gpus):
        return seen
    places = {(node, uuid): index for (node, index), uuid in memory.gpus.items() if uuid}
    known = [replace(gpu, index=places.get((gpu.node, gpu.uuid))) if gpu.index is None else gpu for gpu in seen.gpus]
    of_node: defaultdict[str, list[GpuSeen]] = defaultdict(list)
    for gpu in sorted(known, key=lambda gpu: (gpu.node, gpu.uuid)):
        of_node[gpu.node].append(gpu)
    indexed = []
    for gpus in of_node.values():
        used = {gpu.index for gpu in gpus}
        free = iter(index for index in range(len(gpus)) if index not in used)
        indexed += [gpu if gpu.index is not None else replace(gpu, index=next(free, None)) for gpu in gpus]
    return replace(seen, gpus=tuple(gpu for gpu in indexed if gpu.index is not None))


def update_memory(seen: Observations, before: Memory, hysteresis: Hysteresis) -> Memory:
    """Return the memory after this round; nodes that were not read keep their former state."""
    if before.at_s and seen.at_s <= before.at_s:
        return before
    gpus = before.gpus if seen.gpus is before.seen_gpus else {**before.gpus, **_map_uuids(seen.gpus)}
    links = dict(before.links)
    for gpu in _find_reporting_gpus(seen.gpus):
        if gpu.links_active and gpu.index is not None:
            place = (gpu.node, gpu.index)
            links[place] = max(links.get(place, 0), gpu.links_active)
    ports, best = before.ports, before.best_rates
    if seen.ports is not before.seen_ports:
        ports |= {port.name for port in seen.ports if port.is_up or port.leaf}
        best = _update_best_rates(seen.ports, best)
    downs, times = dict(before.downs), dict(before.down_times)
    for port in _find_counting_ports(seen.ports):
        count = port.downs or 0
        grew = max(count - downs.get(port.name, count), 0)
        recent = [time_s for time_s in times.get(port.name, ()) if seen.at_s - time_s < hysteresis.flap_s]
        times[port.name] = (*recent, *([seen.at_s] * min(grew, hysteresis.flapping_downs)))
        downs[port.name] = count
    return Memory(
        at_s=seen.at_s, first_s=before.first_s or seen.at_s, gpus=gpus, links=links, ports=ports, best_rates=best,
        downs=downs, down_times=times,
        xids=dict(before.xids) | dict(_update_xid_times(seen, before)), seen_gpus=seen.gpus, seen_ports=seen.ports,
    )  # fmt: skip


def find_findings(seen: Observations, memory: Memory, hysteresis: Hysteresis) -> list[Finding]:
    """Return all findings of a round with indices (`assign_indices`), which ``memory`` includes (`update_memory`)."""
    findings = [finding for node in seen.nodes for finding in _check_node(node, seen.at_s, hysteresis)]
    links = _count_usual_links(_find_reporting_gpus(seen.gpus))
    for gpu in _find_reporting_gpus(seen.gpus):
        findings += _check_gpu(gpu, seen.at_s, memory, links.get(gpu.node, 0), hysteresis)
    findings += _find_missing(seen, memory)
    peers = _compute_peer_rates(seen.ports)
    flapped = (port for port in seen.ports if port.name in memory.down_times)
    for port in {id(port): port for port in (*_find_suspect_ports(seen.ports, memory.best_rates), *flapped)}.values():
        findings += _check_port(port, memory, peers, hysteresis)
    return sorted(set(findings), key=lambda finding: (_RANK[finding.severity], finding.failed, finding.what))


def _build_finding(
    part: FailedPart, name: str, what: str, node: str, text: str, *, of_domain: bool = False, is_gone: bool = False,
    leaf: str = "", meaning: Action | None = None,
) -> Finding:  # fmt: skip
    """Return a finding with the meaning in ``actions.toml``."""
    means = meaning or find_action(what)
    return Finding(
        part=part, failed=f"{part}:{name}", what=what, node=node, text=text, severity=means.severity,
        after_s=means.after_s, action=means.action, source=means.source, of_domain=of_domain, is_gone=is_gone,
        leaf=leaf,
    )  # fmt: skip


def _check_node(node: NodeSeen, at_s: float, hysteresis: Hysteresis) -> Iterator[Finding]:
    """Yield the findings from Slurm and the NVSwitches."""
    if node.is_down:
        why = f": {node.reason}" if node.reason else ""
        yield _build_finding(
            FailedPart.NODE, node.name, "node_down", node.name, f"Slurm: {node.state or 'DOWN'}{why}", is_gone=True
        )
    elif node.is_silent:
        yield _build_finding(
            FailedPart.NODE, node.name, "node_silent", node.name, f"Slurm: {node.state or 'NOT_RESPONDING'}"
        )
    bad = [
        error
        for error in node.sxids
        if error.count and error.severity in _BAD_SXIDS and at_s - (error.last_s or 0.0) < hysteresis.xid_hold_s
    ]
    if bad:
        codes = ", ".join(f"{error.code} ({error.count} times)" for error in sorted(bad, key=lambda error: error.code))
        what = "switch" if any(error.severity == "always_fatal" for error in bad) else "switch_port"
        yield _build_finding(
            FailedPart.HB_DOMAIN, node.hb_domain, what, node.name, f"NVSwitch of {node.name}: SXid {codes}",
            of_domain=True, is_gone=what == "switch",
        )  # fmt: skip


def _count_usual_links(gpus: Iterable[GpuSeen]) -> dict[str, int]:
    """Return how many NVLinks more than half of a node's GPUs have active, by node; 0 where that many have none."""
    counts: defaultdict[str, list[int]] = defaultdict(list)
    for gpu in gpus:
        if gpu.links_active is not None:
            counts[gpu.node].append(gpu.links_active)
    return {node: sorted(counted, reverse=True)[len(counted) // 2] for node, counted in counts.items()}


def _check_gpu(
    gpu: GpuSeen, at_s: float, memory: Memory, usual_links: int, hysteresis: Hysteresis
) -> Iterator[Finding]:
    """Yield the findings on one GPU."""
    name = f"{gpu.node}/{gpu.index}"

    def build(what: str, text: str, *, of_domain: bool = False, is_gone: bool = False) -> Finding:
        return _build_finding(FailedPart.GPU, name, what, gpu.node, text, of_domain=of_domain, is_gone=is_gone)

    if not gpu.is_up:
        yield build("lost", "the GPU does not answer its driver any more", is_gone=True)
    yield from _check_xids(gpu, name, at_s, memory, hysteresis)
    if gpu.uncorrected:
        yield build("uncorrected_ecc", f"{gpu.uncorrected} uncorrected memory errors since the last reset")
    if gpu.remap_failed:
        yield build("remap_failed", "a row of memory could not be replaced")
    if gpu.remap_pending:
        yield build("remap_pending", "rows of memory wait for a reset to be replaced")
    if gpu.recovery not in {"", "none"}:
        yield build(f"recovery.{gpu.recovery}", f"the driver wants: {gpu.recovery.replace('_', ' ')}")
    links = max(usual_links, memory.links.get((gpu.node, gpu.index or 0), 0))
    if gpu.is_up and gpu.links_active is not None and gpu.links_active < links:
        what = "nvlink_some" if gpu.links_active else "nvlink_down"
        yield build(what, f"{gpu.links_active} of {links} NVLinks are active", of_domain=True)
    if gpu.fabric_faults:
        yield build("fabric", f"NVLink fabric: {', '.join(sorted(gpu.fabric_faults))}", of_domain=True)


def _check_xids(gpu: GpuSeen, name: str, at_s: float, memory: Memory, hysteresis: Hysteresis) -> Iterator[Finding]:
    """Yield the XIDs that still count, unless the driver reports that the GPU has recovered."""
    for report in sorted(gpu.xids, key=lambda item: item.code):
        entry = xid(report.code)
        severity = actions().xid_classes.get(entry.class_)
        last_s = _find_last_s(gpu, report, memory)
        if severity is None or last_s is None or not _is_current(gpu, at_s - last_s, hysteresis):
            continue
        if entry.class_ is XidClass.APP and report.count < hysteresis.few_app_xids:
            continue
        times = f", {report.count} times" if report.count > 1 else ""
        yield _build_finding(
            FailedPart.GPU, name, f"xid{report.code}", gpu.node, f"XID {report.code}: {entry.meaning}{times}",
            of_domain=entry.class_ in _NVLINK_CLASSES or report.code in _NVLINK_XIDS,
            meaning=Action(severity=severity, after_s=0.0, action=entry.action, source=entry.source or _UNKNOWN),
        )  # fmt: skip


def _is_current(gpu: GpuSeen, age_s: float, hysteresis: Hysteresis) -> bool:
    """Return whether an XID of this age still counts: not where the driver has reported the GPU as healthy since."""
    has_recovered = gpu.is_up and gpu.recovery == "none"
    return age_s < (hysteresis.xid_settle_s if has_recovered else hysteresis.xid_hold_s)


def _find_last_s(gpu: GpuSeen, report: XidSeen, memory: Memory) -> float | None:
    """Return when an XID came last; for a source without times when its count grew, ``None`` where it never did."""
    if report.last_s is not None:
        return report.last_s
    return memory.xids.get((_gpu_key(gpu), report.code), (0, None))[1]


def _update_xid_times(seen: Observations, before: Memory) -> Iterator[tuple[tuple[str, int], tuple[int, float]]]:
    """Yield count and time of XIDs without a time; one that was there in the first round is old."""
    for gpu in _find_reporting_gpus(seen.gpus):
        for report in gpu.xids:
            key = (_gpu_key(gpu), report.code)
            known = before.xids.get(key)
            if report.last_s is None and (known is None or report.count != known[0]):
                is_first = known is None and (gpu.node, gpu.index) not in before.gpus
                is_new = not is_first and (known is None or report.count > known[0])
                yield key, (report.count, seen.at_s if is_new else known[1] if known else 0.0)


def _gpu_key(gpu: GpuSeen) -> str:
    return gpu.uuid or f"{gpu.node}/{gpu.index}"


def _find_missing(seen: Observations, memory: Memory) -> Iterator[Finding]:
    """Yield GPUs that were there before, and nodes that show fewer than Slurm has configured.

    A node without any GPU series has another trouble: its exporter does not read GPUs.
    """
    read = {node.name: node for node in seen.nodes if node.is_read and not node.is_down}
    shown, known = _count_by_node(_list_places(seen.gpus)), _count_by_node_before(memory.gpus)
    gone = _find_gone(memory.gpus, _list_places(seen.gpus))
    uuids = {gpu.uuid for gpu in seen.gpus if gpu.uuid} if gone else set[str]()
    for node, index in gone:
        if node in read and shown[node] and memory.gpus[node, index] not in uuids:
            yield _build_finding(
                FailedPart.GPU, f"{node}/{index}", "missing", node, "the GPU was there before and is gone", is_gone=True
            )
    for name, seen_node in read.items():
        if seen_node.gpus and 0 < max(shown[name], known[name]) < seen_node.gpus:
            text = f"{shown[name]} of the {seen_node.gpus} GPUs that Slurm has configured are there"
            yield _build_finding(FailedPart.NODE, name, "missing", name, text)


@cache_last_call
def _find_suspect_ports(ports: tuple[PortSeen, ...], best_rates: Mapping[str, float]) -> tuple[PortSeen, ...]:
    """Return the ports that are down, count their downs, or were faster, as their peers may be: nearly none are."""
    peers = _compute_peer_rates(ports)
    return tuple(
        port
        for port in ports
        if not port.is_up
        or (rate := port.rate_bytes_per_s) is None
        or port.downs is not None
        or rate < best_rates.get(port.name, 0.0)
        or rate < peers.get((port.role, port.device), 0.0)
    )


def _check_port(
    port: PortSeen, memory: Memory, peers: Mapping[tuple[str, str], float], hysteresis: Hysteresis
) -> Iterator[Finding]:
    """Yield the findings on one port; one that never was up, and is not known to be cabled, is empty."""
    known = port.name in memory.ports
    if port.is_up is False and known:
        where = f" to {port.leaf}" if port.leaf else ""
        text = f"the link{where} is down"
        yield _build_finding(FailedPart.NIC, port.name, "port_down", port.node, text, is_gone=True, leaf=port.leaf)
    downs = len(memory.down_times.get(port.name, ()))
    if downs >= hysteresis.flapping_downs and known:
        text = f"the link went down {downs} times or more in {hysteresis.flap_s:.0f} s"
        yield _build_finding(FailedPart.NIC, port.name, "flapping", port.node, text)
    best = max(memory.best_rates.get(port.name, 0.0), peers.get((port.role, port.device), 0.0))
    if port.is_up and port.rate_bytes_per_s is not None and port.rate_bytes_per_s < hysteresis.slow_ratio * best:
        text = f"the link runs at {port.rate_bytes_per_s * 8e-9:.0f} Gbit/s, its best is {best * 8e-9:.0f}"
        yield _build_finding(FailedPart.NIC, port.name, "slow", port.node, text)


@cache_last_call
def _compute_peer_rates(ports: tuple[PortSeen, ...]) -> dict[tuple[str, str], float]:
    """Return the usual rate of ports of the same name and role on most nodes [bytes/s], where there are a few."""
    rates: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for port in ports:
        if port.is_up and port.rate_bytes_per_s:
            rates[port.role, port.device].append(port.rate_bytes_per_s)
    return {key: median_high(counted) for key, counted in rates.items() if len(counted) >= _FEW_PEERS}


@cache_last_call
def _have_indices(gpus: tuple[GpuSeen, ...]) -> bool:
    return all(gpu.index is not None for gpu in gpus)


@cache_last_call
def _find_reporting_gpus(gpus: tuple[GpuSeen, ...]) -> tuple[GpuSeen, ...]:
    """Return the GPUs with any report."""
    return tuple(gpu for gpu in gpus if not gpu.is_quiet)


@cache_last_call
def _find_counting_ports(ports: tuple[PortSeen, ...]) -> tuple[PortSeen, ...]:
    """Return the ports whose downs are counted."""
    return tuple(port for port in ports if port.downs is not None)


@cache_last_call
def _list_places(gpus: tuple[GpuSeen, ...]) -> frozenset[GpuPlace]:
    return frozenset(gpu.place for gpu in gpus)


@cache_last_call
def _count_by_node(places: frozenset[GpuPlace]) -> Counter[str]:
    return Counter(node for node, _ in places)


@cache_last_call
def _count_by_node_before(gpus: Mapping[GpuPlace, str]) -> Counter[str]:
    return Counter(node for node, _ in gpus)


@cache_last_call
def _find_gone(before: Mapping[GpuPlace, str], now: frozenset[GpuPlace]) -> frozenset[GpuPlace]:
    """Return where GPUs were before and are none now."""
    return frozenset(before.keys() - now)


def _map_uuids(gpus: Iterable[GpuSeen]) -> dict[GpuPlace, str]:
    """Return the GPUs that answer, by place."""
    return {gpu.place: gpu.uuid for gpu in gpus if gpu.is_up and gpu.index is not None}


def _update_best_rates(ports: Iterable[PortSeen], before: Mapping[str, float]) -> dict[str, float]:
    """Return the best rate that each port had [bytes/s]."""
    best = dict(before)
    for port in ports:
        if port.is_up and (rate := port.rate_bytes_per_s) and rate > best.get(port.name, 0.0):
            best[port.name] = rate
    return best
