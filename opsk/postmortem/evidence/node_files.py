"""In which form does a node keep its evidence? One JSON file a node and run of a job, in the folder of the job.

The folder of a job is called ``CLUSTER.JOB``, for several clusters may keep evidence in one place; opsk 0.1 called it
by the number alone. What a node keeps names its cluster.
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
LARGEST_BYTES = 8 * MIB
MODE, FOLDER_MODE = 0o640, 0o750
MOST_NODES = 100_000
_JOB = re.compile(r"[0-9]{1,10}")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFiles:
    """What nodes kept of a job, and what could not be read or is not to be believed."""

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


def folders_of_job(top: Path, key: JobKey) -> tuple[Path, ...]:
    """Return where evidence of a job may lie: in its own folder, and in one that opsk 0.1 called by the number alone.

    Raises
    ------
    InputError
        It is no number of a job; or nobody tells the cluster, and several have kept evidence of such a job.
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
    """Refuse a folder that somebody else might have put where the site keeps evidence.

    Where only the site can make folders, any is the site's: whose it is there, root's or nobody's, the storage says.
    Where everybody can, one of ours, root's or of whom the place belongs to is the site's, and no link is.

    Raises
    ------
    PermissionError
        Others might have made it, or might change it.
    """
    above, facts = folder.parent.stat(), folder.lstat()
    told = ""
    if facts.st_mode & stat.S_IWOTH and not stat.S_ISLNK(facts.st_mode):
        told = "everybody might change it"
    elif above.st_mode & stat.S_IWOTH:
        if not above.st_mode & stat.S_ISVTX:
            told = f"everybody might change what is in {folder.parent}"
        elif stat.S_ISLNK(facts.st_mode) or facts.st_uid not in (0, os.geteuid(), above.st_uid):
            told = f"somebody else might have put it into {folder.parent}"
    if told:
        raise PermissionError(errno.EACCES, f"not used: {told}", str(folder))


def write_whole(path: Path, text: str, *, mode: int = MODE, owner: int | None = None) -> None:
    """Write a file so that it is there whole or not at all.

    Parameters
    ----------
    owner
        User to whom it is given before it has its name.

    Raises
    ------
    OSError
        It cannot be written, or somebody else might have put its folder there.
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
    """Return what nodes kept, of the run of a job between two times.

    What names another cluster than ``cluster`` is left out: folders of opsk 0.1 had files of all of them.

    Who may write into the folder of a job may write evidence. A file is believed only when it belongs to root or to
    whom the folder belongs, and nobody else may write it.
    """
    found: list[Mapping[str, Any]] = []
    problems: list[str] = []
    present = False
    for folder in folders:
        try:
            refuse_planted(folder)
            owner = folder.stat().st_uid
            names = sorted(entry.name for entry in folder.iterdir() if _is_node_file(entry.name))[:MOST_NODES]
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                problems.append(f"{folder}: {error.strerror}")
            continue
        for name in names:
            present = True
            try:
                said = _read(folder / name, owner)
            except (OSError, ValueError) as error:
                problems.append(f"{folder / name}: {error}")
                continue
            if _is_of_run(said, start_s, end_s) and _is_of_cluster(said, cluster):
                found.append(said)
    return NodeFiles(files=tuple(found), unreadable=tuple(problems), present=present)


def _is_node_file(name: str) -> bool:
    return name.endswith(".json") and "@" in name and not name.startswith(".")


def _is_of_run(said: Mapping[str, Any], start_s: float | None, end_s: float | None) -> bool:
    """Tell whether a file is of the run that is asked for: the times of the two overlap."""
    began, ended = said.get("from_s"), said.get("until_s")
    if not isinstance(began, int | float) or not isinstance(ended, int | float):
        return True
    slack_s = 60.0
    return (end_s is None or began <= end_s + slack_s) and (start_s is None or ended >= start_s - slack_s)


def _is_of_cluster(said: Mapping[str, Any], cluster: str) -> bool:
    """Tell whether a file is of a job of a cluster, as far as both are known."""
    note = said.get("note")
    named = note.get("cluster") if isinstance(note, dict) else None
    return not cluster or not isinstance(named, str) or cluster_part(named) in ("", cluster_part(cluster))


def _read(path: Path, owner: int) -> Mapping[str, Any]:
    """Return one file.

    Raises
    ------
    OSError, ValueError
        It cannot be read, is none of ours, or may be of anybody.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > LARGEST_BYTES:
            raise ValueError("no regular file of a size that opsk writes")
        if facts.st_uid not in (0, owner) or facts.st_mode & 0o022:
            raise ValueError("not believed: others than who keeps evidence could have written it")
        with os.fdopen(handle, "rb", closefd=False) as stream:
            text = stream.read(LARGEST_BYTES)
    finally:
        os.close(handle)
    said = json.loads(text)
    if not isinstance(said, dict) or said.get("form") != FORM:
        raise ValueError("no evidence of a node in a form that this opsk knows")
    return said
