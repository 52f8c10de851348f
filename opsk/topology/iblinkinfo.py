"""What does the output of ``iblinkinfo`` say is cabled to what?

It names the far end of a link by LID and description, not by guid: LIDs are resolved from the lines of the far end
itself, and a far end without lines of its own goes by its LID.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from opsk.errors import InputError
from opsk.topology.assembly import ADAPTER, SWITCH, Assembly
from opsk.topology.fabric import Fabric
from opsk.topology.ibnetdiscover import lines_of
from opsk.topology.link_speed import speed_word

_SWITCH = re.compile(r"Switch:\s+0x([0-9a-fA-F]{1,16})\s+(.*):\s*$")
_ADAPTER = re.compile(r"CA:\s+(.*):\s*$")
_LINK = re.compile(
    r'(?:0x([0-9a-fA-F]{1,16})\s+)?(?:"[^"]*"\s+)?(\d+)\s+(\d{1,3})\[[^]]*\]\s*==\(\s*(.*?)\)==>'
    r'\s*(?:0x([0-9a-fA-F]{1,16})\s+)?(\d*)\s*(\d*)\[[^]]*\]\s*"(.*)"'
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
    for number, raw in enumerate(lines_of(text), 1):
        line = raw.strip()
        if match := _SWITCH.match(line):
            head = (f"S-{match[1].lower():0>16}", match[2])
            assembly.node(SWITCH, head[0], head[1], 0, None, number)
        elif match := _ADAPTER.match(line):
            head = ("", match[1])
        elif head is not None and (match := _LINK.match(line)):
            head = _link(assembly, head, match, number, links, by_lid)
        elif line and not line.startswith("#"):
            assembly.damaged(number, line)
    for link in links:
        _state(assembly, link, by_lid)
    if not assembly.has_switch():
        raise InputError(f"{source}: no switch at all in it, so no fabric", hint="give the output of `iblinkinfo`")
    return assembly.finish()


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
        token = f"H-{(match[1] or f'lid{match[2]}').lower():0>16}"
        assembly.node(ADAPTER, token, description, 0, int(match[2]), number)
    by_lid[int(match[2])] = token
    rate = _RATE.search(match[4])
    if rate and match[6] and match[7]:
        speed = speed_word(rate[2])
        links.append(_Link(token, int(match[3]), int(match[6]), int(match[7]), match[8], int(rate[1]), speed, number))
    return token, description


def _state(assembly: Assembly, link: _Link, by_lid: dict[int, str]) -> None:
    prefix = "S" if link.far_text.startswith("MF0;") else "H"
    far = by_lid.get(link.far_lid) or f"{prefix}-lid{link.far_lid}"
    own = (link.own, link.port)
    claim = (far, link.far_port, link.width, link.speed)
    assembly.mentions.setdefault(far, (link.far_text, link.line))
    if own in assembly.claims:
        assembly.second_claim(own, claim, link.line)
        return
    assembly.claims[own] = claim
    assembly.claim_lines[own] = link.line
