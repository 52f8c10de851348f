"""What does the ports report of ``ibnetdiscover -p`` say is cabled to what?"""

from __future__ import annotations

import re

from opsk.errors import InputError
from opsk.topology.assembly import ADAPTER, ROUTER, SWITCH, Assembly
from opsk.topology.fabric import Fabric
from opsk.topology.ibnetdiscover import lines_of

_END = r"(SW|CA|RT)\s+(-?\d*)\s+(\d{1,3})\s+0x([0-9a-fA-F]{1,16})"
_LINKED = re.compile(rf"{_END}\s+(\d{{1,2}})x\s+(\S+)\s+-\s+{_END}\s+\(\s*'(.*)'\s+-\s+'(.*)'\s*\)\s*$")
_OPEN = re.compile(rf"{_END}\s+\d{{1,2}}x\s+\S+\s+'(.*)'\s*$")
_KINDS = {"SW": (SWITCH, "S"), "CA": (ADAPTER, "H"), "RT": (ROUTER, "R")}


def read_ports_report(text: str, *, source: str) -> Fabric:
    """Return the fabric of a ports report.

    The report names ports, not adapters: an adapter with two cabled ports counts as two.

    Raises
    ------
    InputError
        When the text names no switch.
    """
    assembly = Assembly(source=source)
    highest: dict[str, int] = {}
    described: dict[str, tuple[str, str, int | None, int]] = {}
    for number, raw in enumerate(lines_of(text), 1):
        line = raw.strip()
        match = _LINKED.match(line) or _OPEN.match(line)
        if match is None:
            if line and not line.startswith("#"):
                assembly.damaged(number, line)
            continue
        kind, prefix = _KINDS[match[1]]
        token = f"{prefix}-{match[4].lower():0>16}"
        lid = int(match[2]) if match[2].isdecimal() else None
        description = match[match.re.groups - 1] if match.re is _LINKED else match[5]
        described.setdefault(token, (kind, description, lid, number))
        highest[token] = max(highest.get(token, 0), int(match[3]))
        if match.re is _LINKED:
            far = f"{_KINDS[match[7]][1]}-{match[10].lower():0>16}"
            assembly.claim((token, int(match[3])), (far, int(match[9]), int(match[5]), match[6]), number)
            assembly.mentions.setdefault(far, (match[12], number))
    for token, (kind, description, lid, number) in described.items():
        assembly.node(kind, token, description, highest[token], lid, number)
    if not assembly.has_switch():
        raise InputError(f"{source}: no switch at all in it, so no fabric", hint="give the output of `ibnetdiscover`")
    return assembly.finish()
