"""Reads dumps of PyTorch's flight recorder to find the collective that each rank was in.

A dump is a pickle that the job wrote: nothing of it is ever unpickled in this process. A separate process
(`recorder_child`) makes plain values only, in limited memory and time, and answers JSON, which is still treated as text
of the job.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from opsk.postmortem.values import FailureClass, Finding, Origin, Place, Role
from opsk.units import MIB

DEADLINE_S = 45.0
MAX_DUMPS = 4096
_MAX_ANSWER_BYTES = 4 * MIB
_RANK = re.compile(r"(\d{1,7})(?:\.(?:json|pkl|pickle|bin))?$")
_DEFAULT_NAME = re.compile(r"(?:nccl_trace_rank_|comm_lib_trace_rank_)\d{1,7}(?:\.json)?")
"""The default of TORCH_NCCL_DEBUG_INFO_TEMP_FILE; it was renamed in PyTorch 2.8."""
MAX_DEFAULT_DUMPS = 64
_CHILD = Path(__file__).with_name("recorder_child.py")
_MAX_FINDINGS_PER_RANK = 4
_PARALLEL_READERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """The content of one dump; ``problem`` is why there is none."""

    path: Path
    rank: int | None = None
    groups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    stuck: tuple[Mapping[str, Any], ...] = ()
    problem: str = ""


def find_recorder_files(places: Sequence[Path]) -> tuple[Path, ...]:
    """Return the dumps in some folders, and files that are named themselves; only names that end in a rank."""
    files: dict[Path, None] = {}
    for place in places:
        if place.is_dir():
            entries = sorted(place.iterdir())[: 4 * MAX_DUMPS]
            files.update(dict.fromkeys(entry for entry in entries if _RANK.search(entry.name) and _is_file(entry)))
        else:
            files[place] = None
    return tuple(files)[:MAX_DUMPS]


def read_dump(path: Path, *, owner: int | None = None, deadline_s: float = DEADLINE_S) -> Dump:
    """Read one dump in a process of its own; problems are returned, never raised.

    Parameters
    ----------
    owner
        Required owner of the open file: a user may exchange folders after their files were checked.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return Dump(path=path, problem=f"{path}: {error.strerror}")
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            return Dump(path=path, problem=f"{path}: no regular file")
        if owner is not None and facts.st_uid != owner:
            return Dump(path=path, problem=f"{path}: not the file of the job's user")
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-B", str(_CHILD)], stdin=handle, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, timeout=deadline_s, env={"PATH": os.defpath}, cwd="/", check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Dump(path=path, problem=f"{path}: not read within {deadline_s:g} s")
    except OSError as error:
        return Dump(path=path, problem=f"{path}: {error.strerror}")
    finally:
        os.close(handle)
    if done.returncode != 0 or len(done.stdout) > _MAX_ANSWER_BYTES:
        return Dump(path=path, problem=f"{path}: its reader ended with status {done.returncode}")
    return _parse_answer(path, done.stdout)


def _parse_answer(path: Path, answer: bytes) -> Dump:
    """Return the reader's answer, validated once more."""
    try:
        document = json.loads(answer)
    except ValueError:
        return Dump(path=path, problem=f"{path}: its reader answered what is no JSON")
    if "problem" in document:
        return Dump(path=path, problem=f"{path}: no dump of the flight recorder: {document['problem']}")
    named = _RANK.search(path.name)
    rank = document["rank"] if isinstance(document.get("rank"), int) else int(named[1]) if named else None
    return Dump(path=path, rank=rank, groups=document["groups"], stuck=tuple(document["stuck"]))


def read_dumps(paths: Sequence[Path], *, owner: int | None = None) -> tuple[Dump, ...]:
    """Read dumps, some side by side; with an owner, only files of that user."""
    with ThreadPoolExecutor(_PARALLEL_READERS) as pool:
        return tuple(pool.map(partial(read_dump, owner=owner), paths))


def find_default_dumps(folders: Sequence[Path], *, uid: int, from_s: float, until_s: float) -> tuple[Path, ...]:
    """Return dumps that a job left under the names that PyTorch gives them: files of its user and of its time."""
    dumps: list[Path] = []
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries if _DEFAULT_NAME.fullmatch(entry.name))
        except OSError:
            continue
        for name in names:
            try:
                facts = (folder / name).lstat()
            except OSError:
                continue
            if stat.S_ISREG(facts.st_mode) and facts.st_uid == uid and from_s <= facts.st_mtime <= until_s:
                dumps.append(folder / name)
    return tuple(dumps[:MAX_DEFAULT_DUMPS])


def dump_to_json(dump: Dump) -> dict[str, Any]:
    """Convert a dump to JSON values for a node's evidence."""
    return {"path": str(dump.path), "rank": dump.rank, "groups": dump.groups, "stuck": dump.stuck}


def dump_from_json(document: Mapping[str, Any]) -> Dump | None:
    """Return the dump of a node's evidence; ``None`` where it is invalid."""
    rank, groups, stuck = document.get("rank"), document.get("groups"), document.get("stuck")
    if not isinstance(rank, int) or not isinstance(groups, dict) or not isinstance(stuck, list):
        return None
    return Dump(
        path=Path(str(document.get("path", ""))[:4096]), rank=rank,
        groups={name: entry for name, entry in groups.items() if isinstance(entry, dict)},
        stuck=tuple(entry for entry in stuck if isinstance(entry, dict)),
    )  # fmt: skip


def build_findings(dumps: Sequence[Dump]) -> tuple[Finding, ...]:
    """Return how far each rank came in the group in which the ranks diverged, and what it was in then."""
    divergent = _find_divergent_group(dumps)
    findings: list[Finding] = []
    for dump in dumps:
        if dump.rank is None:
            continue
        stuck = [entry for entry in dump.stuck if entry.get("group") == divergent] or list(dump.stuck)
        stuck.sort(key=lambda entry: entry.get("seq") or 0)
        progress = dump.groups.get(divergent, {})
        first = stuck[0] if stuck else {}
        rows = stuck[:_MAX_FINDINGS_PER_RANK] or [first]
        findings += [
            _build_finding(dump, entry, progress if number == 0 else {}, number) for number, entry in enumerate(rows)
        ]
    return tuple(findings)


def _build_finding(dump: Dump, entry: Mapping[str, Any], progress: Mapping[str, Any], number: int) -> Finding:
    """Return the finding of one entry; the first of a rank has the rank's progress."""
    fields = {
        "rank": dump.rank, "group": entry.get("group", ""), "group_name": entry.get("description", ""),
        "seq": entry.get("seq"), "op": str(entry.get("op", "")).upper(), "state": entry.get("state", ""),
        "shape": entry.get("shape", ""), "frame": entry.get("frame", ""), "enqueued": progress.get("enqueued"),
        "completed": progress.get("completed"),
    }  # fmt: skip
    created = entry.get("created_ns")
    operation = f"{fields['op']} number {fields['seq']} {fields['state']}" if entry else "nothing under way"
    return Finding(
        signature="flight_recorder.entry", role=Role.CONFIRMATION, origin=Origin.FLIGHT_RECORDER,
        failure=FailureClass.COLLECTIVE_HANG if entry else None, place=Place(rank=dump.rank),
        time_s=created / 1e9 if isinstance(created, int) and created > 0 else None, order=number,
        source=str(dump.path), text=f"{operation} in group {fields['group'] or 'default'}; {fields['frame']}"[:400],
        fields={name: str(value) for name, value in fields.items() if value not in (None, "")},
    )  # fmt: skip


def _find_divergent_group(dumps: Sequence[Dump]) -> str:
    """Return the group in which ranks came differently far, else the largest one that is stuck."""
    completed: dict[str, list[int]] = defaultdict(list)
    for dump in dumps:
        for name, group in dump.groups.items():
            if isinstance(group.get("completed"), int):
                completed[name].append(group["completed"])
    stuck = Counter(str(entry.get("group", "")) for dump in dumps for entry in dump.stuck)
    differing = {name: counts for name, counts in completed.items() if len(set(counts)) > 1 and stuck.get(name)}
    if differing:
        return max(differing, key=lambda name: (stuck[name], len(differing[name])))
    if stuck:
        return max(stuck, key=lambda name: stuck[name])
    return max(completed, key=lambda name: len(completed[name]), default="")


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False
