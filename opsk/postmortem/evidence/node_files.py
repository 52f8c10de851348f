"""Reads and writes the evidence files of nodes: one JSON file for each node and run of a job, in the folder of the job.

The folder of a job is called ``CLUSTER.JOB``, because several clusters may keep evidence in one place; opsk 0.1 called
it by the number alone. The evidence of a node names its cluster.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsk.errors import InputError
from opsk.job_key import JobKey, cluster_part
from opsk.units import MIB

FORM = "opsk node evidence 1"
MAX_FILE_BYTES = 8 * MIB
MODE, FOLDER_MODE = 0o640, 0o750
MAX_NODES = 100_000
_JOB = re.compile(r"[0-9]{1,10}")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFiles:
    """Evidence of a job from its nodes, and the files that could not be read or are not trusted."""

    files: tuple[Mapping[str, Any], ...] = ()
    unreadable: tuple[str, ...] = ()
    present: bool = False


def job_folder(top: Path, key: JobKey) -> Path:
    """Return the folder of a job by Slurm's own number of it, which tasks of an array and components have too.

    Raises
    ------
    InputError
        It is no number of a job.
    """
    if not _JOB.fullmatch(key.job):
        raise InputError(f"{key.job[:40]!r} is no number of a job", hint="write it as 4711")
    return top / key.file_name


def list_job_folders(top: Path, key: JobKey) -> tuple[Path, ...]:
    """Return where evidence of a job may lie: in its own folder, and in one that opsk 0.1 called by the number alone.

    Raises
    ------
    InputError
        It is no number of a job; or the cluster is unknown, and several have evidence of such a job.
    """
    without = job_folder(top, JobKey(job=key.job))
    if key.cluster:
        return job_folder(top, key), without
    try:
        known = [JobKey.of_file_name(path.name) for path in top.glob(f"*.{key.job}")]
    except OSError:
        return (without,)
    clusters = sorted(each.cluster for each in known if each is not None)
    if len(clusters) > 1:
        raise InputError(
            f"{top} has evidence of a job {key.job} of each of the clusters {', '.join(clusters)}",
            hint="Slurm does not tell which is meant: set SLURM_CLUSTER_NAME to one of them",
        )
    return (*(top / f"{cluster}.{key.job}" for cluster in clusters), without)


def node_file_name(node: str, start_s: float | None) -> str:
    """Return the name of a node's file; a requeued job has one a run."""
    safe = node if _NODE.fullmatch(node) else re.sub(r"[^A-Za-z0-9._-]", "_", node)[:200].lstrip(".") or "node"
    return f"{safe}@{int(start_s or 0)}.json"


def refuse_planted(folder: Path) -> None:
    """Refuse a folder that another user might have created where the site keeps evidence.

    Where only the site can make folders, all are trusted, whichever owner the storage shows (root or nobody).
    Where everybody can, folders of this user, of root or of the parent's owner are trusted, and no links.

    Raises
    ------
    PermissionError
        Others might have made it, or might change it.
    """
    parent, facts = folder.parent.stat(), folder.lstat()
    reason = ""
    if facts.st_mode & stat.S_IWOTH and not stat.S_ISLNK(facts.st_mode):
        reason = "everybody might change it"
    elif parent.st_mode & stat.S_IWOTH:
        if not parent.st_mode & stat.S_ISVTX:
            reason = f"everybody might change what is in {folder.parent}"
        elif stat.S_ISLNK(facts.st_mode) or facts.st_uid not in (0, os.geteuid(), parent.st_uid):
            reason = f"somebody else might have put it into {folder.parent}"
    if reason:
        raise PermissionError(errno.EACCES, f"not used: {reason}", str(folder))


def write_atomically(path: Path, text: str, *, mode: int = MODE, owner: int | None = None) -> None:
    """Write a file so that it is there whole or not at all.

    Parameters
    ----------
    owner
        User who owns the file before it gets its name.

    Raises
    ------
    OSError
        It cannot be written, or another user might have created its folder.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
    refuse_planted(path.parent)
    handle, name = tempfile.mkstemp(prefix=".opsk-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as made:
            made.write(text)
            os.fchmod(made.fileno(), mode)
            if owner is not None:
                os.fchown(made.fileno(), owner, -1)
            made.flush()
            os.fsync(made.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_node_files(
    folders: Sequence[Path], *, start_s: float | None = None, end_s: float | None = None, cluster: str = ""
) -> NodeFiles:
    """Return the nodes' evidence of the run of a job between two times.

    Files that name another cluster than ``cluster`` are left out: folders of opsk 0.1 had files of all of them.

    A user who can write into the folder of a job can write evidence. A file is trusted only when it belongs to root or
    to the owner of the folder, and nobody else may write it.
    """
    documents: list[Mapping[str, Any]] = []
    problems: list[str] = []
    present = False
    for folder in folders:
        try:
            refuse_planted(folder)
            owner = folder.stat().st_uid
            names = sorted(entry.name for entry in folder.iterdir() if _is_node_file(entry.name))[:MAX_NODES]
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                problems.append(f"{folder}: {error.strerror}")
            continue
        for name in names:
            present = True
            try:
                document = _read_file(folder / name, owner)
            except (OSError, ValueError) as error:
                problems.append(f"{folder / name}: {error}")
                continue
            if _is_of_run(document, start_s, end_s) and _is_of_cluster(document, cluster):
                documents.append(document)
    return NodeFiles(files=tuple(documents), unreadable=tuple(problems), present=present)


def _is_node_file(name: str) -> bool:
    return name.endswith(".json") and "@" in name and not name.startswith(".")


def _is_of_run(document: Mapping[str, Any], start_s: float | None, end_s: float | None) -> bool:
    """Return whether a file belongs to the requested run: the times of the two overlap."""
    began, ended = document.get("from_s"), document.get("until_s")
    if not isinstance(began, int | float) or not isinstance(ended, int | float):
        return True
    slack_s = 60.0
    return (end_s is None or began <= end_s + slack_s) and (start_s is None or ended >= start_s - slack_s)


def _is_of_cluster(document: Mapping[str, Any], cluster: str) -> bool:
    """Return whether a file belongs to a job of a cluster, as far as both are known."""
    note = document.get("note")
    named = note.get("cluster") if isinstance(note, dict) else None
    return not cluster or not isinstance(named, str) or cluster_part(named) in ("", cluster_part(cluster))


def _read_file(path: Path, owner: int) -> Mapping[str, Any]:
    """Return one file.

    Raises
    ------
    OSError, ValueError
        It cannot be read, is none of ours, or may be of anybody.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_FILE_BYTES:
            raise ValueError("no regular file of a size that opsk writes")
        if facts.st_uid not in (0, owner) or facts.st_mode & 0o022:
            raise ValueError("not believed: others than who keeps evidence could have written it")
        with os.fdopen(handle, "rb", closefd=False) as stream:
            text = stream.read(MAX_FILE_BYTES)
    finally:
        os.close(handle)
    document = json.loads(text)
    if not isinstance(document, dict) or document.get("form") != FORM:
        raise ValueError("no evidence of a node in a form that this opsk knows")
    return document
