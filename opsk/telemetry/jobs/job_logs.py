"""Resolves the output paths of a batch job from what Slurm passes to the prolog.

Slurm passes the pattern as the user wrote it, ``run-%j.out``, and in most releases nothing where it is the default
(tried on 22.05, 24.11 and 26.05): both are expanded here as slurmstepd does. A path that is a guess counts only if the
file exists; ``%b`` is always a guess, since 22.05 does not know it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from opsk.telemetry.jobs.job_files import JobFile

_SYMBOL = re.compile(r"%(\d{0,2})([a-zA-Z%])")
_NO_TASK = 4294967294
"""What Slurm writes for the place in an array of a job that is in none."""
_TASKLESS, _OF_ARRAYS = "slurm-%j.out", "slurm-%A_%a.out"
_WHOLE_PATH = re.compile(r"[^\0]{1,4096}")


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
