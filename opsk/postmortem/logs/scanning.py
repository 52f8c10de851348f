"""What does one log say: which signs, how far did its ranks come, did it end well?"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from functools import cache
from pathlib import Path

from opsk.postmortem.logs.gathering import TEXT_CHARS, Gathered
from opsk.postmortem.logs.heading import Heading
from opsk.postmortem.logs.kernel import quoted_signs
from opsk.postmortem.logs.lines import LogLine, fields_of, is_plain_end, line_at, raised
from opsk.postmortem.logs.matching import Finder, Hit, finder
from opsk.postmortem.logs.names import NamedRank, named_rank
from opsk.postmortem.logs.pieces import BROKEN, Piece, opened, pieces
from opsk.postmortem.logs.printing import Labels, LogEnd, printer_of, rank_of
from opsk.postmortem.logs.progressing import LabelTail, ProgressEnds
from opsk.postmortem.logs.times import LineClock
from opsk.postmortem.signatures.signature import Signature, signatures
from opsk.postmortem.values import Origin, Place, RankProgress, Role, Sign
from opsk.telemetry.progress.lines import clean, labelled

_REACH_BYTES = 2048
_MOST_LINES = 9
_THROWN = re.compile(r"\s*what\(\):\s*(?P<message>.+)")
_ENTRY = re.compile(r"\s*(?P<name>host|rank|exitcode|time)\s*:\s*(?P<value>.+)")
_RANK = re.compile(r"(?P<rank>\d{1,7}) \(local_rank: (?P<local_rank>\d{1,4})\)")
_NUMBER = re.compile(r"-?\d{1,4}\b")
_HOST = re.compile(r"[A-Za-z0-9][\w.-]{0,63}$")


def thrown(data: bytes, line: LogLine) -> str:
    """Return what C++ says that it threw; empty where it does not."""
    for text in _behind(data, line)[:2]:
        if (found := _THROWN.match(text)) is not None:
            return found["message"]
    return ""


def reported(data: bytes, line: LogLine) -> dict[str, str]:
    """Return what torchrun tells of the process that failed first: ``rank``, ``local_rank``, ``node``, ``exit``."""
    fields: dict[str, str] = {}
    for text in _behind(data, line):
        found = _ENTRY.match(text)
        if found is None:
            continue
        name, value = found["name"], found["value"].strip()
        if name == "rank" and (rank := _RANK.match(value)) is not None:
            fields |= rank.groupdict()
        elif name == "host" and _HOST.match(value):
            fields["node"] = value
        elif name == "exitcode" and (number := _NUMBER.match(value)) is not None:
            fields["exit"] = number[0]
            break
    return fields


def _behind(data: bytes, line: LogLine) -> list[str]:
    """Return the next lines that whoever printed this one printed."""
    lines = [labelled(clean(raw)) for raw in data[line.end : line.end + _REACH_BYTES].splitlines()[1:]]
    return [each.text for each in lines if each.label == line.label and each.text.strip()][:_MOST_LINES]


_NEAR_BYTES, _FAR_BYTES = 2048, 16384
_MOST_FAR_LOOKS = 256
_SAME_TIME_S = 20.0
_MOST_QUOTED = 256
"""Quoted kernel lines are shown, and prove nothing."""
_MANY_HITS = 20_000
"""Hits in one piece of 1 MiB beyond which only some are looked at: such a piece repeats itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogScan:
    """What one log says; ``problem`` is why it could not be read to its end."""

    path: str
    signs: tuple[Sign, ...] = ()
    ranks: tuple[RankProgress, ...] = ()
    bytes: int = 0
    lines: int = 0
    left_out: int = 0
    problem: str = ""


@dataclass(slots=True)
class _State:
    """What is remembered while a log is read."""

    path: str
    named: NamedRank
    clock: LineClock
    gathered: Gathered = field(default_factory=Gathered)
    ends: ProgressEnds = field(default_factory=ProgressEnds)
    tail: LabelTail = field(default_factory=LabelTail)
    heading: Heading = field(default_factory=Heading)
    far_looks: int = 0
    labels: Labels = field(default_factory=Labels)
    before: bytes = b""
    quoted: list[Sign] = field(default_factory=list)
    last_read: OrderedDict[str, int] = field(default_factory=OrderedDict)


@cache
def _engine() -> tuple[Finder, tuple[tuple[Signature, ...], ...]]:
    """Return the finder of all fragments, and the signatures of each."""
    owners: OrderedDict[str, list[Signature]] = OrderedDict()
    for signature in signatures():
        for fragment in signature.fragments if signature.origin is not Origin.KERNEL else ():
            owners.setdefault(fragment, []).append(signature)
    return finder([fragment.encode("utf-8") for fragment in owners]), tuple(tuple(each) for each in owners.values())


def scan_log(path: Path, *, node: str = "", not_after_s: float | None = None, zone: tzinfo | None = None) -> LogScan:
    """Return what a log says; it never raises for what the log contains.

    Parameters
    ----------
    node
        The node it comes from, where its lines name none.
    not_after_s
        When the job ended, or the log was last written [s since 1970]; the file's own time where ``None``.
    zone
        Zone of clocks that state none.

    Raises
    ------
    InputError
        The log cannot be opened.
    """
    with opened(path) as stream:
        written_s = not_after_s if not_after_s is not None else path.stat().st_mtime
        state = _State(
            path=str(path), named=replace(named_rank(str(path)), node=node), clock=LineClock(written_s, zone)
        )
        size, lines, problem = 0, 0, ""
        try:
            for piece in pieces(stream):
                _look(piece, state)
                state.before = piece.data[-_FAR_BYTES:]
                size, lines = piece.offset + len(piece.data), piece.line
        except BROKEN as error:
            problem = f"{path}: damaged after {size} bytes: {error}"
    return LogScan(
        path=str(path), signs=(*state.gathered.signs.values(), *state.quoted), lines=lines, bytes=size,
        ranks=_end(state, size, lines).ranks(), left_out=state.gathered.left_out, problem=problem,
    )  # fmt: skip


def _end(state: _State, size: int, lines: int) -> LogEnd:
    """Return what is known of a log that was read to its end."""
    return LogEnd(
        path=state.path, named=state.named, labels=state.labels, heading=state.heading, ends=state.ends,
        tail=state.tail, clock=state.clock, size_bytes=size, lines=lines,
        ended_well=any(sign.role is Role.END for sign in state.gathered.signs.values()),
    )  # fmt: skip


def _look(piece: Piece, state: _State) -> None:
    """Take in one piece."""
    state.ends.take(piece.data, piece.offset)
    state.tail.take(piece.data)
    state.heading.take(piece.data, state.clock)
    state.labels.take(piece.data)
    if len(state.quoted) < _MOST_QUOTED:
        state.quoted += quoted_signs(piece.data, source=state.path)
    engine, owners = _engine()
    hits = engine.find(piece.data)
    if len(hits) > _MANY_HITS:
        hits = _thinned(hits)
    counted_to, line = 0, piece.line
    last: dict[str, tuple[Signature, Hit, int]] = {}
    for hit in hits:
        end, number = hit
        line += piece.data.count(b"\n", counted_to, end)
        counted_to = end
        for signature in owners[number]:
            if state.gathered.is_worth_reading(signature.id):
                _read(piece, signature, end, line, state)
            else:
                last[signature.id] = (signature, hit, line)
    for signature, (end, _), line in last.values():
        _read(piece, signature, end, line, state)


def _thinned(hits: Sequence[Hit]) -> list[Hit]:
    """Keep the first and the last hits of each fragment."""
    most = 512
    by_fragment: dict[int, list[Hit]] = {}
    for hit in hits:
        by_fragment.setdefault(hit[1], []).append(hit)
    kept = [hit for each in by_fragment.values() for hit in (each if len(each) <= most else each[:256] + each[-256:])]
    return sorted(kept)


def _read(piece: Piece, signature: Signature, end: int, number: int, state: _State) -> None:
    """Read one candidate line with one signature."""
    line = line_at(piece.data, end)
    fields = fields_of(signature, line.text)
    if fields is None or state.last_read.get(signature.id) == piece.offset + line.start:
        return  # another fragment of the same signature has found this line
    state.last_read[signature.id] = piece.offset + line.start
    text, role, at = line.text, signature.role, number
    if signature.follow == "report":
        fields |= reported(piece.data, line)
    elif signature.follow == "what":
        if _has_own_signature(said := thrown(piece.data, line), but=signature):
            return
        text = f"{text}: {said}" if said else text
    elif signature.follow:
        found = raised(piece.data, line)
        if found is not None:
            extra, text, begin = found
            if _has_own_signature(text):
                return
            fields |= extra
            at += piece.data.count(b"\n", end, begin)
            role = Role.CASCADE if is_plain_end(extra["type"]) else role
    own, earliest, latest = _times(line, piece, state)
    state.gathered.add(
        Sign(
            signature=signature.id,
            role=role,
            origin=signature.origin,
            failure=signature.failure,
            place=_place(line, fields, state),
            time_s=own,
            earliest_s=earliest,
            latest_s=latest,
            order=piece.offset + line.start,
            source=state.path,
            line=at,
            text=text[:TEXT_CHARS],
            fields=fields,
        )
    )


def _has_own_signature(text: str, but: Signature | None = None) -> bool:
    """Tell whether what was raised is found by a signature of its own."""
    return any(
        fields_of(signature, text) is not None
        for signature in signatures()
        if signature is not but
        and signature.origin is not Origin.KERNEL
        and signature.follow != "exception"
        and signature.role in (Role.ROOT, Role.CASCADE)
        and any(each in text for each in signature.fragments)
    )


def _times(line: LogLine, piece: Piece, state: _State) -> tuple[float | None, float | None, float | None]:
    """Return when a line was written; where it does not say, when one before and one behind it were.

    Two that are near each other tell it well enough; one alone does not: a rank may have been silent for hours.
    """
    found = state.clock.read(line.text)
    if found is not None:
        return found, None, None
    state.far_looks += 1
    reach = _FAR_BYTES if state.far_looks <= _MOST_FAR_LOOKS else _NEAR_BYTES
    ahead = piece.data[max(0, line.start - reach) : line.start]
    ahead = state.before[-max(0, reach - len(ahead)) :] + ahead if len(ahead) < reach else ahead
    before = ahead.decode("utf-8", "replace").splitlines()
    after = piece.data[line.end : line.end + reach].decode("utf-8", "replace").splitlines()
    earliest = next((at for text in reversed(before) if (at := state.clock.read(text)) is not None), None)
    latest = next((at for text in after if (at := state.clock.read(text)) is not None), None)
    near = earliest is not None and latest is not None and 0 <= latest - earliest <= _SAME_TIME_S
    return earliest if near else None, earliest, latest


def _place(line: LogLine, fields: dict[str, str], state: _State) -> Place:
    """Return who a line is about, by its own words, its label, then the log's name."""
    who = printer_of(line, state.named, state.labels)
    told = _whole(fields.get("rank"))
    node = fields.get("node", "")
    node = (node if node.strip(".") else "") or line.node
    rank = told if told is not None else rank_of(who, state.heading, node)
    local = who.local_rank if who.local_rank is not None else _whole(fields.get("local_rank"))
    seat = state.heading.seats.get(rank) if rank is not None else None
    known = seat.node if seat is not None else state.heading.host or state.named.node
    return Place(
        rank=rank, local_rank=local, node_rank=who.node_rank, node=node or known, gpu_index=line.gpu_index,
        hca=fields.get("hca", ""), peer=fields.get("peer", ""),
    )  # fmt: skip


def _whole(text: str | None) -> int | None:
    """Return a whole number, ``None`` where there is none."""
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else None
