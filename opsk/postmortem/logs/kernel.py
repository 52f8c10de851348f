"""Converts typed events of a node's kernel log into signs with the kernel as their origin."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from functools import cache
from pathlib import Path

from opsk.hardware.xids import Suspect, Xid, XidClass, xid
from opsk.postmortem.logs.lines import find_line, read_fields
from opsk.postmortem.logs.matching import TEXT_CHARS, FindingSet
from opsk.postmortem.logs.pieces import KERNEL_LIMITS, KernelLines, ReadLimits, open_log
from opsk.postmortem.signatures.signature import Signature, signatures
from opsk.postmortem.values import FailureClass, Finding, Origin, Place, Role
from opsk.telemetry.kernel_log import (
    CrashEvent,
    DriverEvent,
    FallenOffBusEvent,
    HungTaskEvent,
    KernelEvent,
    LineReader,
    LinkState,
    MemoryErrorEvent,
    NicEvent,
    OomEvent,
    OomScope,
    PanicEvent,
    PcieErrorEvent,
    Severity,
    Stamp,
    SxidEvent,
    XidEvent,
    read_kernel_log,
)
from opsk.telemetry.kernel_log.lines import Clock, KernelLine

_DAEMONS = ("mmfs",)
"""Programs that speak for a file system of the kernel, in the journal."""


@cache
def _kernel_signatures() -> tuple[Signature, ...]:
    """Return the signatures that apply to kernel logs."""
    return tuple(each for each in signatures() if each.origin is Origin.KERNEL)


class KernelTextScanner:
    """Scans the lines of a kernel log for signatures while they pass through.

    Parameters
    ----------
    reader
        Takes lines apart.
    source, node
        The log, and its node, where lines name none.
    """

    def __init__(self, reader: LineReader, *, source: str, node: str = "") -> None:
        self._reader = reader
        self._source = source
        self._node = node
        self._gathered = FindingSet()

    def pass_through(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield lines as they are."""
        for number, line in enumerate(lines, 1):
            for signature in _kernel_signatures():
                if any(fragment in line for fragment in signature.fragments):
                    self._add_match(signature, self._reader.read(line, number))
            yield line

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return the findings so far, equal ones counted."""
        return tuple(self._gathered.findings.values())

    def _add_match(self, signature: Signature, line: KernelLine) -> None:
        """Take in a line that has a fragment, where the kernel wrote it."""
        fields = read_fields(signature, line.message)
        if fields is None or not (line.from_kernel or line.ident in _DAEMONS):
            return
        stamp, number = line.stamp, line.number or 0
        unix_s = stamp.unix_s
        if unix_s is None and stamp.wall is not None:
            unix_s = stamp.wall.replace(tzinfo=UTC).timestamp()
        place = Place(node=line.host or self._node, pci=fields.get("pci", ""), peer=fields.get("peer", ""))
        self._gathered.add(
            Finding(
                signature=signature.id, role=signature.role, origin=Origin.KERNEL, failure=signature.failure,
                time_s=unix_s, place=place, order=number, source=self._source, line=number,
                text=line.message[:TEXT_CHARS], fields=fields,
            )
        )  # fmt: skip


_KERNEL_SHARE = 0.6
_ROUNDING = 1e-6
_MINOR = frozenset((XidClass.INFO, XidClass.WATCH, XidClass.UNUSED, XidClass.UNKNOWN, XidClass.RESET_WHEN_IDLE))
_NETWORK_DRIVERS = ("mlx5_core", "mlx4_core", "bnxt_en", "ice", "efa", "hfi1")
_SYSLOG = re.compile(r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d|\{")
_DMESG = re.compile(
    r"(?:[\w.-]{1,64}: )?(?:\[ *\d{1,9}\.\d{6}\]|\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} )"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}[+-]\d\d:\d\d "
)
"""``dmesg``, ``dmesg -T`` and its ISO form; brackets around other dates are those of training programs."""
_BARE = re.compile(
    r"(?:[\w.-]{1,64} )?kernel: |NVRM: |nvidia-nvswitch\d{0,3}: |nvidia-nvlink: |mlx5_core \w{4}:|EDAC |mce: |\[drm"
    r"|amdgpu |pcieport \w{4}:|LustreError: "
)
"""Lines of the kernel that a person cut out, without their times."""
_WRITERS = re.compile(
    r"kernel$|systemd|slurm|NetworkManager$|sshd$|CRON$|sudo$|dbus|chronyd|ntpd|nvidia|mmfs$|containerd"
)
"""Programs that write into journals. Python's logging puts a date and two words before lines as well."""
_SERVICES = re.compile(
    r"(?:systemd|sssd|nscd|journald|udev|auditd|crond|ntpd|ptp4l|postfix|nfsd|rpc\.|mmfs|beegfs|opensm|ibacm|gdm|prometheus|nslcd|dbus|snapd|cron|sshd|rsyslog|chronyd|munged|slurmd|slurmstepd|node_exporter|dcgm|nv-host"
    r"|nvidia-persiste|nvidia-smi|telegraf|fluent|filebeat|containerd|dockerd|kubelet|Xorg|gnome|polkit|irqbalance|tuned)"
)
"""Programs of the node: that one of them crashes or is killed is background."""
_SLURM_CGROUP = "slurm"
"""Jobs of Slurm are below slurmstepd.scope or slurm, whichever version of control groups."""
_REACH_BYTES = 300
_XID = b"Xid ("
_OFF_BUS = b"fallen off the bus"


def is_kernel_log(start: bytes) -> bool:
    """Return whether a file is a kernel's log or journal as a whole, by the form of its first lines."""
    # an indented line continues the one before
    lines = [raw for raw in start.splitlines()[:400] if raw.strip() and raw[:1] not in b" \t"]
    reader, others = LineReader(), (1 - _KERNEL_SHARE) * len(lines)
    for raw in lines:
        others -= not _is_stamped(reader, raw.decode("utf-8", "replace"))
        if others < -_ROUNDING:
            return False  # the rest cannot outweigh these
    return bool(lines)


def _is_stamped(reader: LineReader, line: str) -> bool:
    """Return whether a line has the form of the kernel's buffer, dmesg, syslog or the journal."""
    read = reader.read(line)
    if read.stamp.clock is Clock.NONE:
        return _BARE.match(line) is not None
    if read.level is not None or read.sequence is not None or _DMESG.match(line):
        return True
    return read.ident is not None and bool(_SYSLOG.match(line) or _WRITERS.search(read.ident))


def scan_kernel_log(
    path: Path, *, node: str = "", not_after_s: float | None = None, zone: tzinfo | None = None,
    boot_unix_s: float | None = None, limits: ReadLimits = KERNEL_LIMITS,
) -> tuple[tuple[Finding, ...], str, str]:  # fmt: skip
    """Return the findings in a kernel log, why it could not be read to its end, and which part of it was read.

    Parameters
    ----------
    node
        Node of the log, where lines name none.
    not_after_s
        When it was written [s since 1970]: gives the year where lines do not.
    limits
        How much of it is read.

    Raises
    ------
    InputError
        The log cannot be opened.
    """
    last = datetime.fromtimestamp(not_after_s, zone or UTC).replace(tzinfo=None) if not_after_s is not None else None
    with open_log(path) as stream:
        lines = KernelLines(stream, limits)
        findings = scan_kernel_lines(
            lines, source=str(path), node=node, zone=zone or UTC, not_after=last, boot_unix_s=boot_unix_s
        )
    if lines.numbered is not None:
        findings = tuple(replace(each, has_line=each.line <= lines.numbered) for each in findings)
    problem, note = (f"{path}: {text}" if text else "" for text in (lines.problem, lines.note))
    return findings, problem, note


def scan_kernel_lines(
    lines: Iterable[str], *, source: str, node: str = "", zone: tzinfo | None = None,
    not_after: datetime | None = None, boot_unix_s: float | None = None,
) -> tuple[Finding, ...]:  # fmt: skip
    """Return the findings in lines of a kernel log; the options on times are those of `LineReader`."""
    texts = KernelTextScanner(
        LineReader(zone=zone, not_after=not_after, boot_unix_s=boot_unix_s), source=source, node=node
    )
    log = read_kernel_log(texts.pass_through(lines), zone=zone, not_after=not_after, boot_unix_s=boot_unix_s)
    return (*convert_events(log.events, source=source, node=node), *texts.findings)


def scan_quoted_xids(data: bytes, *, source: str, offset: int = 0) -> tuple[Finding, ...]:
    """Return Xids that a text quotes which is no kernel log: shown, and never evidence of the kernel.

    Parameters
    ----------
    offset
        Where these bytes begin in their log.
    """
    lines: dict[int, str] = {}
    for word in (_XID, _OFF_BUS):
        position = data.find(word)
        while position >= 0 and len(lines) < 256:
            line = find_line(data, position + len(word))
            if line.start not in lines:
                lines[line.start] = line.text
            elif word == _XID:  # several in one line, as reports list them
                lines[position] = (
                    "NVRM: " + data[position : position + _REACH_BYTES].decode("utf-8", "replace").partition("\n")[0]
                )
            position = data.find(word, position + 1)
    starts = sorted(lines)
    events = read_kernel_log([lines[start] for start in starts]).events if lines else ()
    quoted = convert_events(events, source=source, origin=Origin.JOB_LOG)
    return tuple(
        replace(each, order=offset + starts[each.line - 1], has_line=False) if 0 < each.line <= len(starts) else each
        for each in quoted
    )


def convert_events(
    events: Iterable[KernelEvent], *, source: str, node: str = "", origin: Origin = Origin.KERNEL
) -> tuple[Finding, ...]:
    """Convert each event to a finding."""
    findings = []
    for number, event in enumerate(events):
        meaning = _interpret(event)
        if meaning is None:
            continue
        signature, failure, role, place, fields = meaning
        if origin is not Origin.KERNEL:
            role = Role.ADVICE
        findings.append(
            Finding(
                signature=signature,
                role=role,
                origin=origin,
                failure=failure,
                time_s=_to_unix_s(event.at),
                place=_with_node(place, event.host or node),
                order=number,
                source=source,
                line=event.line or 0,
                text=event.text[:TEXT_CHARS],
                fields={name: value for name, value in fields.items() if value},
            )
        )
    return tuple(findings)


def _to_unix_s(stamp: Stamp) -> float | None:
    """Return when an event was [s since 1970]; a wall clock without a zone is read as UTC."""
    if stamp.unix_s is not None:
        return stamp.unix_s
    return stamp.wall.replace(tzinfo=UTC).timestamp() if stamp.wall is not None else None


def _with_node(place: Place, node: str) -> Place:
    """Return a place on a node."""
    return Place(node=node, gpu_uuid=place.gpu_uuid, gpu_index=place.gpu_index, pci=place.pci, hca=place.hca)


_Meaning = tuple[str, FailureClass, Role, Place, dict[str, str]]


def _interpret(event: KernelEvent) -> _Meaning | None:
    """Return the meaning of one event; ``None`` where it is no failure."""
    for kind, read in _READERS.items():
        if isinstance(event, kind):
            return read(event)  # type: ignore[operator, no-any-return]
    return None


_EARLIER_XID = re.compile(r"\bcaused by previous Xid (?P<code>\d{1,4})\b")
"""The driver names the error for which it stopped a channel (Xid 45): open-gpu-kernel-modules issue 1150."""


def _read_xid(event: XidEvent) -> _Meaning:
    """Read an Xid by its class in the catalogue; one that follows from another is read as that other one."""
    earlier = _EARLIER_XID.search(event.rest)
    entry = xid(int(earlier["code"])) if earlier is not None else event.entry
    fields = {
        "code": str(entry.code), "seen": str(event.code) if earlier is not None else "",
        "pci": event.pci, "name": entry.name, "class": str(entry.class_),
        "action": entry.action, "process": event.process or "", "pid": str(event.pid or ""),
        "recovery": event.recovery.name if event.recovery else "",
    }  # fmt: skip
    place = Place(pci=event.pci, gpu_uuid=event.gpu_uuid or "")
    return "kernel.xid", _classify_failure(entry), _classify_role(entry), place, fields


def _classify_failure(entry: Xid) -> FailureClass:
    """Return the class of failure that an Xid belongs to."""
    if entry.suspect in (Suspect.NVLINK, Suspect.C2C) or entry.class_ is XidClass.NVLINK:
        return FailureClass.NVLINK
    if entry.class_ is XidClass.APP:
        return FailureClass.SOFTWARE
    return FailureClass.GPU_HARDWARE


_CONTAINED_XID = 94
"""The GPU goes on, but the processes that used the memory are ended: NVIDIA's Xid catalogue, contained ECC error."""


def _classify_role(entry: Xid) -> Role:
    """Return the part that an Xid can play."""
    if entry.code == _CONTAINED_XID:
        return Role.ROOT
    if not entry.may_be_root:
        return Role.CASCADE if entry.class_ is XidClass.CASCADE else Role.CONFIRMATION
    return Role.CONFIRMATION if entry.class_ in _MINOR else Role.ROOT


def _read_off_bus(event: FallenOffBusEvent) -> _Meaning:
    """Read a GPU that fell off the bus without an Xid."""
    pci = event.pci or ""
    return "kernel.off_bus", FailureClass.GPU_HARDWARE, Role.ROOT, Place(pci=pci), {"pci": pci}


def _read_sxid(event: SxidEvent) -> _Meaning:
    """Read an NVSwitch's error."""
    fields = {"code": str(event.code), "pci": event.pci, "name": event.entry.name, "link": str(event.link or "")}
    fatal = event.fatal or event.entry.severity in ("fatal", "always_fatal")
    return "kernel.sxid", FailureClass.NVLINK, Role.ROOT if fatal else Role.CONFIRMATION, Place(), fields


def _read_driver(event: DriverEvent) -> _Meaning:
    """Read other complaints of the driver."""
    role = Role.ROOT if event.kind in ("init_failed", "probe_failed", "gsp_timeout") else Role.CONFIRMATION
    fields = {"kind": event.kind, "error": event.error or ""}
    return "kernel.nvidia_driver", FailureClass.GPU_HARDWARE, role, Place(pci=event.pci or ""), fields


def _read_pcie(event: PcieErrorEvent) -> _Meaning | None:
    """Read PCIe errors of GPUs and HCAs."""
    if event.severity is Severity.CORRECTED or event.kind in ("received", "recovered"):
        return None
    failure = FailureClass.NODE
    if event.driver == "nvidia":
        failure = FailureClass.GPU_HARDWARE
    elif event.driver in _NETWORK_DRIVERS:
        failure = FailureClass.FABRIC
    fields = {"kind": event.kind, "severity": str(event.severity or ""), "driver": event.driver or ""}
    return "kernel.pcie", failure, Role.ROOT, Place(pci=event.pci or ""), fields


def _read_memory(event: MemoryErrorEvent) -> _Meaning:
    """Read errors of host memory."""
    role = Role.CONFIRMATION if event.severity is Severity.CORRECTED else Role.ROOT
    return "kernel.memory_error", FailureClass.NODE, role, Place(), {"kind": event.kind, "where": event.where}


def _read_nic(event: NicEvent) -> _Meaning | None:
    """Read an event of a port: a link that comes up is no failure."""
    name = event.device or event.netdev or ""
    fields = {"kind": event.kind, "port": str(event.port or ""), "state": str(event.state or ""), "device": name}
    if event.kind == "link":
        if event.state is LinkState.DOWN:
            return "kernel.link_down", FailureClass.FABRIC, Role.ROOT, Place(hca=name), fields
        return "kernel.link_up", FailureClass.FABRIC, Role.CONFIRMATION, Place(hca=name), fields
    role = Role.ROOT if event.kind in ("health", "cable", "command") else Role.CONFIRMATION
    return "kernel.nic", FailureClass.FABRIC, role, Place(hca=name), fields


def _read_oom(event: OomEvent) -> _Meaning:
    """Read a process that was ended for memory."""
    fields = {
        "process": event.process or "", "pid": str(event.pid or ""), "cgroup": event.cgroup or "",
        "scope": str(event.scope or ""), "rss_bytes": str(event.rss_bytes or ""),
    }  # fmt: skip
    cgroup = event.cgroup or ""
    is_of_node = bool(_SERVICES.match(event.process or "")) or cgroup.startswith("/system.slice/")
    if is_of_node and _SLURM_CGROUP not in cgroup:
        return "kernel.oom", FailureClass.HOST_MEMORY, Role.ADVICE, Place(), fields
    role = Role.ROOT if event.scope is not OomScope.NODE or event.pid else Role.CONFIRMATION
    return "kernel.oom", FailureClass.HOST_MEMORY, role, Place(), fields


def _read_hung_task(event: HungTaskEvent) -> _Meaning:
    """Read a task or processor that does not go on."""
    fields = {"kind": event.kind, "process": event.process or "", "blocked_s": str(event.blocked_s or "")}
    return "kernel.hung", FailureClass.NODE, Role.CONFIRMATION, Place(), fields


def _read_crash(event: CrashEvent) -> _Meaning:
    """Read a process that broke a rule of the processor."""
    fields = {"kind": event.kind, "process": event.process, "pid": str(event.pid), "library": event.library or ""}
    role = Role.ADVICE if _SERVICES.match(event.process) else Role.ROOT
    return "kernel.segfault", FailureClass.SOFTWARE, role, Place(), fields


def _read_panic(_event: PanicEvent) -> _Meaning:
    """Read a kernel that gave up."""
    return "kernel.panic", FailureClass.NODE, Role.ROOT, Place(), {}


_READERS: dict[type[KernelEvent], object] = {
    XidEvent: _read_xid, FallenOffBusEvent: _read_off_bus, SxidEvent: _read_sxid, DriverEvent: _read_driver,
    PcieErrorEvent: _read_pcie, MemoryErrorEvent: _read_memory, NicEvent: _read_nic, OomEvent: _read_oom,
    HungTaskEvent: _read_hung_task, CrashEvent: _read_crash, PanicEvent: _read_panic,
}  # fmt: skip
