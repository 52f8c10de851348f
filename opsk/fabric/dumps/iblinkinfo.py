"""Parses the output of ``iblinkinfo``.

It names the far end of a link by LID and description, with ``-l`` by port guid too: each is resolved from the lines of
the far end itself, and a far end without lines of its own is identified by its port guid or LID.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from opsk.errors import InputError
from opsk.fabric.dumps.assembly import ADAPTER, ROUTER, SWITCH, UNKNOWN_SPEED, Assembly
from opsk.fabric.dumps.ibnetdiscover import split_lines
from opsk.fabric.fabric import Fabric
from opsk.fabric.link_speed import speed_word

_SWITCH = re.compile(r"Switch:\s+0x([0-9a-fA-F]{1,16})\s(.*):\s*$")
_ADAPTER = re.compile(r"(CA|Router):\s+(.*):\s*$")
_LINK = re.compile(
    r'(?:0x(?P<guid>[0-9a-fA-F]{1,16})\s+)?(?:"(?P<text>[^=]*)"\s+)?(?P<lid>\d+)\s+(?P<port>\d{1,3})\[[^]]*\]'
    r"\s*==\((?P<state>.{0,120}?)\)==>\s*"
    r"(?:(?:0x(?P<far_guid>[0-9a-fA-F]{1,16})\s+)?(?P<far_lid>\d+)\s+(?P<far_port>\d{1,3}))?\s*(?:\[[^]]*\])?\s*"
    r'"(?P<far_text>.*)"(?P<rest>[^"]*)$'
)
_RATE = re.compile(r"(\d{1,2}X|\?\S*)\s+(\S.*?)\s+(Active|Armed|Init\w*)\b", re.IGNORECASE)
_GBPS = re.compile(r"([\d.]+) Gbps")
_COULD_BE = re.compile(r"Could be (\d{1,2}X|[\d.]+ Gbps[^)]*?|FDR10)\s*(?=Could be|\)|$)")
_WIDEST = "12X"
"""A width that ports claim to be able to and that no cable of today has."""
_SWITCH_TEXT = re.compile(r"MF0;|\bQuantum|\bSwitch-?(?:IB|X)|\bInfini[Ss]cale|Mellanox Technologies MSB|\bSpectrum")
_ADAPTER_PORTS = 2
"""Ports that a channel adapter has at most: a far end with a higher port number is a switch."""
_KIND_OF_WORD = {"CA": (ADAPTER, "H"), "Router": (ROUTER, "R")}


@dataclass(frozen=True, slots=True)
class _Link:
    near: str
    port: int
    far_guid: str | None
    far_lid: int
    far_port: int
    far_text: str
    width: int
    speed: str
    line: int


@dataclass(slots=True)
class _Names:
    """Which node a guid, a LID or a description of the dump belongs to; a LID of 0 belongs to none."""

    by_guid: dict[str, str] = field(default_factory=dict)
    by_lid: dict[int, str] = field(default_factory=dict)
    by_text: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def register(self, token: str, *, guid: str | None, lid: int, text: str) -> None:
        """State that ``token`` goes by these names."""
        if guid:
            self.by_guid[f"{guid.lower():0>16}"] = token
        if lid:
            self.by_lid[lid] = token
        self.by_text[text].add(token)

    def find(self, link: _Link) -> str | None:
        """Return the far end of a link, when the dump has lines of its own for it."""
        if link.far_guid and (token := self.by_guid.get(f"{link.far_guid.lower():0>16}")):
            return token
        if link.far_lid:
            return self.by_lid.get(link.far_lid)
        named = self.by_text.get(link.far_text, set())
        return next(iter(named)) if len(named) == 1 else None


def read_iblinkinfo(text: str, *, source: str) -> Fabric:
    """Return the fabric that ``iblinkinfo`` printed; links that are down are left out.

    Understands the blocks of each node and one line a link (``-l``), switches only, ports that are down or whose far
    end gave no answer, port settings (``-p``), FDR10, links that are not active yet, and files that were cut.

    Raises
    ------
    InputError
        When the text names no switch.
    """
    reader = _Reader(Assembly(source=source))
    lines = [line.strip() for line in split_lines(text)]
    ports_of = Counter(match["guid"] for line in lines if (match := _LINK.match(line)) and match["text"] is not None)
    for number, line in enumerate(lines, 1):
        reader.read(number, line, ports_of)
    return reader.finish()


class _Reader:
    """One pass over the lines; ``_head`` is the node whose block we are in: kind, token if known, description."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._links: list[_Link] = []
        self._names = _Names()
        self._adapters: dict[tuple[str, int], str] = {}
        self._below: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        self._head: tuple[str, str, str] | None = None

    def read(self, number: int, line: str, ports_of: Counter[str]) -> None:
        """Take one line."""
        if match := _SWITCH.match(line):
            token, description = f"S-{match[1].lower():0>16}", match[2].strip()
            self._head = (SWITCH, token, description)
            self._assembly.node(SWITCH, token, description, 0, None, number)
        elif match := _ADAPTER.match(line):
            self._head = (_KIND_OF_WORD[match[1]][0], "", match[2])
        elif (match := _LINK.match(line)) and (self._head is not None or match["text"] is not None):
            if match["text"] is not None:
                kind = SWITCH if ports_of[match["guid"]] > 1 or _looks_like_switch(match) else ADAPTER
                self._head = (kind, "", match["text"].strip())
            self._link(match, number)
        elif line and not line.startswith("#"):
            self._assembly.report_damage(number, line)

    def _link(self, match: re.Match[str], number: int) -> None:
        """Take one link line; the first one of an adapter brings its guid."""
        kind, token, description = self._head or (ADAPTER, "", "")
        lid, port = int(match["lid"]), int(match["port"])
        if not token:
            prefix = {SWITCH: "S", ROUTER: "R"}.get(kind, "H")
            token = f"{prefix}-{(match['guid'] or f'lid{lid}').lower():0>16}"
            if kind == ADAPTER and match["guid"]:
                # Ports of one adapter: guids as far apart as their numbers. A block names all of them, -l does not.
                token = self._adapters.setdefault((description, int(match["guid"], 16) - port), token)
            self._assembly.node(kind, token, description, 0, lid, number)
            self._head = (kind, token, description)
        self._names.register(token, guid=match["guid"] or token[2:], lid=lid, text=description)
        if kind != SWITCH and lid:
            self._assembly.port_lids[token, port] = lid
        state = _RATE.search(match["state"])
        if state is None:
            if "down" not in match["state"].lower():
                self._assembly.report_damage(number, match[0], "a state that is not known")
            return
        if not match["far_lid"]:
            self._assembly.fault(
                "no_answer",
                f"{description} port {port} ({self._assembly.source}:{number})",
                "the link is up, but what is at its far end gave no answer",
                "what is cabled there is not known",
            )
            return
        self._links.append(_build_link(match, state, token, number))
        self._remarks(match, state, f"{description} port {port}", number)

    def _remarks(self, match: re.Match[str], state: re.Match[str], where: str, number: int) -> None:
        """Report the remarks of the program on a link: not active yet, or slower than both its ends can be."""
        where = f"{where} ({self._assembly.source}:{number})"
        if state[3].lower() != "active":
            self._assembly.fault("link_not_active", where, f"the link is {state[3]}, not Active", "carries no data")
        able = [text.strip() for text in _COULD_BE.findall(match["rest"]) if text != _WIDEST]
        if able:
            self._below[f"runs at {state[1]} {state[2]}", " and ".join(able)].append(where)

    def finish(self) -> Fabric:
        """Resolve the far ends and return the fabric."""
        for (runs, able), ports in sorted(self._below.items()):
            where = ports[0] if len(ports) == 1 else f"{len(ports)} ports, first {ports[0]}"
            evidence = f"{runs}, both ends could do {able}"
            self._assembly.fault("below_capability", where, evidence, "less bandwidth than the ports were bought for")
        high = {link.far_lid for link in self._links if link.far_port > _ADAPTER_PORTS and link.far_lid}
        for link in self._links:
            far = self._names.find(link)
            if far is None:
                switch = link.far_lid in high or _is_switch(link)
                name = f"{(link.far_guid or '').lower():0>16}" if link.far_guid else f"lid{link.far_lid}"
                if not link.far_guid and not link.far_lid:
                    name = f"{link.far_text} beyond {link.near} {link.port}"
                far = f"{'S' if switch else 'H'}-{name}"
            self._assembly.mentions.setdefault(far, (link.far_text, link.line))
            self._assembly.claim((link.near, link.port), (far, link.far_port), (link.width, link.speed), link.line)
        if not self._assembly.has_switch():
            raise InputError(
                f"{self._assembly.source}: no switch at all in it, so no fabric", hint="give the output of `iblinkinfo`"
            )
        return self._assembly.finish()


def _is_switch(link: _Link) -> bool:
    """Return whether a far end without lines of its own is a switch: what an adapter is cabled to nearly always is."""
    adapter = link.near.startswith("H-")
    return adapter or link.far_port > _ADAPTER_PORTS or bool(_SWITCH_TEXT.search(link.far_text))


def _looks_like_switch(match: re.Match[str]) -> bool:
    """Return whether a line of ``iblinkinfo -l``, which names no kinds, is a switch's by its port or description.

    All ports of a switch have one guid, each port of an adapter has its own: that distinguishes them as well.
    """
    return int(match["port"]) > _ADAPTER_PORTS or bool(_SWITCH_TEXT.search(match["text"]))


def _build_link(match: re.Match[str], state: re.Match[str], token: str, number: int) -> _Link:
    rate = _GBPS.search(state[2])
    speed = "FDR10" if "FDR10" in state[2] else (speed_word(rate[1]) if rate else "") or UNKNOWN_SPEED
    return _Link(
        near=token,
        port=int(match["port"]),
        far_guid=match["far_guid"],
        far_lid=int(match["far_lid"]),
        far_port=int(match["far_port"]),
        far_text=match["far_text"],
        width=int(state[1][:-1]) if state[1][0] != "?" else 0,
        speed=speed,
        line=number,
    )
