"""Builds the event of a line that matches a pattern, with one function for each kind of event."""

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
    sanitise,
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


def normalise_address(text: str | None) -> str | None:
    """Return a PCI address in the kernel's form."""
    return None if text is None else normalise_pci(text)


def _parse_pid(text: str | None) -> int | None:
    """Return a process id that the kernel can have given."""
    return int(text) if text is not None and int(text) <= _MAX_PID else None


def build_xid(match: re.Match[str], base: dict[str, Any]) -> KernelEvent | None:
    """Make the event of an Xid."""
    pci = normalise_address(match["pci"])
    if pci is None:
        return None
    rest, pid, process = match["rest"].lstrip(" ,"), None, None
    owner = _OWNER.match(rest)
    if owner is not None:
        pid, rest = _parse_pid(owner["pid"]), rest[owner.end() :]
        named = _PROCESS.match(rest)
        if named is not None:
            process, rest = named["name"].strip(), rest[named.end() :]
    rest = rest.lstrip(" ,")
    code = int(match["code"])
    return XidEvent(
        **base,
        pci=pci,
        code=code,
        pid=pid,
        process=None if process in (None, "", "<unknown>") else sanitise(process or "", _LONGEST_NAME),
        mig_instance=int(match["instance"], 16) if match["instance"] else None,
        rest=sanitise(rest),
        nvlink=_parse_nvlink(rest) if 144 <= code <= 150 else None,
    )


def _parse_nvlink(rest: str) -> NvlinkFields | None:
    """Read the message of an NVLink 5 Xid."""
    match = _NVLINK.search(rest)
    if match is None:
        return None
    link = int(match["link"]) if match["link"] else -1
    return NvlinkFields(
        unit=match["unit"],
        fatal=None if match["fatal"] is None else not match["fatal"].lower().startswith("non"),
        cross_contain=None if match["cross"] is None else match["cross"] != "0",
        injected=None if match["injected"] is None else match["injected"] != "0",
        link=link if link >= 0 else None,
        words=tuple(int(word, 16) for word in re.findall(r"0x[0-9a-fA-F]{1,8}", match["words"])),
    )


def build_sxid(match: re.Match[str], base: dict[str, Any]) -> KernelEvent | None:
    """Make the event of an SXid; lines that only add data to one are none."""
    pci, groups = normalise_address(match["pci"]), match.groupdict()
    if pci is None or groups.get("data"):
        return None
    severity_word = (groups.get("fatal") or "").lower()
    return SxidEvent(
        **base,
        pci=pci,
        code=int(match["code"]),
        fatal=None if not severity_word else not severity_word.startswith("non"),
        switch=int(groups["switch"]) if groups.get("switch") else None,
        link=int(groups["link"]) if groups.get("link") else None,
        rest=sanitise(groups.get("rest") or ""),
    )


def build_fallen_off_bus(match: re.Match[str], base: dict[str, Any]) -> KernelEvent:
    """Make the event of a GPU that fell off the bus."""
    return FallenOffBusEvent(**base, pci=normalise_address(match["pci"]))


def driver_builder(kind: str) -> Build:
    """Return a builder for errors of the driver."""

    def build(match: re.Match[str], base: dict[str, Any]) -> KernelEvent:
        groups = match.groupdict()
        error = groups.get("error")
        return DriverEvent(
            **base,
            kind=kind,
            pci=normalise_address(groups.get("pci")),
            gpu=int(groups["gpu"]) if groups.get("gpu") else None,
            error=sanitise(error, 120) if error else None,
        )

    return build


def parse_severity(text: str | None, qualifier: str | None = None) -> Severity | None:
    """Return the severity that words like ``Corrected`` or ``Uncorrectable (Fatal)`` name."""
    words = f"{text or ''} {qualifier or ''}".lower()
    if "uncorrect" not in words and ("correct" in words or words.strip() == "ce"):
        return Severity.CORRECTED
    if "non-fatal" in words or "nonfatal" in words or "recoverable" in words:
        return Severity.NON_FATAL
    if "deferred" in words:
        return Severity.NON_FATAL
    return Severity.FATAL if "fatal" in words or "uncorrect" in words or words.strip() == "ue" else None


def pcie_builder(kind: str) -> Build:
    """Return a builder for errors of PCIe."""

    def build(match: re.Match[str], base: dict[str, Any]) -> KernelEvent:
        groups = match.groupdict()
        return PcieErrorEvent(
            **base,
            kind=kind,
            pci=normalise_address(groups.get("pci")),
            driver=groups.get("driver"),
            severity=parse_severity(groups.get("severity"), groups.get("qualifier")),
            layer=groups.get("layer"),
        )

    return build


def memory_builder(kind: str, fixed: Severity | None = None) -> Build:
    """Return a builder for errors of host memory or processor."""

    def build(match: re.Match[str], base: dict[str, Any]) -> KernelEvent:
        groups = match.groupdict()
        return MemoryErrorEvent(
            **base,
            kind=kind,
            severity=fixed or parse_severity(groups.get("severity")),
            count=min(int(groups.get("count") or 1), 1 << 53),
            where=sanitise((groups.get("where") or "").strip(), 160),
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


def nic_builder(kind: str) -> Build:
    """Return a builder for events of network ports."""

    def build(match: re.Match[str], base: dict[str, Any]) -> KernelEvent | None:
        groups = match.groupdict()
        state = _STATES.get((groups.get("state") or "").lower())
        if kind == "link" and state is None:
            return None
        return NicEvent(
            **base,
            kind=kind,
            pci=normalise_address(groups.get("pci")),
            device=groups.get("device"),
            netdev=groups.get("netdev"),
            port=int(groups["port"]) if groups.get("port") else None,
            state=state,
        )

    return build


_SCOPES = {"CONSTRAINT_MEMCG": OomScope.CGROUP, "CONSTRAINT_NONE": OomScope.NODE, "CONSTRAINT_CPUSET": OomScope.NUMA}
_SCOPES["CONSTRAINT_MEMORY_POLICY"] = OomScope.NUMA


def build_oom_choice(match: re.Match[str], base: dict[str, Any]) -> KernelEvent | None:
    """Make the event of the line that names victim and cgroup (Linux 4.19 and newer).

    Cut from both ends rather than matched: cgroups may be named as their owner likes.
    """
    head, _, uid = match["body"].rpartition(",uid=")
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
        pid=_parse_pid(pid[:10]),
        process=sanitise(name, _LONGEST_NAME),
        uid=int(uid[:10]),
        scope=_SCOPES.get(constraint.removeprefix("constraint=")),
        cgroup=sanitise(cgroup, _LONGEST_PATH),
        limit_cgroup=sanitise(limit, _LONGEST_PATH) if limit else None,
    )


def build_oom_kill(match: re.Match[str], base: dict[str, Any]) -> KernelEvent:
    """Build the event of the line that reports the kill."""
    held = _KILLED.search(match["rest"])
    return OomEvent(
        **base,
        pid=_parse_pid(match["pid"]),
        process=sanitise(match["name"], _LONGEST_NAME),
        scope={"Memory cgroup out of memory": OomScope.CGROUP, "Out of memory": OomScope.NODE}.get(
            match["scope"] or ""
        ),
        rss_bytes=int(held[1]) * units.KIB if held else None,
    )


def build_oom_limit(match: re.Match[str], base: dict[str, Any]) -> KernelEvent:
    """Make the event of the line that names the cgroups (before Linux 4.19); the victim follows."""
    return OomEvent(
        **base,
        scope=OomScope.CGROUP,
        cgroup=sanitise(match["cgroup"], _LONGEST_PATH),
        limit_cgroup=sanitise(match["limit"], _LONGEST_PATH),
    )


def hung_builder(kind: str) -> Build:
    """Return a builder for tasks that are stuck."""

    def build(match: re.Match[str], base: dict[str, Any]) -> KernelEvent:
        groups = match.groupdict()
        return HungTaskEvent(
            **base,
            kind=kind,
            pid=_parse_pid(groups.get("pid")),
            process=sanitise(groups["name"], _LONGEST_NAME) if groups.get("name") else None,
            blocked_s=float(groups["seconds"]) if groups.get("seconds") else None,
        )

    return build


def build_crash(match: re.Match[str], base: dict[str, Any]) -> KernelEvent:
    """Make the event of a process that the processor stopped."""
    library = match["library"]
    return CrashEvent(
        **base,
        kind=match["kind"].replace(" ", "_"),
        pid=_parse_pid(match["pid"]) or 0,
        process=sanitise(match["name"].strip(), _LONGEST_NAME),
        library=sanitise(library, 200) if library else None,
    )


def build_panic(match: re.Match[str], base: dict[str, Any]) -> KernelEvent:
    """Make the event of a kernel that gave up."""
    return PanicEvent(**base)
