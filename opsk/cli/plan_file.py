"""What does a ``PLAN.toml`` say? The one reader of the plan files that ``opsk predict`` and ``opsk place`` take.

::

    cluster = "titan"        # optional: catalogue name or cluster TOML
    nodes = 128              # optional: with gpus_per_node it fixes plan.dp where that is left out
    gpus_per_node = 8

    [model]                  # fields of opsk.workload.model.ModelShape
    name = "gpt3-175b"
    layers = 96
    ...
    [plan]                   # fields of opsk.workload.plan.Plan
    tp = 8
    ...

``model.kv_heads`` left out is ``heads`` and ``model.head_dim`` left out is ``hidden / heads``: every framework that has
these options defaults them so.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, ValidationError, create_model

from opsk.cli.document import harmless
from opsk.errors import InputError, OpskError, PlanInfeasibleError
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

STDIN = "-"
MAX_BYTES = 1 << 20
"""A plan file is a screenful; something larger is another file by mistake."""

_STRICT: dict[Any, Any] = {int: StrictInt, bool: StrictBool, str: StrictStr}
_DERIVED = {"kv_heads", "head_dim", "dp"}
"""Fields without default in the values that a file may leave out all the same, since others fix them."""


def _border(value_class: type[Any]) -> type[BaseModel]:
    """Return the border model that takes exactly the fields of a value, each with its own type and default."""
    hints = get_type_hints(value_class)
    columns: dict[str, Any] = {}
    for item in fields(value_class):
        kind = _STRICT.get(hints[item.name], hints[item.name])
        if item.name in _DERIVED:
            columns[item.name] = (kind | None, None)
        else:
            columns[item.name] = (kind, ... if item.default is MISSING else item.default)
    return create_model(value_class.__name__, __config__=ConfigDict(extra="forbid"), **columns)


_ModelTable = _border(ModelShape)
_PlanTable = _border(Plan)


class _Document(BaseModel):
    """The whole file, types checked and unknown keys refused."""

    model_config = ConfigDict(extra="forbid")

    cluster: StrictStr | None = None
    nodes: StrictInt | None = Field(default=None, ge=1)
    gpus_per_node: StrictInt | None = Field(default=None, ge=1)
    model: _ModelTable  # type: ignore[valid-type]
    plan: _PlanTable  # type: ignore[valid-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """A plan file as read: ``source`` names it in messages; ``None`` is "not stated"."""

    source: str
    model: ModelShape
    plan: Plan
    cluster: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None


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
    source = "standard input" if path == STDIN else path
    return plan_of_tables(_merged(_tables(_read(path), source), instead or {}), source=source)


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
    try:
        document = _Document.model_validate(tables)
    except ValidationError as error:
        raise _refused(source, [_violation(item) for item in error.errors()]) from error
    return _values(document, source)


def _tables(text: str, source: str) -> dict[str, Any]:
    """Return the tables of a TOML text."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise _refused(source, [f"no TOML: {error}"]) from error


def _merged(tables: Mapping[str, Any], instead: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``tables`` with the entries of ``instead`` in their place, table by table."""
    merged = dict(tables)
    for key, value in instead.items():
        own = merged.get(key)
        merged[key] = _merged(own, value) if isinstance(own, dict) and isinstance(value, Mapping) else value
    return merged


def _values(document: _Document, source: str) -> PlanFile:
    """Build the values, collecting what is wrong with both of them."""
    wrong: list[str] = []
    model_fields, plan_fields = document.model.model_dump(), document.plan.model_dump()  # type: ignore[attr-defined]
    gpus = document.nodes * document.gpus_per_node if document.nodes and document.gpus_per_node else None
    wrong += _derive_model(model_fields) + _derive_dp(plan_fields, gpus)
    model = _built(ModelShape, model_fields, wrong)
    plan = _built(Plan, plan_fields, wrong)
    if plan is not None and gpus is not None and plan.gpus != gpus:
        wrong.append(
            f"plan: tp x pp x cp x dp is {plan.gpus} GPUs, nodes {document.nodes} x gpus_per_node "
            f"{document.gpus_per_node} is {gpus}"
        )
    if wrong or model is None or plan is None:
        raise _refused(source, wrong)
    return PlanFile(
        source=source,
        model=model,
        plan=plan,
        cluster=document.cluster,
        nodes=document.nodes,
        gpus_per_node=document.gpus_per_node,
    )


def _derive_model(model: dict[str, Any]) -> list[str]:
    """Fill in ``kv_heads`` and ``head_dim`` where left out; return what stands in the way."""
    heads, hidden = model["heads"], model["hidden"]
    if model["kv_heads"] is None:
        model["kv_heads"] = heads
    if model["head_dim"] is None:
        model["head_dim"] = 1
        if heads < 1:
            return []
        if hidden % heads:
            return [f"model: head_dim is left out and hidden {hidden} is not a multiple of heads {heads}"]
        model["head_dim"] = max(hidden // heads, 1)
    return []


def _derive_dp(plan: dict[str, Any], gpus: int | None) -> list[str]:
    """Fill in ``dp`` from the GPU count where it is left out; return what stands in the way."""
    if plan["dp"] is not None:
        return []
    plan["dp"] = 1
    per_replica = plan["tp"] * plan["pp"] * plan["cp"]
    if gpus is None or per_replica < 1:
        return []
    if gpus % per_replica:
        return [f"plan: dp is left out and {gpus} GPUs are not a multiple of tp x pp x cp = {per_replica}"]
    plan["dp"] = gpus // per_replica
    return []


def _built(value_class: type[Any], values: dict[str, Any], wrong: list[str]) -> Any:
    """Return the value, or ``None`` with its violations added to ``wrong``."""
    try:
        return value_class(**values)
    except PlanInfeasibleError as error:
        wrong.extend(f"plan: {violation}" for violation in error.violations)
    except OpskError as error:
        wrong.append(error.message)
    return None


def _violation(item: Any) -> str:
    """Return one line for one violation found at the border."""
    where = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        return f"{where}: no such key"
    if item["type"] == "missing":
        return f"{where}: missing"
    if item["type"] == "enum":
        return f"{where}: {item['input']!r} is none of {item['ctx']['expected']}"
    return f"{where}: {item['msg']}"


def _refused(source: str, wrong: list[str]) -> InputError:
    """Return the one error that names the file and all that is wrong with it."""
    return InputError(
        harmless(f"{source}: " + "; ".join(wrong)),
        hint="a plan file has the tables [model] and [plan]; examples/plans has some",
    )


def _read(path: str) -> str:
    """Return the text of a file or of standard input, refusing what cannot be a plan file."""
    try:
        if path == STDIN:
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(path).open("rb") as stream:
                data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(harmless(f"{path}: {error.strerror}"), hint="name a plan file, or - for stdin") from error
    if len(data) > MAX_BYTES:
        raise InputError(harmless(f"{path}: larger than {MAX_BYTES} bytes, no plan file"), hint="see examples/plans")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(harmless(f"{path}: no UTF-8 text at byte {error.start}"), hint="see examples/plans") from error
