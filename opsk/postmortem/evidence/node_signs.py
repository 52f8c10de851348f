"""What does a node's file tell a post-mortem? Differences between start and end of the job, and the kernel's lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from opsk.postmortem.logs.kernel import signs_in
from opsk.postmortem.values import FailureClass, Origin, Place, Role, Sign

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
LEAST_CAPPED = 0.2
"""Clocks held down for this share of the job's time are worth a word [ratio]."""
_CAPS = frozenset(
    ("thermal", "reliability", "board_limit", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake")
)
_UP = ("ACTIVE",)
LATE_S = 120.0
"""By then the next job may have broken something, or somebody put something right."""


def node_signs(said: Mapping[str, Any]) -> tuple[Sign, ...]:
    """Return the signs of one node's file; what has not the form that opsk writes says nothing."""
    node = _text(said.get("node"))
    start, end = _table(said.get("start")), _table(said.get("end"))
    source = f"{node}: evidence kept by its epilog"
    own = _own_gpus(start, end)
    found = [
        *_kernel(said, node, own),
        *_gpus(start, end, own),
        *_ports(start, end),
        *_cgroup(end),
    ]
    at = _number(end.get("at_s"))
    return tuple(
        replace(
            sign, source=sign.source or source, time_s=sign.time_s if sign.time_s is not None else at,
            place=replace(sign.place, node=node or sign.place.node),
        )
        for sign in found
    )  # fmt: skip


def looked_at(files: Sequence[Mapping[str, Any]], nodes: int) -> dict[str, str]:
    """Return which kinds of evidence nodes kept, and for how many of how many nodes."""
    kinds = {
        "kernel_log": sum(not _table(each.get("kernel")).get("problem", "none kept") for each in files),
        "nvml": sum(bool(_list(_table(each.get("end")).get("gpus"))) for each in files),
        "ib_counters": sum(
            bool(_list(_table(each.get("end")).get("ports"))) and bool(_table(each.get("start"))) for each in files
        ),
        "cgroup": sum(_table(each.get("end")).get("cgroup") is not None for each in files),
    }
    return {kind: f"{count} of {max(nodes, count)} nodes" for kind, count in kinds.items() if count}


def problems_of(files: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return what nodes could not read themselves."""
    found: dict[str, list[str]] = {}
    for each in files:
        end = _table(each.get("end"))
        for kind, problem in (
            ("kernel log", _table(each.get("kernel")).get("problem")), ("GPUs", end.get("gpu_problem")),
            ("ports", end.get("port_problem")), ("output", each.get("log_problem")),
        ):  # fmt: skip
            if problem:
                found.setdefault(f"{kind}: {_text(problem)}", []).append(_text(each.get("node")))
        if (_difference(end.get("at_s"), each.get("until_s")) or 0.0) > LATE_S:
            late = f"GPUs and ports: read more than {LATE_S:.0f} s after the end; what they say may be of a later job"
            found.setdefault(late, []).append(_text(each.get("node")))
    return tuple(
        f"{', '.join(nodes[:8])}{' and others' if len(nodes) > 8 else ''}: {what}" for what, nodes in found.items()
    )


def _own_gpus(start: Mapping[str, Any], end: Mapping[str, Any]) -> frozenset[str] | None:
    """Return UUIDs and PCI addresses of the job's GPUs; ``None`` where nobody tells which they are."""
    told = start.get("job_gpus") or end.get("job_gpus")
    if not isinstance(told, list):
        return None
    uuids = {_text(each) for each in told}
    gpus = [*_list(start.get("gpus")), *_list(end.get("gpus"))]
    return frozenset(uuids | {_text(gpu.get("pci")) for gpu in gpus if _text(gpu.get("uuid")) in uuids} - {""})


def _kernel(said: Mapping[str, Any], node: str, own: frozenset[str] | None) -> list[Sign]:
    """Return the signs of the kernel's lines; Xids of GPUs of other jobs are shown, and begin nothing here."""
    kernel = _table(said.get("kernel"))
    lines = [_text(line, 1000) for line in kernel.get("lines", ()) if isinstance(line, str)]
    boot_s, source = _number(said.get("boot_unix_s")), f"{node}: {_text(kernel.get('source'))}"
    index = {_text(gpu.get("pci")): gpu for gpu in _all_gpus(said)}
    devices = _devices(said)
    found = []
    for sign in signs_in(lines, source=source, node=node, boot_unix_s=boot_s):
        netdev = sign.place.hca
        if netdev in devices:
            place = replace(sign.place, hca=devices[netdev])
            sign = replace(sign, place=place, fields={**sign.fields, "netdev": netdev})
        gpu = index.get(sign.place.pci)
        if gpu is not None:
            place = replace(sign.place, gpu_index=_whole(gpu.get("index")), gpu_uuid=_text(gpu.get("uuid")))
            sign = replace(sign, place=place)
        if own and sign.place.pci and gpu is not None and sign.place.pci not in own:
            sign = replace(sign, role=Role.ADVICE)
        found.append(sign)
    return found


def _devices(said: Mapping[str, Any]) -> dict[str, str]:
    """Return the RDMA device of each network interface, of those whose name is not a device's own."""
    ports = [*_list(_table(said.get("start")).get("ports")), *_list(_table(said.get("end")).get("ports"))]
    found = {_text(port.get("netdev")): _text(port.get("device")) for port in ports}
    return {netdev: device for netdev, device in found.items() if netdev and device}


def _all_gpus(said: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*_list(_table(said.get("start")).get("gpus")), *_list(_table(said.get("end")).get("gpus"))]


def _gpus(start: Mapping[str, Any], end: Mapping[str, Any], own: frozenset[str] | None) -> list[Sign]:
    """Return what became of the job's GPUs."""
    before = {_text(gpu.get("uuid")): gpu for gpu in _list(start.get("gpus"))}
    by_index = {_whole(gpu.get("index")): gpu for gpu in _list(start.get("gpus"))}
    ran_s = _difference(end.get("at_s"), start.get("at_s")) or 0.0
    found: list[Sign] = []
    for gpu in _list(end.get("gpus")):
        # A GPU that no longer answers may have lost its name with the rest.
        first = before.get(
            _text(gpu.get("uuid")), {} if gpu.get("uuid") else by_index.get(_whole(gpu.get("index")), {})
        )
        uuid = _text(gpu.get("uuid")) or _text(first.get("uuid"))
        if (own and uuid not in own) or first.get("lost"):
            continue
        pci = _text(gpu.get("pci")) or _text(first.get("pci"))
        place = Place(gpu_uuid=uuid, gpu_index=_whole(gpu.get("index")), pci=pci)
        found += _of_gpu(gpu, first, place, ran_s)
    return found


def _of_gpu(gpu: Mapping[str, Any], first: Mapping[str, Any], place: Place, ran_s: float) -> Iterable[Sign]:
    """Return what became of one GPU."""
    if gpu.get("lost"):
        yield _sign("gpu.lost", Role.ROOT, Origin.GPU, FailureClass.GPU_HARDWARE, place, {"why": gpu["lost"]})
        return
    action = gpu.get("recovery_action")
    if action not in HEALTHY_ACTIONS and first.get("recovery_action") in HEALTHY_ACTIONS:
        # Without a snapshot of the start it may have been so before.
        role = Role.ROOT if first else Role.CONFIRMATION
        yield _sign("gpu.needs_recovery", role, Origin.GPU, FailureClass.GPU_HARDWARE, place, {"action": action})
    for span in ("aggregate", "volatile"):
        name = f"uncorrected_{span}"
        more = _difference(_table(gpu.get("ecc")).get(name), _table(first.get("ecc")).get(name))
        if more is not None and more > 0:
            fields = {"count": f"{more:.0f}"}
            yield _sign("gpu.ecc_uncorrected", Role.ROOT, Origin.GPU, FailureClass.GPU_HARDWARE, place, fields)
            break
    for flag in ("remap_pending", "remap_failure"):
        if gpu.get(flag) is True and first.get(flag) is False:
            role, fields = Role.CONFIRMATION, {"what": flag}
            yield _sign("gpu.row_remap", role, Origin.GPU, FailureClass.GPU_HARDWARE, place, fields)
    down = set(_numbers(gpu.get("links_down"))) - set(_numbers(first.get("links_down")))
    if down and first:
        fields = {"links": " ".join(map(str, sorted(down)))}
        yield _sign("gpu.nvlink_down", Role.ROOT, Origin.GPU, FailureClass.NVLINK, place, fields)
    for cause, held_s in _table(gpu.get("violation_s")).items():
        more = _difference(held_s, _table(first.get("violation_s")).get(cause))
        if cause in _CAPS and more is not None and ran_s > 0 and more > LEAST_CAPPED * ran_s:
            fields = {"cause": cause, "share": f"{min(1.0, more / ran_s):.2f}"}
            yield _sign("gpu.capped", Role.CONFIRMATION, Origin.GPU, None, place, fields)


def _ports(start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Sign]:
    """Return what became of the ports: only what was well at the start can have failed."""
    before = {(_text(each.get("device")), each.get("port")): each for each in _list(start.get("ports"))}
    found: list[Sign] = []
    for port in _list(end.get("ports")):
        device = _text(port.get("device"))
        first = before.get((device, port.get("port")))
        if first is None or _text(first.get("state")) not in _UP:
            continue
        place, fields = Place(hca=device), {"port": _text(port.get("port"))}
        state = _text(port.get("state"))
        if state not in _UP:
            fields |= {"state": state, "phys_state": _text(port.get("phys_state"))}
            found.append(_sign("ib.port_down", Role.ROOT, Origin.FABRIC, FailureClass.FABRIC, place, fields))
        rose = {
            name: more
            for name, value in _table(port.get("counters")).items()
            if (more := _difference(value, _table(first.get("counters")).get(name))) is not None and more > 0
        }
        if "link_downed" in rose:
            fields = {**fields, "count": f"{rose['link_downed']:.0f}"}
            found.append(_sign("ib.link_flapped", Role.ROOT, Origin.FABRIC, FailureClass.FABRIC, place, fields))
        errors = {name: f"{more:.0f}" for name, more in rose.items() if name in ERRORS}
        if errors:
            found.append(_sign("ib.errors", Role.CONFIRMATION, Origin.FABRIC, FailureClass.FABRIC, place, errors))
    return found


def _cgroup(end: Mapping[str, Any]) -> list[Sign]:
    """Return processes that were killed for memory."""
    cgroup = _table(end.get("cgroup"))
    kills = _whole(cgroup.get("oom_kills"))
    if not kills:
        return []
    fields = {"kills": str(kills), "peak_bytes": _text(cgroup.get("memory_peak_bytes")),
              "limit_bytes": _text(cgroup.get("memory_limit_bytes"))}  # fmt: skip
    return [_sign("cgroup.oom_kill", Role.ROOT, Origin.CGROUP, FailureClass.HOST_MEMORY, Place(), fields)]


def _sign(
    signature: str, role: Role, origin: Origin, failure: FailureClass | None, place: Place, fields: Mapping[str, Any]
) -> Sign:
    told = {name: _text(value) for name, value in fields.items() if value not in (None, "")}
    text = ", ".join(f"{name} {value}" for name, value in told.items())
    return Sign(signature=signature, role=role, origin=origin, failure=failure, place=place, text=text, fields=told)


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
