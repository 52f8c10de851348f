"""Parses the output of ``ibnetdiscover``, ``ibdiagnet``'s copy of it, and the report of ``ibnetdiscover -p``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opsk.errors import InputError
from opsk.fabric.dumps.assembly import ADAPTER, ROUTER, SWITCH, UNREPORTED, Assembly, Link
from opsk.fabric.fabric import Fabric

_USUAL_LID_DIGITS = 4
"""A LID of at most so many digits is a unicast LID, with no need to compare."""

MAX_LINE = 1000
"""Characters of a line that are looked at; a description has 64 at most, a whole line 300."""

_PORT = re.compile(
    r"""\[(\d{1,3})\](?:\[ext\ \d+\])?\s*(?:\([^()"]*\)\s*)?  # own port, its place outside the chassis, its guid
        "([^"]{1,64})"\[(\d{1,3})\](?:\[ext\ \d+\])?\s*(?:\([^()"]*\)\s*)?  # far end
        \#\s*(?:lid\s(-?\d*)\s+lmc\s-?\d*\s+)?"(.*)"\s*lid\s(-?\d*)\s+  # own lid, far description, far lid
        (?:(\d{1,2})[xX]|\?\?)\s*([A-Za-z]+\d*|\?\?\?)""",
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
_IGNORED = re.compile(r"(vendid|devid|sysimgguid|[pP]art[nN]o|Chassis|Non-Chassis|Hostname:)")
_GENERATED = re.compile(r"#\s*(?:Topology file: generated on|Timestamp:)\s*(.+)")
_INITIATED = re.compile(r"#\s*Initiated from node (\w+)")
_HEADER_KINDS = {"Switch": SWITCH, "Ca": ADAPTER, "Hca": ADAPTER, "Rt": ROUTER}
_TOKEN_OF_GUID_LINE = {"switchguid": "S", "caguid": "H", "rtguid": "R"}
_ID = re.compile(r"[SHR]-[0-9A-Za-z]+")
_END = r"(SW|CA|RT)\s+(-?\d*)\s+(\d{1,3})\s+0x([0-9a-fA-F]{1,16})"
_RATE = r"(?:(\d{1,2})x|\?\?)\s+(\S+)"
_LINKED = re.compile(rf"{_END}\s+{_RATE}\s+-\s+{_END}\s+\(\s*'(.*)'\s+-\s+'(.*)'\s*\)\s*$")
_OPEN = re.compile(rf"{_END}\s+{_RATE}\s+'(.*)'\s*$")
_KINDS = {"SW": (SWITCH, "S"), "CA": (ADAPTER, "H"), "RT": (ROUTER, "R")}


def read_ibnetdiscover(text: str, *, source: str) -> Fabric:
    """Return the fabric that a dump describes, with a fault for each line that could not be used.

    Understands dumps with and without header, ibdiagnet's header, groups of chassis (``-g``), full information
    (``-f``), port lines ``[1](guid)``, ``[1](1)`` and ``[1][ext 5]``, empty and negative LIDs, speeds that the program
    did not know (``4x???``), director chassis, SHARP nodes, routers, loops, nodes that are only named as a far end,
    guids in any case, indented lines, Windows line ends, a byte order mark and files that were cut.

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
    number = 0
    for number, line in enumerate(split_lines(text), 1):
        if line[:1] == "[":
            reader.port(number, line)
        else:
            reader.other(number, line.strip())
    if not assembly.has_switch():
        raise InputError(
            f"{source}: no switch at all in it, so no fabric ({number} lines)",
            hint="give the output of `ibnetdiscover`, run where a subnet manager is reachable",
        )
    return assembly.finish(generated=reader.generated, extra=reader.extra)


def split_lines(text: str, max_length: int = MAX_LINE) -> list[str]:
    """Return the lines without byte order mark and carriage returns, none longer than ``max_length`` characters."""
    text = text.removeprefix("\ufeff")
    if "\r" in text:
        text = text.replace("\r\r\n", "\n").replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    return [line[:max_length] for line in lines] if max(map(len, lines)) > max_length else lines


class _Reader:
    """One pass over the lines; ``_current`` is the node whose block we are in, ``None`` outside.

    ``_tokens`` maps each id as it is written to the token of the node, once its description is known.
    """

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._claims = assembly.claims
        self._lids = assembly.port_lids
        self._tokens: dict[str, str] = {}
        self._links: dict[tuple[str | None, str], Link] = {}
        self._current: str | None = None
        self._guid_line = ""
        self.generated = ""
        self.extra: dict[str, str] = {}

    def port(self, number: int, line: str) -> None:
        """Take a port line: who is cabled here."""
        current = self._current
        match = _PORT.match(line) if current is not None else None
        if current is None or match is None:
            self._odd_port(number, line)
            return
        port, far, far_port, near_lid, description, lid, width, speed = match.groups()
        token = self._tokens.get(far) or self._far_token(far, description, number, line)
        if token is None:
            return
        link = self._links.get((width, speed))
        if link is None:
            link = self._links[width, speed] = (int(width or 0), speed.upper())
        near, end = (current, int(port)), (token, int(far_port))
        if near in self._claims:
            self._assembly.claim(near, end, link, number)
        else:
            self._claims[near] = (end, link, number)
        if not lid.isdecimal() or len(lid) > _USUAL_LID_DIGITS:
            lid = str(self._assembly.lid(lid, f"{description} as named here", number) or 0)
        if token[0] != "S" and lid != "0":
            self._lids[end] = int(lid)
        if near_lid and near_lid.isdecimal() and near_lid != "0":
            self._lids[near] = int(near_lid)

    def _far_token(self, far: str, description: str, number: int, line: str) -> str | None:
        """Return the token of a far end, ``None`` when it is no guid; remember what it is called."""
        if not _ID.fullmatch(far):
            self._assembly.report_damage(number, line, "far end without a guid")
            return None
        token = _token(far)
        known = self._assembly.mentions.get(token)
        if known is None or not known[0]:
            self._assembly.mentions[token] = (description, number)
        if description:
            self._tokens[far] = token
        return token

    def _odd_port(self, number: int, line: str) -> None:
        """Take a port line that ends before the speed, when it still names both ends."""
        if self._current is None:
            self._assembly.report_damage(number, line, "port line that belongs to no node")
            return
        match = _BARE_PORT.match(line)
        if match is None or not _ID.fullmatch(match[2]):
            self._assembly.report_damage(number, line)
            return
        self._assembly.report_damage(number, line, "cable known, but the end of the line is missing")
        far = _token(match[2])
        self._assembly.mentions.setdefault(far, ("", number))
        self._assembly.claim((self._current, int(match[1])), (far, int(match[3])), UNREPORTED, number)

    def other(self, number: int, line: str) -> None:
        """Take a line, without blanks around it, that is no port line; unless it is an indented one."""
        if not line or line.startswith(("vendid=", "devid=", "sysimgguid=")):
            self._current = None
        elif line.startswith(("switchguid=", "caguid=", "rtguid=")):
            self._current = None
            self._guid_line = line
        elif match := _HEADER.match(line):
            self._header(number, line, match)
        elif line[0] == "#":
            self._comment(line)
        elif line[0] == "[":
            self.port(number, line)
        elif _IGNORED.match(line):
            self._current = None
        else:
            self._assembly.report_damage(number, line)
            # A broken header: the guid line above it still names the node of the ports.
            self._current = self._get_announced() if line.startswith(("Sw", "Ca", "Rt")) else None
            if self._current:
                self._assembly.mentions.setdefault(self._current, ("", number))

    def _get_announced(self) -> str | None:
        """Return the token of the last guid line, when no header followed it yet."""
        match = _GUID_LINE.match(self._guid_line)
        return f"{_TOKEN_OF_GUID_LINE[match[1]]}-{match[2].lower():0>16}" if match else None

    def _header(self, number: int, line: str, match: re.Match[str]) -> None:
        word, ports, written, rest = match.groups()
        self._guid_line = ""
        token = self._tokens.get(written)
        if token is None:
            if not _ID.fullmatch(written):
                self._assembly.report_damage(number, line, "node without a guid")
                self._current = None
                return
            token = _token(written)
        text = _HEADER_TEXT.match(rest)
        description, tail = (text[1], text[2]) if text else ("", "")
        if text is None:
            self._assembly.report_damage(number, line, "node known, but the end of the line is missing")
        lid_text = _HEADER_LID.search(tail)
        lid = self._assembly.lid(lid_text[1], description, number) if lid_text else None
        self._assembly.node(_HEADER_KINDS[word], token, description, int(ports), lid, number)
        self._current = token

    def _comment(self, line: str) -> None:
        if match := _GENERATED.match(line):
            self.generated = match[1].strip()
        elif match := _INITIATED.match(line):
            self.extra["initiated_from"] = match[1]


def _token(written: str) -> str:
    """Return an id with its guid in lower case, however the dump spells it."""
    return written[:2] + written[2:].lower()


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
            assembly.report_damage(number, line)
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
