"""Parses the ports report of ``ibnetdiscover -p``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opsk.errors import InputError
from opsk.fabric.dumps.assembly import ADAPTER, ROUTER, SWITCH, Assembly, Link
from opsk.fabric.dumps.ibnetdiscover import split_lines
from opsk.fabric.fabric import Fabric

_END = r"(SW|CA|RT)\s+(-?\d*)\s+(\d{1,3})\s+0x([0-9a-fA-F]{1,16})"
_RATE = r"(?:(\d{1,2})x|\?\?)\s+(\S+)"
_LINKED = re.compile(rf"{_END}\s+{_RATE}\s+-\s+{_END}\s+\(\s*'(.*)'\s+-\s+'(.*)'\s*\)\s*$")
_OPEN = re.compile(rf"{_END}\s+{_RATE}\s+'(.*)'\s*$")
_KINDS = {"SW": (SWITCH, "S"), "CA": (ADAPTER, "H"), "RT": (ROUTER, "R")}


@dataclass(frozen=True, slots=True)
class _Port:
    """One end of a line: the node's kind, the port's own guid, its number and LID, and what the node is called."""

    word: str
    guid: int
    number: int
    lid: int | None
    description: str

    @property
    def adapter(self) -> tuple[str, str, int]:
        """What the ports of one node have in common: guids of one adapter are as far apart as its port numbers."""
        return self.word, self.description, self.guid - (self.number if self.word == "CA" else 0)


def read_ports_report(text: str, *, source: str) -> Fabric:
    """Return the fabric of a ports report; ports without a far end count, whatever width and speed they show.

    The report names ports by their own guids, not adapters: two ports with one description and guids as far apart as
    their numbers are one adapter, which goes by the guid of the first.

    Raises
    ------
    InputError
        When the text names no switch.
    """
    assembly = Assembly(source=source)
    ends: list[tuple[_Port, int]] = []
    links: list[tuple[_Port, _Port, Link, int]] = []
    for number, raw in enumerate(split_lines(text), 1):
        line = raw.strip()
        if match := _LINKED.match(line):
            near, far = _port(match.groups()[:4], match[11]), _port(match.groups()[6:10], match[12])
            ends.append((near, number))
            links.append((near, far, (int(match[5] or 0), match[6]), number))
        elif match := _OPEN.match(line):
            ends.append((_port(match.groups()[:4], match[7]), number))
        elif line and not line.startswith("#"):
            assembly.damaged(number, line)
    _add_to_assembly(assembly, ends, links)
    if not assembly.has_switch():
        raise InputError(f"{source}: no switch at all in it, so no fabric", hint="give the output of `ibnetdiscover`")
    return assembly.finish()


def _port(fields: Sequence[str], description: str) -> _Port:
    word, lid, number, guid = fields
    return _Port(word, int(guid, 16), int(number), int(lid) if lid.isdecimal() else None, description)


def _add_to_assembly(
    assembly: Assembly, ends: Sequence[tuple[_Port, int]], links: Sequence[tuple[_Port, _Port, Link, int]]
) -> None:
    """Add the lines to the assembly, with each port under the token of its node."""
    tokens: dict[tuple[str, str, int], str] = {}
    ports = [*(port for port, _ in ends), *(far for _, far, *_ in links)]
    for port in sorted(ports, key=lambda port: port.number):
        tokens.setdefault(port.adapter, f"{_KINDS[port.word][1]}-{port.guid:016x}")
    described: dict[str, tuple[_Port, int, int]] = {}
    for port, line in ends:
        known = described.get(tokens[port.adapter])
        highest = max(port.number, known[1]) if known else port.number
        described[tokens[port.adapter]] = (known[0] if known else port, highest, known[2] if known else line)
        _add_lid(assembly, tokens, port)
    for near, far, link, line in links:
        _add_lid(assembly, tokens, far)
        assembly.mentions.setdefault(tokens[far.adapter], (far.description, line))
        assembly.claim((tokens[near.adapter], near.number), (tokens[far.adapter], far.number), link, line)
    for token, (port, highest, line) in described.items():
        assembly.node(_KINDS[port.word][0], token, port.description, highest, port.lid, line)


def _add_lid(assembly: Assembly, tokens: Mapping[tuple[str, str, int], str], port: _Port) -> None:
    if port.word != "SW" and port.lid:
        assembly.port_lids[tokens[port.adapter], port.number] = port.lid
