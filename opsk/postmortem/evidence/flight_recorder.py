"""In which collective was each rank, by PyTorch's flight recorder? Its dumps are read by a process of their own.

A dump is a pickle that the job wrote: nothing of it is ever unpickled here. The other process (`recorder_child`) makes
plain values only, in limited memory and time, and answers JSON; whatever it says is text of the job all the same.
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

from opsk.postmortem.values import FailureClass, Origin, Place, Role, Sign
from opsk.units import MIB

DEADLINE_S = 45.0
MOST_DUMPS = 4096
_MOST_ANSWER_BYTES = 4 * MIB
_RANK = re.compile(r"(\d{1,7})(?:\.(?:json|pkl|pickle|bin))?$")
_LEFT = re.compile(r"(?:nccl_trace_rank_|comm_lib_trace_rank_)\d{1,7}(?:\.json)?")
"""TORCH_NCCL_DEBUG_INFO_TEMP_FILE as it is where nobody sets it; it was renamed in PyTorch 2.8."""
MOST_LEFT = 64
_CHILD = Path(__file__).with_name("recorder_child.py")
_MOST_SIGNS_A_RANK = 4
_SIDE_BY_SIDE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """What one dump says; ``problem`` is why it says nothing."""

    path: Path
    rank: int | None = None
    groups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    stuck: tuple[Mapping[str, Any], ...] = ()
    problem: str = ""


def recorder_files(places: Sequence[Path]) -> tuple[Path, ...]:
    """Return the dumps in some folders, and files that are named themselves; only names that end in a rank."""
    found: dict[Path, None] = {}
    for place in places:
        if place.is_dir():
            entries = sorted(place.iterdir())[: 4 * MOST_DUMPS]
            found.update(dict.fromkeys(entry for entry in entries if _RANK.search(entry.name) and _is_file(entry)))
        else:
            found[place] = None
    return tuple(found)[:MOST_DUMPS]


def read_dump(path: Path, *, owner: int | None = None, deadline_s: float = DEADLINE_S) -> Dump:
    """Read one dump in a process of its own; what is wrong with it is told, never raised.

    Parameters
    ----------
    owner
        Whose file it must be when it is open: a user may exchange folders after their files were looked at.
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
    if done.returncode != 0 or len(done.stdout) > _MOST_ANSWER_BYTES:
        return Dump(path=path, problem=f"{path}: its reader ended with status {done.returncode}")
    return _dump_of(path, done.stdout)


def _dump_of(path: Path, answer: bytes) -> Dump:
    """Return what the reader answered, checked once more."""
    try:
        said = json.loads(answer)
    except ValueError:
        return Dump(path=path, problem=f"{path}: its reader answered what is no JSON")
    if "problem" in said:
        return Dump(path=path, problem=f"{path}: no dump of the flight recorder: {said['problem']}")
    named = _RANK.search(path.name)
    rank = said["rank"] if isinstance(said.get("rank"), int) else int(named[1]) if named else None
    return Dump(path=path, rank=rank, groups=said["groups"], stuck=tuple(said["stuck"]))


def read_dumps(paths: Sequence[Path], *, owner: int | None = None) -> tuple[Dump, ...]:
    """Read dumps, some side by side; with an owner, only files of that user."""
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        return tuple(pool.map(partial(read_dump, owner=owner), paths))


def read_recorder(places: Sequence[Path]) -> tuple[tuple[Sign, ...], tuple[str, ...], int]:
    """Return signs of all dumps in some places, problems, and how many dumps were read."""
    dumps = read_dumps(recorder_files(places))
    good = [dump for dump in dumps if not dump.problem]
    return signs_of(good), tuple(dump.problem for dump in dumps if dump.problem), len(good)


def left_dumps(folders: Sequence[Path], *, uid: int, from_s: float, until_s: float) -> tuple[Path, ...]:
    """Return dumps that a job left under the names that PyTorch gives them: files of its user and of its time."""
    found: list[Path] = []
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries if _LEFT.fullmatch(entry.name))
        except OSError:
            continue
        for name in names:
            try:
                facts = (folder / name).lstat()
            except OSError:
                continue
            if stat.S_ISREG(facts.st_mode) and facts.st_uid == uid and from_s <= facts.st_mtime <= until_s:
                found.append(folder / name)
    return tuple(found[:MOST_LEFT])


def kept_dump(dump: Dump) -> dict[str, Any]:
    """Return a dump as a node keeps it."""
    return {"path": str(dump.path), "rank": dump.rank, "groups": dump.groups, "stuck": dump.stuck}


def dump_of_kept(said: Mapping[str, Any]) -> Dump | None:
    """Return a dump that a node kept; ``None`` where it is none."""
    rank, groups, stuck = said.get("rank"), said.get("groups"), said.get("stuck")
    if not isinstance(rank, int) or not isinstance(groups, dict) or not isinstance(stuck, list):
        return None
    return Dump(
        path=Path(str(said.get("path", ""))[:4096]), rank=rank,
        groups={name: entry for name, entry in groups.items() if isinstance(entry, dict)},
        stuck=tuple(entry for entry in stuck if isinstance(entry, dict)),
    )  # fmt: skip


def signs_of(dumps: Sequence[Dump]) -> tuple[Sign, ...]:
    """Return how far each rank came, in the group in which the ranks parted, and what it was in then."""
    parted = _parted(dumps)
    signs: list[Sign] = []
    for dump in dumps:
        if dump.rank is None:
            continue
        stuck = [entry for entry in dump.stuck if entry.get("group") == parted] or list(dump.stuck)
        stuck.sort(key=lambda entry: entry.get("seq") or 0)
        far = dump.groups.get(parted, {})
        first = stuck[0] if stuck else {}
        rows = stuck[:_MOST_SIGNS_A_RANK] or [first]
        signs += [_sign(dump, entry, far if number == 0 else {}, number) for number, entry in enumerate(rows)]
    return tuple(signs)


def _sign(dump: Dump, entry: Mapping[str, Any], far: Mapping[str, Any], number: int) -> Sign:
    """Return the sign of one entry; the first of a rank says how far it came."""
    said = {
        "rank": dump.rank, "group": entry.get("group", ""), "group_name": entry.get("description", ""),
        "seq": entry.get("seq"), "op": str(entry.get("op", "")).upper(), "state": entry.get("state", ""),
        "shape": entry.get("shape", ""), "frame": entry.get("frame", ""), "enqueued": far.get("enqueued"),
        "completed": far.get("completed"),
    }  # fmt: skip
    created = entry.get("created_ns")
    told = f"{said['op']} number {said['seq']} {said['state']}" if entry else "nothing under way"
    return Sign(
        signature="flight_recorder.entry", role=Role.CONFIRMATION, origin=Origin.FLIGHT_RECORDER,
        failure=FailureClass.COLLECTIVE_HANG if entry else None, place=Place(rank=dump.rank),
        time_s=created / 1e9 if isinstance(created, int) and created > 0 else None, order=number,
        source=str(dump.path), text=f"{told} in group {said['group'] or 'default'}; {said['frame']}"[:400],
        fields={name: str(value) for name, value in said.items() if value not in (None, "")},
    )  # fmt: skip


def _parted(dumps: Sequence[Dump]) -> str:
    """Return the group in which ranks came differently far, else one that is stuck, the largest of them."""
    far: dict[str, list[int]] = defaultdict(list)
    for dump in dumps:
        for name, said in dump.groups.items():
            if isinstance(said.get("completed"), int):
                far[name].append(said["completed"])
    stuck = Counter(str(entry.get("group", "")) for dump in dumps for entry in dump.stuck)
    differing = {name: counts for name, counts in far.items() if len(set(counts)) > 1 and stuck.get(name)}
    if differing:
        return max(differing, key=lambda name: (stuck[name], len(differing[name])))
    if stuck:
        return max(stuck, key=lambda name: stuck[name])
    return max(far, key=lambda name: len(far[name]), default="")


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False
