"""Reads and writes the folder of a search that runs as a job array: the request, and one file per part.

``request.toml`` is a plan file with a table ``[search]`` for the options of ``opsk plan``. Files that the request names
are copied into the folder, so that every task reads the same, whatever the node's own settings are.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import click
from click.core import ParameterSource
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from opsk.app.inputs.plan_file import build_input_error
from opsk.app.inputs.plan_validation import LIKE, VALUES
from opsk.cli.plan.digest import Digests
from opsk.cli.plan.request import PlanOptions
from opsk.config import load_site
from opsk.errors import InputError
from opsk.frameworks.catalog import FRAMEWORKS
from opsk.text import escape

REQUEST, SCRIPT = "request.toml", "plan-array.sbatch"
MAX_PARTS = 1000
"""Slurm numbers the tasks of an array up to 1,000 unless a site raises MaxArraySize."""
MAX_SHOWN = 1000
SEARCH = "search"
_COPIES = {"cluster": "cluster.toml", "model": "model.json", "efficiency": "efficiency.toml"}
_EXCLUDED = ("script", "efficiency")
"""Options of the answer, not of the search, and files that are copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The table ``[search]``: ``options`` that it sets; ``parts`` and ``digests`` are of a job array."""

    options: Mapping[str, Any]
    parts: int | None = None
    digests: Digests | None = None


def part_file(folder: Path, number: int) -> Path:
    """Return the path of the result of one part."""
    return folder / f"part-{number}.json"


def write_request(
    folder: Path, tables: Mapping[str, Any], options: PlanOptions, *, parts: int, digests: Digests
) -> None:
    """Write ``request.toml`` and copies of the files that it needs.

    Raises
    ------
    InputError
        Something cannot be written.
    """
    top = {key: value for key, value in tables.items() if key not in VALUES}
    model = dict(tables.get("model", {}))
    search: dict[str, Any] = {
        item.name: getattr(options, item.name)
        for item in fields(PlanOptions)
        if item.name not in _EXCLUDED and getattr(options, item.name) not in (None, item.default)
    }
    search |= {"parts": parts, "request_sha256": digests.request, "efficiency_sha256": digests.efficiency}
    top["cluster"] = top.get("cluster") or load_site().cluster
    if _is_file(top["cluster"]):
        search["cluster"] = _copy(folder, Path(top.pop("cluster")), "cluster")
    if str(model.get(LIKE, "")).endswith(".json"):
        search["model"] = _copy(folder, Path(model.pop(LIKE)), "model")
    efficiency = options.efficiency or load_site().efficiency
    shipped = files("opsk.costmodel.efficiency").joinpath("efficiency.toml").read_bytes()
    write_atomically(folder / _COPIES["efficiency"], _read(Path(efficiency)) if efficiency else shipped)
    search["efficiency"] = _COPIES["efficiency"]
    written = {"": top, **{name: tables[name] for name in VALUES if name in tables}, "model": model, SEARCH: search}
    write_atomically(folder / REQUEST, _format_toml(written).encode())


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
    names = {item.name for item in fields(PlanOptions)}
    if "framework" in stated and stated["framework"] not in FRAMEWORKS:
        raise build_input_error(
            plan_file, [f"{SEARCH}.framework: {stated['framework'][:40]!r} is none of {', '.join(FRAMEWORKS)}"]
        )
    request, efficiency = stated.get("request_sha256"), stated.get("efficiency_sha256")
    return remaining, Search(
        options={name: value for name, value in stated.items() if name in names},
        parts=stated.get("parts"),
        digests=Digests(request=request, efficiency=efficiency) if request and efficiency else None,
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


def _build_table_model() -> type[BaseModel]:
    """Return the pydantic model of ``[search]``; every key is optional."""
    kinds = get_type_hints(PlanOptions)
    texts = dict.fromkeys((*_COPIES, "request_sha256", "efficiency_sha256"), (str | None, None))
    columns: dict[str, Any] = {name: (kind | None, None) for name, kind in kinds.items() if name not in _EXCLUDED}
    columns |= {"parts": (Annotated[int, Field(ge=1, le=MAX_PARTS)] | None, None), **texts}
    columns["most"] = (Annotated[int, Field(ge=1, le=MAX_SHOWN)] | None, None)
    return create_model("table_search", __config__=ConfigDict(extra="forbid", strict=True), **columns)


_SearchTable = _build_table_model()


def _is_file(named: Any) -> bool:
    """Return whether the name of a cluster is a file; see `opsk.app.inputs.named_inputs.load_cluster`."""
    return isinstance(named, str) and (named.endswith(".toml") or "/" in named)


def _copy(folder: Path, path: Path, kind: str) -> str:
    """Copy a file into the folder and return its name there."""
    write_atomically(folder / _COPIES[kind], _read(path))
    return _COPIES[kind]


def _read(path: Path) -> bytes:
    """Return the content of a file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(escape(f"{path}: {error.strerror}")) from error


def _format_toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Return tables of plain values as TOML, exactly; the keys of the table without a name come first."""
    blocks = [
        "\n".join(
            [*([f"[{name}]"] if name else []), *(f"{key} = {_format_value(value)}" for key, value in table.items())]
        )
        for name, table in tables.items()
        if table
    ]
    return "# Written by opsk plan --array; every task reads it.\n" + "\n\n".join(blocks) + "\n"


def _format_value(value: Any) -> str:
    """Return one value; JSON strings are valid TOML, except for one character."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_format_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
