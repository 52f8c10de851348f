"""Which keys does a plan file have, what does each take, and what is wrong with what was given?

The one border of ``[model]``, ``[plan]``, ``[checkpoint]`` and ``[run]``, for a file and for flags alike. It takes what
can be taken: a wrong value is told and then counts as not given, so that all the rest can be checked as well.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr, ValidationError, create_model

from opsk.costmodel.estimates.checkpoint import CheckpointOptions
from opsk.text import escape
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

MAX_SIZE = 10**9
"""No size comes near this; a larger one is a slip of the pen: models have 10^5 wide layers and 10^6 token sequences."""
MAX_NUMBER = 1e18
"""No rate, time or number of tokens comes near this."""
_SHOWN = 60
_LONG = 30
"""Digits from which a whole number is told by their count."""
_WHOLE = re.compile(r"\s*[+-]?[0-9](_?[0-9])*\s*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What is trained with the plan: ``tokens`` or ``steps`` in all, in a building with a ``pue``."""

    tokens: float | None = None
    steps: int | None = None
    pue: float = 1.0


LIKE = "like"
"""Key of ``[model]`` that names a public model or a ``config.json``, whose shape the other keys change."""
VALUES: Mapping[str, type[Any]] = {
    "model": ModelShape,
    "plan": Plan,
    "checkpoint": CheckpointOptions,
    "run": RunOptions,
}
"""Table of a plan file to the value that its keys are the fields of."""


def _kinds(table: str) -> dict[str, Any]:
    """Return the type of every key of a table, without its ``None``."""
    hints = get_type_hints(VALUES[table])
    kinds = {item.name: _without_none(hints[item.name]) for item in fields(VALUES[table])}
    return {LIKE: str, **kinds} if table == "model" else kinds


def _without_none(hint: Any) -> Any:
    """Return ``X`` of ``X | None``."""
    if get_origin(hint) in (Union, types.UnionType):
        return next(kind for kind in get_args(hint) if kind is not type(None))
    return hint


KINDS: Mapping[str, Mapping[str, Any]] = {
    "": {"cluster": str, "gpus": int, "nodes": int, "gpus_per_node": int},
    **{table: _kinds(table) for table in VALUES},
}
"""Type of every key by table; the keys outside of tables are under ``""``."""
_BOUNDED: dict[Any, Any] = {
    int: Annotated[int, Field(strict=True, ge=-MAX_SIZE, le=MAX_SIZE)],
    float: Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-MAX_NUMBER, le=MAX_NUMBER)],
    bool: StrictBool,
    str: StrictStr,
}


def _border(table: str) -> type[BaseModel]:
    """Return the border model of a table; every key may be left out."""
    columns: dict[str, Any] = {name: (_BOUNDED.get(kind, kind) | None, None) for name, kind in KINDS[table].items()}
    return create_model(f"table_{table}", __config__=ConfigDict(extra="forbid"), **columns)


_BORDERS = {table: _border(table) for table in KINDS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What was given and can be taken, by table and key; what is ``wrong``; and which keys are in doubt therefore."""

    tables: Mapping[str, dict[str, Any]]
    wrong: tuple[str, ...]
    doubtful: frozenset[str]


def stated_of(given: Mapping[str, Any]) -> Stated:
    """Return what the tables of a plan file state; nothing is filled in and nothing raised."""
    tables: dict[str, dict[str, Any]] = {}
    wrong: list[str] = []
    doubtful: set[str] = set()
    top = {key: value for key, value in given.items() if key not in VALUES}
    for table in KINDS:
        content = given.get(table, {}) if table else top
        if not isinstance(content, Mapping):
            wrong.append(f"[{table}] is {shown(content)}, no table")
            doubtful |= KINDS[table].keys()
            content = {}
        tables[table], told = _taken(table, content)
        wrong += told.values()
        doubtful |= told.keys()
    return Stated(tables=tables, wrong=tuple(wrong), doubtful=frozenset(doubtful))


def _taken(table: str, content: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the keys of one table that can be taken, and what is wrong with the others."""
    told: dict[str, str] = {}
    try:
        taken = _BORDERS[table].model_validate(dict(content))
    except ValidationError as error:
        for item in error.errors(include_url=False):
            name = str(item["loc"][0])
            told.setdefault(name, _violation(f"{table}.{name}" if table else name, KINDS[table].get(name), item))
        taken = _BORDERS[table].model_validate({key: value for key, value in content.items() if key not in told})
    return taken.model_dump(exclude_none=True), told


def _violation(where: str, kind: Any, item: Any) -> str:
    """Return one line for one violation found at the border."""
    where, given, what = escape(where), shown(item["input"]), item["type"]
    if what == "extra_forbidden":
        return f"{where}: no such key"
    if what in ("less_than_equal", "greater_than_equal", "int_parsing_size"):
        return f"{where} is {given}: beyond all that could be meant"
    if what == "finite_number":
        return f"{where} is {given}: must be finite"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"{where}: {given} is none of {', '.join(str(member.value) for member in kind)}"
    words = {int: "no whole number", float: "no number", bool: "neither true nor false", str: "no text"}
    return f"{where}: {given} is {words.get(kind, 'not allowed')}"


def shown(value: object) -> str:
    """Return any value as a few printable signs."""
    if type(value) is int and value.bit_length() > _LONG * 3.33:
        return f"{'-' if value < 0 else ''}a number of {int(value.bit_length() * 0.30103) + 1} digits"
    text = escape(repr(value) if isinstance(value, int | float | str | bool) else type(value).__name__)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def from_text(table: str, key: str, text: str) -> Any:
    """Return the value of a flag; what cannot be one is left as it is, for the border to tell."""
    kind = KINDS[table][key]
    if kind is int and _WHOLE.fullmatch(text):
        return int(text) if len(text) <= _LONG * 10 else 10 ** (len(text.strip("+- _\t\n")) - 1)
    if kind is float:
        try:
            return float(text)
        except ValueError:
            return text
    return text
