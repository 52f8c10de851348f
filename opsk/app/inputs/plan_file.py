"""Reads a ``PLAN.toml``, as ``opsk predict`` and ``opsk place`` take it.

::

    cluster = "titan"        # optional: catalogue name or cluster TOML
    gpus = 1024              # optional: fixes plan.dp where that is left out
    nodes = 128              # or so, with gpus_per_node; opsk predict takes that of the cluster where left out
    gpus_per_node = 8

    [model]                  # fields of opsk.workload.model.ModelShape
    like = "gpt-3-175b"      # optional: a public model, or a config.json; the other keys change it
    layers = 96
    ...
    [plan]                   # fields of opsk.workload.plan.Plan
    tp = 8
    ...
    [checkpoint]             # optional: fields of opsk.costmodel.estimates.checkpoint.CheckpointOptions
    [run]                    # optional: tokens or steps, pue

`opsk.app.inputs.plan_validation` fills in what is left out and reports it as assumed.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opsk.app.inputs.named_inputs import read_text_file
from opsk.app.inputs.plan_validation import ExaminedPlan, RunOptions, examine_plan
from opsk.costmodel.estimates.checkpoint import CheckpointOptions
from opsk.errors import InputError
from opsk.text import escape, read_fields
from opsk.units import MIB
from opsk.workload.defaults import Assumption
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

STDIN = "-"
MAX_BYTES = MIB
"""A plan file is a screenful; something larger is another file by mistake."""
_HINT = "--help lists every key; examples/plans has examples"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """A parsed plan file: ``source`` names it in messages; ``None`` is "not stated"."""

    source: str
    model: ModelShape
    plan: Plan
    cluster: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    checkpoint: CheckpointOptions | None = None
    run: RunOptions | None = None
    assumed: tuple[Assumption, ...] = ()


def read_plan_file(path: str, *, overrides: Mapping[str, Any] | None = None) -> PlanFile:
    """Read a plan file; ``-`` is standard input.

    Parameters
    ----------
    overrides
        Tables and keys as in a plan file that override those of the file (the flags of a command).

    Raises
    ------
    InputError
        Names the file and every violation in it.
    """
    return build_plan_file(read_tables(path, overrides=overrides), source=format_source(path))


def build_plan_file(tables: Mapping[str, Any], *, source: str) -> PlanFile:
    """Build a plan file from its tables; ``source`` names them in messages.

    Raises
    ------
    InputError
        Names ``source`` and every violation: types, unknown keys, invalid shapes and plans.
    """
    return require_valid(examine_plan(tables), source=source)


def require_valid(examined: ExaminedPlan, *, source: str, also: list[str] | None = None) -> PlanFile:
    """Return the plan file, unless it has violations or ``also`` has some.

    Raises
    ------
    InputError
        Names ``source`` and every violation.
    """
    wrong = list(dict.fromkeys([*examined.wrong, *(also or [])]))
    if wrong or examined.model is None or examined.plan is None:
        raise build_input_error(source, wrong)
    return PlanFile(source=source, **read_fields(examined, without=("wrong", "doubtful")))


def format_source(path: str) -> str:
    """Return the name of a plan file for messages."""
    return "standard input" if path == STDIN else path


def read_tables(path: str, *, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the tables of a plan file, unchecked, overridden key by key by ``overrides``.

    Raises
    ------
    InputError
        It cannot be read or is no TOML.
    """
    return _merge(_parse_toml(_read(path), format_source(path)), overrides or {})


def _parse_toml(text: str, source: str) -> dict[str, Any]:
    """Return the tables of a TOML text."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise build_input_error(source, [f"not a TOML file: {error}"]) from error


def _merge(tables: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``tables`` overridden by the entries of ``overrides``, table by table."""
    merged = dict(tables)
    for key, value in overrides.items():
        current = merged.get(key)
        merged[key] = _merge(current, value) if isinstance(current, dict) and isinstance(value, Mapping) else value
    return merged


def build_input_error(source: str, wrong: list[str]) -> InputError:
    """Return one error that names the file and all violations."""
    return InputError(escape(f"{source}: " + "; ".join(wrong)), hint=_HINT)


def _read(path: str) -> str:
    """Return the text of a file or of standard input; refuse what is too large for a plan file."""
    hint = "give a plan file, or - for standard input; see examples/plans"
    if path != STDIN:
        text = read_text_file(path, max_bytes=MAX_BYTES, hint=hint)
    else:
        try:
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
            text = data.decode("utf-8-sig", "strict" if len(data) <= MAX_BYTES else "replace")
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: not UTF-8 text at byte {error.start}", hint=hint) from error
    if len(text.encode()) > MAX_BYTES:
        raise InputError(escape(f"{path}: larger than {MAX_BYTES} bytes, too large for a plan file"), hint=hint)
    return text
