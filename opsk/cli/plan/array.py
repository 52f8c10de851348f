"""Writes and submits a search as a Slurm job array."""

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
from opsk.cli.plan.array_folder import REQUEST, SCRIPT, Search, split_search, write_atomically, write_request
from opsk.cli.plan.digest import Digests
from opsk.cli.plan.request import PlanOptions
from opsk.errors import InputError
from opsk.slurm.commands.submission import submit
from opsk.text import escape

MEMORY_MIB = 2048
"""Twice the need of the largest searches."""
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
    """A job array: number of tasks, a time limit as for ``--time`` of sbatch, and an optional partition."""

    parts: int
    time_limit: str
    partition: str | None = None


def write_array(
    folder: Path, job: ArrayJob, tables: Mapping[str, Any], options: PlanOptions, *, digests: Digests, force: bool
) -> Path:
    """Write the folder of a job array and return its script.

    Raises
    ------
    InputError
        The folder has another search, cannot be written or not be named in a script; or the job is invalid.
    """
    folder = folder.absolute()
    _validate(folder, job)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(escape(f"{folder}: {error.strerror}"), hint="name another --array-dir") from error
    if (
        not force
        and (known := _read_search(folder)) is not None
        and (known.parts, known.digests) != (job.parts, digests)
    ):
        raise InputError(
            escape(f"{folder} holds another search, in {known.parts or 'no'} parts"),
            hint="name another --array-dir, or write over it with --force",
        )
    write_request(folder, tables, options, parts=job.parts, digests=digests)
    write_atomically(folder / SCRIPT, format_script(folder, job, own=find_command()).encode())
    return folder / SCRIPT


def choose_folder(digests: Digests) -> Path:
    """Return the default folder of a search."""
    return Path(f"opsk-plan-{digests.request[:8]}")


def format_script(folder: Path, job: ArrayJob, *, own: str) -> str:
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


def find_command() -> str:
    """Return the path of the command opsk that belongs to this interpreter, else the one on PATH; empty if none."""
    sibling = Path(sys.executable).parent / "opsk"
    return str(sibling) if sibling.is_file() else shutil.which("opsk") or ""


def submit_script(script: Path) -> tuple[str, str]:
    """Submit the script and return the job number and Slurm's messages."""
    taken = submit(script)
    return taken.job_id, taken.said


def _validate(folder: Path, job: ArrayJob) -> None:
    """Refuse values that would change their meaning in a script."""
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


def _read_search(folder: Path) -> Search | None:
    """Return the search of a folder; one that cannot be read counts as another search."""
    path = folder / REQUEST
    if not path.exists():
        return None
    try:
        return split_search(read_tables(str(path)), str(path))[1] or Search(options={})
    except InputError:
        return Search(options={})
