"""Passes a new rank map to a job that holds spare nodes, through a file that its launcher watches.

The launcher (``opsk launch``, in the batch script) writes where its ranks are to
``opsk-launch-<cluster>.<job>.json`` in the job's directory, in the form of ``opsk place --json``; a new map for it is
written to ``opsk-decision-<cluster>.<job>.json``. Jobs of several clusters may run in one directory. Both files belong
to the job's owner: nobody else writes there, and what is read there is validated.
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

_MAX_BYTES = 64 * MIB
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_GPUS = re.compile(r"\d{1,4}(,\d{1,4})*")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSlot:
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
        Cluster of the job; empty where it is unknown.
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
class LauncherReport:
    """The state of a launcher: ``decision`` is the remap whose map it runs, ``starts`` counts its steps."""

    job: str
    host: str
    pid: int
    decision: str
    starts: int
    ranks: tuple[RankSlot, ...]
    refused: dict[str, str] = field(default_factory=dict)
    cluster: str = ""


_DECISION = TypeAdapter(Decision)
_LAUNCHED = TypeAdapter(LauncherReport)


def decision_file(folder: Path, key: JobKey) -> Path:
    """Return the file in which a job's launcher finds a new map."""
    return folder / f"opsk-decision-{_check_key(key).file_name}.json"


def launcher_report_file(folder: Path, key: JobKey) -> Path:
    """Return the file in which a job's launcher reports what it runs."""
    return folder / f"opsk-launch-{_check_key(key).file_name}.json"


def write_document(path: Path, document: Decision | LauncherReport) -> None:
    """Replace a file in one step, never through a link.

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
        raise InputError(f"{path}: {error.strerror}", hint="is this the job's directory, and do you own it?") from error


def read_decision(path: Path, *, owner: int) -> Decision | None:
    """Return a decision; ``None`` where there is none.

    Parameters
    ----------
    owner
        Required owner of the file (uid).

    Raises
    ------
    InputError
        It belongs to another user, or is no decision.
    """
    text = _read(path, owner)
    if text is None:
        return None
    try:
        decision = _DECISION.validate_json(text)
    except ValidationError as error:
        raise InputError(f"{path}: not a decision of opsk ({error.error_count()} errors)") from error
    wrong = [name for name in decision.hosts if not _NODE.fullmatch(name)]
    wrong += [text for node, text in decision.gpu_order if not _NODE.fullmatch(node) or not _GPUS.fullmatch(text)]
    if wrong or not decision.hosts:
        raise InputError(
            f"{path}: {wrong[0][:40]!r} is not a node, or not a list of GPUs" if wrong else f"{path}: no rank"
        )
    return decision


def read_launcher_report(path: Path, *, owner: int) -> LauncherReport | None:
    """Return the report of a launcher; ``None`` where there is none, or it is damaged."""
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
        if not stat.S_ISREG(about.st_mode) or about.st_uid != owner or about.st_size > _MAX_BYTES:
            raise InputError(f"{path}: not a file of the job's owner", hint="remove it")
        return file.read(_MAX_BYTES)


def _check_key(key: JobKey) -> JobKey:
    if not re.fullmatch(r"\d{1,10}(?:[_+]\d{1,10})?", key.job):
        raise InputError(f"{key.job[:40]!r} is not a job id", hint="write it as 4711, 4711_3 or 4711+1")
    return key
