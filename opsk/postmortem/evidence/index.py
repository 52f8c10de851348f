"""Which reports were written? By the files in the folders of jobs; a damaged one is told and left out."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsk.job_key import JobKey, cluster_part
from opsk.postmortem.evidence.node_files import refuse_planted
from opsk.postmortem.evidence.own_copy import own_copy
from opsk.units import MIB

JSON_REPORT, HTML_REPORT = "report.json", "report.html"
MOST_REPORTS = 1000
NOTHING: Mapping[str, Entry] = {}
_LARGEST_BYTES = 64 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One report in the index; text of users in it is hostile.

    ``cluster`` is as names of files have it (`opsk.job_key.cluster_part`); empty where neither folder nor report says.
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


def entries_of(
    top: Path, *, limit: int = MOST_REPORTS, known: Mapping[str, Entry] = NOTHING, cluster: str = ""
) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """Return the reports in a folder of jobs, the last first, and what could not be read.

    Parameters
    ----------
    known
        By folder, those that were read before: who lists them again and again reads only what is new.
    cluster
        Only reports on its jobs, and those of which nobody knows the cluster; empty for all.
    """
    files: list[tuple[float, Path]] = []
    problems: list[str] = []
    try:
        named = [(entry, JobKey.of_file_name(entry.name)) for entry in top.iterdir()]
    except OSError as error:
        return (), (f"{top}: {error.strerror}",)
    wanted = cluster_part(cluster)
    for folder, key in named:
        if key is None or (wanted and key.cluster not in ("", wanted)):
            continue
        try:
            at = (folder / JSON_REPORT).stat().st_mtime
        except OSError:
            continue
        try:
            refuse_planted(folder)
        except OSError as error:
            problems.append(f"{folder}: {error.strerror}")
        else:
            files.append((at, folder / JSON_REPORT))
    files.sort(reverse=True)
    found: list[Entry] = []
    for at, path in files:
        if len(found) + len(problems) >= limit:
            break
        before = known.get(str(path.parent))
        if before is not None and before.written_s == at:
            found.append(before)
            continue
        try:
            with readable(path).open("rb") as stream:
                entry = _entry(path, at, json.loads(stream.read(_LARGEST_BYTES)))
            if not wanted or entry.cluster in ("", wanted):
                found.append(entry)
        except PermissionError:
            continue  # of somebody else's job
        except (OSError, ValueError, RecursionError) as error:
            problems.append(f"{path}: {error}")
    return tuple(found), tuple(problems)


def readable(path: Path) -> Path:
    """Return the report, or the copy of it that belongs to a caller who may not read it."""
    if os.access(path, os.R_OK):
        return path
    return own_copy(path.parent, path.name) or path


def _entry(path: Path, at: float, said: Any) -> Entry:
    """Return one entry.

    Raises
    ------
    ValueError
        It is no report.
    """
    if not isinstance(said, dict) or "root_cause" not in said:
        raise ValueError("no report of opsk")
    root, job = _table(said["root_cause"]), _table(said.get("job"))
    key = JobKey.of_file_name(path.parent.name) or JobKey(job=path.parent.name)
    sure = root.get("confidence")
    return Entry(
        job=str(job.get("job_id") or key.job)[:40], written_s=at, state=str(said.get("state", ""))[:40],
        user=str(job.get("user", ""))[:64], root_class=str(root.get("class", ""))[:40],
        what=str(root.get("what", ""))[:400], where=str(root.get("where", ""))[:200],
        confidence=float(sure) if isinstance(sure, int | float) else None, folder=str(path.parent),
        cluster=key.cluster or cluster_part(str(job.get("cluster", ""))[:255]),
    )  # fmt: skip


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
