"""Parses tables of guids: the output of ``sharp_cmd topology``, and tables of hosts and their guids.

Virtual machines see no subnet manager. Their operators have the tree that SHARP's aggregation manager prints
(``SwitchName=ibsw2 Nodes=0x155d...,0x155d...``, ``SwitchName=ibsw14 Switches=ibsw3,ibsw16``) for the guids that they
name, and a table of ``host: 0xguid`` that they collected from the hosts themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from opsk.errors import InputError
from opsk.fabric.dumps.assembly import ADAPTER, MAX_DAMAGED_LINES, SWITCH, UNREPORTED, Assembly
from opsk.fabric.dumps.ibnetdiscover import split_lines
from opsk.fabric.fabric import Fabric, Fault, Hca
from opsk.units import MIB

TREE_LINE = re.compile(r"^\s*SwitchName=\S+\s+(?:Nodes=0x[0-9a-fA-F]|Switches=)", re.MULTILINE)
"""How a line of the tree begins: one that names guids, or the switches below."""
_GUIDS = re.compile(r"Nodes=0x[0-9a-fA-F]")
_TREE = re.compile(r"SwitchName=(?P<name>\S{1,64})(?:\s+(?P<word>Nodes|Switches)=(?P<below>\S*))?", re.IGNORECASE)
_HOST = re.compile(r"([A-Za-z0-9][\w.-]{0,252})\s*[:,\s]\s*(0x[0-9a-fA-F]{1,16}(?:\s*,\s*0x[0-9a-fA-F]{1,16})*)\s*$")
_MAX_NAMED = 4
_MAX_LINE_CHARACTERS = MIB
"""A line names all guids of a switch: of a director, tens of thousands."""
_GUID = re.compile(r"0x[0-9a-fA-F]{1,16}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuidNames:
    """Which host each guid belongs to, and the lines that could not be read; guids have 16 digits, no prefix."""

    hosts: Mapping[str, str]
    source: str
    faults: tuple[Fault, ...] = ()


def is_guid_tree(text: str) -> bool:
    """Return whether a text is a tree of guids, rather than a topology.conf, which has the same form for host names."""
    return bool(TREE_LINE.search(text)) and bool(_GUIDS.search(text))


def read_guid_tree(text: str, *, source: str) -> Fabric:
    """Return the fabric of a tree: which HCAs share a leaf, and which switches are cabled to which.

    The tree names neither ports nor speeds nor how many cables join two switches: there is one cable for each pair,
    its rate 0, on ports that are counted from 1.

    Raises
    ------
    InputError
        When the text names no switch.
    """
    assembly = Assembly(source=source)
    used: dict[str, int] = {}

    def port(token: str) -> tuple[str, int]:
        used[token] = used.get(token, 0) + 1
        return token, used[token]

    for number, raw in enumerate(split_lines(text, _MAX_LINE_CHARACTERS), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        match = _TREE.match(line)
        if match is None:
            assembly.report_damage(number, line)
            continue
        switch = f"S-{match['name']}"
        assembly.node(SWITCH, switch, match["name"], 0, None, number)
        nodes = (match["word"] or "").lower() == "nodes"
        for below in (match["below"] or "").split(","):
            if nodes and not _GUID.fullmatch(below):
                assembly.report_damage(number, line, f"{below[:40]!r} is no guid")
                continue
            token = f"H-{int(below, 16):016x}" if nodes else f"S-{below}"
            if not below:
                continue
            assembly.mentions.setdefault(token, ("" if nodes else below, number))
            if nodes:
                assembly.node(ADAPTER, token, "", 1, None, number)
            near, far = port(switch), port(token)
            assembly.claim(near, far, UNREPORTED, number)
            assembly.claim(far, near, UNREPORTED, number)
    if not assembly.has_switch():
        raise InputError(
            f"{source}: no switch at all in it, so no fabric", hint="give the output of sharp_cmd topology"
        )
    assembly.fault(
        "rates_not_told",
        source,
        "a tree of guids names neither ports nor speeds, nor how many cables join two switches",
        "bandwidths and oversubscription are not known",
    )
    return assembly.finish()


def read_guid_names(text: str, *, source: str) -> GuidNames | None:
    """Return a table of hosts and guids; ``None`` when most of the text is something else."""
    hosts: dict[str, str] = {}
    faults: list[Fault] = []
    wrong = 0
    for number, raw in enumerate(split_lines(text, _MAX_LINE_CHARACTERS), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        match = _HOST.match(line)
        if match is None:
            wrong += 1
            evidence = f"cannot be read: {line[:120]!r}"
            faults.append(Fault(kind="damaged_line", where=f"{source}:{number}", evidence=evidence))
            continue
        for guid in _GUID.findall(match[2]):
            known = hosts.setdefault(f"{int(guid, 16):016x}", match[1])
            if known != match[1]:
                evidence = f"one guid is a port of {known} and of {match[1]}"
                faults.append(Fault(kind="duplicate_guid", where=f"{guid} ({source}:{number})", evidence=evidence))
    if not hosts or wrong > len(hosts):
        return None
    return GuidNames(hosts=hosts, source=source, faults=tuple(faults[:MAX_DAMAGED_LINES]))


def add_host_names(fabric: Fabric, names: GuidNames) -> Fabric:
    """Return the fabric with the hosts of a table on the HCAs that name none of their own."""
    hcas: dict[str, Hca] = dict(fabric.hcas)
    for guid, host in names.hosts.items():
        hca = hcas.get(guid)
        if hca is not None and hca.node is None and not hca.sharp:
            hcas[guid] = replace(hca, node=host)
    absent = sorted(names.hosts.keys() - hcas.keys())
    faults = [*fabric.faults, *names.faults]
    if absent:
        hosts = sorted({names.hosts[guid] for guid in absent})
        more = f" and {len(hosts) - _MAX_NAMED} more" if len(hosts) > _MAX_NAMED else ""
        faults.append(
            Fault(
                kind="guid_not_in_fabric",
                where=", ".join(hosts[:_MAX_NAMED]) + more,
                evidence=f"{len(absent)} of {len(names.hosts)} guids of {names.source} are on no switch: {absent[0]}..",
                cost="what these ports are cabled to is not known",
                nodes=tuple(hosts),
            )
        )
    return replace(fabric, hcas=hcas, faults=tuple(faults), source=f"{fabric.source}, {names.source}")
