"""Which efficiencies hold: those that ship with opsk, or those of a site's own file?

Both are TOML files of one form, written by ``opsk calibrate``: a table a chip generation (``[gpu.hopper]``) and a
software family (``[software.megatron-core]``, ``[offset.megatron-core]``), ``[links]``, ``[memory]``, ``[spread]``,
``[widths]``, and ``fit``, which says what the values were fitted to. ``[gpu.other]`` stands for every chip generation
that has no table, ``[offset.other]`` for every family.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from importlib.resources import files
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from opsk.costmodel.efficiency.efficiency import (
    Efficiency,
    GpuEfficiency,
    LinkEfficiency,
    MemoryEfficiency,
    SoftwareEfficiency,
    Spread,
)
from opsk.costmodel.efficiency.nearness import Case
from opsk.costmodel.efficiency.software_offset import SoftwareOffset
from opsk.errors import ConfigError
from opsk.hardware.catalog_format import violations
from opsk.units import MIB
from opsk.workload.plan import Software

OTHER = "other"
"""What the file calls the chip generations that it has no table of."""
MAX_BYTES = MIB
"""An efficiency file has a few kilobytes; something larger is another file by mistake."""

IGNORED = ("expert_fraction", "fused_expert_fraction", "moe_gap_s")
"""Keys of files of 0.1.0 that have no meaning any more: experts are predicted from their shapes."""
_UP_TO_ONE = ("_fraction", "_overlap")
_RETIRED: Mapping[type[Any], tuple[str, ...]] = {GpuEfficiency: ("attention_fraction", "attention_size")}
"""Numbers of files of 0.1.0 that say nothing any more."""


_LogRatio = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-3.0, le=3.0)]
"""Logarithm of measured over predicted: what is off by more than a factor of twenty is no run of this plan."""
_Cases = list[Annotated[str, Field(strict=True, max_length=80, pattern=r"^[^/]*/[^/]*(/[^/]*/[^/]*)?$")]]
_Key = Annotated[str, Field(max_length=40, pattern=r"^[a-z0-9_-]+$")]
_Width = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0.0)]


def _border(value_class: type[Any], ignored: Sequence[str] = ()) -> type[BaseModel]:
    """Return the border model of a dataclass of numbers: each may be left out, none may be beyond what can be.

    Fractions and overlaps are at most 1. What is above 0 by default divides something or is a rate: 0 is refused.
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


_Gpu, _Software, _Links = _border(GpuEfficiency), _border(SoftwareEfficiency, IGNORED), _border(LinkEfficiency)
_Memory, _Spread, _Offset = _border(MemoryEfficiency), _border(Spread), _border(SoftwareOffset)


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
    offset: dict[_Key, _Offset] = {}  # type: ignore[valid-type]
    widths: dict[Annotated[str, Field(max_length=120)], _Width] = {}


def parse_efficiency(text: str, *, origin: str, base: Efficiency | None = None) -> Efficiency:
    """Return the efficiencies that the text of a file states; what it leaves out is as in ``base``.

    Parameters
    ----------
    text
        TOML; see the module.
    origin
        Name of the file, for messages.
    base
        Left out, the efficiencies that ship with opsk.

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
        raise ConfigError(f"{origin}: {'; '.join(violations(error).values())}", hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{origin}: {error}", hint=hint) from error
    return _merged(DEFAULT if base is None else base, given)


def _merged(base: Efficiency, given: _Document) -> Efficiency:
    """Return ``base`` with what a file states put over it."""
    gpu = dict(base.gpu)
    for name, table in sorted(given.gpu.items(), key=lambda entry: entry[0] != OTHER):
        member = "" if name == OTHER else name
        gpu[member] = _over(gpu.get(member, gpu[""]), table)
    is_fit = given.fit is not None
    software = dict(base.software)
    for family, table in given.software.items():
        software[family] = _over(base.software.get(family, SoftwareEfficiency()), table)
    return replace(
        base,
        gpu=gpu,
        software=software,
        links=_over(base.links, given.links),
        memory=_over(base.memory, given.memory),
        spread=_over(base.spread, given.spread),
        fit=(base.fit if given.fit is None else given.fit) + _ignored_words(given.software.values()),
        fitted=frozenset(map(Case.named, given.fitted)) or base.fitted,
        fitted_memory=frozenset(map(Case.named, given.fitted_memory)) or base.fitted_memory,
        offset=_offsets(base, given),
        widths=given.widths if is_fit or given.widths else base.widths,
    )


def _offsets(base: Efficiency, given: _Document) -> dict[str, SoftwareOffset]:
    """Return the offsets of a file over those of ``base``, which a file with a fit of its own was fitted without."""
    found = {} if given.fit is not None else dict(base.offset)
    for name, table in given.offset.items():
        member = "" if name == OTHER else name
        found[member] = _over(base.offset.get(member, SoftwareOffset()), table)
    return found


def _ignored_words(families: Iterable[BaseModel]) -> str:
    """Return what to say of keys that have no meaning any more, nothing where there are none."""
    found = [name for name in IGNORED if any(getattr(family, name) is not None for family in families)]
    return f"; ignored, as experts are predicted from their shapes: {', '.join(found)}" if found else ""


def _over(value: Any, table: BaseModel | None) -> Any:
    """Return a dataclass with the numbers that a table states."""
    gone = (*IGNORED, *_RETIRED.get(type(value), ()))
    stated: Mapping[str, Any] = {} if table is None else table.model_dump(exclude_none=True, exclude={*gone})
    return replace(value, **stated)


DEFAULT = parse_efficiency(
    files(__package__).joinpath("efficiency.toml").read_text(encoding="utf-8"),
    origin="efficiency.toml of opsk",
    base=Efficiency(),
)
"""The efficiencies that ship with opsk."""
