"""Defines the patterns that turn messages of a kernel log into events; the first pattern that matches builds the event.

Every pattern is bounded: no unlimited repetition stands before another one that could match the same text. Each kind of
event has a function that builds it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
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
_SCOPES = {"CONSTRAINT_MEMCG": OomScope.CGROUP, "CONSTRAINT_NONE": OomScope.NODE, "CONSTRAINT_CPUSET": OomScope.NUMA}
_PCI = r"(?:[0-9a-fA-F]{1,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
_FULL_PCI = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_NAME = r"(?P<name>[^\n]{1,64}?)"
_MLX5 = rf"mlx5_core (?P<pci>{_FULL_PCI}):?"
_NETDEV = r"(?P<netdev>[\w.@:-]{1,32})"
_MANAGERS = ("nv-fabricmanager", "nv-fabricmanage", "fabricmanager")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One kind of line.

    Parameters
    ----------
    needle
        Text that every such line has: lines without any needle are skipped at once.
    pattern
        Found anywhere in the message.
    build
        Builds the event from a match and the common fields; ``None`` when the line is no event after all.
    senders
        Programs that may log it; the kernel, or an unnamed sender, where it is empty.
    """

    needle: str
    pattern: re.Pattern[str]
    build: Build
    senders: tuple[str, ...] = ()


def _rule(needle: str, pattern: str, build: Build, *senders: str) -> Rule:
    return Rule(needle=needle, pattern=re.compile(pattern), build=build, senders=senders)


RULES: tuple[Rule, ...] = (
    _rule(
        "Xid (",
        rf"NVRM:[^\n]{{0,40}}? ?\bXid \((?:PCI:)?(?P<pci>{_PCI})(?: GPU-I:(?P<instance>[0-9a-fA-F]{{1,4}}))?"
        r"[^)\n]{0,40}\): (?P<code>\d{1,6})\b(?P<rest>[^\n]*)",
        build_xid,
    ),
    _rule(
        "SXid (",
        rf"nvidia-nvswitch(?P<switch>\d{{1,4}}): SXid \((?:PCI:)?(?P<pci>{_PCI})\): (?P<code>\d{{1,6}}),? "
        r"(?P<data>Severity \d|Data \{)?(?:(?P<fatal>[Nn]on-[Ff]atal|[Ff]atal),? )?(?:Link (?P<link>\d{1,4}) )?"
        r"(?P<rest>[^\n]*)",
        build_sxid,
    ),
    _rule(
        "detected NVSwitch",
        r"detected NVSwitch (?P<fatal>non-fatal|fatal) error (?P<code>\d{1,6}) on fid \d{1,6} on NVSwitch pci bus id "
        rf"(?P<pci>{_PCI})(?: physical id \d{{1,6}})?(?: port (?P<link>\d{{1,4}}))?",
        build_sxid,
        *_MANAGERS,
    ),
    _rule(
        "fallen off the bus",
        rf"NVRM:[^\n]{{0,40}}?\b(?:PCI:)?(?P<pci>{_PCI})[^\n]{{0,80}}? fallen off the bus",
        build_fallen_off_bus,
    ),
    _rule("fallen off the bus", r"(?P<pci>(?!))?fallen off the bus and is not responding", build_fallen_off_bus),
    _rule(
        "RmInitAdapter",
        rf"NVRM:(?: GPU (?P<pci>{_PCI}):)?[^\n]{{0,20}} RmInitAdapter failed!?(?: ?\((?P<error>[^)\n]{{1,60}})\))?",
        driver_builder("init_failed"),
    ),
    _rule(
        "rm_init_adapter",
        rf"NVRM:(?: GPU (?P<pci>{_PCI}):)? rm_init_adapter(?:\(\))? failed",
        driver_builder("init_failed"),
    ),
    _rule(
        "devices were initialized", r"NVRM: None of the NVIDIA devices were initialized", driver_builder("init_failed")
    ),
    _rule(
        "adapters were init",
        r"NVRM: None of the NVIDIA graphics adapters were initialized",
        driver_builder("init_failed"),
    ),
    _rule(
        "nvidia: probe of",
        rf"nvidia: probe of (?P<pci>{_PCI}) failed with error (?P<error>-?\d{{1,6}})",
        driver_builder("probe_failed"),
    ),
    _rule(
        "probe with driver nvidia",
        rf"nvidia (?P<pci>{_PCI}): probe with driver nvidia failed with error (?P<error>-?\d{{1,6}})",
        driver_builder("probe_failed"),
    ),
    _rule(
        "Rate limiting GSP",
        rf"NVRM: Rate limiting GSP RPC error prints for GPU at (?:PCI:)?(?P<pci>{_PCI})",
        driver_builder("gsp"),
    ),
    _rule(
        "GSP Timeout *",
        r"NVRM: (?:GPU(?P<gpu>\d{1,4}) )?\w{1,40}: \*{3,60} GSP Timeout \*{3,60}",
        driver_builder("gsp_timeout"),
    ),
    _rule(
        "Heartbeat timed out",
        r"NVRM: (?:GPU(?P<gpu>\d{1,4}) )?_kgspIsHeartbeatTimedOut: Heartbeat timed out",
        driver_builder("gsp_timeout"),
    ),
    _rule(
        "NVRM: ",
        r"NVRM: (?:GPU(?P<gpu>\d{1,4}) )?(?:\w{1,60}: )?(?:Assertion|Check) failed: "
        r"[^\n\[]{0,400}(?:\[(?P<error>NV_ERR_\w{1,60})\])?",
        driver_builder("assert"),
    ),
    _rule("nvidia-peermem", r"nvidia-peermem [^\n]{0,80}ERROR (?P<error>[^\n]{1,120})", driver_builder("peermem")),
    _rule(
        "uvm encountered", r"uvm encountered global fatal error (?P<error>0x[0-9a-fA-F]{1,8})", driver_builder("uvm")
    ),
    _rule(
        "PCIe Bus Error",
        rf"(?:^|\s)(?P<driver>[\w.-]{{1,32}}) (?P<pci>{_FULL_PCI}): (?:AER: )?PCIe Bus Error: "
        r"severity=(?P<severity>[^,\n]{1,40})(?:, type=(?P<layer>[\w ]{1,40}))?",
        pcie_builder("error"),
    ),
    _rule(
        "AER: ",
        r"AER: (?:Multiple )?(?P<severity>[Cc]orrected|[Cc]orrectable|[Uu]ncorrected|[Uu]ncorrectable)"
        rf"(?: \((?P<qualifier>[\w-]{{1,12}})\))? error (?:message )?received:?(?: from)? (?P<pci>{_FULL_PCI})",
        pcie_builder("received"),
    ),
    _rule(
        "AER: ",
        rf"(?P<driver>[\w.-]{{1,32}}) (?P<pci>{_FULL_PCI}): AER: (?:can't recover|[Dd]evice recovery failed)",
        pcie_builder("recovery_failed"),
    ),
    _rule(
        "AER: ",
        rf"(?P<driver>[\w.-]{{1,32}}) (?P<pci>{_FULL_PCI}): AER: [Dd]evice recovery successful",
        pcie_builder("recovered"),
    ),
    _rule(
        "DPC: ",
        rf"(?P<driver>[\w.-]{{1,32}}) (?P<pci>{_FULL_PCI}): DPC: containment event",
        pcie_builder("containment"),
    ),
    _rule(
        "pciehp",
        rf"(?P<driver>pciehp|pcieport) (?:(?P<pci>{_FULL_PCI})[^\n]{{0,60}})?[^\n]{{0,40}}Slot\([^)\n]{{1,20}}\): "
        r"(?:Link Down|Card not present)",
        pcie_builder("link_down"),
    ),
    _rule(
        "mlx5_core",
        rf"{_MLX5} (?P<device>[\w.-]{{1,32}}): Port: (?P<port>\d{{1,3}}) Link (?P<state>\w{{1,12}})",
        nic_builder("link"),
    ),
    _rule("mlx5_core", rf"{_MLX5} {_NETDEV}: Link (?P<state>[Uu]p|[Dd]own)\b", nic_builder("link")),
    _rule(
        "mlx5_core",
        rf"{_MLX5}[^\n]{{0,120}}Port module event\[\w{{1,10}}\]: module (?P<port>\d{{1,3}}), ",
        nic_builder("cable"),
    ),
    _rule("Port module event[", r"Port module event\[\w{1,10}\]: module (?P<port>\d{1,3}), ", nic_builder("cable")),
    _rule("mlx5_core", rf"{_MLX5}[^\n]{{0,120}}Port module event: module (?P<port>\d{{1,3}}), ", nic_builder("module")),
    _rule("mlx5_core", rf"{_MLX5}[^\n]{{0,120}}[Ii]nsufficient power", nic_builder("power")),
    _rule("mlx5_core", r"mlx5_core: [^\n]{0,120}insufficient power on the PCIe slot", nic_builder("power")),
    _rule("mlx5_core", rf"{_MLX5}[^\n]{{0,120}}[Hh]igh temperature", nic_builder("temperature")),
    _rule(
        "mlx5_core",
        rf"{_MLX5}[^\n]{{0,160}}(?:health compromised|[Ff]atal error \d|firmware internal error|handling bad device"
        r"|health poll failed|enter_error_state|error_sw_reset|assert_var\[0\]|[Hh]ealth recovery|miss count)",
        nic_builder("health"),
    ),
    _rule("mlx5_core", rf"{_MLX5}[^\n]{{0,160}}timeout[^\n]{{0,20}} [Ww]ill cause a leak", nic_builder("command")),
    _rule(
        "NIC Link is",
        rf"(?:(?P<pci>{_FULL_PCI})[: ][^\n]{{0,4}})?{_NETDEV}: NIC Link is (?P<state>[Uu]p|[Dd]own)",
        nic_builder("link"),
    ),
    _rule(
        " carrier",
        rf"(?:^|\s){_NETDEV}: (?P<state>[Ll]ost|[Gg]ained) carrier",
        nic_builder("link"),
        "systemd-networkd",
        "kernel",
    ),
    _rule(
        "EDAC ",
        r"EDAC [\w ]{0,24}\bMC\d{1,3}: (?P<count>\d{1,12}) (?P<severity>CE|UE) (?P<where>[^\n]{0,200})",
        memory_builder("edac"),
    ),
    _rule(
        "Machine Check Exception",
        r"\[Hardware Error\]:[^\n]{0,40}Machine Check Exception(?P<where>[^\n]{0,160})",
        memory_builder("mce", Severity.FATAL),
    ),
    _rule(
        "Machine check events logged",
        r"mce: (?:\[Hardware Error\]: )?Machine check events logged",
        memory_builder("mce"),
    ),
    _rule(
        "hardware memory error",
        r"mce: Uncorrected hardware memory error(?P<where>[^\n]{0,160})",
        memory_builder("mce", Severity.NON_FATAL),
    ),
    _rule(
        "event severity", r"\[Hardware Error\]:\s{0,4}event severity: (?P<severity>\w{1,20})", memory_builder("apei")
    ),
    _rule(
        "[Hardware Error]",
        r"\[Hardware Error\]: (?P<severity>Corrected|Uncorrected|Deferred) error",
        memory_builder("mce"),
    ),
    _rule(
        "Memory failure: 0x",
        r"Memory failure: (?P<where>0x[0-9a-f]{1,16}: [^\n]{0,160})",
        memory_builder("page", Severity.NON_FATAL),
    ),
    _rule(
        "oom-kill:",
        r"oom-kill:(?P<body>constraint=[^\n]{1,6000})",
        build_oom_choice,
    ),
    _rule(
        "killed as a result of limit",
        r"Task in (?P<cgroup>[^\n]{1,1000}?) killed as a result of limit of (?P<limit>[^\n]{1,1000})",
        build_oom_limit,
    ),
    _rule(
        "Killed process",
        r"(?:(?P<scope>Memory cgroup out of memory|Out of memory)[^\n]{0,40}?: )?Killed process (?P<pid>\d{1,10}),?"
        rf"(?: UID \d{{1,10}},?)? \({_NAME}\)(?P<rest>(?:[,. ][^\n]{{0,400}})?)",
        build_oom_kill,
    ),
    _rule(
        "blocked for more than",
        rf"task {_NAME}:(?P<pid>\d{{1,10}}) blocked for more than (?P<seconds>\d{{1,8}}) seconds",
        hung_builder("hung_task"),
    ),
    _rule(
        "soft lockup",
        rf"soft lockup - CPU#\d{{1,5}} stuck for (?P<seconds>\d{{1,8}})s! \[{_NAME}:(?P<pid>\d{{1,10}})\]",
        hung_builder("soft_lockup"),
    ),
    _rule("hard LOCKUP", r"hard LOCKUP on cpu", hung_builder("hard_lockup")),
    _rule("stall", r"rcu[^\n]{0,40}detected (?:expedited )?stalls? on CPU", hung_builder("rcu_stall")),
    _rule(
        "segfault at",
        rf"(?:^|\s){_NAME}\[(?P<pid>\d{{1,10}})\]: (?P<kind>segfault) at [^\n]{{0,120}}?"
        r"(?: in (?P<library>[^\[\s]{1,200})\[|$|\n)",
        build_crash,
    ),
    _rule(
        "traps: ",
        rf"traps: {_NAME}\[(?P<pid>\d{{1,10}})\] (?:trap )?(?P<kind>[a-z][a-z ]{{2,40}}?) ip:"
        r"[^\n]{0,120}?(?: in (?P<library>[^\[\s]{1,200})\[|$|\n)",
        build_crash,
    ),
    _rule("Kernel panic", r"Kernel panic - not syncing", build_panic),
)

ANY_NEEDLE = re.compile("|".join(dict.fromkeys(re.escape(rule.needle) for rule in RULES)))
