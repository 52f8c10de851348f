"""How do statements of single ports become one fabric? Every reader of a dump states what it saw; here it is weighed.

A cable has two ends and most dumps name it from both. A statement that the far end confirms, or on which the far end
is silent, becomes a cable; one that the far end's own block contradicts does not, and is reported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from opsk.topology.fabric import Cable, Fabric, Fault, Hca, Switch
from opsk.topology.link_speed import link_bytes_per_s, speed_rank

MAX_DAMAGED_LINES = 20
"""Damaged lines reported one by one; the rest of a file full of rubbish is one more fault with the count."""

MAX_UNICAST_LID = 0xBFFF
"""Highest unicast LID (IBA 4.1.3); anything else but 0, which is "not yet assigned", is a mistake."""

_FACTORY = re.compile(
    r"MT\d{3,6}\b|ConnectX|\(none\)|Voltaire|.*\b(?:Mellanox|NVIDIA) Technologies|.*\bInfiniHost\b", re.IGNORECASE
)
_LONE_DEVICE = re.compile(r"HCA-\d+|(?:mlx|mthca|qib|hfi|ipath)\d*_\d+|ibp\d+s\d+\w*")
_SHARP = re.compile(r"\bAggregation Node\b")

SWITCH, ADAPTER, ROUTER = "Switch", "Ca", "Rt"
_KIND_OF_PREFIX = {"S": SWITCH, "H": ADAPTER, "R": ROUTER}

Claim = tuple[str, int, int, str]
"""What a port says of its cable: far token, far port, width, speed word."""


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
    claims: dict[tuple[str, int], Claim] = field(default_factory=dict)
    claim_lines: dict[tuple[str, int], int] = field(default_factory=dict)
    mentions: dict[str, tuple[str, int]] = field(default_factory=dict)
    _blocks: dict[str, _Block] = field(default_factory=dict)
    _second_claims: dict[tuple[str, int], list[Claim]] = field(default_factory=dict)
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

    def claim(self, own: tuple[str, int], claim: Claim, line: int) -> None:
        """State what a port says of its cable."""
        if own in self.claims:
            self.second_claim(own, claim, line)
            return
        self.claims[own] = claim
        self.claim_lines[own] = line

    def second_claim(self, own: tuple[str, int], claim: Claim, line: int) -> None:
        """State that ``own`` was seen before with another far end."""
        first = self.claims[own]
        if first[:2] == claim[:2]:
            return
        self._second_claims.setdefault(own, []).append(claim)
        self.fault(
            "port_named_twice",
            f"{self._name(own[0])} port {own[1]} ({self.source}:{self.claim_lines[own]} and {line})",
            f"cabled to {self._name(first[0])} port {first[1]} and to {self._name(claim[0])} port {claim[1]}",
        )

    def damaged(self, line: int, text: str, why: str = "cannot be read") -> None:
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
        lid = int(text)
        if not 0 <= lid <= MAX_UNICAST_LID:
            evidence = f"the dump prints LID {lid}, unicast LIDs are 1 to {MAX_UNICAST_LID}"
            self.fault("bad_lid", f"{where} ({self.source}:{line})", evidence, "not routable by LID")
            return None
        return lid

    def fault(self, kind: str, where: str, evidence: str, cost: str = "") -> None:
        """Report one finding."""
        self._faults.append(Fault(kind=kind, where=where, evidence=evidence, cost=cost))

    def has_switch(self) -> bool:
        """Say whether any switch was described or named."""
        named = any(token.startswith("S-") for token in self.mentions)
        return named or any(block.kind == SWITCH for block in self._blocks.values())

    def finish(self, *, generated: str = "", extra: dict[str, str] | None = None) -> Fabric:
        """Weigh all statements and return the fabric."""
        if self._damaged > MAX_DAMAGED_LINES:
            more = self._damaged - MAX_DAMAGED_LINES
            self.fault(
                "damaged_line", self.source, f"{more} more lines cannot be read", "what they said is missing here"
            )
        self._add_named_only()
        cables = self._cables()
        guids = self._guids()
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
                (hcas if block.kind == ADAPTER else routers)[guid] = adapter(guid, block.description, block.line)
        return Fabric(
            switches=switches,
            hcas=hcas,
            routers=routers,
            cables=tuple(sorted((self._cable(guids, *entry) for entry in cables.items()), key=_place)),
            faults=tuple(self._faults),
            source=self.source,
            generated=generated,
            extra=extra or {},
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

    def _cables(self) -> dict[tuple[str, int, str, int], tuple[int, str, int]]:
        """Return the ends of each cable with width, speed and line; report statements that do not fit together."""
        cables: dict[tuple[str, int, str, int], tuple[int, str, int]] = {}
        pairs = list(self.claims.items())
        pairs += [(own, claim) for own, claims in self._second_claims.items() for claim in claims]
        for own, (far, far_port, width, speed) in pairs:
            answer = self.claims.get((far, far_port))
            if answer is None:
                if self._blocks[far].described:
                    self._one_sided(own, far, far_port)
            elif answer[:2] != own and not self._also_says((far, far_port), own):
                self._contradicted(own, (far, far_port), answer)
                continue
            key = (*own, far, far_port) if own <= (far, far_port) else (far, far_port, *own)
            seen = cables.get(key)
            line = self.claim_lines[own]
            if seen is None:
                cables[key] = (width, speed, line)
            elif (width, speed) != seen[:2]:
                cables[key] = self._better(key, seen, (width, speed, line))
        return cables

    def _also_says(self, port: tuple[str, int], far: tuple[str, int]) -> bool:
        return any(claim[:2] == far for claim in self._second_claims.get(port, ()))

    def _one_sided(self, own: tuple[str, int], far: str, far_port: int) -> None:
        self.fault(
            "one_sided_link",
            f"{self._name(own[0])} port {own[1]} ({self.source}:{self.claim_lines[own]})",
            f"names {self._name(far)} port {far_port}, which says nothing of it",
            "the link may be down in one direction",
        )

    def _contradicted(self, own: tuple[str, int], far: tuple[str, int], answer: Claim) -> None:
        self.fault(
            "ends_contradict",
            f"{self._name(own[0])} port {own[1]} ({self.source}:{self.claim_lines[own]})",
            f"names {self._name(far[0])} port {far[1]}, which names {self._name(answer[0])} port {answer[1]}",
            "not counted as a cable",
        )

    def _better(
        self, key: tuple[str, int, str, int], seen: tuple[int, str, int], new: tuple[int, str, int]
    ) -> tuple[int, str, int]:
        """Return the faster of two statements about one cable, which does not depend on their order."""
        slow, fast = sorted((seen, new), key=lambda link: (link[0], speed_rank(link[1]), link[1]))
        self.fault(
            "ends_disagree_on_speed",
            f"{self._name(key[0])} port {key[1]} to {self._name(key[2])} port {key[3]}",
            f"one end says {slow[0]}x{slow[1]}, the other {fast[0]}x{fast[1]} ({self.source}:{seen[2]} and {new[2]})",
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

    def _cable(self, guids: dict[str, str], key: tuple[str, int, str, int], link: tuple[int, str, int]) -> Cable:
        a_guid, a_port, b_guid, b_port = guids[key[0]], key[1], guids[key[2]], key[3]
        if (b_guid, b_port) < (a_guid, a_port):
            a_guid, a_port, b_guid, b_port = b_guid, b_port, a_guid, a_port
        width, speed, line = link
        return Cable(
            a_guid=a_guid,
            a_port=a_port,
            b_guid=b_guid,
            b_port=b_port,
            width=width,
            speed=speed,
            bytes_per_s=link_bytes_per_s(width, speed),
            line=line,
        )

    def _name(self, token: str) -> str:
        """Return what people call a node: its description if it has one, and the guid."""
        block = self._blocks.get(token)
        description = block.description if block else self.mentions.get(token, ("", 0))[0]
        return f"{description} ({_guid(token)})" if description else _guid(token)


def adapter(guid: str, description: str, line: int) -> Hca:
    """Return the HCA that a node description speaks of.

    ``host HCA-1``, ``host mlx5_0`` name host and device; a single word is a host, unless it looks like a device; the
    texts that adapters carry from the factory (``MT4129 ConnectX7   Mellanox Technologies``) name no host.
    """
    if _SHARP.search(description):
        return Hca(guid=guid, description=description, node=None, device=None, sharp=True, line=line)
    words = description.split()
    if not words or _FACTORY.match(" ".join(words)):
        return Hca(guid=guid, description=description, node=None, device=None, line=line)
    if len(words) == 1:
        if _LONE_DEVICE.fullmatch(words[0]):
            return Hca(guid=guid, description=description, node=None, device=words[0], line=line)
        return Hca(guid=guid, description=description, node=words[0], device=None, line=line)
    return Hca(guid=guid, description=description, node=words[0], device=" ".join(words[1:]), line=line)


def _guid(token: str) -> str:
    """Return the guid of ``S-0002C9...`` in lower case; a word that holds no guid (ibsim) stays as it is."""
    return token[2:].lower() if token[1:2] == "-" and token[0] in _KIND_OF_PREFIX else token


def _place(cable: Cable) -> tuple[str, int, str, int]:
    return cable.a_guid, cable.a_port, cable.b_guid, cable.b_port
