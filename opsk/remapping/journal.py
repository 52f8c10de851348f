"""Records what is about to be done and what was done: an interface, and an implementation in files of JSON lines.

A line is on the disk before the command runs, and another one after it: a reader that finds the first without the
second asks Slurm whether it was carried out. A line that a crash tore is left out.

One user's journal may have remaps of several clusters, whose jobs have the same numbers: files and locks are by cluster
and job. What opsk 0.1 wrote names no cluster.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import TypeAdapter, ValidationError

from opsk.errors import InputError, UnavailableError
from opsk.job_key import JobKey, cluster_part
from opsk.remapping.cluster_state import InitialState, Preconditions, Step
from opsk.remapping.decision import Decision
from opsk.slurm.commands.remap_commands import ActionKind
from opsk.units import MIB

StepState = Literal["started", "done", "skipped", "failed", "undone"]
RunState = Literal["approved", "applying", "applied", "failed", "outdated", "undoing", "undone"]
_ID = re.compile(r"[0-9A-Za-z_+-]{1,32}-\d{8}T\d{6}-[0-9a-f]{6}")
_FILE = re.compile(rf"(?:[0-9A-Za-z_-]{{1,40}}\.)?({_ID.pattern})\.jsonl")
_MAX_BYTES = 16 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRemap:
    """The remap as it was decided; everything that is needed to resume it without the plan.

    Parameters
    ----------
    id
        Name of the remap.
    at_s
        When it was decided [s since 1970]; ``by`` which user, on which ``host``.
    steps
        Commands to run, in order; ``left`` are those for other users or for later, each with its executor.
    before
        The cluster's state before, as far as it is needed to check and to undo.
    world
        Preconditions of the option.
    rank_file, ranks
        The file with one host per rank, and its text; empty where none is needed.
    cluster
        Cluster of the job; empty where it is unknown, and in what opsk 0.1 wrote.
    """

    id: str
    at_s: float
    by: str
    host: str
    job: str
    failed: tuple[str, ...]
    kind: str
    title: str
    steps: tuple[Step, ...]
    left: tuple[tuple[str, str], ...] = ()
    before: InitialState = field(default_factory=InitialState)
    world: Preconditions = field(default_factory=Preconditions)
    rank_file: str = ""
    ranks: str = ""
    decision: Decision | None = None
    cluster: str = ""

    @property
    def key(self) -> JobKey:
        """Cluster and number of the job."""
        return JobKey(cluster=self.cluster, job=self.job)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLine:
    """One further line: a step's new state (``number``), or the whole remap's (``number`` is ``None``)."""

    at_s: float
    state: str
    by: str
    number: int | None = None
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remapping:
    """One remap as its journal has it; ``damaged`` counts lines that could not be read."""

    planned: PlannedRemap
    lines: tuple[JournalLine, ...] = ()
    damaged: int = 0

    @property
    def state(self) -> str:
        """How far it got as a whole."""
        return next((line.state for line in reversed(self.lines) if line.number is None), "approved")

    @property
    def steps(self) -> Mapping[int, str]:
        """The last state of each step that was started."""
        return {line.number: line.state for line in self.lines if line.number is not None}

    @property
    def is_open(self) -> bool:
        """Whether it can be resumed."""
        return self.state in {"approved", "applying", "failed", "undoing"}


class Journal(Protocol):
    """Stores remaps; every method may raise `opsk.errors.UnavailableError`."""

    def begin(self, planned: PlannedRemap) -> None:
        """Record a remap before it starts; it is safe on disk when this returns."""
        ...

    def add(self, remap: str, line: JournalLine) -> None:
        """Record what is about to happen, or its result; it is safe on disk when this returns."""
        ...

    def read(self, remap: str) -> Remapping:
        """Return one remap.

        Raises
        ------
        InputError
            There is none of that name.
        """
        ...

    def all(self) -> tuple[Remapping, ...]:
        """Return all remaps, the last first."""
        ...


_PLANNED = TypeAdapter(PlannedRemap)
_LINE = TypeAdapter(JournalLine)


def new_id(job: str, at_s: float) -> str:
    """Return a name that no other remap has."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(at_s))
    return f"{re.sub(r'[^0-9A-Za-z_+-]', '', job)[:32] or 'job'}-{stamp}-{secrets.token_hex(3)}"


def default_folder(environ: Mapping[str, str]) -> Path:
    """Return where a user's journal is."""
    state = environ.get("XDG_STATE_HOME") or str(Path(environ.get("HOME") or "/").joinpath(".local", "state"))
    return Path(state) / "opsk" / "remaps"


class FileJournal:
    """One file of JSON lines a remap, in a folder that only its owner can read.

    Parameters
    ----------
    folder
        Made when it is first written to.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self, planned: PlannedRemap) -> None:
        """Record a remap before it starts."""
        with self._name_os_errors():
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._append(self._new_path(planned), {"remap": asdict(planned)}, new=True)
            handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def add(self, remap: str, line: JournalLine) -> None:
        """Record what is about to happen, or its result."""
        with self._name_os_errors():
            self._append(self._path(remap), asdict(line), new=False)

    def read(self, remap: str) -> Remapping:
        """Return one remap.

        Raises
        ------
        InputError
            There is none of that name, its first line is damaged, or it does not record what its commands do.
        """
        if not _ID.fullmatch(remap):
            raise InputError(f"{remap[:60]!r} is not the name of a remap", hint="opsk remap --journal lists them")
        with self._name_os_errors():
            path = self._path(remap)
        remapping = self._read(remap, path)
        if any(step.action.kind is ActionKind.UNKNOWN for step in remapping.planned.steps):
            raise InputError(
                f"remap {remap} was written by an older opsk, which did not record what each command does",
                hint="opsk remap --journal lists its commands: run what remains of them yourself",
            )
        return remapping

    def _read(self, remap: str, path: Path) -> Remapping:
        try:
            text = path.read_bytes()[:_MAX_BYTES].decode("utf-8", errors="replace")
        except FileNotFoundError:
            raise InputError(
                f"there is no remap {remap} in {self._folder}", hint="opsk remap --journal lists them"
            ) from None
        except OSError as error:
            raise UnavailableError(f"{path}: {error.strerror}") from error
        return _parse_journal(remap, text)

    def all(self) -> tuple[Remapping, ...]:
        """Return all remaps that can be read, of all clusters, the last first."""
        remaps = []
        with self._name_os_errors():
            paths = list(self._folder.glob("*.jsonl")) if self._folder.is_dir() else []
        for path in paths:
            if name := _FILE.fullmatch(path.name):
                try:
                    remaps.append(self._read(name[1], path))
                except InputError:
                    continue
        return tuple(sorted(remaps, key=lambda each: (-each.planned.at_s, each.planned.id)))

    @contextmanager
    def lock(self, key: JobKey) -> Iterator[None]:
        """Lock a job against other changes with this journal; the end of this process releases the lock in any case.

        Jobs of other clusters do not count, whatever their numbers are.

        Raises
        ------
        UnavailableError
            Another opsk is at it.
        """
        with self._name_os_errors():
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = (self._folder / f".{key.file_name}.lock").open("ab")
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UnavailableError(
                    f"another opsk is remapping {key} now", hint="wait until it has ended: opsk remap --journal"
                ) from None
            yield

    def _new_path(self, planned: PlannedRemap) -> Path:
        """Return where a remap will be written: ``CLUSTER.ID.jsonl``, and an id begins with the job."""
        before = f"{cluster_part(planned.cluster)}." if planned.cluster else ""
        return self._folder / f"{before}{planned.id}.jsonl"

    def _path(self, remap: str) -> Path:
        """Return the file of a remap, of whichever cluster: an id is drawn, and no two remaps have the same."""
        return next(iter(self._folder.glob(f"*.{remap}.jsonl")), self._folder / f"{remap}.jsonl")

    def _append(self, path: Path, document: Mapping[str, Any], *, new: bool) -> None:
        line = json.dumps(document, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if new else 0)
        handle = os.open(path, flags, 0o600)
        try:
            size = os.fstat(handle).st_size
            if size and os.pread(handle, 1, size - 1) != b"\n":
                line = b"\n" + line  # a crash tore the line before
            os.write(handle, line)
            os.fsync(handle)
        finally:
            os.close(handle)

    @contextmanager
    def _name_os_errors(self) -> Iterator[None]:
        """Turn errors of the operating system into one that names the journal."""
        try:
            yield
        except OSError as error:
            raise UnavailableError(
                f"the journal in {self._folder} cannot be used: {error.strerror}",
                hint="choose another --journal-dir",
            ) from error


def _parse_journal(remap: str, text: str) -> Remapping:
    """Parse a remap from its lines; torn lines are left out."""
    planned: PlannedRemap | None = None
    lines: list[JournalLine] = []
    damaged = 0
    for row in text.split("\n"):
        if not row.strip():
            continue
        try:
            document = json.loads(row)
            if planned is None:
                planned = _PLANNED.validate_python(document["remap"])
            else:
                lines.append(_LINE.validate_python(document))
        except (ValueError, ValidationError, TypeError, KeyError, RecursionError):
            damaged += 1
    if planned is None:
        raise InputError(
            f"the journal of remap {remap} is damaged: its first line cannot be read",
            hint="it cannot be resumed",
        )
    return Remapping(planned=planned, lines=tuple(lines), damaged=damaged)
