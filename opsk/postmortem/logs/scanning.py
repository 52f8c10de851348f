"""Scans one log for signs, for the progress of its ranks, and for whether it ended well."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from functools import cache
from pathlib import Path

from opsk.postmortem.logs.below import read_cpp_exception, read_hosts, read_jax_tasks, read_torchrun_report
from opsk.postmortem.logs.exceptions import is_plain_end, is_quoted, is_unraisable, read_exception, read_raised
from opsk.postmortem.logs.header import Heading, LineClock, NamedRank, parse_log_name
from opsk.postmortem.logs.kernel import scan_quoted_xids
from opsk.postmortem.logs.last_words import find_last_word
from opsk.postmortem.logs.lines import REACH_BYTES, LogLine, find_label_ranks, find_line, read_fields
from opsk.postmortem.logs.losses import RECOVERED, ends_as_number, is_number_again
from opsk.postmortem.logs.matching import TEXT_CHARS, Finder, FindingSet, Match, build_finder, thin_matches
from opsk.postmortem.logs.openings import Opening
from opsk.postmortem.logs.pieces import BROKEN, Piece, ReadLimits, describe_limits, open_log, read_limited_pieces
from opsk.postmortem.logs.printers import Labels, LogEnd, find_printer, resolve_rank
from opsk.postmortem.logs.progress import LabelTail, ProgressEnds
from opsk.postmortem.logs.scripts import (
    SURVIVED_BY_SCRIPTS,
    find_trifle,
    goes_on,
    is_killed_last,
    is_last_word,
    is_near_end,
    is_stopped_server,
)
from opsk.postmortem.signatures.signature import Signature, signatures
from opsk.postmortem.values import LAST_WORDS, FailureClass, Finding, Origin, Place, RankProgress, Role

_EXCEPTION = "python.exception"
_ECHOED = re.compile(r"(?:\+{1,6} |declare -x |export )|[A-Z_][A-Z0-9_]{2,80}=")
"""Commands that a shell prints before it runs them (``set -x``), and environments that scripts print."""
_ASKED_TO_END = "launcher.sigterm"
_NO_NUMBER = "train.nan_loss"
_BROKEN_FILE = "storage.broken_file"
_FROM_PARENT, _PARENT_BYTES = b"reduction.pickle.load(from_parent)", 240
"""Python's multiprocessing reads what a new process is to do (multiprocessing/spawn.py)."""
_AT_THE_END, _KILLED = "tail", "process.killed"
_MAX_LAST_WORDS = 2
"""What a program says more often it does not end by."""
_APART_BYTES = 160
"""More than the words by which Python joins two tracebacks: something else was printed between them."""
_OF_END = ("top", "program", "apart", "chained", "handled")
"""What an exception that has a signature of its own takes over from its traceback."""
_OF_A_REQUEST = re.compile(r"\[(?:\w{1,40}/){0,4}serving_\w{1,40}\.py:\d{1,5}\]")
"""vLLM's front end logs what was wrong with a request, answers it, and serves the next (entrypoints/openai)."""
_ANSWERED = b"Exception in ASGI application"
"""uvicorn logs this before the traceback of a request that it answers with status 500."""
_LIMITS = ReadLimits()
_NEAR_BYTES, _FAR_BYTES = 2048, 16384
_MAX_FAR_READS = 256
_SAME_TIME_S = 20.0
_MAX_ENDS = 4096
_MAX_QUOTED = 256
"""Quoted kernel lines are shown, and prove nothing."""
_MANY_MATCHES = 20_000
"""Number of matches in one piece of 1 MiB beyond which only some are read: such a piece repeats itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogScan:
    """The result of scanning one log; ``problem`` is why it could not be read, ``note`` which part of it was."""

    path: str
    findings: tuple[Finding, ...] = ()
    ranks: tuple[RankProgress, ...] = ()
    bytes: int = 0
    lines: int = 0
    left_out: int = 0
    problem: str = ""
    note: str = ""


@dataclass(slots=True)
class _State:
    """The state of a scan."""

    path: str
    named: NamedRank
    clock: LineClock
    gathered: FindingSet = field(default_factory=FindingSet)
    ends: ProgressEnds = field(default_factory=ProgressEnds)
    tail: LabelTail = field(default_factory=LabelTail)
    heading: Heading = field(default_factory=Heading)
    far_reads: int = 0
    labels: Labels = field(default_factory=Labels)
    before: bytes = b""
    quoted: list[Finding] = field(default_factory=list)
    last_read: OrderedDict[str, int] = field(default_factory=OrderedDict)
    ends_of_programs: dict[int, dict[str, str]] = field(default_factory=dict)
    traceback_end: int = 0
    opening: Opening = field(default_factory=Opening)


@cache
def _engine() -> tuple[Finder, tuple[tuple[Signature, ...], ...]]:
    """Return the finder of all fragments, and the signatures of each."""
    owners: OrderedDict[str, list[Signature]] = OrderedDict()
    for signature in signatures():
        is_searched = signature.origin is not Origin.KERNEL and signature.follow != _AT_THE_END
        for fragment in signature.fragments if is_searched else ():
            owners.setdefault(fragment, []).append(signature)
    return build_finder([fragment.encode("utf-8") for fragment in owners]), tuple(
        tuple(each) for each in owners.values()
    )


def scan_log(
    path: Path,
    *,
    node: str = "",
    not_after_s: float | None = None,
    zone: tzinfo | None = None,
    limits: ReadLimits = _LIMITS,
) -> LogScan:
    """Return the scan of a log; its content never raises.

    Parameters
    ----------
    node
        The node it comes from, where its lines name none.
    not_after_s
        When the job ended, or the log was last written [s since 1970]; the file's own time where ``None``.
    zone
        Zone of clocks that state none.
    limits
        How much of it is read.

    Raises
    ------
    InputError
        The log cannot be opened.
    """
    with open_log(path) as stream:
        written_s = not_after_s if not_after_s is not None else path.stat().st_mtime
        state = _State(
            path=str(path), named=replace(parse_log_name(str(path)), node=node), clock=LineClock(written_s, zone)
        )
        size, lines, problem, note = 0, 0, "", ""
        last: Piece | None = None
        try:
            for piece in read_limited_pieces(stream, limits):
                _scan_piece(piece, state)
                state.before = (state.before[-_FAR_BYTES:] + piece.data[-_FAR_BYTES:])[-_FAR_BYTES:]
                size, lines = piece.offset + len(piece.data), piece.line
                last = piece if piece.data.strip() else last
            note = describe_limits(stream, limits, size)
            if last is not None:
                _read_last_word(last, state)
        except BROKEN as error:
            problem = f"{path}: damaged after {size} bytes: {error}"
    return LogScan(
        path=str(path), lines=lines, bytes=size,
        findings=(*_list_gathered(state, size), *state.quoted, *state.opening.findings(state.path)),
        ranks=_build_end(state, size, lines).ranks(), left_out=state.gathered.left_out, problem=problem,
        note=f"{path}: {note}" if note else "",
    )  # fmt: skip


def _list_gathered(state: _State, size: int) -> list[Finding]:
    """Return the findings of a log that was read to its end: a loss that is a number there ended no run."""
    return [
        replace(each, role=Role.CONFIRMATION, fields={**each.fields, "event": RECOVERED})
        if each.signature == _NO_NUMBER
        and each.role is Role.ROOT
        and max(each.order, each.last_order) < size - len(state.before)
        and ends_as_number(state.before, each.text)
        else each
        for each in state.gathered.findings.values()
    ]


def _build_end(state: _State, size: int, lines: int) -> LogEnd:
    """Return the state of a log that was read to its end."""
    return LogEnd(
        path=state.path, named=state.named, labels=state.labels, heading=state.heading, ends=state.ends,
        tail=state.tail, clock=state.clock, size_bytes=size, lines=lines,
        ended_well=any(
            finding.role is Role.END and finding.signature != LAST_WORDS for finding in state.gathered.findings.values()
        ),
        asks_for_work=not state.labels.are_ray and any(
            finding.signature == _ASKED_TO_END
            or (finding.role is Role.ROOT and finding.failure is not FailureClass.COLLECTIVE_HANG)
            for finding in state.gathered.findings.values()
        ),
    )  # fmt: skip


def _scan_piece(piece: Piece, state: _State) -> None:
    """Take in one piece."""
    state.ends.take(piece.data, piece.offset)
    state.tail.take(piece.data)
    state.heading.take(piece.data, state.clock)
    state.labels.take(piece.data)
    if len(state.quoted) < _MAX_QUOTED:
        state.quoted += scan_quoted_xids(piece.data, source=state.path, offset=piece.offset)
    engine, owners = _engine()
    matches = engine.find(piece.data)
    if not piece.offset:
        matches = _add_first_line(matches, engine, piece.data)
    if len(matches) > _MANY_MATCHES:
        matches = thin_matches(matches)
    counted_to, line = 0, piece.line
    last: dict[str, tuple[Signature, Match, int]] = {}
    for match in matches:
        end, number = match
        line += piece.data.count(b"\n", counted_to, end)
        counted_to = end
        for signature in owners[number]:
            if state.gathered.is_worth_reading(signature.id):
                _read_match(piece, signature, end, line, state)
            else:
                last[signature.id] = (signature, match, line)
    for signature, (end, _), line in last.values():
        _read_match(piece, signature, end, line, state)
    state.opening.take(piece.data, piece.offset, piece.line, is_searched=bool(state.gathered.findings))


def _add_first_line(matches: Sequence[Match], engine: Finder, data: bytes) -> list[Match]:
    """Return matches with those of a log's first line that are looked for at the beginning of a line."""
    first = b"\n" + data[:REACH_BYTES].partition(b"\n")[0]
    return sorted({*matches, *((end - 1, number) for end, number in engine.find(first))})


def _read_match(piece: Piece, signature: Signature, end: int, number: int, state: _State) -> None:
    """Read one candidate line with one signature."""
    if signature.follow == "last" and not is_near_end(piece, end):
        return
    line = find_line(piece.data, end)
    fields = read_fields(signature, line.text)
    if fields is None or state.last_read.get(signature.id) == piece.offset + line.start:
        return  # another fragment of the same signature has found this line
    state.last_read[signature.id] = piece.offset + line.start
    if _ECHOED.match(line.text):
        return  # a variable or a command, not a message
    text, role, line_number = line.text, signature.role, number
    if signature.id in SURVIVED_BY_SCRIPTS and goes_on(signature.id, piece, line):
        role = Role.ADVICE
    elif signature.id in SURVIVED_BY_SCRIPTS:
        fields |= find_trifle(piece, line)
    if is_stopped_server(piece, line) or is_unraisable(piece.data, line):
        role = Role.ADVICE
    elif signature.id == _KILLED and is_killed_last(piece, line):
        fields.setdefault("end", "Killed")
    if signature.follow == "last" and not (
        is_last_word(piece, line) and state.gathered.total(signature.id) <= _MAX_LAST_WORDS
    ):
        return
    if signature.id == _BROKEN_FILE and _FROM_PARENT in piece.data[max(0, line.start - _PARENT_BYTES) : line.start]:
        role = Role.CASCADE  # no file: the process that started this one ended while it wrote
    if signature.id == _ASKED_TO_END and line.label.startswith("ray"):
        role = Role.ADVICE  # Ray ends its workers so, whatever became of the job
    if signature.follow == "report":
        fields |= read_torchrun_report(piece.data, line)
        text += f" … exitcode: {fields['exit']}" if "exit" in fields else ""
        if hosts := read_hosts(piece.data, line):
            fields["hosts"] = hosts
    elif signature.follow == "loss" and is_number_again(piece.data, line):
        fields["event"], role = RECOVERED, Role.CONFIRMATION
    elif signature.follow == "tasks":
        fields |= read_jax_tasks(piece.data, line)
    elif signature.follow == "what":
        if _matches_signature(thrown := read_cpp_exception(piece.data, line), but=signature):
            return
        text = f"{text}: {thrown}" if thrown else text
    elif signature.follow == "raised":
        raised = read_raised(piece.data, line, is_end=piece.is_near_end)
        if raised is None or _matches_signature(text):
            return
        fields |= raised
        role = Role.CASCADE if is_plain_end(raised["type"]) else role
    elif signature.follow == "exception":
        if is_quoted(line):
            return
        exception = read_exception(piece.data, line)
        if exception is not None:
            extra, text, begin = exception
            if piece.offset + line.start - state.traceback_end > _APART_BYTES:
                extra["apart"] = "yes"
            state.traceback_end = max(state.traceback_end, piece.offset + begin + len(text))
            if _matches_signature(text):
                if (extra.get("top") or (extra.get("handled") and not extra.get("chained"))) and len(
                    state.ends_of_programs
                ) < _MAX_ENDS:
                    known = {name: extra[name] for name in _OF_END if name in extra}
                    state.ends_of_programs[piece.offset + begin] = known
                return
            fields |= extra
            line_number += piece.data.count(b"\n", end, begin)
            role = Role.CASCADE if is_plain_end(extra["type"]) else role
            role = Role.ADVICE if _is_of_a_request(piece, line) else role
    fields |= state.ends_of_programs.get(piece.offset + line.start, {})
    state.gathered.add(
        _build_finding(piece, signature, line, state, number=line_number, text=text, role=role, fields=fields)
    )


def _read_last_word(piece: Piece, state: _State) -> None:
    """Read what a log says last, where nothing in it says more of a failure."""
    known = state.gathered.findings.values()
    if any(each.role in (Role.ROOT, Role.CASCADE) for each in known):
        return
    word = find_last_word(piece)
    if word is None or _ECHOED.match(word.line.text):
        return
    if any(piece.offset + word.line.start in (each.order, each.last_order) for each in known):
        return  # a signature of its own has found this line
    number = piece.line + piece.data.count(b"\n", 0, word.line.start)
    state.gathered.add(_build_finding(piece, word.signature, word.line, state, number=number, fields=word.fields))


def _build_finding(
    piece: Piece,
    signature: Signature,
    line: LogLine,
    state: _State,
    *,
    number: int,
    fields: dict[str, str],
    text: str = "",
    role: Role | None = None,
) -> Finding:
    """Return the finding of a line that a signature was read from."""
    time_s, earliest, latest = _find_times(line, piece, state)
    return Finding(
        signature=_EXCEPTION if signature.follow == "raised" else signature.id, role=role or signature.role,
        origin=signature.origin, failure=signature.failure, place=_find_place(line, fields, state),
        time_s=time_s, earliest_s=earliest, latest_s=latest, order=piece.offset + line.start, source=state.path,
        line=number, has_line=piece.is_numbered, text=(text or line.text)[:TEXT_CHARS], fields=fields,
    )  # fmt: skip


def _is_of_a_request(piece: Piece, line: LogLine) -> bool:
    """Return whether a server logs what one request raised: it goes on."""
    if _OF_A_REQUEST.search(line.text):
        return True
    return _ANSWERED in piece.data[max(0, line.start - 2 * len(_ANSWERED)) : line.start]


def _matches_signature(text: str, but: Signature | None = None) -> bool:
    """Return whether a signature of its own matches an exception."""
    return any(
        read_fields(signature, text) is not None
        for signature in signatures()
        if signature is not but
        and signature.origin is not Origin.KERNEL
        and signature.follow not in ("exception", "raised", _AT_THE_END)
        and signature.role in (Role.ROOT, Role.CASCADE)
        and any(each in text for each in signature.fragments)
    )


def _find_times(line: LogLine, piece: Piece, state: _State) -> tuple[float | None, float | None, float | None]:
    """Return when a line was written; where it has no time, when one before and one after it were.

    Two that are near each other are good enough; one alone is not: a rank may have been silent for hours.
    """
    time_s = state.clock.read(line.text)
    if time_s is not None:
        return time_s, None, None
    state.far_reads += 1
    reach = _FAR_BYTES if state.far_reads <= _MAX_FAR_READS else _NEAR_BYTES
    ahead = piece.data[max(0, line.start - reach) : line.start]
    ahead = state.before[-max(0, reach - len(ahead)) :] + ahead if len(ahead) < reach else ahead
    before = ahead.decode("utf-8", "replace").splitlines()
    after = piece.data[line.end : line.end + reach].decode("utf-8", "replace").splitlines()
    earliest = next((stamp for text in reversed(before) if (stamp := state.clock.read(text)) is not None), None)
    latest = next((stamp for text in after if (stamp := state.clock.read(text)) is not None), None)
    near = earliest is not None and latest is not None and 0 <= latest - earliest <= _SAME_TIME_S
    return earliest if near else None, earliest, latest


def _find_place(line: LogLine, fields: dict[str, str], state: _State) -> Place:
    """Return the place that a line is about, from the line, its label, then the log's name."""
    who = find_printer(line, state.named, state.labels)
    stated_rank = _parse_whole(fields.get("rank"))
    node = fields.get("node", "")
    node = (node if node.strip(".") else "") or line.node
    rank = stated_rank if stated_rank is not None else resolve_rank(who, state.heading, node)
    if rank is None and line.gpu_index is not None:
        rank = state.heading.rank_on(line.node, line.gpu_index)
    stated_local = None if state.labels.are_ray else _parse_whole(fields.get("local_rank"))
    local = who.local_rank if who.local_rank is not None else stated_local
    slot = state.heading.slots.get(rank) if rank is not None else None
    known = slot.node if slot is not None else state.heading.host or state.named.node
    return Place(
        rank=rank, local_rank=local, node_rank=who.node_rank, node=node or known, gpu_index=line.gpu_index,
        hca=fields.get("hca", ""), peer=fields.get("peer", ""),
        ranks=find_label_ranks(line.label) if rank is None else (),
    )  # fmt: skip


def _parse_whole(text: str | None) -> int | None:
    """Return a whole number, ``None`` where there is none."""
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else None
