"""Searches a piece of a log for many fragments at once, and counts equal matches in bounded memory.

Two engines give the same answers: Hyperscan (600 MB/s and more for 200 fragments), and bytes.find where Hyperscan is
not installed: first for some parts that fragments share, then for the fragments of the parts that are there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from opsk.postmortem.values import Finding, Role

MAX_FINDINGS = 4096
"""Of one log; beyond them only known ones are counted."""
MAX_READ = 2048
"""Lines of one signature in one log that are read closely; of the others the last in each piece is."""
TEXT_CHARS = 400
_KEY_FIELDS = (
    "seq", "op", "hca", "peer", "peer_rank", "local_rank", "tasks", "step", "signal", "exit", "status", "type", "call",
    "event", "level", "job", "module", "path", "code", "end", "completed", "enqueued", "message", "handled",
)  # fmt: skip
"""Fields by which two findings differ; others (times, sizes) may vary between equal ones."""
TRIED_AGAIN = re.compile(
    r"\b(?:(?<!exceeded error )re-?try(?:ing)?\b(?! (?:count(?:er)? )?(?:exceeded|between|failed))|retry loop"
    r"|(?<!and )(?<!then )try(?:ing)? again|\brestarting\b"
    r"|attempt \d+ (?:of|/)|\(\d+ of \d+\)"
    r"|falling back|continuing (?:on|with)|will be (?:ignored|skipped)|ignoring|Exception ignored"
    r"|skipp(?:ed|ing) (?:(?:this|the|that|it|one) )?(?:step|batch|sample|iteration|update|run|trial|file|example)"
    r")|^\W{0,3}skip(?:ped|ping)?\b",
    re.IGNORECASE,
)
"""The program goes on after what such a line tells of; the same without these words may have ended it."""
_STATEMENT = re.compile(r"(?:^|\] ) {4,}(?:raise|assert|f?[\"']|warnings\.warn|logg(?:er|ing)\.)")
"""The statement that a traceback shows: the message itself stands below it, with its values."""
Key = tuple[object, ...]
MAX_MATCHES = 50_000
"""Of one fragment in one piece; more matches of one text add no information."""
Match = tuple[int, int]
"""End of a fragment in the piece, and the number of the fragment."""


@dataclass(slots=True)
class FindingSet:
    """Findings of one log; of equal ones the first is shown, or the first that is no statement of a traceback."""

    findings: dict[Key, Finding] = field(default_factory=dict)
    left_out: int = 0
    read: dict[str, int] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        """Add a finding, or count it where an equal one is known."""
        key = _key(finding)
        known = self.findings.get(key)
        if known is not None and known.role is Role.ADVICE and finding.role is Role.ROOT:
            self.findings[key] = replace(finding, count=known.count + 1)  # a script went on after all but the last
        elif known is not None:
            shown = finding if _STATEMENT.search(known.text) and not _STATEMENT.search(finding.text) else known
            self.findings[key] = replace(
                known,
                text=shown.text,
                line=shown.line,
                has_line=shown.has_line,
                count=known.count + 1,
                last_order=finding.order,
                last_time_s=finding.time_s if finding.time_s is not None else known.last_time_s,
                fields={**known.fields, "top": "yes"} if finding.fields.get("top") else known.fields,
            )
        elif len(self.findings) < MAX_FINDINGS:
            self.findings[key] = finding
        else:
            self.left_out += 1

    def is_worth_reading(self, signature: str) -> bool:
        """Count one more line of a signature; return whether it is to be read closely."""
        count = self.read[signature] = self.read.get(signature, 0) + 1
        return count <= MAX_READ

    def total(self, signature: str) -> int:
        """Return how many lines of a signature were seen."""
        return self.read.get(signature, 0)


def _key(finding: Finding) -> Key:
    """Return the key by which findings of one log are equal."""
    fields: Mapping[str, str] = finding.fields
    place = finding.place
    who = (place.rank, place.local_rank, place.node_rank, place.node, place.gpu_index)
    is_tried_again = TRIED_AGAIN.search(finding.text) is not None
    return (finding.signature, *who, is_tried_again, *(fields.get(name) for name in _KEY_FIELDS))


try:
    import hyperscan
except ImportError:  # an extra: the fall-back is slower and finds the same
    hyperscan = None  # type: ignore[assignment,unused-ignore]


class Finder(Protocol):
    """Finds fragments."""

    def find(self, piece: bytes | memoryview) -> list[Match]:
        """Return all matches in a piece, by where they end."""

    def find_first(self, piece: bytes | memoryview) -> int | None:
        """Return where the first fragment found ends; ``None`` where there is none."""


def build_finder(fragments: Sequence[bytes], *, plain: bool = False) -> Finder:
    """Return an engine for these fragments; with ``plain`` the one that needs no library."""
    if hyperscan is None or plain:
        return PlainFinder(fragments)
    return HyperscanFinder(fragments)


class PlainFinder:
    """Searches for one fragment after the other, and only for those of which a part that they share is there."""

    def __init__(self, fragments: Sequence[bytes]) -> None:
        self._fragments = tuple(fragments)
        self._by_part = _group_by_part(self._fragments)

    def find(self, piece: bytes | memoryview) -> list[Match]:
        """Return all matches in a piece."""
        data = bytes(piece)
        matches: list[Match] = []
        numbers = [number for part, those in self._by_part.items() if part in data for number in those]
        for number in numbers:
            fragment = self._fragments[number]
            position, count = data.find(fragment), 0
            while position >= 0 and count < MAX_MATCHES:
                matches.append((position + len(fragment), number))
                position, count = data.find(fragment, position + 1), count + 1
        return sorted(matches)

    def find_first(self, piece: bytes | memoryview) -> int | None:
        """Return where the first fragment found ends."""
        data = bytes(piece)
        ends = [at + len(each) for each in self._fragments if (at := data.find(each)) >= 0]
        return min(ends, default=None)


_PART_BYTES = 5


def _group_by_part(fragments: Sequence[bytes]) -> dict[bytes, list[int]]:
    """Return the numbers of fragments by a part of each, the part that occurs in as many of them as possible."""
    parts = [{each[at : at + _PART_BYTES] for at in range(max(1, len(each) - _PART_BYTES + 1))} for each in fragments]
    counts = Counter(part for those in parts for part in those)
    groups: dict[bytes, list[int]] = {}
    for number, those in enumerate(parts):
        groups.setdefault(max(those, key=lambda part: (counts[part], part)), []).append(number)
    return groups


class HyperscanFinder:
    """Searches for all fragments at once."""

    def __init__(self, fragments: Sequence[bytes]) -> None:
        self._every = _compile_database(fragments, hyperscan.HS_FLAG_DOTALL)

    def find(self, piece: bytes | memoryview) -> list[Match]:
        """Return all matches in a piece."""
        matches: list[Match] = []
        counts: dict[int, int] = {}

        def take(number: int, _from: int, end: int, _flags: int, _context: Any) -> None:
            counts[number] = counts.get(number, 0) + 1
            if counts[number] <= MAX_MATCHES:
                matches.append((end, number))

        self._scan(self._every, piece, take)
        matches.sort()
        return matches

    def find_first(self, piece: bytes | memoryview) -> int | None:
        """Return where the first fragment found ends."""
        ends: list[int] = []

        def take(_number: int, _from: int, end: int, _flags: int, _context: Any) -> bool:
            ends.append(end)
            return True

        self._scan(self._every, piece, take)
        return min(ends, default=None)

    @staticmethod
    def _scan(database: Any, piece: bytes | memoryview, take: Callable[..., Any]) -> None:
        """Scan; that the callback ends it is no error."""
        try:
            database.scan(bytes(piece), match_event_handler=take)
        except hyperscan.ScanTerminated:
            return


def _compile_database(fragments: Sequence[bytes], flag: int) -> Any:
    """Return a compiled database of literal texts."""
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    numbers = list(range(len(fragments)))
    database.compile(
        expressions=[_escape(each) for each in fragments], ids=numbers, elements=len(fragments),
        flags=[flag] * len(fragments),
    )  # fmt: skip
    return database


def _escape(fragment: bytes) -> bytes:
    """Return a regular expression for exactly these bytes."""
    return b"".join(b"\\x%02x" % byte for byte in fragment)


def thin_matches(matches: Sequence[Match]) -> list[Match]:
    """Return the first and the last matches of each fragment."""
    max_matches = 512
    by_fragment: dict[int, list[Match]] = {}
    for match in matches:
        by_fragment.setdefault(match[1], []).append(match)
    thinned = [
        match
        for each in by_fragment.values()
        for match in (each if len(each) <= max_matches else each[:256] + each[-256:])
    ]
    return sorted(thinned)
