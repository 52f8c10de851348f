"""Assembles one fabric from the statements about single ports that the readers of a dump collect.

A cable has two ends and most dumps name it from both. A statement that the far end confirms, or on which the far end
is silent, becomes a cable; a statement that the far end's own block contradicts does not, and is reported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from opsk.fabric.fabric import Cable, Fabric, Fault, Hca, Switch
from opsk.fabric.link_speed import link_bytes_per_s, speed_rank

MAX_DAMAGED_LINES = 20
"""Damaged lines reported one by one; the rest of a file full of rubbish is one more fault with the count."""

MAX_UNICAST_LID = 0xBFFF
"""Highest unicast LID (IBA 4.1.3); anything else but 0, which is "not yet assigned", is a mistake."""

_DECIMAL = re.compile(r"\d{1,9}")
_SHOWN_DIGITS = 20

_FACTORY = re.compile(
    r"MT\d{3,6}\b|ConnectX|\(none\)|Voltaire|.*\b(?:Mellanox|NVIDIA) Technologies|.*\bInfiniHost\b", re.IGNORECASE
)
_FACTORY_STARTS = (" ", "mt", "connectx", "(none)", "voltaire")
_FACTORY_WORDS = ("technologies", "infinihost")
"""What a factory's text begins with or holds: a quick look that spares most descriptions the expression above."""
_LONE_DEVICE = re.compile(r"HCA-\d+|(?:mlx|mthca|qib|hfi|ipath)\d*_\d+|ibp\d+s\d+\w*")
_SHARP = "Aggregation Node"

SWITCH, ADAPTER, ROUTER = "Switch", "Ca", "Rt"
_KIND_OF_PREFIX = {"S": SWITCH, "H": ADAPTER, "R": ROUTER}

UNKNOWN_SPEED = "???"
"""What the tools print for a speed that is newer than they are."""

End = tuple[str, int]
"""A port: token of its node, and number."""
Link = tuple[int, str]
"""Width and speed name."""
UNREPORTED: Link = (0, "")
"""The link of a port whose line does not report it, or was cut before it."""
Claim = tuple[End, Link, int]
"""The statement of a port about its cable: the far port, the link, and the line of the dump."""


@dataclass(slots=True)
class _Block:
    """A node that the dump describes, or only names."""

    kind: str
    description: str
    ports: int
    lid: int | None
    line: int
    described: bool


@dataclass(slots=True)
class Assembly:
    """Collects statements of one dump; ``source`` is the name that faults call it by.

    Nodes are known by the token that the dump uses (``S-0002c9...``, or any word in an ibsim file) until ``finish``.
    """

    source: str
    claims: dict[End, Claim] = field(default_factory=dict)
    mentions: dict[str, tuple[str, int]] = field(default_factory=dict)
    port_lids: dict[End, int] = field(default_factory=dict)
    _blocks: dict[str, _Block] = field(default_factory=dict)
    _second_claims: dict[End, list[Claim]] = field(default_factory=dict)
    _faults: list[Fault] = field(default_factory=list)
    _damaged: int = 0

    def node(self, kind: str, token: str, description: str, ports: int, lid: int | None, line: int) -> None:
        """State that the dump has a block of its own for ``token``."""
        known = self._blocks.get(token)
        if known is None:
            self._blocks[token] = _Block(kind, description, ports, lid, line, described=True)
            return
        if (known.kind, known.description) != (kind, description) and known.description and description:
            self.fault(
                "duplicate_guid",
                f"{token[2:]} ({self.source}:{known.line} and {line})",
                f'one guid is "{known.description}" and "{description}"',
                "routes to the two cannot be told apart; the subnet manager may refuse both",
            )
        known.description = known.description or description
        known.ports = max(known.ports, ports)

    def claim(self, near: End, far: End, link: Link, line: int) -> None:
        """Record the statement of a port about its cable."""
        first = self.claims.get(near)
        if first is None:
            self.claims[near] = (far, link, line)
            return
        if first[0] == far:
            return
        self._second_claims.setdefault(near, []).append((far, link, line))
        self.fault(
            "port_named_twice",
            f"{self._name(near[0])} port {near[1]} ({self.source}:{first[2]} and {line})",
            f"cabled to {self._name(first[0][0])} port {first[0][1]} and to {self._name(far[0])} port {far[1]}",
        )

    def report_damage(self, line: int, text: str, why: str = "cannot be read") -> None:
        """State that a line could not be used."""
        self._damaged += 1
        if self._damaged <= MAX_DAMAGED_LINES:
            self.fault(
                "damaged_line", f"{self.source}:{line}", f"{why}: {text[:120]!r}", "what it said is missing here"
            )

    def lid(self, text: str, where: str, line: int) -> int | None:
        """Return a printed LID; report one that is empty or that no port can have."""
        if not text:
            self.fault("empty_lid", f"{where} ({self.source}:{line})", "the dump prints no LID", "not routable by LID")
            return None
        lid = int(text) if _DECIMAL.fullmatch(text) else None
        if lid is None or lid > MAX_UNICAST_LID:
            evidence = f"the dump prints LID {text[:_SHOWN_DIGITS]}, unicast LIDs are 1 to {MAX_UNICAST_LID}"
            self.fault("bad_lid", f"{where} ({self.source}:{line})", evidence, "not routable by LID")
            return None
        return lid

    def fault(self, kind: str, where: str, evidence: str, cost: str = "") -> None:
        """Report one finding."""
        self._faults.append(Fault(kind=kind, where=where, evidence=evidence, cost=cost))

    def has_switch(self) -> bool:
        """Return whether any switch was described or named."""
        named = any(token.startswith("S-") for token in self.mentions)
        return named or any(block.kind == SWITCH for block in self._blocks.values())

    def finish(self, *, generated: str = "", extra: dict[str, str] | None = None) -> Fabric:
        """Resolve all statements and return the fabric."""
        if self._damaged > MAX_DAMAGED_LINES:
            more = self._damaged - MAX_DAMAGED_LINES
            self.fault(
                "damaged_line", self.source, f"{more} more lines cannot be read", "what they said is missing here"
            )
        self._add_named_only()
        guids = self._guids()
        cables = self._cables(guids)
        switches: dict[str, Switch] = {}
        hcas: dict[str, Hca] = {}
        routers: dict[str, Hca] = {}
        for token, guid in sorted(guids.items(), key=lambda item: item[1]):
            block = self._blocks[token]
            if block.kind == SWITCH:
                switches[guid] = Switch(
                    guid=guid, description=block.description, ports=block.ports, lid=block.lid, line=block.line
                )
            else:
                (hcas if block.kind == ADAPTER else routers)[guid] = parse_adapter(guid, block.description, block.line)
        return Fabric(
            switches=switches,
            hcas=hcas,
            routers=routers,
            cables=cables,
            faults=tuple(self._faults),
            source=self.source,
            generated=generated,
            extra=extra or {},
            port_lids={(guids[token], port): lid for (token, port), lid in self.port_lids.items() if token in guids},
        )

    def _add_named_only(self) -> None:
        """Add the nodes that exist only as the far end of some port; take missing descriptions from there."""
        only_named: dict[str, list[str]] = {}
        for token, (description, line) in self.mentions.items():
            block = self._blocks.get(token)
            if block is not None:
                block.description = block.description or description
                continue
            kind = _KIND_OF_PREFIX.get(token[0], ADAPTER) if token[1:2] == "-" else ADAPTER
            self._blocks[token] = _Block(kind, description, 0, None, line, described=False)
            only_named.setdefault(kind, []).append(token)
        for kind, word in ((SWITCH, "switch"), (ADAPTER, "hca")):
            tokens = only_named.get(kind)
            if not tokens:
                continue
            more = f" and {len(tokens) - 1} more" if len(tokens) > 1 else ""
            self.fault(
                f"{word}_only_named",
                f"{self._name(min(tokens))}{more}",
                f"named as far end of a port, but without a block of its own: {self.source} is cut short, or no answer",
                "what else is cabled there is not known",
            )

    def _cables(self, guids: dict[str, str]) -> tuple[Cable, ...]:
        """Return the cables in the order of their ends; report statements that do not fit together."""
        claims = self.claims
        rows: list[tuple[str, int, str, int, Link, int]] = []
        doubtful: list[tuple[End, Claim]] = []
        for near, claim in claims.items():
            far, link, line = claim
            answer = claims.get(far)
            if answer is None or answer[0] != near or answer[1] != link:
                doubtful.append((near, claim))
            elif near <= far:
                rows.append(_order_ends(guids, near, far, link, min(line, answer[2])))
        doubtful += [(near, claim) for near, more in self._second_claims.items() for claim in more]
        weighed = self._resolve_claims(doubtful)
        rows += [_order_ends(guids, near, far, link, line) for (near, far), (link, line) in weighed.items()]
        rows.sort()
        self._unknown_speeds(rows)
        rates = {link: link_bytes_per_s(*link) for *_, link, _ in rows}
        return tuple(
            Cable(
                a_guid=a_guid,
                a_port=a_port,
                b_guid=b_guid,
                b_port=b_port,
                width=link[0],
                speed=link[1],
                bytes_per_s=rates[link],
                line=line,
            )
            for a_guid, a_port, b_guid, b_port, link, line in rows
        )

    def _resolve_claims(self, doubtful: list[tuple[End, Claim]]) -> dict[tuple[End, End], tuple[Link, int]]:
        """Return the cables among statements that no equal statement of the far end confirms."""
        cables: dict[tuple[End, End], tuple[Link, int]] = {}
        for near, (far, link, line) in doubtful:
            answer = self.claims.get(far)
            if answer is None:
                if self._blocks[far[0]].described:
                    self._one_sided(near, far, line)
            elif answer[0] != near and not self._has_claim(far, near):
                self._report_contradiction(near, far, answer[0], line)
                continue
            key = (near, far) if near <= far else (far, near)
            seen = cables.get(key)
            if seen is None:
                cables[key] = (link, line)
            elif UNREPORTED in (link, seen[0]):
                cables[key] = (max(link, seen[0]), seen[1])
            elif link != seen[0]:
                cables[key] = self._better(key, seen, (link, line))
        return cables

    def _unknown_speeds(self, rows: list[tuple[str, int, str, int, Link, int]]) -> None:
        """Report once the links whose speed the program that wrote the dump did not know."""
        lines = [line for *_, link, line in rows if link[1] == UNKNOWN_SPEED]
        if lines:
            self.fault(
                "unknown_speed",
                f"{len(lines)} links, first {self.source}:{min(lines)}",
                f"the dump prints {UNKNOWN_SPEED}: the program that wrote it is older than these links",
                "their bandwidth is not known and counts as 0",
            )

    def _has_claim(self, port: End, far: End) -> bool:
        return any(claim[0] == far for claim in self._second_claims.get(port, ()))

    def _one_sided(self, near: End, far: End, line: int) -> None:
        self.fault(
            "one_sided_link",
            f"{self._name(near[0])} port {near[1]} ({self.source}:{line})",
            f"names {self._name(far[0])} port {far[1]}, which says nothing of it",
            "the link may be down in one direction",
        )

    def _report_contradiction(self, near: End, far: End, answer: End, line: int) -> None:
        self.fault(
            "ends_contradict",
            f"{self._name(near[0])} port {near[1]} ({self.source}:{line})",
            f"names {self._name(far[0])} port {far[1]}, which names {self._name(answer[0])} port {answer[1]}",
            "not counted as a cable",
        )

    def _better(self, key: tuple[End, End], seen: tuple[Link, int], new: tuple[Link, int]) -> tuple[Link, int]:
        """Return the faster of two statements about one cable, which does not depend on their order."""
        slow, fast = sorted(
            (seen, new), key=lambda statement: (statement[0][0], speed_rank(statement[0][1]), statement[0][1])
        )
        (near, port), (far, far_port) = key
        (slow_width, slow_speed), (fast_width, fast_speed) = slow[0], fast[0]
        self.fault(
            "ends_disagree_on_speed",
            f"{self._name(near)} port {port} to {self._name(far)} port {far_port}",
            f"one end says {slow_width}x{slow_speed}, the other {fast_width}x{fast_speed} "
            f"({self.source}:{seen[1]} and {new[1]})",
            "the link may run at the slower rate",
        )
        return fast

    def _guids(self) -> dict[str, str]:
        """Return the guid of each token; where a switch and an adapter share one, the adapter's gets a suffix."""
        guids: dict[str, str] = {}
        taken = {_guid(token) for token, block in self._blocks.items() if block.kind == SWITCH}
        for token, block in self._blocks.items():
            guid = _guid(token)
            guids[token] = f"{guid}/{block.kind.lower()}" if block.kind != SWITCH and guid in taken else guid
        return guids

    def _name(self, token: str) -> str:
        """Return what people call a node: its description if it has one, and the guid."""
        block = self._blocks.get(token)
        description = block.description if block else self.mentions.get(token, ("", 0))[0]
        return f"{description} ({_guid(token)})" if description else _guid(token)


def parse_adapter(guid: str, description: str, line: int) -> Hca:
    """Return the HCA that a node description names.

    ``host HCA-1``, ``host mlx5_0`` name host and device; a single word is a host, unless it looks like a device; the
    texts that adapters carry from the factory (``MT4129 ConnectX7   Mellanox Technologies``) name no host.
    """
    if _SHARP in description:
        return Hca(guid=guid, description=description, node=None, device=None, sharp=True, line=line)
    words = description.split()
    lower = description.lower()
    suspect = lower.startswith(_FACTORY_STARTS) or any(word in lower for word in _FACTORY_WORDS)
    if not words or (suspect and _FACTORY.match(" ".join(words))):
        return Hca(guid=guid, description=description, node=None, device=None, line=line)
    if len(words) == 1:
        if _LONE_DEVICE.fullmatch(words[0]):
            return Hca(guid=guid, description=description, node=None, device=words[0], line=line)
        return Hca(guid=guid, description=description, node=words[0], device=None, line=line)
    return Hca(guid=guid, description=description, node=words[0], device=" ".join(words[1:]), line=line)


def _guid(token: str) -> str:
    """Return the guid of ``S-0002C9...`` in lower case; a word that holds no guid (ibsim) stays as it is."""
    return token[2:].lower() if token[1:2] == "-" and token[0] in _KIND_OF_PREFIX else token


def _order_ends(
    guids: dict[str, str], near: End, far: End, link: Link, line: int
) -> tuple[str, int, str, int, Link, int]:
    """Return a cable with its ends in the order that ``Cable`` promises."""
    a_guid, b_guid = guids[near[0]], guids[far[0]]
    if (b_guid, far[1]) < (a_guid, near[1]):
        return b_guid, far[1], a_guid, near[1], link, line
    return a_guid, near[1], b_guid, far[1], link, line
