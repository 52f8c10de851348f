"""What do a node's kernel log lines mean for a job? Typed events become signs that only the kernel can give."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, tzinfo
from functools import cache
from pathlib import Path

from opsk.hardware.xids import Suspect, Xid, XidClass
from opsk.postmortem.logs.gathering import TEXT_CHARS, Gathered
from opsk.postmortem.logs.lines import fields_of, line_at
from opsk.postmortem.logs.pieces import KernelLines, opened
from opsk.postmortem.signatures.signature import Signature, signatures
from opsk.postmortem.values import FailureClass, Origin, Place, Role, Sign
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
def _of_kernels() -> tuple[Signature, ...]:
    """Return the signatures that are looked for in kernel logs."""
    return tuple(each for each in signatures() if each.origin is Origin.KERNEL)


class KernelTexts:
    """Looks at the lines of a kernel log as they pass by.

    Parameters
    ----------
    reader
        Takes lines apart.
    source, node
        The log, and the node whose log it is, where lines name none.
    """

    def __init__(self, reader: LineReader, *, source: str, node: str = "") -> None:
        self._reader = reader
        self._source = source
        self._node = node
        self._gathered = Gathered()

    def passing(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield lines as they are."""
        for number, line in enumerate(lines, 1):
            for signature in _of_kernels():
                if any(fragment in line for fragment in signature.fragments):
                    self._take(signature, self._reader.read(line, number))
            yield line

    @property
    def signs(self) -> tuple[Sign, ...]:
        """Return what was seen so far, the same counted."""
        return tuple(self._gathered.signs.values())

    def _take(self, signature: Signature, line: KernelLine) -> None:
        """Take in a line that has a fragment, where the kernel wrote it."""
        fields = fields_of(signature, line.message)
        if fields is None or not (line.from_kernel or line.ident in _DAEMONS):
            return
        stamp, number = line.stamp, line.number or 0
        unix_s = stamp.unix_s
        if unix_s is None and stamp.wall is not None:
            unix_s = stamp.wall.replace(tzinfo=UTC).timestamp()
        self._gathered.add(
            Sign(
                signature=signature.id, role=signature.role, origin=Origin.KERNEL, failure=signature.failure,
                time_s=unix_s, place=Place(node=line.host or self._node, peer=fields.get("peer", "")), order=number,
                source=self._source, line=number, text=line.message[:TEXT_CHARS], fields=fields,
            )
        )  # fmt: skip


_KERNEL_SHARE = 0.6
_MINOR = frozenset((XidClass.INFO, XidClass.WATCH, XidClass.UNUSED, XidClass.UNKNOWN, XidClass.RESET_WHEN_IDLE))
_NETWORK_DRIVERS = ("mlx5_core", "mlx4_core", "bnxt_en", "ice", "efa", "hfi1")
_SYSLOG = re.compile(r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d|\{")
_DMESG = re.compile(
    r"(?:[\w.-]{1,64}: )?(?:\[ *\d{1,9}\.\d{6}\]|\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} )"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}[+-]\d\d:\d\d "
)
"""``dmesg``, ``dmesg -T`` and its ISO form; brackets around other dates are those of training programs."""
_WRITERS = re.compile(
    r"kernel$|systemd|slurm|NetworkManager$|sshd$|CRON$|sudo$|dbus|chronyd|ntpd|nvidia|mmfs$|containerd"
)
"""Who writes into journals. Python's logging puts a date and two words before lines as well."""
_REACH_BYTES = 300
_XID = b"Xid ("
_FELL = b"fallen off the bus"


def looks_like_kernel_log(start: bytes) -> bool:
    """Tell whether a file is a kernel's log or journal as a whole, by the form of its first lines."""
    # what is indented goes on from the line before
    lines = [
        raw.decode("utf-8", "replace") for raw in start.splitlines()[:400] if raw.strip() and raw[:1] not in b" \t"
    ]
    reader = LineReader()
    stamped = sum(_is_stamped(reader, line) for line in lines)
    return bool(lines) and stamped >= _KERNEL_SHARE * len(lines)


def _is_stamped(reader: LineReader, line: str) -> bool:
    """Tell whether a line has the form of the kernel's buffer, dmesg, syslog or the journal."""
    read = reader.read(line)
    if read.stamp.clock is Clock.NONE:
        return False
    if read.level is not None or read.sequence is not None or _DMESG.match(line):
        return True
    return read.ident is not None and bool(_SYSLOG.match(line) or _WRITERS.search(read.ident))


def kernel_signs(
    path: Path, *, node: str = "", not_after_s: float | None = None, zone: tzinfo | None = None,
    boot_unix_s: float | None = None,
) -> tuple[tuple[Sign, ...], str]:  # fmt: skip
    """Return the signs in a kernel log, and why it could not be read to its end.

    Parameters
    ----------
    node
        The node whose log it is, where lines name none.
    not_after_s
        When it was written [s since 1970]: tells the year where lines do not.

    Raises
    ------
    InputError
        The log cannot be opened.
    """
    last = datetime.fromtimestamp(not_after_s, zone or UTC).replace(tzinfo=None) if not_after_s is not None else None
    with opened(path) as stream:
        lines = KernelLines(stream)
        signs = signs_in(lines, source=str(path), node=node, zone=zone or UTC, not_after=last, boot_unix_s=boot_unix_s)
    return signs, f"{path}: {lines.problem}" if lines.problem else ""


def signs_in(
    lines: Iterable[str], *, source: str, node: str = "", zone: tzinfo | None = None,
    not_after: datetime | None = None, boot_unix_s: float | None = None,
) -> tuple[Sign, ...]:  # fmt: skip
    """Return the signs in lines of a kernel log; what the caller knows of their times is as for `LineReader`."""
    texts = KernelTexts(LineReader(zone=zone, not_after=not_after, boot_unix_s=boot_unix_s), source=source, node=node)
    log = read_kernel_log(texts.passing(lines), zone=zone, not_after=not_after, boot_unix_s=boot_unix_s)
    return (*signs_of(log.events, source=source, node=node), *texts.signs)


def quoted_signs(data: bytes, *, source: str) -> tuple[Sign, ...]:
    """Return Xids that a text quotes which is no kernel log: shown, and never evidence of the kernel."""
    found: dict[int, str] = {}
    for word in (_XID, _FELL):
        at = data.find(word)
        while at >= 0 and len(found) < 256:
            line = line_at(data, at + len(word))
            if line.start not in found:
                found[line.start] = line.text
            elif word == _XID:  # several in one line, as reports list them
                found[at] = "NVRM: " + data[at : at + _REACH_BYTES].decode("utf-8", "replace").partition("\n")[0]
            at = data.find(word, at + 1)
    events = read_kernel_log([found[start] for start in sorted(found)]).events if found else ()
    return signs_of(events, source=source, origin=Origin.JOB_LOG)


def signs_of(
    events: Iterable[KernelEvent], *, source: str, node: str = "", origin: Origin = Origin.KERNEL
) -> tuple[Sign, ...]:
    """Return the sign of each event."""
    signs = []
    for number, event in enumerate(events):
        meaning = _meaning(event)
        if meaning is None:
            continue
        signature, failure, role, place, fields = meaning
        if origin is not Origin.KERNEL:
            role = Role.ADVICE
        signs.append(
            Sign(
                signature=signature,
                role=role,
                origin=origin,
                failure=failure,
                time_s=_unix_s(event.at),
                place=_with_node(place, event.host or node),
                order=number,
                source=source,
                line=event.line or 0,
                text=event.text[:TEXT_CHARS],
                fields={name: value for name, value in fields.items() if value},
            )
        )
    return tuple(signs)


def _unix_s(at: Stamp) -> float | None:
    """Return when an event was [s since 1970]; a wall clock without a zone is read as UTC."""
    if at.unix_s is not None:
        return at.unix_s
    return at.wall.replace(tzinfo=UTC).timestamp() if at.wall is not None else None


def _with_node(place: Place, node: str) -> Place:
    """Return a place on a node."""
    return Place(node=node, gpu_uuid=place.gpu_uuid, gpu_index=place.gpu_index, pci=place.pci, hca=place.hca)


_Meaning = tuple[str, FailureClass, Role, Place, dict[str, str]]


def _meaning(event: KernelEvent) -> _Meaning | None:
    """Return what one event says; ``None`` where it says nothing about failures."""
    for kind, read in _READ.items():
        if isinstance(event, kind):
            return read(event)  # type: ignore[operator, no-any-return]
    return None


def _xid(event: XidEvent) -> _Meaning:
    """Read an Xid by its class in the catalogue."""
    entry = event.entry
    fields = {
        "code": str(event.code), "pci": event.pci, "name": entry.name, "class": str(entry.class_),
        "action": entry.action, "process": event.process or "", "pid": str(event.pid or ""),
        "recovery": event.recovery.name if event.recovery else "",
    }  # fmt: skip
    place = Place(pci=event.pci, gpu_uuid=event.gpu_uuid or "")
    return "kernel.xid", _failure_of(entry), _role_of(entry), place, fields


def _failure_of(entry: Xid) -> FailureClass:
    """Return the class of failure that an Xid belongs to."""
    if entry.suspect in (Suspect.NVLINK, Suspect.C2C) or entry.class_ is XidClass.NVLINK:
        return FailureClass.NVLINK
    if entry.class_ is XidClass.APP:
        return FailureClass.SOFTWARE
    return FailureClass.GPU_HARDWARE


def _role_of(entry: Xid) -> Role:
    """Return the part that an Xid can play."""
    if not entry.may_be_root:
        return Role.CASCADE if entry.class_ is XidClass.CASCADE else Role.CONFIRMATION
    return Role.CONFIRMATION if entry.class_ in _MINOR else Role.ROOT


def _off_bus(event: FallenOffBusEvent) -> _Meaning:
    """Read a GPU that fell off the bus without an Xid."""
    pci = event.pci or ""
    return "kernel.off_bus", FailureClass.GPU_HARDWARE, Role.ROOT, Place(pci=pci), {"pci": pci}


def _sxid(event: SxidEvent) -> _Meaning:
    """Read an NVSwitch's error."""
    fields = {"code": str(event.code), "pci": event.pci, "name": event.entry.name, "link": str(event.link or "")}
    fatal = event.fatal or event.entry.severity in ("fatal", "always_fatal")
    return "kernel.sxid", FailureClass.NVLINK, Role.ROOT if fatal else Role.CONFIRMATION, Place(), fields


def _driver(event: DriverEvent) -> _Meaning:
    """Read other complaints of the driver."""
    role = Role.ROOT if event.kind in ("init_failed", "probe_failed") else Role.CONFIRMATION
    fields = {"kind": event.kind, "error": event.error or ""}
    return "kernel.nvidia_driver", FailureClass.GPU_HARDWARE, role, Place(pci=event.pci or ""), fields


def _pcie(event: PcieErrorEvent) -> _Meaning | None:
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


def _memory(event: MemoryErrorEvent) -> _Meaning:
    """Read errors of host memory."""
    role = Role.CONFIRMATION if event.severity is Severity.CORRECTED else Role.ROOT
    return "kernel.memory_error", FailureClass.NODE, role, Place(), {"kind": event.kind, "where": event.where}


def _nic(event: NicEvent) -> _Meaning | None:
    """Read what happened to a port: one that comes up is no failure."""
    name = event.device or event.netdev or ""
    fields = {"kind": event.kind, "port": str(event.port or ""), "state": str(event.state or ""), "device": name}
    if event.kind == "link":
        if event.state is LinkState.DOWN:
            return "kernel.link_down", FailureClass.FABRIC, Role.ROOT, Place(hca=name), fields
        return "kernel.link_up", FailureClass.FABRIC, Role.CONFIRMATION, Place(hca=name), fields
    role = Role.ROOT if event.kind in ("health", "cable", "command") else Role.CONFIRMATION
    return "kernel.nic", FailureClass.FABRIC, role, Place(hca=name), fields


def _oom(event: OomEvent) -> _Meaning:
    """Read a process that was ended for memory."""
    fields = {
        "process": event.process or "", "pid": str(event.pid or ""), "cgroup": event.cgroup or "",
        "scope": str(event.scope or ""), "rss_bytes": str(event.rss_bytes or ""),
    }  # fmt: skip
    role = Role.ROOT if event.scope is not OomScope.NODE or event.pid else Role.CONFIRMATION
    return "kernel.oom", FailureClass.HOST_MEMORY, role, Place(), fields


def _hung(event: HungTaskEvent) -> _Meaning:
    """Read a task or processor that does not go on."""
    fields = {"kind": event.kind, "process": event.process or "", "blocked_s": str(event.blocked_s or "")}
    return "kernel.hung", FailureClass.NODE, Role.CONFIRMATION, Place(), fields


def _crash(event: CrashEvent) -> _Meaning:
    """Read a process that broke a rule of the processor."""
    fields = {"kind": event.kind, "process": event.process, "pid": str(event.pid), "library": event.library or ""}
    return "kernel.segfault", FailureClass.SOFTWARE, Role.ROOT, Place(), fields


def _panic(_event: PanicEvent) -> _Meaning:
    """Read a kernel that gave up."""
    return "kernel.panic", FailureClass.NODE, Role.ROOT, Place(), {}


_READ: dict[type[KernelEvent], object] = {
    XidEvent: _xid, FallenOffBusEvent: _off_bus, SxidEvent: _sxid, DriverEvent: _driver, PcieErrorEvent: _pcie,
    MemoryErrorEvent: _memory, NicEvent: _nic, OomEvent: _oom, HungTaskEvent: _hung, CrashEvent: _crash,
    PanicEvent: _panic,
}  # fmt: skip
