"""Reads the job files that the prolog ``deploy/slurm/opsk-prolog`` writes, and resolves the paths of a job's output.

The prolog writes a file under a hidden name and renames it when it is complete. A file without its last line, or one
that still has its hidden name, was written by a prolog that was killed: it is counted and not used. Values come from
users and are treated as plain text.

Slurm passes the pattern of an output as the user wrote it, ``run-%j.out``, and in most releases nothing where it is the
default (tried on 22.05, 24.11 and 26.05): both are expanded here as slurmstepd does. A path that is a guess counts only
if the file exists; ``%b`` is always a guess, since 22.05 does not know it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opsk.job_key import JobKey
from opsk.units import KIB

_HEAD, _END = "opsk-job 1", "whole"
_CLUSTER = r"(?:[0-9A-Za-z_-]{1,40}\.)?"
"""Files of opsk 0.1 have no cluster."""
_NAME = re.compile(_CLUSTER + r"(\d{1,12})(?:\.(s[0-9A-Za-z]{1,20}))?")
_NUMBER = re.compile(r"[0-9]{1,12}")
_HALF_MADE = re.compile(rf"\.{_CLUSTER}\d+\.\d+")
_MAX_BYTES = 64 * KIB
_MAX_FILES = 4096
_YOUNG_S = 10.0
"""A hidden file younger than this is being written."""
_SYMBOL = re.compile(r"%(\d{0,2})([a-zA-Z%])")
_NO_TASK = 4294967294
"""What Slurm writes for the place in an array of a job that is in none."""
_TASKLESS, _OF_ARRAYS = "slurm-%j.out", "slurm-%A_%a.out"
_WHOLE_PATH = re.compile(r"[^\0]{1,4096}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """What Slurm passed to the prolog for one run of a job on this node; ``None`` is what this release does not pass.

    Parameters
    ----------
    job_id, sluid, het_job
        Slurm's number of the job (of the component, of the task of an array), the SLUID of this run (25.11 and newer),
        and the number of the heterogeneous job.
    node, cluster
        As Slurm calls them.
    restarts
        How often the job was requeued before.
    start_unix_s, end_unix_s
        When it started, and when its time limit ends, as was known at the start [s since 1970].
    gpus
        Slurm's numbers of its GPUs on this node: places in the order of its GRES, not NVML's.
    devices
        ``CUDA_VISIBLE_DEVICES`` of the prolog: UUIDs of MIG instances (of GPUs, if gres.conf has those), or ``gpus``.
    conf
        Path of slurm.conf; gres.conf is in the same folder.
    work_dir, stdout, stderr
        Paths as Slurm gave them; the user chose them.
    written_unix_s
        When the file was written [s since 1970].
    """

    job_id: str
    sluid: str | None = None
    het_job: str | None = None
    node: str | None = None
    cluster: str | None = None
    uid: int | None = None
    user: str | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    name: str | None = None
    restarts: int | None = None
    start_unix_s: float | None = None
    end_unix_s: float | None = None
    gpus: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()
    conf: str | None = None
    work_dir: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    written_unix_s: float

    @property
    def key(self) -> JobKey:
        """Which job it is."""
        return JobKey(cluster=self.cluster or "", job=self.job_id)

    @property
    def run(self) -> str:
        """Key of this run of the job: its SLUID, or cluster, number and when it began."""
        return self.sluid or f"{self.key.file_name}@{int(self.start_unix_s or self.written_unix_s)}"

    @property
    def age_rank(self) -> tuple[float, int, float, str]:
        """Sort key of the runs of one job, the newest last: Slurm's values, then the file's; SLUIDs sort by time."""
        began = self.start_unix_s or self.written_unix_s
        return (began, self.restarts or 0, self.written_unix_s, self.sluid or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFiles:
    """All files of the folder: those that are whole, and how many were not or could not be read.

    ``present`` is whether there is such a folder at all.
    """

    present: bool
    files: tuple[JobFile, ...] = ()
    torn: int = 0
    unreadable: int = 0


def read_job_files(folder: Path, now_unix_s: float) -> JobFiles:
    """Read the folder that the prolog writes to."""
    try:
        paths = sorted(folder.iterdir())[:_MAX_FILES]
    except OSError:
        return JobFiles(present=False)
    files: list[JobFile] = []
    torn = unreadable = 0
    for path in paths:
        name = path.name
        half_made = _HALF_MADE.fullmatch(name) is not None
        if not half_made and not _NAME.fullmatch(name):
            continue
        try:
            text, written = _read(path)
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            unreadable += 1
            continue
        job_file = None if half_made else parse_job_file(text, written)
        if job_file is not None:
            files.append(job_file)
        elif not half_made or now_unix_s - written > _YOUNG_S:
            torn += 1
    return JobFiles(present=True, files=tuple(files), torn=torn, unreadable=unreadable)


def parse_job_file(text: str, written_unix_s: float) -> JobFile | None:
    """Read one file; ``None`` when it is torn or not an opsk file."""
    # Not splitlines(): it takes characters for line ends that the prolog leaves in what a user chose.
    lines = text.split("\n")
    if len(lines) < 4 or lines[0] != _HEAD or lines[-2:] != [_END, ""]:
        return None
    values: dict[str, str] = {}
    for line in lines[1:-2]:
        name, sign, value = line.partition("=")
        if sign and value:
            values.setdefault(name, value)
    job_id = values.get("job", "")
    if not _NUMBER.fullmatch(job_id):
        return None
    return JobFile(
        job_id=job_id,
        sluid=values.get("sluid"),
        het_job=values["het_job"] if _NUMBER.fullmatch(values.get("het_job", "")) else None,
        node=values.get("node"),
        cluster=values.get("cluster"),
        uid=_parse_int(values, "uid"),
        user=values.get("user"),
        account=values.get("account"),
        partition=values.get("partition"),
        qos=values.get("qos"),
        name=values.get("name"),
        restarts=_parse_int(values, "restarts"),
        start_unix_s=_parse_int(values, "start"),
        end_unix_s=_parse_int(values, "end"),
        gpus=parse_gpu_numbers(values.get("gpus", "")),
        devices=tuple(word for word in values.get("devices", "").split(",") if word),
        conf=values.get("conf"),
        work_dir=values.get("work_dir"),
        stdout=values.get("stdout"),
        stderr=values.get("stderr"),
        written_unix_s=written_unix_s,
    )


def parse_gpu_numbers(text: str) -> tuple[int, ...]:
    """Read Slurm's list of GPUs, ``0,2`` or ``0-3,6``; what is neither is left out."""
    numbers: dict[int, None] = {}
    for part in text.split(","):
        first, sign, last = part.partition("-")
        if len(part) < 12 and first.isdecimal() and (not sign or last.isdecimal()):
            numbers.update(dict.fromkeys(range(int(first), min(int(last or first), int(first) + 1023) + 1)))
    return tuple(numbers)


def _parse_int(values: Mapping[str, str], name: str) -> int | None:
    """Return a whole number; ``None`` where it is none, or 0 for a time that Slurm has not set."""
    text = values.get(name, "")
    if not text.isdecimal() or len(text) > 12 or (name in ("start", "end") and int(text) == 0):
        return None
    return int(text)


def _read(path: Path) -> tuple[str, float]:
    """Read a small regular file, never through a link; return its text and when it was written."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
            raise ValueError("no small regular file")
        return os.read(handle, _MAX_BYTES).decode("utf-8", "replace"), status.st_mtime
    finally:
        os.close(handle)


def resolve_log_paths(file: JobFile, job: str, name: str | None = None) -> tuple[Path, ...]:
    """Return where the batch script of a job writes, standard output first; empty where that is unknown.

    Parameters
    ----------
    file
        What the prolog wrote down.
    job
        The job as it is shown: ``10_3`` is task 3 of an array; ``13`` may be one too.
    name
        Its name, where Slurm does not pass it to the prolog.
    """
    array, _, task = job.partition("_")
    known = bool(task) and array.isdecimal() and task.isdecimal()
    words = _build_substitutions(file, (int(array), int(task)) if known else None, name)
    patterns = [file.stdout or (_OF_ARRAYS if known else _TASKLESS), *([file.stderr] if file.stderr else [])]
    paths: dict[Path, None] = {}
    for pattern in patterns:
        path = _expand_pattern(pattern, words, file.work_dir)
        doubtful = "b" if known else "Aab"
        is_guess = not file.stdout or any(symbol[2] in doubtful for symbol in _SYMBOL.finditer(pattern))
        if path is not None and path != Path("/dev/null") and (not is_guess or _exists(path)):
            paths[path] = None
    return tuple(paths)


def _build_substitutions(file: JobFile, task: tuple[int, int] | None, name: str | None) -> Mapping[str, str | None]:
    """Return the value of each symbol of a pattern in the batch script's step; ``None`` where it is unknown."""
    array, place = task or (int(file.job_id), _NO_TASK)
    return {
        "%": "%",
        "A": str(array),
        "a": str(place),
        "b": str(place % 10),
        "j": file.job_id,
        "J": file.job_id,
        "N": file.node.partition(".")[0] if file.node else None,
        "n": "0",
        "s": "batch",
        "t": "0",
        "u": file.user,
        "x": file.name or name,
    }


def _expand_pattern(pattern: str, words: Mapping[str, str | None], work_dir: str | None) -> Path | None:
    """Return the path that a pattern stands for; ``None`` where that is not known."""
    parts, end = [], 0
    for symbol in _SYMBOL.finditer(pattern):
        word = words.get(symbol[2])
        if word is None:
            return None
        parts += [pattern[end : symbol.start()], word.zfill(int(symbol[1] or 0)) if word.isdecimal() else word]
        end = symbol.end()
    expanded = "".join((*parts, pattern[end:]))
    # A backslash anywhere switches symbols off, and goes away itself in some releases.
    if "\\" in pattern or not _WHOLE_PATH.fullmatch(expanded):
        return None
    if not expanded.startswith("/") and not (work_dir or "").startswith("/"):
        return None
    return Path(work_dir or "/") / expanded


def _exists(path: Path) -> bool:
    """Return whether the path exists, as a link too."""
    try:
        path.lstat()
    except (OSError, ValueError):
        return False
    return True
