"""Writes the folder of a search that runs as a Slurm job array: the request, the files that it names, and the script.

``request.toml`` is a plan file with a table ``[search]`` for the options of ``opsk plan``. Files that the request names
are copied into the folder, so that every task reads the same, whatever the node's own settings are.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import click
from click.core import ParameterSource
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from opsk.app.inputs.plan_file import build_input_error, read_tables
from opsk.app.inputs.plan_validation import LIKE, VALUES
from opsk.cli.plan.request import PlanOptions
from opsk.config import load_site
from opsk.errors import InputError
from opsk.frameworks.catalog import FRAMEWORKS
from opsk.planning.search.request import PlanRequest
from opsk.text import escape, to_json_values

REQUEST, SCRIPT = "request.toml", "plan-array.sbatch"
MAX_PARTS = 1000
"""Slurm numbers the tasks of an array up to 1,000 unless a site raises MaxArraySize."""
MAX_SHOWN = 1000
MEMORY_MIB = 2048
"""Twice the need of the largest searches."""
SEARCH = "search"
_COPIES = {"cluster": "cluster.toml", "model": "model.json", "efficiency": "efficiency.toml"}
_EXCLUDED = ("script", "efficiency")
"""Options of the answer, not of the search, and files that are copied."""
_NO_INPUT = frozenset({"sources", "aliases"})
"""Keys that no result depends on, and that contain paths."""
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
class Search:
    """The table ``[search]``: ``options`` that it sets; ``parts`` and ``digest`` are of a job array."""

    options: Mapping[str, Any]
    parts: int | None = None
    digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayJob:
    """A job array: number of tasks, a time limit as for ``--time`` of sbatch, and an optional partition."""

    parts: int
    time_limit: str
    partition: str | None = None


def compute_digest(requests: Sequence[PlanRequest], *, exhaustive: bool, front: bool) -> str:
    """Return the hexadecimal SHA-256 of all inputs that a search depends on, so that two processes can compare them.

    What a framework refuses is identified by the name of its limits; the efficiencies are the same in all requests.
    """
    skipped = ("efficiency", "refuses")
    described = [
        {item.name: getattr(request, item.name) for item in fields(request) if item.name not in skipped}
        for request in requests
    ]
    inputs = [described, [request.efficiency for request in requests[:1]], exhaustive, front]
    return hashlib.sha256(json.dumps(_strip_sources(to_json_values(inputs)), sort_keys=True).encode()).hexdigest()


def _strip_sources(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _strip_sources(entry) for key, entry in value.items() if key not in _NO_INPUT}
    return [_strip_sources(entry) for entry in value] if isinstance(value, list) else value


def write_array(
    folder: Path, job: ArrayJob, tables: Mapping[str, Any], options: PlanOptions, *, digest: str, force: bool
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
    if not force and (folder / REQUEST).exists() and _read_identity(folder) != (job.parts, digest):
        raise InputError(
            escape(f"{folder} holds another search"), hint="name another --array-dir, or write over it with --force"
        )
    _write_request(folder, tables, options, parts=job.parts, digest=digest)
    write_atomically(folder / SCRIPT, _format_script(folder, job).encode())
    return folder / SCRIPT


def _validate(folder: Path, job: ArrayJob) -> None:
    """Refuse values that would change their meaning in a script."""
    wrong = []
    if _NOT_IN_OUTPUT.search(str(folder)):
        wrong.append(
            f"--array-dir {folder}: a script for sbatch can only name folders in ASCII without quotes, \\ or %"
        )
    if not _TIME.fullmatch(job.time_limit):
        wrong.append(f"--time-limit {job.time_limit!r} is not a time: give 30, 2:00:00 or 1-12:00:00")
    if job.partition is not None and not _PARTITION.fullmatch(job.partition):
        wrong.append(f"--partition {job.partition!r} is not the name of a partition")
    if wrong:
        raise InputError(escape("; ".join(wrong)))


def _read_identity(folder: Path) -> tuple[int | None, str | None]:
    """Return parts and digest of the search of a folder; one that cannot be read counts as another search."""
    path = str(folder / REQUEST)
    try:
        search = split_search(read_tables(path), path)[1]
    except InputError:
        search = None
    return (search.parts, search.digest) if search else (None, None)


def _format_script(folder: Path, job: ArrayJob) -> str:
    """Return the text of the script."""
    return _SCRIPT.format(
        last=job.parts - 1,
        parts=job.parts,
        memory=MEMORY_MIB,
        time=job.time_limit,
        folder=folder,
        quoted=shlex.quote(str(folder)),
        partition=f"#SBATCH --partition={job.partition}" if job.partition else "",
        own=shlex.quote(find_command()),
        request=REQUEST,
    )


def find_command() -> str:
    """Return the path of the command opsk that belongs to this interpreter, else the one on PATH; empty if none."""
    sibling = Path(sys.executable).parent / "opsk"
    return str(sibling) if sibling.is_file() else shutil.which("opsk") or ""


def _write_request(folder: Path, tables: Mapping[str, Any], options: PlanOptions, *, parts: int, digest: str) -> None:
    """Write ``request.toml`` and copies of the files that it needs."""
    top = {key: value for key, value in tables.items() if key not in VALUES}
    model = dict(tables.get("model", {}))
    search: dict[str, Any] = {
        item.name: getattr(options, item.name)
        for item in fields(PlanOptions)
        if item.name not in _EXCLUDED and getattr(options, item.name) not in (None, item.default)
    }
    search |= {"parts": parts, "request_sha256": digest}
    top["cluster"] = top.get("cluster") or load_site().cluster
    if isinstance(top["cluster"], str) and (top["cluster"].endswith(".toml") or "/" in top["cluster"]):
        search["cluster"] = _copy(folder, top.pop("cluster"), "cluster")
    if str(model.get(LIKE, "")).endswith(".json"):
        search["model"] = _copy(folder, model.pop(LIKE), "model")
    default = str(files("opsk.costmodel.efficiency").joinpath("efficiency.toml"))
    search["efficiency"] = _copy(
        folder, options.efficiency or load_site().find_efficiency_file() or default, "efficiency"
    )
    written = {"": top, **{name: tables[name] for name in VALUES if name in tables}, "model": model, SEARCH: search}
    write_atomically(folder / REQUEST, _format_toml(written).encode())


def _copy(folder: Path, path: str | Path, kind: str) -> str:
    """Copy a file into the folder and return its name there."""
    try:
        write_atomically(folder / _COPIES[kind], Path(path).read_bytes())
    except OSError as error:
        raise InputError(escape(f"{path}: {error.strerror}")) from error
    return _COPIES[kind]


def _format_toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Return tables of plain values as TOML, exactly; the keys of the table without a name come first."""
    blocks = [
        "\n".join([*([f"[{name}]"] if name else []), *(f"{key} = {_format_value(table[key])}" for key in table)])
        for name, table in tables.items()
        if table
    ]
    return "# Written by opsk plan --array; every task reads it.\n" + "\n\n".join(blocks) + "\n"


def _format_value(value: Any) -> str:
    """Return one value; JSON strings are valid TOML, except for one character."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_format_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def write_atomically(path: Path, data: bytes) -> None:
    """Write a whole file or nothing.

    Raises
    ------
    InputError
        It cannot be written.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            umask = os.umask(0)
            os.umask(umask)
            Path(name).chmod(0o666 & ~umask)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(
            escape(f"{path}: {error.strerror}"),
            hint="name a folder that can be written, on all nodes the same",
        ) from error


def split_search(tables: dict[str, Any], plan_file: str | None) -> tuple[dict[str, Any], Search | None]:
    """Return the tables without ``[search]``, and that table; the files that it names are resolved.

    Raises
    ------
    InputError
        Names the plan file and the violations in the table.
    """
    if SEARCH not in tables or plan_file is None:
        return tables, None
    remaining = {key: value for key, value in tables.items() if key != SEARCH}
    try:
        stated = _SearchTable.model_validate(tables[SEARCH]).model_dump(exclude_none=True)
    except ValidationError as error:
        wrong = [
            ".".join(map(str, (SEARCH, *item["loc"]))) + f": {item['msg']}" for item in error.errors(include_url=False)
        ]
        raise build_input_error(plan_file, wrong) from error
    folder = Path(plan_file).parent
    if "cluster" in stated:
        remaining.setdefault("cluster", str(folder / stated.pop("cluster")))
    if "model" in stated and isinstance(remaining.setdefault("model", {}), dict):
        remaining["model"].setdefault(LIKE, str(folder / stated.pop("model")))
    if "efficiency" in stated:
        stated["efficiency"] = str(folder / stated["efficiency"])
    if "framework" in stated and stated["framework"] not in FRAMEWORKS:
        raise build_input_error(
            plan_file, [f"{SEARCH}.framework: {stated['framework'][:40]!r} is none of {', '.join(FRAMEWORKS)}"]
        )
    names = {item.name for item in fields(PlanOptions)}
    return remaining, Search(
        options={name: value for name, value in stated.items() if name in names},
        parts=stated.get("parts"),
        digest=stated.get("request_sha256"),
    )


def apply_stated(options: PlanOptions, search: Search | None) -> PlanOptions:
    """Return the options, those of ``[search]`` in place of options without a flag on the command line."""
    if search is None:
        return options
    context = click.get_current_context()
    overrides = {
        name: value
        for name, value in search.options.items()
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE
    }
    return replace(options, **overrides)


def _build_table_model() -> type[BaseModel]:
    """Return the pydantic model of ``[search]``; every key is optional."""
    columns: dict[str, Any] = {
        name: (kind | None, None) for name, kind in get_type_hints(PlanOptions).items() if name not in _EXCLUDED
    }
    columns |= dict.fromkeys((*_COPIES, "request_sha256", "efficiency_sha256"), (str | None, None))
    columns["parts"] = (Annotated[int, Field(ge=1, le=MAX_PARTS)] | None, None)
    columns["most"] = (Annotated[int, Field(ge=1, le=MAX_SHOWN)] | None, None)
    return create_model("table_search", __config__=ConfigDict(extra="forbid", strict=True), **columns)


_SearchTable = _build_table_model()
