"""How does a job that holds spare nodes learn of its new rank map? Through a file that its launcher watches.

The launcher (``opsk launch``, in the batch script) says in ``opsk-launch-<cluster>.<job>.json`` of the job's directory
where its ranks are, in the form that ``opsk place --json`` has; a new map for it is put into
``opsk-decision-<cluster>.<job>.json``. Jobs of several clusters may run in one directory. Both files are the job's
owner's: nobody else writes there, and what is read there is checked.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from opsk.errors import InputError
from opsk.job_key import JobKey
from opsk.units import MIB

_MOST_BYTES = 64 * MIB
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_GPUS = re.compile(r"\d{1,4}(,\d{1,4})*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Where a rank is."""

    rank: int
    node: str
    gpu: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A rank map that a launcher shall start its step with.

    Parameters
    ----------
    id
        Name of the remap that it comes from; empty for the launcher's own first map.
    hosts
        Node of each rank, in rank order.
    gpu_order
        ``CUDA_VISIBLE_DEVICES`` of nodes whose local ranks do not take GPUs 0, 1, ... in order.
    cluster
        Whose job it is for; empty where nobody told it.
    """

    id: str
    job: str
    hosts: tuple[str, ...]
    gpu_order: tuple[tuple[str, str], ...] = ()
    cluster: str = ""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes in the order of their first ranks: node ranks; the first is where ranks meet (``MASTER_ADDR``)."""
        return tuple(dict.fromkeys(self.hosts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """What a launcher says of itself: ``decision`` is the remap whose map it runs, ``starts`` counts its steps."""

    job: str
    host: str
    pid: int
    decision: str
    starts: int
    ranks: tuple[Seat, ...]
    refused: dict[str, str] = field(default_factory=dict)
    cluster: str = ""


_DECISION = TypeAdapter(Decision)
_LAUNCHED = TypeAdapter(Launched)


def decision_file(folder: Path, key: JobKey) -> Path:
    """Return where a job's launcher looks for a new map."""
    return folder / f"opsk-decision-{_checked(key).file_name}.json"


def launched_file(folder: Path, key: JobKey) -> Path:
    """Return where a job's launcher says what it runs."""
    return folder / f"opsk-launch-{_checked(key).file_name}.json"


def write_document(path: Path, document: Decision | Launched) -> None:
    """Replace a file at once; never through a link that somebody put there.

    Raises
    ------
    InputError
        It cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(asdict(document), file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InputError(f"{path}: {error.strerror}", hint="is this the job's own directory, and yours?") from error


def read_decision(path: Path, *, owner: int) -> Decision | None:
    """Return a decision; ``None`` where there is none.

    Parameters
    ----------
    owner
        Whose the file must be (uid).

    Raises
    ------
    InputError
        It is somebody else's, or no decision.
    """
    text = _read(path, owner)
    if text is None:
        return None
    try:
        found = _DECISION.validate_json(text)
    except ValidationError as error:
        raise InputError(f"{path}: no decision of opsk ({error.error_count()} faults)") from error
    wrong = [name for name in found.hosts if not _NODE.fullmatch(name)]
    wrong += [text for node, text in found.gpu_order if not _NODE.fullmatch(node) or not _GPUS.fullmatch(text)]
    if wrong or not found.hosts:
        raise InputError(f"{path}: {wrong[0][:40]!r} is no node, or no list of GPUs" if wrong else f"{path}: no rank")
    return found


def read_launched(path: Path, *, owner: int) -> Launched | None:
    """Return what a launcher says of itself; ``None`` where there is none, or what is there is damaged."""
    try:
        text = _read(path, owner)
        return _LAUNCHED.validate_json(text) if text is not None else None
    except (ValidationError, InputError):
        return None


def _read(path: Path, owner: int) -> bytes | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    with os.fdopen(handle, "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode) or about.st_uid != owner or about.st_size > _MOST_BYTES:
            raise InputError(f"{path}: no file of the job's owner", hint="remove it")
        return file.read(_MOST_BYTES)


def _checked(key: JobKey) -> JobKey:
    if not re.fullmatch(r"\d{1,10}(?:[_+]\d{1,10})?", key.job):
        raise InputError(f"{key.job[:40]!r} is no job id", hint="write it as 4711, 4711_3 or 4711+1")
    return key
