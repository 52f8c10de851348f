"""Parses efficiency files, and loads the efficiencies that ship with opsk.

The shipped file and a site's own are TOML files of one form, written by ``opsk calibrate``: a table for each chip
generation (``[gpu.hopper]``) and software family (``[software.megatron-core]``, ``[offset.megatron-core]``),
``[links]``, ``[memory]``, ``[spread]``, ``[widths]``, and ``fit``, which describes the runs that the values were fitted
to. ``[gpu.other]`` stands for every chip generation that has no table, ``[offset.other]`` for every family. A site's
file may have ``[offset."pytorch/hopper/dense/dp-full/8b"]``, for the jobs of one cell
(`opsk.costmodel.efficiency.cases.Case`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from importlib.resources import files
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from opsk.costmodel.efficiency.cases import Case, SoftwareOffset
from opsk.costmodel.efficiency.efficiency import (
    Efficiency,
    GpuEfficiency,
    LinkEfficiency,
    MemoryEfficiency,
    SoftwareEfficiency,
    Spread,
)
from opsk.errors import ConfigError
from opsk.hardware.catalog_format import format_violations
from opsk.units import MIB
from opsk.workload.plan import Software

OTHER = "other"
"""Name of the table for chip generations without a table of their own."""
MAX_BYTES = MIB
"""An efficiency file has a few kilobytes; a larger file is not one."""

IGNORED = ("expert_fraction", "fused_expert_fraction", "moe_gap_s")
"""Obsolete keys of files of 0.1.0: experts are predicted from their shapes."""
_UP_TO_ONE = ("_fraction", "_overlap")
_RETIRED: Mapping[type[Any], tuple[str, ...]] = {GpuEfficiency: ("attention_fraction", "attention_size")}
"""Obsolete numbers of files of 0.1.0."""


_LogRatio = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-3.0, le=3.0)]
"""Logarithm of measured over predicted: a run that is off by more than a factor of twenty does not match its plan."""
_Cases = list[Annotated[str, Field(strict=True, max_length=80, pattern=r"^[^/]*/[^/]*(/[^/]*/[^/]*){0,1}(/[^/]*)?$")]]
_Key = Annotated[str, Field(max_length=40, pattern=r"^[a-z0-9_-]+$")]
_OffsetKey = Annotated[str, Field(max_length=120, pattern=r"^[a-z0-9_./-]+$")]
_Width = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0.0)]


def _build_model(value_class: type[Any], ignored: Sequence[str] = ()) -> type[BaseModel]:
    """Return the pydantic model of a dataclass of numbers: each is optional and must be in its range.

    Fractions and overlaps are at most 1. A field with a default above 0 is a divisor or a rate: 0 is rejected.
    """
    columns: dict[str, Any] = {}
    for name in _RETIRED.get(value_class, ()):
        columns[name] = (float | None, None)
    for item in fields(value_class):
        if item.name.endswith("_log"):  # of a ratio, either way
            columns[item.name] = (_LogRatio | None, None)
            continue
        high = {"le": 1.0} if item.name.endswith(_UP_TO_ONE) else {}
        is_addition = "_new_" in item.name or "_offset_" in item.name
        may_be_zero = item.default == 0 or is_addition or item.name.endswith(("_s", "_overlap", "_bytes"))
        low = {"ge": 0.0} if may_be_zero else {"gt": 0.0}
        number = Annotated[float, Field(strict=True, allow_inf_nan=False, **low, **high)]
        columns[item.name] = (number | None, None)
    columns |= {name: (Annotated[float, Field(allow_inf_nan=False)] | None, None) for name in ignored}
    return create_model(value_class.__name__, __config__=ConfigDict(extra="forbid"), **columns)


_Gpu, _Software, _Links = (
    _build_model(GpuEfficiency),
    _build_model(SoftwareEfficiency, IGNORED),
    _build_model(LinkEfficiency),
)
_Memory, _Spread, _Offset = _build_model(MemoryEfficiency), _build_model(Spread), _build_model(SoftwareOffset)


class _Document(BaseModel):
    """The whole file, types checked and unknown keys refused."""

    model_config = ConfigDict(extra="forbid")

    fit: Annotated[str, Field(strict=True, max_length=2000)] | None = None
    fitted: _Cases = []
    fitted_memory: _Cases = []
    gpu: dict[_Key, _Gpu] = {}  # type: ignore[valid-type]
    software: dict[Software, _Software] = {}  # type: ignore[valid-type]
    links: _Links | None = None  # type: ignore[valid-type]
    memory: _Memory | None = None  # type: ignore[valid-type]
    spread: _Spread | None = None  # type: ignore[valid-type]
    offset: dict[_OffsetKey, _Offset] = {}  # type: ignore[valid-type]
    widths: dict[Annotated[str, Field(max_length=120)], _Width] = {}


def parse_efficiency(text: str, *, origin: str, base: Efficiency | None = None) -> Efficiency:
    """Parse the efficiencies of a file; missing values are those of ``base``.

    Parameters
    ----------
    text
        TOML; see the module.
    origin
        Name of the file, for messages.
    base
        Defaults to the efficiencies that ship with opsk.

    Raises
    ------
    ConfigError
        Names ``origin`` and everything that is wrong in it.
    """
    if len(text) > MAX_BYTES:
        raise ConfigError(f"{origin}: larger than {MAX_BYTES} bytes", hint="is this an efficiency file?")
    hint = "write one with: opsk calibrate RUNS.csv --output FILE"
    try:
        given = _Document.model_validate(tomllib.loads(text))
    except ValidationError as error:
        raise ConfigError(f"{origin}: {'; '.join(format_violations(error).values())}", hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{origin}: {error}", hint=hint) from error
    return _merge(DEFAULT if base is None else base, given)


def _merge(base: Efficiency, given: _Document) -> Efficiency:
    """Return ``base`` overridden by the values of a file."""
    gpu = dict(base.gpu)
    for name, table in sorted(given.gpu.items(), key=lambda entry: entry[0] != OTHER):
        member = "" if name == OTHER else name
        gpu[member] = _override(gpu.get(member, gpu[""]), table)
    is_fit = given.fit is not None
    software = dict(base.software)
    for family, table in given.software.items():
        software[family] = _override(base.software.get(family, SoftwareEfficiency()), table)
    return replace(
        base,
        gpu=gpu,
        software=software,
        links=_override(base.links, given.links),
        memory=_override(base.memory, given.memory),
        spread=_override(base.spread, given.spread),
        fit=(base.fit if given.fit is None else given.fit) + _format_ignored(given.software.values()),
        fitted=frozenset(map(Case.parse, given.fitted)) or base.fitted,
        fitted_memory=frozenset(map(Case.parse, given.fitted_memory)) or base.fitted_memory,
        offset=_merge_offsets(base, given),
        widths=given.widths if is_fit or given.widths else base.widths,
    )


def _merge_offsets(base: Efficiency, given: _Document) -> dict[str, SoftwareOffset]:
    """Return the offsets of a file merged with those of ``base``; a file with its own fit does not use the latter."""
    offsets = {} if given.fit is not None else dict(base.offset)
    for name, table in given.offset.items():
        member = "" if name == OTHER else name
        offsets[member] = _override(base.offset.get(member, SoftwareOffset()), table)
    return offsets


def _format_ignored(families: Iterable[BaseModel]) -> str:
    """Return the message about obsolete keys, empty where there are none."""
    ignored = [name for name in IGNORED if any(getattr(family, name) is not None for family in families)]
    return f"; ignored, as experts are predicted from their shapes: {', '.join(ignored)}" if ignored else ""


def _override(value: Any, table: BaseModel | None) -> Any:
    """Return a dataclass with the numbers of a table."""
    excluded = (*IGNORED, *_RETIRED.get(type(value), ()))
    stated: Mapping[str, Any] = {} if table is None else table.model_dump(exclude_none=True, exclude={*excluded})
    return replace(value, **stated)


DEFAULT = parse_efficiency(
    files(__package__).joinpath("efficiency.toml").read_text(encoding="utf-8"),
    origin="efficiency.toml of opsk",
    base=Efficiency(),
)
"""The efficiencies that ship with opsk."""
