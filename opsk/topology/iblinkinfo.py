"""What does the output of ``iblinkinfo`` say is cabled to what?

It names the far end of a link by LID and description, not by guid: LIDs are resolved from the lines of the far end
itself, and a far end without lines of its own goes by its LID.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from opsk.errors import InputError
from opsk.topology.assembly import ADAPTER, SWITCH, Assembly
from opsk.topology.fabric import Fabric
from opsk.topology.ibnetdiscover import lines_of
from opsk.topology.link_speed import speed_word

_SWITCH = re.compile(r"Switch:\s+0x([0-9a-fA-F]{1,16})\s+(.*):\s*$")
_ADAPTER = re.compile(r"CA:\s+(.*):\s*$")
_LINK = re.compile(
    r'(?:0x(?P<guid>[0-9a-fA-F]{1,16})\s+)?(?:"(?P<text>[^"]*)"\s+)?(?P<lid>\d+)\s+(?P<port>\d{1,3})\[[^]]*\]'
    r"\s*==\((?P<state>[^)]*)\)==>\s*(?:0x[0-9a-fA-F]{1,16}\s+)?"
    r'(?:(?P<far_lid>\d+)\s+(?P<far_port>\d{1,3}))?\s*\[[^]]*\]\s*"(?P<far_text>.*)"'
)
_RATE = re.compile(r"(\d{1,2})X\s+([\d.]+) Gbps Active", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Link:
    own: str
    port: int
    far_lid: int
    far_port: int
    far_text: str
    width: int
    speed: str
    line: int


def read_iblinkinfo(text: str, *, source: str) -> Fabric:
    """Return the fabric that ``iblinkinfo`` printed; links that are down are left out.

    Raises
    ------
    InputError
        When the text names no switch.
    """
    assembly = Assembly(source=source)
    links: list[_Link] = []
    by_lid: dict[int, str] = {}
    head: tuple[str, str] | None = None
    lines = [line.strip() for line in lines_of(text)]
    ports_of = Counter(match["guid"] for line in lines if (match := _LINK.match(line)) and match["text"] is not None)
    for number, line in enumerate(lines, 1):
        if match := _SWITCH.match(line):
            head = (f"S-{match[1].lower():0>16}", match[2])
            assembly.node(SWITCH, head[0], head[1], 0, None, number)
        elif match := _ADAPTER.match(line):
            head = ("", match[1])
        elif (match := _LINK.match(line)) and (head is not None or match["text"] is not None):
            if match["text"] is not None:
                head = _one_line_node(assembly, match, number, ports_of)
            head = _link(assembly, head or ("", ""), match, number, links, by_lid)
        elif line and not line.startswith("#"):
            assembly.damaged(number, line)
    for link in links:
        _state(assembly, link, by_lid)
    if not assembly.has_switch():
        raise InputError(f"{source}: no switch at all in it, so no fabric", hint="give the output of `iblinkinfo`")
    return assembly.finish()


def _one_line_node(assembly: Assembly, match: re.Match[str], number: int, ports_of: Counter[str]) -> tuple[str, str]:
    """Take the node of a line of ``iblinkinfo -l``, which does not say its kind: a switch has a line for each port."""
    kind, prefix = (SWITCH, "S") if ports_of[match["guid"]] > 1 else (ADAPTER, "H")
    token, description = f"{prefix}-{(match['guid'] or '').lower():0>16}", match["text"].strip()
    assembly.node(kind, token, description, 0, int(match["lid"]), number)
    return token, description


def _link(
    assembly: Assembly,
    head: tuple[str, str],
    match: re.Match[str],
    number: int,
    links: list[_Link],
    by_lid: dict[int, str],
) -> tuple[str, str]:
    """Take one link line; the first one of an adapter brings its guid."""
    token, description = head
    if not token:
        guid = match["guid"] or f"lid{match['lid']}"
        token = f"H-{guid.lower():0>16}"
        assembly.node(ADAPTER, token, description, 0, int(match["lid"]), number)
    by_lid[int(match["lid"])] = token
    rate = _RATE.search(match["state"])
    if rate and match["far_lid"]:
        speed = speed_word(rate[2])
        links.append(
            _Link(
                own=token,
                port=int(match["port"]),
                far_lid=int(match["far_lid"]),
                far_port=int(match["far_port"]),
                far_text=match["far_text"],
                width=int(rate[1]),
                speed=speed,
                line=number,
            )
        )
    return token, description


def _state(assembly: Assembly, link: _Link, by_lid: dict[int, str]) -> None:
    prefix = "S" if link.far_text.startswith("MF0;") else "H"
    far = by_lid.get(link.far_lid) or f"{prefix}-lid{link.far_lid}"
    assembly.mentions.setdefault(far, (link.far_text, link.line))
    assembly.claim((link.own, link.port), (far, link.far_port, link.width, link.speed), link.line)
