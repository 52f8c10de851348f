"""What does the output of ``ibnetdiscover`` (or ``ibdiagnet``'s copy of it) say is cabled to what?"""

from __future__ import annotations

import re

from opsk.errors import InputError
from opsk.topology.assembly import ADAPTER, ROUTER, SWITCH, Assembly
from opsk.topology.fabric import Fabric

MAX_LINE = 1000
"""Characters of a line that are looked at; a description has 64 at most, a whole line 300."""

_PORT = re.compile(
    r"""\[(\d{1,3})\](?:\[ext\ \d+\])?\s*(?:\([^()"]*\)\s*)?  # own port, its place outside the chassis, its guid
        "([^"]{1,64})"\[(\d{1,3})\](?:\[ext\ \d+\])?\s*(?:\([^()"]*\)\s*)?  # far end
        \#\s*(?:lid\s-?\d*\s+lmc\s-?\d*\s+)?"(.*)"\s*lid\s(-?\d*)\s+(\d{1,2})[xX]\s*([A-Za-z]+\d*)""",
    re.VERBOSE,
)
_BARE_PORT = re.compile(
    r'\[(\d{1,3})\](?:\[ext \d+\])?\s*(?:\([^()"]*\)\s*)?"([^"]{1,64})"\[(\d{1,3})\]'
    r'(?:\[ext \d+\])?\s*(?:\([^()"]*\)\s*)?(?:#.*)?$'
)
_HEADER = re.compile(r'(Switch|Ca|Hca|Rt)\s+(\d{1,3})\s+"([^"]{1,64})"(.*)$')
_HEADER_TEXT = re.compile(r'\s*#\s*"(.*)"([^"]*)$')
_HEADER_LID = re.compile(r"\blid\s*(-?\d*)")
_GUID_LINE = re.compile(r"(switchguid|caguid|rtguid)=0x([0-9A-Za-z]{1,16})\b")
_IGNORED = re.compile(r"(vendid|devid|sysimgguid|[pP]art[nN]o|Chassis|Non-Chassis)\b")
_GENERATED = re.compile(r"#\s*(?:Topology file: generated on|Timestamp:)\s*(.+)")
_INITIATED = re.compile(r"#\s*Initiated from node (\w+)")
_KINDS = {"Switch": SWITCH, "Ca": ADAPTER, "Hca": ADAPTER, "Rt": ROUTER}
_TOKEN_OF_GUID_LINE = {"switchguid": "S", "caguid": "H", "rtguid": "R"}
_ID = re.compile(r"[SHR]-[0-9A-Za-z]+")


def read_ibnetdiscover(text: str, *, source: str) -> Fabric:
    """Return the fabric that a dump describes, with a fault for each line that could not be used.

    Understands dumps with and without header, ibdiagnet's header, port lines ``[1](guid)``, ``[1](1)`` and
    ``[1][ext 5]``, empty and negative LIDs, director chassis, SHARP nodes, routers, loops, nodes that are only named
    as a far end, Windows line ends, a byte order mark and files that were cut.

    Parameters
    ----------
    text
        The whole dump.
    source
        Name of the file, for messages.

    Raises
    ------
    InputError
        When the text names no switch at all.
    """
    assembly = Assembly(source=source)
    reader = _Reader(assembly)
    for number, line in enumerate(lines_of(text), 1):
        reader.read(number, line)
    if not assembly.has_switch():
        raise InputError(
            f"{source}: no switch at all in it, so no fabric ({number} lines)",
            hint="give the output of `ibnetdiscover`, run where a subnet manager is reachable",
        )
    return assembly.finish(generated=reader.generated, extra=reader.extra)


def lines_of(text: str) -> list[str]:
    """Return the lines without byte order mark and carriage returns, none longer than ``MAX_LINE``."""
    lines = text.removeprefix("\ufeff").replace("\r\r\n", "\n").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return [line if len(line) <= MAX_LINE else line[:MAX_LINE] for line in lines]


class _Reader:
    """One pass over the lines; ``_current`` is the node whose block we are in, ``None`` outside."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._mentions = assembly.mentions
        self._current: str | None = None
        self._announced: str | None = None
        self.generated = ""
        self.extra: dict[str, str] = {}

    def read(self, number: int, line: str) -> None:
        """Take one line."""
        if line.startswith("["):
            self._port(number, line)
        elif not line or line.isspace():
            self._current = None
        else:
            self._other(number, line.strip())

    def _port(self, number: int, line: str) -> None:
        """Take a port line: who is cabled here."""
        if self._current is None:
            self._assembly.damaged(number, line, "port line that belongs to no node")
            return
        match = _PORT.match(line)
        if match is None:
            self._bare_port(number, line)
            return
        port, far, far_port, description, lid, width, speed = match.groups()
        known = self._mentions.get(far)
        if known is None or not known[0]:
            if not _ID.fullmatch(far):
                self._assembly.damaged(number, line, "far end without a guid")
                return
            self._mentions[far] = (description, number)
        if not lid or lid[0] == "-" or len(lid) > 4:
            self._assembly.lid(lid, f"{description} as named here", number)
        self._claim(int(port), (far, int(far_port), int(width), speed.upper()), number)

    def _bare_port(self, number: int, line: str) -> None:
        """Take a port line that ends before the speed, when it still says what is cabled."""
        match = _BARE_PORT.match(line)
        if match is None or not _ID.fullmatch(match[2]):
            self._assembly.damaged(number, line)
            return
        self._assembly.damaged(number, line, "cable known, but the end of the line is missing")
        self._mentions.setdefault(match[2], ("", number))
        self._claim(int(match[1]), (match[2], int(match[3]), 0, ""), number)

    def _claim(self, port: int, claim: tuple[str, int, int, str], number: int) -> None:
        self._assembly.claim((self._current or "", port), claim, number)

    def _other(self, number: int, line: str) -> None:
        """Take a line that is neither empty nor a port."""
        if line.startswith("#"):
            self._comment(line)
        elif match := _GUID_LINE.match(line):
            self._current = None
            self._announced = f"{_TOKEN_OF_GUID_LINE[match[1]]}-{match[2].lower():0>16}"
        elif match := _HEADER.match(line):
            self._header(number, line, match)
        elif _IGNORED.match(line):
            self._current = None
        else:
            self._assembly.damaged(number, line)
            # A broken header: the guid line above it still says whose ports follow.
            self._current = self._announced if line.startswith(("Sw", "Ca", "Rt")) else None
            if self._current:
                self._mentions.setdefault(self._current, ("", number))

    def _header(self, number: int, line: str, match: re.Match[str]) -> None:
        word, ports, token, rest = match.groups()
        if not _ID.fullmatch(token):
            self._assembly.damaged(number, line, "node without a guid")
            self._current = None
            return
        text = _HEADER_TEXT.match(rest)
        description, tail = (text[1], text[2]) if text else ("", "")
        if text is None:
            self._assembly.damaged(number, line, "node known, but the end of the line is missing")
        lid_text = _HEADER_LID.search(tail)
        lid = self._assembly.lid(lid_text[1], description, number) if lid_text else None
        self._assembly.node(_KINDS[word], token, description, int(ports), lid, number)
        self._current = token
        self._announced = None

    def _comment(self, line: str) -> None:
        if match := _GENERATED.match(line):
            self.generated = match[1].strip()
        elif match := _INITIATED.match(line):
            self.extra["initiated_from"] = match[1]
