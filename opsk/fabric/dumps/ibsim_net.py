"""Parses ibsim ``.net`` files."""

from __future__ import annotations

import re

from opsk.errors import InputError
from opsk.fabric.dumps.assembly import ADAPTER, ROUTER, SWITCH, Assembly
from opsk.fabric.dumps.ibnetdiscover import split_lines
from opsk.fabric.fabric import Fabric
from opsk.fabric.link_speed import parse_link

_HEADER = re.compile(r'(Switch|Hca|Ca|Rt)\s+(\d{1,3})\s+"([^"]{1,64})"\s*(?:#\s*"?([^"]*)"?.*)?$')
_PORT = re.compile(r'@?\[(\d{1,3})\]\s*(?:\([^()"]*\))?\s*"([^"]{1,64})"(?:\s*\[(\d{1,3})\])?(.*)$')
_IGNORED = re.compile(r"(vendid|devid|\w*guids?|sysimgguid|width|speed|extspeed|module|include|pdebug|do)\b")
_OPTION = re.compile(r"\b([wse])=(\d+)")
_KINDS = {"Switch": SWITCH, "Hca": ADAPTER, "Ca": ADAPTER, "Rt": ROUTER}

_DEFAULT_SPEED = "SDR"
"""Speed of a port without options (ibsim/sim.h, DEFAULT_LINKSPEED)."""
_WIDTHS = ((8, 12), (4, 8), (2, 4), (16, 2), (1, 1))
"""Bits of option ``w``, widest first, and the lanes that each enables."""
_SPEEDS = ((4, "QDR"), (2, "DDR"), (1, "SDR"))
_EXTENDED_SPEEDS = ((8, "NDR"), (4, "HDR"), (2, "EDR"), (1, "FDR"))


def read_ibsim_net(text: str, *, source: str) -> Fabric:
    """Return the fabric of a ``.net`` file; nodes go by the ids of the file, ``S-`` and ``H-`` prefixes left out.

    The rate of a port is the fastest that its options enable; aliases and included files are not followed.

    Raises
    ------
    InputError
        When the text describes no switch.
    """
    assembly = Assembly(source=source)
    current: str | None = None
    for number, raw in enumerate(split_lines(text), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            current = None if not line else current
        elif match := _HEADER.match(line):
            word, ports, current, description = match.groups()
            assembly.node(_KINDS[word], current, (description or current).strip(), int(ports), None, number)
        elif current is not None and (match := _PORT.match(line)):
            _read_port(assembly, current, number, match)
        elif not _IGNORED.match(line):
            assembly.report_damage(number, line)
    if not assembly.has_switch():
        raise InputError(f"{source}: no switch at all in it, so no fabric", hint="give an ibsim .net file")
    return assembly.finish()


def _read_port(assembly: Assembly, current: str, number: int, match: re.Match[str]) -> None:
    port, far, far_port, rest = match.groups()
    width, speed = _parse_rate(rest)
    assembly.mentions.setdefault(far, ("", number))
    assembly.claim((current, int(port)), (far, int(far_port or 1)), (width, speed), number)


def _parse_rate(rest: str) -> tuple[int, str]:
    """Return width and speed of a port line's options, or of an ibnetdiscover tail."""
    width, speed = parse_link(rest)
    if speed:
        return width, speed
    options = {key: int(value) for key, value in _OPTION.findall(rest)}
    lanes = next((lanes for bit, lanes in _WIDTHS if options.get("w", 2) & bit), 4)
    extended = next((word for bit, word in _EXTENDED_SPEEDS if options.get("e", 0) & bit), "")
    plain = next((word for bit, word in _SPEEDS if options.get("s", 1) & bit), _DEFAULT_SPEED)
    return lanes, extended or plain
