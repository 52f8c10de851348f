"""What does a ``PLAN.toml`` say? The one reader of the plan files that ``opsk predict`` and ``opsk place`` take.

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

What is left out is filled in by `opsk.app.inputs.plan_examination`, and told.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsk.app.inputs.plan_examination import Examined, examined
from opsk.app.inputs.plan_fields import RunOptions
from opsk.costmodel.estimates.checkpoint import CheckpointOptions
from opsk.errors import InputError
from opsk.text import escape
from opsk.units import MIB
from opsk.workload.defaults import Assumption
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

STDIN = "-"
MAX_BYTES = MIB
"""A plan file is a screenful; something larger is another file by mistake."""
_HINT = "--help names every key; examples/plans has some files"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """A plan file as read: ``source`` names it in messages; ``None`` is "not stated"."""

    source: str
    model: ModelShape
    plan: Plan
    cluster: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    checkpoint: CheckpointOptions | None = None
    run: RunOptions | None = None
    assumed: tuple[Assumption, ...] = ()


def read_plan_file(path: str, *, instead: Mapping[str, Any] | None = None) -> PlanFile:
    """Read a plan file; ``-`` is standard input.

    Parameters
    ----------
    instead
        Tables and keys as in a plan file that beat those of the file (the flags of a command).

    Raises
    ------
    InputError
        Names the file and every violation in it.
    """
    return plan_of_tables(read_tables(path, instead=instead), source=source_of(path))


def parse_plan(text: str, *, source: str) -> PlanFile:
    """Return what the text of a plan file says; ``source`` names it in messages.

    Raises
    ------
    InputError
        Names ``source`` and every violation: TOML, types, unknown keys, shapes and plans that cannot be.
    """
    return plan_of_tables(_tables(text, source), source=source)


def plan_of_tables(tables: Mapping[str, Any], *, source: str) -> PlanFile:
    """Return what the tables of a plan file say; ``source`` names them in messages.

    Raises
    ------
    InputError
        Names ``source`` and every violation: types, unknown keys, shapes and plans that cannot be.
    """
    return accepted(examined(tables), source=source)


def accepted(found: Examined, *, source: str, also: list[str] | None = None) -> PlanFile:
    """Return what was examined, unless something is wrong with it, or ``also`` wrong.

    Raises
    ------
    InputError
        Names ``source`` and every violation.
    """
    wrong = list(dict.fromkeys([*found.wrong, *(also or [])]))
    if wrong or found.model is None or found.plan is None:
        raise refused(source, wrong)
    return PlanFile(
        source=source,
        model=found.model,
        plan=found.plan,
        cluster=found.cluster,
        nodes=found.nodes,
        gpus_per_node=found.gpus_per_node,
        checkpoint=found.checkpoint,
        run=found.run,
        assumed=found.assumed,
    )


def source_of(path: str) -> str:
    """Return what messages call a plan file."""
    return "standard input" if path == STDIN else path


def read_tables(path: str, *, instead: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the tables of a plan file, unchecked, with those of ``instead`` in their place, key by key.

    Raises
    ------
    InputError
        It cannot be read or is no TOML.
    """
    return _merged(_tables(_read(path), source_of(path)), instead or {})


def _tables(text: str, source: str) -> dict[str, Any]:
    """Return the tables of a TOML text."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise refused(source, [f"no TOML: {error}"]) from error


def _merged(tables: Mapping[str, Any], instead: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``tables`` with the entries of ``instead`` in their place, table by table."""
    merged = dict(tables)
    for key, value in instead.items():
        own = merged.get(key)
        merged[key] = _merged(own, value) if isinstance(own, dict) and isinstance(value, Mapping) else value
    return merged


def refused(source: str, wrong: list[str]) -> InputError:
    """Return the one error that names the file and all that is wrong with it."""
    return InputError(escape(f"{source}: " + "; ".join(wrong)), hint=_HINT)


def _read(path: str) -> str:
    """Return the text of a file or of standard input, refusing what cannot be a plan file."""
    try:
        if path == STDIN:
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(path).open("rb") as stream:
                data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(escape(f"{path}: {error.strerror}"), hint="name a plan file, or - for stdin") from error
    if len(data) > MAX_BYTES:
        raise InputError(escape(f"{path}: larger than {MAX_BYTES} bytes, no plan file"), hint="see examples/plans")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(escape(f"{path}: no UTF-8 text at byte {error.start}"), hint="see examples/plans") from error
