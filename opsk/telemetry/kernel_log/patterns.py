"""Defines the patterns that turn messages of a kernel log into events; the first pattern that matches builds the event.

Every pattern is bounded: no unlimited repetition stands before another one that could match the same text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from opsk.telemetry.kernel_log.event_builders import (
    Build,
    build_crash,
    build_fallen_off_bus,
    build_oom_choice,
    build_oom_kill,
    build_oom_limit,
    build_panic,
    build_sxid,
    build_xid,
    driver_builder,
    hung_builder,
    memory_builder,
    nic_builder,
    pcie_builder,
)
from opsk.telemetry.kernel_log.events import Severity

_PCI = r"(?:[0-9a-fA-F]{1,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
_FULL_PCI = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_NAME = r"(?P<name>[^\n]{1,64}?)"


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


_MLX5 = rf"mlx5_core (?P<pci>{_FULL_PCI}):?"
_NETDEV = r"(?P<netdev>[\w.@:-]{1,32})"
_MANAGERS = ("nv-fabricmanager", "nv-fabricmanage", "fabricmanager")


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
