"""Parses the list of links that ``ibdiagnet`` writes (``ibdiagnet2.lst``).

Each line is a link: ``{ CA Ports:01 SystemGUID:... NodeGUID:... PortGUID:... {node description} LID:0002 PN:01 } { SW
... } PHY=4x LOG=ACT SPD=50``. Numbers of ports, LIDs and port numbers are hexadecimal.
"""

from __future__ import annotations

import re

from opsk.errors import InputError
from opsk.fabric.dumps.assembly import ADAPTER, ROUTER, SWITCH, UNKNOWN_SPEED, Assembly
from opsk.fabric.dumps.ibnetdiscover import split_lines
from opsk.fabric.fabric import Fabric
from opsk.fabric.link_speed import LANE_GBIT_PER_S, speed_word

_END = re.compile(
    r"\{\s*(CA|SW|RT|HCA|Rt|Sw)\b(?P<fields>[^{}]*)(?:\{(?P<text>[^{}]*)\}(?P<more>[^{}]*))?\}", re.IGNORECASE
)
_FIELD = re.compile(r"\b(Ports|NodeGUID|LID|PN):\s*(?:0x)?([0-9a-fA-F]+)\b")
_TAIL = re.compile(r"PHY=(\d{1,2})x\s+LOG=(\w+)\s+SPD=(\S+)")
_KINDS = {"CA": (ADAPTER, "H"), "HCA": (ADAPTER, "H"), "SW": (SWITCH, "S"), "RT": (ROUTER, "R")}
_SOLD_AS = {"14": "FDR", "25": "EDR", "50": "HDR", "100": "NDR", "200": "XDR"}
"""Speeds above 10 Gbit/s a lane are written as they are sold."""
LINE = re.compile(r"^\s*\{\s*(?:CA|SW|RT)\s+Ports:", re.MULTILINE | re.IGNORECASE)
"""How a line of this dialect begins."""


def read_ibdiagnet_lst(text: str, *, source: str) -> Fabric:
    """Return the fabric of a list of links; a link that is not active counts as a cable, and is reported.

    Raises
    ------
    InputError
        When the text names no switch.
    """
    assembly = Assembly(source=source)
    for number, raw in enumerate(split_lines(text), 1):
        line = raw.strip()
        if line and not line.startswith("#"):
            _read_line(assembly, number, line)
    if not assembly.has_switch():
        raise InputError(f"{source}: no switch at all in it, so no fabric", hint="give ibdiagnet's list of links")
    return assembly.finish()


def _read_line(assembly: Assembly, number: int, line: str) -> None:
    """Take one link: it is stated once, so both of its ends count as confirmed."""
    ends = [_read_end(assembly, match, number) for match in _END.finditer(line)]
    tail = _TAIL.search(line)
    if len(ends) != 2 or None in ends or tail is None:
        assembly.report_damage(number, line)
        return
    link = (int(tail[1]), _parse_speed(tail[3]))
    (near, far) = (end for end in ends if end is not None)
    assembly.claim(near, far, link, number)
    assembly.claim(far, near, link, number)
    if tail[2].upper() not in ("ACT", "ACTIVE"):
        where = f"{assembly.mentions[near[0]][0]} port {near[1]} ({assembly.source}:{number})"
        assembly.fault("link_not_active", where, f"the link is {tail[2]}, not ACT", "carries no data")


def _read_end(assembly: Assembly, match: re.Match[str], number: int) -> tuple[str, int] | None:
    """Return the port that one brace describes, ``None`` when it names none."""
    kind, prefix = _KINDS[match[1].upper()]
    fields = dict(_FIELD.findall(f"{match['fields']} {match['more'] or ''}"))
    if "NodeGUID" not in fields or "PN" not in fields:
        return None
    token, port = f"{prefix}-{fields['NodeGUID'].lower():0>16}", int(fields["PN"], 16)
    lid = int(fields.get("LID", "0"), 16)
    description = (match["text"] or "").strip()
    if token not in assembly.mentions:
        assembly.node(kind, token, description, int(fields.get("Ports", "0"), 16), lid or None, number)
        assembly.mentions[token] = (description, number)
    if kind != SWITCH and lid:
        assembly.port_lids[token, port] = lid
    return token, port


def _parse_speed(text: str) -> str:
    """Return the speed name of ``SPD=``: a name, a rate of the old speeds, or the marketed rate of newer ones."""
    return text if text in LANE_GBIT_PER_S else speed_word(text) or _SOLD_AS.get(text, UNKNOWN_SPEED)
