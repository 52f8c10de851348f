"""How does a line that fits a pattern become an event? One function for each kind of event."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from opsk import units
from opsk.telemetry.gpu.samples import normalise_pci
from opsk.telemetry.kernel_log.events import (
    CrashEvent,
    DriverEvent,
    FallenOffBusEvent,
    HungTaskEvent,
    KernelEvent,
    LinkState,
    MemoryErrorEvent,
    NicEvent,
    NvlinkFields,
    OomEvent,
    OomScope,
    PanicEvent,
    PcieErrorEvent,
    Severity,
    SxidEvent,
    XidEvent,
    shown,
)

Build = Callable[[re.Match[str], dict[str, Any]], "KernelEvent | None"]

_LONGEST_NAME = 64
_LONGEST_PATH = 300
_MAX_PID = 1 << 22

_OWNER = re.compile(r"\s{0,4},?\s{0,4}pid=(?:'?<unknown>'?|'?(?P<pid>\d{1,20})'?)")
_PROCESS = re.compile(r"\s{0,4},\s{0,4}name=(?P<name>[^,]{0,64})")
_NVLINK = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_]{2,31})\s{1,8}(?:Link\s)?(?P<fatal>(?:[Nn]on-?)?[Ff]atal)?\s{0,8}"
    r"(?:XC\s{0,2}(?P<cross>\d))?\s{0,8}(?:i\s{0,2}(?P<injected>\d))?\s{0,8}"
    r"(?:Link\s{0,2}(?P<link>-?\d{1,3}))?\s{0,8}[(\[](?P<words>(?:0x[0-9a-fA-F]{1,8}[\s,]{0,2}){1,10})[)\]]"
)
_KILLED = re.compile(r"anon-rss:(\d{1,15})kB")


def address(text: str | None) -> str | None:
    """Return a PCI address in the kernel's form."""
    return None if text is None else normalise_pci(text)


def _pid(text: str | None) -> int | None:
    """Return a process id that the kernel can have given."""
    return int(text) if text is not None and int(text) <= _MAX_PID else None


def xid(found: re.Match[str], base: dict[str, Any]) -> KernelEvent | None:
    """Make the event of an Xid."""
    pci = address(found["pci"])
    if pci is None:
        return None
    rest, pid, process = found["rest"].lstrip(" ,"), None, None
    owner = _OWNER.match(rest)
    if owner is not None:
        pid, rest = _pid(owner["pid"]), rest[owner.end() :]
        named = _PROCESS.match(rest)
        if named is not None:
            process, rest = named["name"].strip(), rest[named.end() :]
    rest = rest.lstrip(" ,")
    code = int(found["code"])
    return XidEvent(
        **base,
        pci=pci,
        code=code,
        pid=pid,
        process=None if process in (None, "", "<unknown>") else shown(process or "", _LONGEST_NAME),
        mig_instance=int(found["instance"], 16) if found["instance"] else None,
        rest=shown(rest),
        nvlink=_nvlink(rest) if 144 <= code <= 150 else None,
    )


def _nvlink(rest: str) -> NvlinkFields | None:
    """Read the message of an NVLink 5 Xid."""
    found = _NVLINK.search(rest)
    if found is None:
        return None
    link = int(found["link"]) if found["link"] else -1
    return NvlinkFields(
        unit=found["unit"],
        fatal=None if found["fatal"] is None else not found["fatal"].lower().startswith("non"),
        cross_contain=None if found["cross"] is None else found["cross"] != "0",
        injected=None if found["injected"] is None else found["injected"] != "0",
        link=link if link >= 0 else None,
        words=tuple(int(word, 16) for word in re.findall(r"0x[0-9a-fA-F]{1,8}", found["words"])),
    )


def sxid(found: re.Match[str], base: dict[str, Any]) -> KernelEvent | None:
    """Make the event of an SXid; lines that only add data to one are none."""
    pci, groups = address(found["pci"]), found.groupdict()
    if pci is None or groups.get("data"):
        return None
    said = (groups.get("fatal") or "").lower()
    return SxidEvent(
        **base,
        pci=pci,
        code=int(found["code"]),
        fatal=None if not said else not said.startswith("non"),
        switch=int(groups["switch"]) if groups.get("switch") else None,
        link=int(groups["link"]) if groups.get("link") else None,
        rest=shown(groups.get("rest") or ""),
    )


def fallen(found: re.Match[str], base: dict[str, Any]) -> KernelEvent:
    """Make the event of a GPU that fell off the bus."""
    return FallenOffBusEvent(**base, pci=address(found["pci"]))


def driver(kind: str) -> Build:
    """Return what makes the event of a complaint of the driver."""

    def build(found: re.Match[str], base: dict[str, Any]) -> KernelEvent:
        groups = found.groupdict()
        error = groups.get("error")
        return DriverEvent(
            **base,
            kind=kind,
            pci=address(groups.get("pci")),
            gpu=int(groups["gpu"]) if groups.get("gpu") else None,
            error=shown(error, 120) if error else None,
        )

    return build


def severity(text: str | None, qualifier: str | None = None) -> Severity | None:
    """Return the severity that words like ``Corrected`` or ``Uncorrectable (Fatal)`` name."""
    words = f"{text or ''} {qualifier or ''}".lower()
    if "uncorrect" not in words and ("correct" in words or words.strip() == "ce"):
        return Severity.CORRECTED
    if "non-fatal" in words or "nonfatal" in words or "recoverable" in words:
        return Severity.NON_FATAL
    if "deferred" in words:
        return Severity.NON_FATAL
    return Severity.FATAL if "fatal" in words or "uncorrect" in words or words.strip() == "ue" else None


def pcie(kind: str) -> Build:
    """Return what makes the event of an error of PCIe."""

    def build(found: re.Match[str], base: dict[str, Any]) -> KernelEvent:
        groups = found.groupdict()
        return PcieErrorEvent(
            **base,
            kind=kind,
            pci=address(groups.get("pci")),
            driver=groups.get("driver"),
            severity=severity(groups.get("severity"), groups.get("qualifier")),
            layer=groups.get("layer"),
        )

    return build


def memory(kind: str, fixed: Severity | None = None) -> Build:
    """Return what makes the event of an error of host memory or processor."""

    def build(found: re.Match[str], base: dict[str, Any]) -> KernelEvent:
        groups = found.groupdict()
        return MemoryErrorEvent(
            **base,
            kind=kind,
            severity=fixed or severity(groups.get("severity")),
            count=min(int(groups.get("count") or 1), 1 << 53),
            where=shown((groups.get("where") or "").strip(), 160),
        )

    return build


_STATES = {
    "up": LinkState.UP,
    "active": LinkState.UP,
    "gained": LinkState.UP,
    "init": LinkState.INIT,
    "armed": LinkState.INIT,
    "down": LinkState.DOWN,
    "lost": LinkState.DOWN,
    "error": LinkState.DOWN,
}


def nic(kind: str) -> Build:
    """Return what makes the event of a network port."""

    def build(found: re.Match[str], base: dict[str, Any]) -> KernelEvent | None:
        groups = found.groupdict()
        state = _STATES.get((groups.get("state") or "").lower())
        if kind == "link" and state is None:
            return None
        return NicEvent(
            **base,
            kind=kind,
            pci=address(groups.get("pci")),
            device=groups.get("device"),
            netdev=groups.get("netdev"),
            port=int(groups["port"]) if groups.get("port") else None,
            state=state,
        )

    return build


_SCOPES = {"CONSTRAINT_MEMCG": OomScope.CGROUP, "CONSTRAINT_NONE": OomScope.NODE, "CONSTRAINT_CPUSET": OomScope.NUMA}
_SCOPES["CONSTRAINT_MEMORY_POLICY"] = OomScope.NUMA


def oom_choice(found: re.Match[str], base: dict[str, Any]) -> KernelEvent | None:
    """Make the event of the line that names victim and cgroup (Linux 4.19 and newer).

    Cut from both ends rather than matched: cgroups may be named as their owner likes.
    """
    head, _, uid = found["body"].rpartition(",uid=")
    head, _, pid = head.rpartition(",pid=")
    head, _, name = head.rpartition(",task=")
    head, _, cgroup = head.partition("task_memcg=")
    constraint, _, head = head.partition(",")
    _, _, limit = head.partition("oom_memcg=")
    if not (pid.isdecimal() and uid.isdecimal() and cgroup):
        return None
    limit = limit.rstrip(",").removesuffix(",global_oom")
    return OomEvent(
        **base,
        pid=_pid(pid[:10]),
        process=shown(name, _LONGEST_NAME),
        uid=int(uid[:10]),
        scope=_SCOPES.get(constraint.removeprefix("constraint=")),
        cgroup=shown(cgroup, _LONGEST_PATH),
        limit_cgroup=shown(limit, _LONGEST_PATH) if limit else None,
    )


def oom_kill(found: re.Match[str], base: dict[str, Any]) -> KernelEvent:
    """Make the event of the line that tells of the kill."""
    held = _KILLED.search(found["rest"])
    return OomEvent(
        **base,
        pid=_pid(found["pid"]),
        process=shown(found["name"], _LONGEST_NAME),
        scope={"Memory cgroup out of memory": OomScope.CGROUP, "Out of memory": OomScope.NODE}.get(
            found["scope"] or ""
        ),
        rss_bytes=int(held[1]) * units.KIB if held else None,
    )


def oom_limit(found: re.Match[str], base: dict[str, Any]) -> KernelEvent:
    """Make the event of the line that names the cgroups (before Linux 4.19); the victim follows."""
    return OomEvent(
        **base,
        scope=OomScope.CGROUP,
        cgroup=shown(found["cgroup"], _LONGEST_PATH),
        limit_cgroup=shown(found["limit"], _LONGEST_PATH),
    )


def hung(kind: str) -> Build:
    """Return what makes the event of a task that does not go on."""

    def build(found: re.Match[str], base: dict[str, Any]) -> KernelEvent:
        groups = found.groupdict()
        return HungTaskEvent(
            **base,
            kind=kind,
            pid=_pid(groups.get("pid")),
            process=shown(groups["name"], _LONGEST_NAME) if groups.get("name") else None,
            blocked_s=float(groups["seconds"]) if groups.get("seconds") else None,
        )

    return build


def crash(found: re.Match[str], base: dict[str, Any]) -> KernelEvent:
    """Make the event of a process that the processor stopped."""
    library = found["library"]
    return CrashEvent(
        **base,
        kind=found["kind"].replace(" ", "_"),
        pid=_pid(found["pid"]) or 0,
        process=shown(found["name"].strip(), _LONGEST_NAME),
        library=shown(library, 200) if library else None,
    )


def panic(found: re.Match[str], base: dict[str, Any]) -> KernelEvent:
    """Make the event of a kernel that gave up."""
    return PanicEvent(**base)
