"""How does a search become a job array of Slurm: which script, with which opsk, and is it submitted?"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsk.app.inputs.plan_file import read_tables
from opsk.cli.plan.digest import Digests
from opsk.cli.plan.folder import REQUEST, SCRIPT, Search, taken_search, write_atomically, write_request
from opsk.cli.plan.request import Wishes
from opsk.errors import InputError
from opsk.slurm.commands.submission import submit
from opsk.text import escape

MEMORY_MIB = 2048
"""Twice what the largest searches need."""
_TIME = re.compile(r"[0-9]+([:-][0-9]+){0,3}|UNLIMITED|INFINITE", re.IGNORECASE)
_PARTITION = re.compile(r"[\w.,-]+")
_NOT_IN_OUTPUT = re.compile(r'["\\%]|[^\x20-\x7e]')
_SCRIPT = """#!/bin/bash
#SBATCH --job-name=opsk-plan
#SBATCH --array=0-{last}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --mem={memory}M
#SBATCH --time={time}
#SBATCH --requeue
#SBATCH --output="{folder}/part-%a.log"
{partition}
# A search for the best plan in {parts} parts, written by opsk plan --array; when all have ended:
#     opsk plan --merge {quoted}
# A part that is done is not searched again: what failed can be submitted once more, as it is.
# Which opsk runs: OPSK_COMMAND, else that of the module OPSK_MODULE, else the one that wrote this, else PATH's.
# Both may be set here, or where the job is submitted.
folder={quoted}
command=${{OPSK_COMMAND:-}}
if [ -z "$command" ] && [ -n "${{OPSK_MODULE:-}}" ]; then
    type module > /dev/null 2>&1 || . "${{MODULESHOME:-/usr/share/modules}}/init/bash"
    module load "$OPSK_MODULE" && command=$(type -P opsk)
    if [ -z "$command" ]; then
        echo "opsk: module load $OPSK_MODULE brings no opsk on $(uname -n): set OPSK_COMMAND to its path" >&2
        exit 3
    fi
fi
for found in "$command" {own} "$(type -P opsk)"; do
    [ -n "$command" ] || [ ! -x "$found" ] || command=$found
done
if ! type -P "$command" > /dev/null; then
    echo "opsk: no command ${{command:-opsk}} on $(uname -n): set OPSK_COMMAND to its path there, or OPSK_MODULE" >&2
    exit 3
fi
if [ ! -r "$folder/{request}" ]; then
    echo "opsk: $(uname -n) does not see $folder/{request}: give --array-dir a folder that all nodes share" >&2
    exit 2
fi
part=$SLURM_ARRAY_TASK_ID
exec "$command" plan "$folder/{request}" --part "$part/{parts}" --output "$folder/part-$part.json"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayJob:
    """What is asked of Slurm: so many tasks, a time limit as ``--time`` of sbatch takes it, a partition if any."""

    parts: int
    time_limit: str
    partition: str | None = None


def write_array(
    folder: Path, job: ArrayJob, tables: Mapping[str, Any], wishes: Wishes, *, digests: Digests, force: bool
) -> Path:
    """Write the folder of a job array and return its script.

    Raises
    ------
    InputError
        The folder holds another search, cannot be written or not be named in a script; or the job cannot be.
    """
    folder = folder.absolute()
    _check(folder, job)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(escape(f"{folder}: {error.strerror}"), hint="name another --array-dir") from error
    if not force and (known := _search_in(folder)) is not None and (known.parts, known.digests) != (job.parts, digests):
        raise InputError(
            escape(f"{folder} holds another search, in {known.parts or 'no'} parts"),
            hint="name another --array-dir, or write over it with --force",
        )
    write_request(folder, tables, wishes, parts=job.parts, digests=digests)
    write_atomically(folder / SCRIPT, script_of(folder, job, own=own_command()).encode())
    return folder / SCRIPT


def default_folder(digests: Digests) -> Path:
    """Return the folder of a search that names none."""
    return Path(f"opsk-plan-{digests.request[:8]}")


def script_of(folder: Path, job: ArrayJob, *, own: str) -> str:
    """Return the text of the script; ``own`` is the opsk that the submitting user runs."""
    return _SCRIPT.format(
        last=job.parts - 1,
        parts=job.parts,
        memory=MEMORY_MIB,
        time=job.time_limit,
        folder=folder,
        quoted=shlex.quote(str(folder)),
        partition=f"#SBATCH --partition={job.partition}" if job.partition else "",
        own=shlex.quote(own),
        request=REQUEST,
    )


def own_command() -> str:
    """Return the path of the command opsk that belongs to this interpreter, else the one on PATH; empty if none."""
    beside = Path(sys.executable).parent / "opsk"
    return str(beside) if beside.is_file() else shutil.which("opsk") or ""


def submitted(script: Path) -> tuple[str, str]:
    """Submit the script and return the number of the job, and what Slurm said beside it."""
    taken = submit(script)
    return taken.job_id, taken.said


def _check(folder: Path, job: ArrayJob) -> None:
    """Refuse what would be something else in a script."""
    wrong = []
    if _NOT_IN_OUTPUT.search(str(folder)):
        wrong.append(
            f"--array-dir {folder}: a script for sbatch can only name folders in ASCII without quotes, \\ or %"
        )
    if not _TIME.fullmatch(job.time_limit):
        wrong.append(f"--time-limit {job.time_limit!r} is no time: give 30, 2:00:00 or 1-12:00:00")
    if job.partition is not None and not _PARTITION.fullmatch(job.partition):
        wrong.append(f"--partition {job.partition!r} is no name of a partition")
    if wrong:
        raise InputError(escape("; ".join(wrong)))


def _search_in(folder: Path) -> Search | None:
    """Return the search that a folder holds; one that cannot be read is some other search."""
    path = folder / REQUEST
    if not path.exists():
        return None
    try:
        return taken_search(read_tables(str(path)), str(path))[1] or Search(wishes={})
    except InputError:
        return Search(wishes={})
