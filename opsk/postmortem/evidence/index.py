"""Lists the reports in the folders of jobs, and gives users a copy of the reports on their own jobs.

Evidence and reports belong to root. The user of the job gets a copy of the report that only they may read: root creates
a new file, gives it away through its open descriptor, and only then moves it to its name, so that no link leads
elsewhere. The user may traverse the folder of the job, but not list it or write to it. Changes to the copy have no
effect: root and others read the original.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from opsk.job_key import JobKey, cluster_part
from opsk.postmortem.evidence.node_files import refuse_planted, write_atomically
from opsk.postmortem.values import Origin, Report, Role
from opsk.units import MIB

USER_COPY_PREFIX = "own-"
"""Prefix of a copy's name, before the name of the original."""
_MODE = 0o400
_MAY_TRAVERSE = 0o001
JSON_REPORT, HTML_REPORT = "report.json", "report.html"
MAX_REPORTS = 1000
NOTHING: Mapping[str, Entry] = {}
_MAX_BYTES = 64 * MIB


def redact_for_owner(report: Report) -> Report:
    """Return a report for its user: without the kernel's messages about other jobs on the same nodes."""
    visible = [
        finding
        for finding in report.evidence.findings
        if finding.origin is not Origin.KERNEL or finding.role is not Role.ADVICE
    ]
    moments = [moment for moment in report.timeline if moment.finding is None or moment.finding in visible]
    return replace(report, timeline=tuple(moments), evidence=replace(report.evidence, findings=tuple(visible)))


def write_user_copies(folder: Path, uid: int, texts: Mapping[str, str]) -> None:
    """Write copies of reports, by the names of the originals, for a user to read.

    Raises
    ------
    OSError
        They cannot be written or given away, or another user might have created the folder.
    """
    for name, text in texts.items():
        write_atomically(folder / f"{USER_COPY_PREFIX}{name}", text, mode=_MODE, owner=uid)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        refuse_planted(folder)
        mode = stat.S_IMODE(os.fstat(handle).st_mode)
        if not mode & _MAY_TRAVERSE:
            os.fchmod(handle, mode | _MAY_TRAVERSE)
    finally:
        os.close(handle)


def find_user_copy(folder: Path, name: str) -> Path | None:
    """Return the caller's own copy of a report; ``None`` where there is none, or it is not his."""
    path = folder / f"{USER_COPY_PREFIX}{name}"
    try:
        facts = path.lstat()
    except OSError:
        return None
    return path if stat.S_ISREG(facts.st_mode) and facts.st_uid == os.geteuid() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One report in the index; text of users in it is hostile.

    ``cluster`` is as in file names (`opsk.job_key.cluster_part`); empty where neither folder nor report names it.
    """

    job: str
    written_s: float
    state: str = ""
    user: str = ""
    root_class: str = ""
    what: str = ""
    where: str = ""
    confidence: float | None = None
    folder: str = ""
    cluster: str = ""


def list_entries(
    top: Path, *, limit: int = MAX_REPORTS, known: Mapping[str, Entry] = NOTHING, cluster: str = ""
) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """Return the reports in a folder of jobs, latest first, and those that could not be read.

    Parameters
    ----------
    known
        By folder, the entries of the previous call: repeated calls read only what is new.
    cluster
        Only reports on its jobs, and those whose cluster is unknown; empty for all.
    """
    files: list[tuple[float, Path]] = []
    problems: list[str] = []
    try:
        named = [(entry, JobKey.of_file_name(entry.name)) for entry in top.iterdir()]
    except OSError as error:
        return (), (f"{top}: {error.strerror}",)
    requested = cluster_part(cluster)
    for folder, key in named:
        if key is None or (requested and key.cluster not in ("", requested)):
            continue
        try:
            written_s = (folder / JSON_REPORT).stat().st_mtime
        except OSError:
            continue
        try:
            refuse_planted(folder)
        except OSError as error:
            problems.append(f"{folder}: {error.strerror}")
        else:
            files.append((written_s, folder / JSON_REPORT))
    files.sort(reverse=True)
    entries: list[Entry] = []
    for written_s, path in files:
        if len(entries) + len(problems) >= limit:
            break
        previous = known.get(str(path.parent))
        if previous is not None and previous.written_s == written_s:
            entries.append(previous)
            continue
        try:
            with find_readable(path).open("rb") as stream:
                entry = _build_entry(path, written_s, json.loads(stream.read(_MAX_BYTES)))
            if not requested or entry.cluster in ("", requested):
                entries.append(entry)
        except PermissionError:
            continue  # belongs to another user's job
        except (OSError, ValueError, RecursionError) as error:
            problems.append(f"{path}: {error}")
    return tuple(entries), tuple(problems)


def find_readable(path: Path) -> Path:
    """Return the report, or the copy of it that belongs to a caller who may not read it."""
    if os.access(path, os.R_OK):
        return path
    return find_user_copy(path.parent, path.name) or path


def _build_entry(path: Path, written_s: float, document: Any) -> Entry:
    """Return one entry.

    Raises
    ------
    ValueError
        It is no report.
    """
    if not isinstance(document, dict) or "root_cause" not in document:
        raise ValueError("no report of opsk")
    root, job = _table(document["root_cause"]), _table(document.get("job"))
    key = JobKey.of_file_name(path.parent.name) or JobKey(job=path.parent.name)
    sure = root.get("confidence")
    return Entry(
        job=str(job.get("job_id") or key.job)[:40], written_s=written_s, state=str(document.get("state", ""))[:40],
        user=str(job.get("user", ""))[:64], root_class=str(root.get("class", ""))[:40],
        what=str(root.get("what", ""))[:400], where=str(root.get("where", ""))[:200],
        confidence=float(sure) if isinstance(sure, int | float) else None, folder=str(path.parent),
        cluster=key.cluster or cluster_part(str(job.get("cluster", ""))[:255]),
    )  # fmt: skip


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
