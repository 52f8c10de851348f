"""Derives signs from a node's evidence: differences between start and end of the job, and the kernel's messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from opsk.postmortem.logs.kernel import scan_kernel_lines
from opsk.postmortem.values import FailureClass, Finding, Origin, Place, Role

ERRORS = frozenset(
    (
        *("symbol_error", "link_error_recovery", "port_rcv_errors", "local_link_integrity_errors"),
        *("excessive_buffer_overrun_errors", "port_rcv_remote_physical_errors", "port_xmit_discards"),
        *(
            "local_ack_timeout_err",
            "packet_seq_err",
            "out_of_sequence",
            "rnr_nak_retry_err",
            "req_transport_retries_exceeded",
        ),
    )
)
"""Counters of a port that a failing link or a dead peer drives up."""
HEALTHY_ACTIONS = frozenset((None, "", "none"))
MIN_CAPPED = 0.2
"""Clocks held down for this share of the job's time are worth a word [ratio]."""
_CAPS = frozenset(
    ("thermal", "reliability", "board_limit", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake")
)
_UP = ("ACTIVE",)
MAX_DELAY_S = 120.0
"""After this the next job may have broken something, or an administrator repaired something [s]."""


def find_node_findings(document: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Return the findings in one node's file; malformed parts give none."""
    node = _text(document.get("node"))
    start, end = _table(document.get("start")), _table(document.get("end"))
    source = f"{node}: evidence kept by its epilog"
    job_gpus = _find_job_gpus(start, end)
    findings = [
        *_scan_kernel(document, node, job_gpus),
        *_compare_gpus(start, end, job_gpus),
        *_compare_ports(start, end),
        *_check_cgroup(end),
    ]
    time_s = _number(end.get("at_s"))
    return tuple(
        replace(
            finding, source=finding.source or source, time_s=finding.time_s if finding.time_s is not None else time_s,
            place=replace(finding.place, node=node or finding.place.node),
        )
        for finding in findings
    )  # fmt: skip


def count_evidence(files: Sequence[Mapping[str, Any]], nodes: int) -> dict[str, str]:
    """Return the kinds of evidence in nodes' files, and for how many of how many nodes."""
    kinds = {
        "kernel_log": sum(not _table(file.get("kernel")).get("problem", "none kept") for file in files),
        "nvml": sum(bool(_list(_table(file.get("end")).get("gpus"))) for file in files),
        "ib_counters": sum(
            bool(_list(_table(file.get("end")).get("ports"))) and bool(_table(file.get("start"))) for file in files
        ),
        "cgroup": sum(_table(file.get("end")).get("cgroup") is not None for file in files),
    }
    return {kind: f"{count} of {max(nodes, count)} nodes" for kind, count in kinds.items() if count}


def list_problems(files: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the sources that nodes could not read."""
    nodes_by_problem: dict[str, list[str]] = {}
    for file in files:
        end = _table(file.get("end"))
        for kind, problem in (
            ("kernel log", _table(file.get("kernel")).get("problem")), ("GPUs", end.get("gpu_problem")),
            ("ports", end.get("port_problem")), ("output", file.get("log_problem")),
        ):  # fmt: skip
            if problem:
                nodes_by_problem.setdefault(f"{kind}: {_text(problem)}", []).append(_text(file.get("node")))
        if (_difference(end.get("at_s"), file.get("until_s")) or 0.0) > MAX_DELAY_S:
            late = (
                f"GPUs and ports: read more than {MAX_DELAY_S:.0f} s after the end; what they say may be of a later job"
            )
            nodes_by_problem.setdefault(late, []).append(_text(file.get("node")))
    return tuple(
        f"{', '.join(nodes[:8])}{' and others' if len(nodes) > 8 else ''}: {what}"
        for what, nodes in nodes_by_problem.items()
    )


def _find_job_gpus(start: Mapping[str, Any], end: Mapping[str, Any]) -> frozenset[str] | None:
    """Return UUIDs and PCI addresses of the job's GPUs; ``None`` where they are unknown."""
    reported = start.get("job_gpus") or end.get("job_gpus")
    if not isinstance(reported, list):
        return None
    uuids = {_text(uuid) for uuid in reported}
    gpus = [*_list(start.get("gpus")), *_list(end.get("gpus"))]
    return frozenset(uuids | {_text(gpu.get("pci")) for gpu in gpus if _text(gpu.get("uuid")) in uuids} - {""})


def _scan_kernel(document: Mapping[str, Any], node: str, job_gpus: frozenset[str] | None) -> list[Finding]:
    """Return the findings in the kernel's lines; Xids of GPUs of other jobs are shown as advice only."""
    kernel = _table(document.get("kernel"))
    lines = [_text(line, 1000) for line in kernel.get("lines", ()) if isinstance(line, str)]
    boot_s, source = _number(document.get("boot_unix_s")), f"{node}: {_text(kernel.get('source'))}"
    index = {_text(gpu.get("pci")): gpu for gpu in _list_gpus(document)}
    devices = _map_devices(document)
    findings = []
    for finding in scan_kernel_lines(lines, source=source, node=node, boot_unix_s=boot_s):
        netdev = finding.place.hca
        if netdev in devices:
            place = replace(finding.place, hca=devices[netdev])
            finding = replace(finding, place=place, fields={**finding.fields, "netdev": netdev})
        gpu = index.get(finding.place.pci)
        if gpu is not None:
            place = replace(finding.place, gpu_index=_whole(gpu.get("index")), gpu_uuid=_text(gpu.get("uuid")))
            finding = replace(finding, place=place)
        if job_gpus and finding.place.pci and gpu is not None and finding.place.pci not in job_gpus:
            finding = replace(finding, role=Role.ADVICE)
        findings.append(finding)
    return findings


def _map_devices(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the RDMA device of each network interface whose name is not a device's name."""
    ports = [*_list(_table(document.get("start")).get("ports")), *_list(_table(document.get("end")).get("ports"))]
    devices = {_text(port.get("netdev")): _text(port.get("device")) for port in ports}
    return {netdev: device for netdev, device in devices.items() if netdev and device}


def _list_gpus(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*_list(_table(document.get("start")).get("gpus")), *_list(_table(document.get("end")).get("gpus"))]


def _compare_gpus(start: Mapping[str, Any], end: Mapping[str, Any], job_gpus: frozenset[str] | None) -> list[Finding]:
    """Compare the job's GPUs at its end with its start."""
    before = {_text(gpu.get("uuid")): gpu for gpu in _list(start.get("gpus"))}
    by_index = {_whole(gpu.get("index")): gpu for gpu in _list(start.get("gpus"))}
    ran_s = _difference(end.get("at_s"), start.get("at_s")) or 0.0
    findings: list[Finding] = []
    for gpu in _list(end.get("gpus")):
        # A GPU that no longer answers may have lost its name with the rest.
        first = before.get(
            _text(gpu.get("uuid")), {} if gpu.get("uuid") else by_index.get(_whole(gpu.get("index")), {})
        )
        uuid = _text(gpu.get("uuid")) or _text(first.get("uuid"))
        if (job_gpus and uuid not in job_gpus) or first.get("lost"):
            continue
        pci = _text(gpu.get("pci")) or _text(first.get("pci"))
        place = Place(gpu_uuid=uuid, gpu_index=_whole(gpu.get("index")), pci=pci)
        findings += _compare_gpu(gpu, first, place, ran_s)
    return findings


def _compare_gpu(gpu: Mapping[str, Any], first: Mapping[str, Any], place: Place, ran_s: float) -> Iterable[Finding]:
    """Compare one GPU at the job's end with its start."""
    if gpu.get("lost"):
        yield _build_finding("gpu.lost", Role.ROOT, Origin.GPU, FailureClass.GPU_HARDWARE, place, {"why": gpu["lost"]})
        return
    action = gpu.get("recovery_action")
    if action not in HEALTHY_ACTIONS and first.get("recovery_action") in HEALTHY_ACTIONS:
        # Without a snapshot of the start it may have been so before.
        role = Role.ROOT if first else Role.CONFIRMATION
        yield _build_finding(
            "gpu.needs_recovery", role, Origin.GPU, FailureClass.GPU_HARDWARE, place, {"action": action}
        )
    for span in ("aggregate", "volatile"):
        name = f"uncorrected_{span}"
        more = _difference(_table(gpu.get("ecc")).get(name), _table(first.get("ecc")).get(name))
        if more is not None and more > 0:
            fields = {"count": f"{more:.0f}"}
            yield _build_finding("gpu.ecc_uncorrected", Role.ROOT, Origin.GPU, FailureClass.GPU_HARDWARE, place, fields)
            break
    for flag in ("remap_pending", "remap_failure"):
        if gpu.get(flag) is True and first.get(flag) is False:
            role, fields = Role.CONFIRMATION, {"what": flag}
            yield _build_finding("gpu.row_remap", role, Origin.GPU, FailureClass.GPU_HARDWARE, place, fields)
    down = set(_numbers(gpu.get("links_down"))) - set(_numbers(first.get("links_down")))
    if down and first:
        fields = {"links": " ".join(map(str, sorted(down)))}
        yield _build_finding("gpu.nvlink_down", Role.ROOT, Origin.GPU, FailureClass.NVLINK, place, fields)
    for cause, held_s in _table(gpu.get("violation_s")).items():
        more = _difference(held_s, _table(first.get("violation_s")).get(cause))
        if cause in _CAPS and more is not None and ran_s > 0 and more > MIN_CAPPED * ran_s:
            fields = {"cause": cause, "share": f"{min(1.0, more / ran_s):.2f}"}
            yield _build_finding("gpu.capped", Role.CONFIRMATION, Origin.GPU, None, place, fields)


def _compare_ports(start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Finding]:
    """Compare the ports at the job's end with its start: only ports that were healthy at the start can have failed."""
    before = {(_text(each.get("device")), each.get("port")): each for each in _list(start.get("ports"))}
    findings: list[Finding] = []
    for port in _list(end.get("ports")):
        device = _text(port.get("device"))
        first = before.get((device, port.get("port")))
        if first is None or _text(first.get("state")) not in _UP:
            continue
        place, fields = Place(hca=device), {"port": _text(port.get("port"))}
        state = _text(port.get("state"))
        if state not in _UP:
            fields |= {"state": state, "phys_state": _text(port.get("phys_state"))}
            findings.append(
                _build_finding("ib.port_down", Role.ROOT, Origin.FABRIC, FailureClass.FABRIC, place, fields)
            )
        rose = {
            name: more
            for name, value in _table(port.get("counters")).items()
            if (more := _difference(value, _table(first.get("counters")).get(name))) is not None and more > 0
        }
        if "link_downed" in rose:
            fields = {**fields, "count": f"{rose['link_downed']:.0f}"}
            findings.append(
                _build_finding("ib.link_flapped", Role.ROOT, Origin.FABRIC, FailureClass.FABRIC, place, fields)
            )
        errors = {name: f"{more:.0f}" for name, more in rose.items() if name in ERRORS}
        if errors:
            findings.append(
                _build_finding("ib.errors", Role.CONFIRMATION, Origin.FABRIC, FailureClass.FABRIC, place, errors)
            )
    return findings


def _check_cgroup(end: Mapping[str, Any]) -> list[Finding]:
    """Return processes that were killed for memory."""
    cgroup = _table(end.get("cgroup"))
    kills = _whole(cgroup.get("oom_kills"))
    if not kills:
        return []
    fields = {"kills": str(kills), "peak_bytes": _text(cgroup.get("memory_peak_bytes")),
              "limit_bytes": _text(cgroup.get("memory_limit_bytes"))}  # fmt: skip
    return [_build_finding("cgroup.oom_kill", Role.ROOT, Origin.CGROUP, FailureClass.HOST_MEMORY, Place(), fields)]


def _build_finding(
    signature: str, role: Role, origin: Origin, failure: FailureClass | None, place: Place, fields: Mapping[str, Any]
) -> Finding:
    texts = {name: _text(value) for name, value in fields.items() if value not in (None, "")}
    text = ", ".join(f"{name} {value}" for name, value in texts.items())
    return Finding(signature=signature, role=role, origin=origin, failure=failure, place=place, text=text, fields=texts)


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _numbers(value: object) -> list[int]:
    return [each for each in value if isinstance(each, int)] if isinstance(value, list) else []


def _text(value: object, limit: int = 200) -> str:
    return "" if value is None else str(value)[:limit]


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _difference(now: object, before: object) -> float | None:
    """Return how much a counter rose; ``None`` where one of the two is not known, or it was reset."""
    late, early = _number(now), _number(before)
    return None if late is None or early is None or late < early else late - early
