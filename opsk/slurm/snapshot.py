"""Serialises all jobs and nodes, so that one program that queried Slurm can share them with all others.

A snapshot is one byte string: a mark, a line of JSON that states when it was taken and what is in it, and compressed
blocks of lines, one line a record. Lines of unchanged records are identical, so that a reader of successive snapshots
creates only the new records. Times are stored instead of durations: of a running job its start, not its run time.

Text in it is written by users and as hostile as Slurm's own output.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from opsk.errors import InputError
from opsk.slurm.records import JobRecord, NodeRecord
from opsk.units import MIB

MARK = b"opsk-snapshot 1\n"
MAX_BYTES = 32 * MIB
"""Of a snapshot as it is handed over; one of 10,000 nodes and 10,000 jobs has some 2 MB."""
MAX_BLOCK_BYTES = 256 * MIB
NODES, JOBS = "nodes", "jobs"
PRIVATE_NODES = frozenset({"nodes", "partitions"})
"""Words of ``PrivateData`` with which users may not see all nodes, or not of all of them where they are."""

_TIMES = frozenset({"submit_time", "start_time", "end_time"})
_TUPLES = frozenset(
    {
        *("state_flags", "nodes", "required_nodes", "excluded_nodes"),
        *("partitions", "features", "gpu_indices_used"),
    }
)
Record = TypeVar("Record", JobRecord, NodeRecord)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All jobs and nodes at one moment, as far as the user who queried may see them.

    Parameters
    ----------
    taken_at_s
        When Slurm answered [s since 1970]; 0 where it never did.
    cluster
        ``ClusterName`` of slurm.conf.
    release
        Of Slurm's commands.
    private
        Words of ``PrivateData`` in slurm.conf.
    is_partial
        True when something was left out that the reader may not see, or that only Slurm knows whether he may.
    problem, hint
        Why Slurm did not answer later than this; empty when it did.
    """

    taken_at_s: float
    nodes: tuple[NodeRecord, ...] = ()
    jobs: tuple[JobRecord, ...] = ()
    cluster: str = ""
    release: tuple[int, ...] = ()
    private: frozenset[str] = frozenset()
    is_partial: bool = False
    problem: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A snapshot as bytes: its head, and its blocks by name; ``jobs/1000`` are the jobs of uid 1000."""

    head: Mapping[str, Any]
    blocks: Mapping[str, bytes]

    def to_bytes(self) -> bytes:
        """Return the piece of bytes that is handed over."""
        head = {**self.head, "blocks": {name: len(block) for name, block in self.blocks.items()}}
        return b"".join((MARK, json.dumps(head, separators=(",", ":")).encode("ascii"), b"\n", *self.blocks.values()))

    @property
    def digest(self) -> str:
        """Digest of this content: the same as long as no job and no node has changed."""
        return str(self.head.get("digest", ""))


def pack(snapshot: Snapshot, uid_of: Callable[[str], int | None] | None = None) -> Packed:
    """Return a snapshot as bytes.

    Parameters
    ----------
    uid_of
        Finds the uid of a user's name, for jobs that only their owners may see; without it there are no such blocks.
    """
    lines = {
        NODES: [_format_line(node) for node in snapshot.nodes],
        JOBS: [_format_line(_drop_run_time(job)) for job in snapshot.jobs],
    }
    if "jobs" in snapshot.private and uid_of is not None:
        known: dict[str, int | None] = {}
        for job, line in zip(snapshot.jobs, lines[JOBS], strict=True):
            uid = known[job.user] if job.user in known else known.setdefault(job.user, uid_of(job.user))
            if uid is not None:
                lines.setdefault(f"{JOBS}/{uid}", []).append(line)
    texts = {name: "\n".join(record_lines).encode() for name, record_lines in lines.items()}
    digest = hashlib.blake2b(b"\0".join((texts[NODES], texts[JOBS])), digest_size=12).hexdigest()
    head = {
        "taken_at_s": round(snapshot.taken_at_s, 3), "cluster": snapshot.cluster, "release": list(snapshot.release),
        "private": sorted(snapshot.private), "digest": digest, "problem": snapshot.problem, "hint": snapshot.hint,
    }  # fmt: skip
    return Packed(head=head, blocks={name: zlib.compress(text, 1) for name, text in texts.items()})


def unpack(data: bytes) -> Packed:
    """Return head and blocks of a piece of bytes.

    Raises
    ------
    InputError
        It is no snapshot, or damaged.
    """
    if not data.startswith(MARK) or len(data) > MAX_BYTES:
        raise InputError("no snapshot of Slurm")
    line, _, rest = data[len(MARK) :].partition(b"\n")
    try:
        head = json.loads(line)
        sizes = {str(name): int(size) for name, size in head.pop("blocks").items()}
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise InputError("a snapshot of Slurm whose head is damaged") from error
    blocks, begin = {}, 0
    for name, size in sizes.items():
        blocks[name] = rest[begin : begin + size]
        begin += size
        if size < 0 or len(blocks[name]) != size:
            raise InputError("a snapshot of Slurm that is cut off")
    return Packed(head=head, blocks=blocks)


def filter_visible(packed: Packed, uid: int, *, sees_all: bool, have: str = "") -> Packed:
    """Return what a user may see of it.

    Parameters
    ----------
    sees_all
        Whether Slurm hides nothing from the user.
    have
        Digest of the content that the user has already: it is not sent again.
    """
    private = frozenset(packed.head.get("private", ()))
    head = dict(packed.head)
    blocks = {name: packed.blocks[name] for name in (NODES, JOBS) if name in packed.blocks}
    if not sees_all and private:
        if private & PRIVATE_NODES:
            head["is_partial"] = True
            blocks.pop(NODES, None)
        if JOBS in private:
            head["is_partial"] = True
            blocks[JOBS] = packed.blocks.get(f"{JOBS}/{uid}", zlib.compress(b""))
        if head.get("is_partial"):
            # what others' jobs do must not show in it either
            head["digest"] = hashlib.blake2b(b"\0".join(blocks.values()), digest_size=12).hexdigest()
    if have and have == head.get("digest"):
        blocks = {}
    return Packed(head=head, blocks=blocks)


class SnapshotReader:
    """Reads one snapshot after the other; records that did not change are the same objects again."""

    def __init__(self) -> None:
        self._nodes = _Lines(NodeRecord)
        self._jobs = _Lines(JobRecord)
        self._last: Snapshot | None = None
        self._digest = ""

    @property
    def digest(self) -> str:
        """Digest of what was read last, "" before."""
        return self._digest

    def read(self, data: bytes) -> Snapshot:
        """Return a snapshot.

        Raises
        ------
        InputError
            It is none, or damaged.
        """
        packed = unpack(data)
        head = packed.head
        try:
            facts: dict[str, Any] = {
                "taken_at_s": float(head["taken_at_s"]),
                "cluster": str(head.get("cluster", "")),
                "release": tuple(int(part) for part in head.get("release", ())),
                "private": frozenset(map(str, head.get("private", ()))),
                "is_partial": bool(head.get("is_partial")),
                "problem": str(head.get("problem", "")),
                "hint": str(head.get("hint", "")),
            }
        except (KeyError, TypeError, ValueError) as error:
            raise InputError("a snapshot of Slurm whose head is damaged") from error
        if not packed.blocks and self._last is not None and packed.digest == self._digest:
            self._last = replace(self._last, **facts)
            return self._last
        self._last = Snapshot(
            nodes=self._nodes.read(_decompress_text(packed.blocks.get(NODES))),
            jobs=self._jobs.read(_decompress_text(packed.blocks.get(JOBS))),
            **facts,
        )
        self._digest = packed.digest
        return self._last


class _Lines(Generic[Record]):
    """Records by their lines; the tuple is the same object again when no line has changed."""

    def __init__(self, kind: type[Record]) -> None:
        self._kind: type[Record] = kind
        self._text = ""
        self._known: dict[str, Record] = {}
        self._records: tuple[Record, ...] = ()

    def read(self, text: str) -> tuple[Record, ...]:
        """Return the records of a block."""
        if text != self._text:
            known = self._known
            lines = text.split("\n") if text else []
            self._known = {line: known.get(line) or _parse_record(self._kind, line) for line in lines}
            self._records = tuple(self._known[line] for line in lines)
            self._text = text
        return self._records


def _decompress_text(block: bytes | None) -> str:
    """Return the lines of a block."""
    if not block:
        return ""
    try:
        inflate = zlib.decompressobj()
        text = inflate.decompress(block, MAX_BLOCK_BYTES)
        if not inflate.eof:
            raise InputError("a snapshot of Slurm that is damaged or too large")
        return text.decode()
    except (zlib.error, UnicodeDecodeError) as error:
        raise InputError("a snapshot of Slurm that is damaged") from error


def _drop_run_time(job: JobRecord) -> JobRecord:
    """Return a job without what changes with the time alone."""
    if job.run_time_s is None or job.start_time is None or job.state != "RUNNING":
        return job
    return replace(job, run_time_s=None)


def _format_line(record: JobRecord | NodeRecord) -> str:
    """Return a record as one line, without unset fields."""
    values = {}
    for name, default in _DEFAULTS[type(record)].items():
        value = getattr(record, name)
        if value is None or value == default:
            continue
        values[name] = int(value.timestamp()) if isinstance(value, datetime) else value
    return json.dumps(values, separators=(",", ":"))


def _parse_record(kind: type[Record], line: str) -> Record:
    """Return the record of a line.

    Raises
    ------
    InputError
        It is none.
    """
    try:
        values = json.loads(line)
        for name in values.keys() & _TUPLES:
            values[name] = tuple(values[name])
        for name in values.keys() & _TIMES:
            values[name] = datetime.fromtimestamp(values[name], tz=UTC)
        if "gpu_indices" in values:
            values["gpu_indices"] = {node: tuple(held) for node, held in values["gpu_indices"].items()}
        return kind(**values)
    except (ValueError, TypeError, AttributeError, OverflowError, OSError, RecursionError) as error:
        raise InputError("a snapshot of Slurm with a damaged record") from error


def _read_defaults(kind: Any) -> dict[str, Any]:
    """Return the fields of a record with their defaults."""
    return {
        item.name: item.default_factory()
        if item.default_factory is not MISSING
        else (None if item.default is MISSING else item.default)
        for item in fields(kind)
    }


_DEFAULTS: Mapping[type[Any], Mapping[str, Any]] = {kind: _read_defaults(kind) for kind in (JobRecord, NodeRecord)}


def parse_private_data(config: Mapping[str, str]) -> frozenset[str]:
    """Return the words of ``PrivateData`` in the output of ``scontrol show config``."""
    words: Iterable[str] = config.get("PrivateData", "").lower().replace(" ", "").split(",")
    return frozenset(word for word in words if word and word not in ("none", "(null)"))
