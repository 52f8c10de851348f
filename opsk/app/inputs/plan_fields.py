"""Validates the keys and types of a plan file.

It validates ``[model]``, ``[plan]``, ``[checkpoint]`` and ``[run]``, of files and of flags. A wrong value is reported
and then treated as not given, so that all others are still checked.
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
_MAX_SHOWN_CHARS = 60
_MAX_SHOWN_DIGITS = 30
"""Integers with more digits are shown by their number of digits."""
_WHOLE = re.compile(r"\s*[+-]?[0-9](_?[0-9])*\s*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of a whole run: ``tokens`` or ``steps`` in total, in a building with a ``pue``."""

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
"""Table of a plan file to the class whose fields are its keys."""


def _list_kinds(table: str) -> dict[str, Any]:
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
    **{table: _list_kinds(table) for table in VALUES},
}
"""Type of every key by table; the keys outside of tables are under ``""``."""
_BOUNDED: dict[Any, Any] = {
    int: Annotated[int, Field(strict=True, ge=-MAX_SIZE, le=MAX_SIZE)],
    float: Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-MAX_NUMBER, le=MAX_NUMBER)],
    bool: StrictBool,
    str: StrictStr,
}


def _build_table_model(table: str) -> type[BaseModel]:
    """Return the pydantic model of a table; every key is optional."""
    columns: dict[str, Any] = {name: (_BOUNDED.get(kind, kind) | None, None) for name, kind in KINDS[table].items()}
    return create_model(f"table_{table}", __config__=ConfigDict(extra="forbid"), **columns)


_TABLE_MODELS = {table: _build_table_model(table) for table in KINDS}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedFields:
    """The valid values by table and key; all violations; and the keys that are doubtful because of them."""

    tables: Mapping[str, dict[str, Any]]
    wrong: tuple[str, ...]
    doubtful: frozenset[str]


def validate_fields(given: Mapping[str, Any]) -> ValidatedFields:
    """Return the valid values of the tables of a plan file; nothing is filled in and nothing raised."""
    tables: dict[str, dict[str, Any]] = {}
    wrong: list[str] = []
    doubtful: set[str] = set()
    top = {key: value for key, value in given.items() if key not in VALUES}
    for table in KINDS:
        content = given.get(table, {}) if table else top
        if not isinstance(content, Mapping):
            wrong.append(f"[{table}] is {format_value(content)}, no table")
            doubtful |= KINDS[table].keys()
            content = {}
        tables[table], errors = _validate_table(table, content)
        wrong += errors.values()
        doubtful |= errors.keys()
    return ValidatedFields(tables=tables, wrong=tuple(wrong), doubtful=frozenset(doubtful))


def _validate_table(table: str, content: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the valid keys of one table, and the violation of each other key."""
    errors: dict[str, str] = {}
    try:
        validated = _TABLE_MODELS[table].model_validate(dict(content))
    except ValidationError as error:
        for item in error.errors(include_url=False):
            name = str(item["loc"][0])
            errors.setdefault(
                name, _format_violation(f"{table}.{name}" if table else name, KINDS[table].get(name), item)
            )
        validated = _TABLE_MODELS[table].model_validate(
            {key: value for key, value in content.items() if key not in errors}
        )
    return validated.model_dump(exclude_none=True), errors


def _format_violation(where: str, kind: Any, item: Any) -> str:
    """Return one line for one validation error."""
    where, given, what = escape(where), format_value(item["input"]), item["type"]
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


def format_value(value: object) -> str:
    """Return any value as a short printable text."""
    if type(value) is int and value.bit_length() > _MAX_SHOWN_DIGITS * 3.33:
        return f"{'-' if value < 0 else ''}a number of {int(value.bit_length() * 0.30103) + 1} digits"
    text = escape(repr(value) if isinstance(value, int | float | str | bool) else type(value).__name__)
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[: _MAX_SHOWN_CHARS - 1]}…"


def parse_flag(table: str, key: str, text: str) -> Any:
    """Return the value of a flag; invalid text is returned unchanged, for validation to report."""
    kind = KINDS[table][key]
    if kind is int and _WHOLE.fullmatch(text):
        return int(text) if len(text) <= _MAX_SHOWN_DIGITS * 10 else 10 ** (len(text.strip("+- _\t\n")) - 1)
    if kind is float:
        try:
            return float(text)
        except ValueError:
            return text
    return text
