"""Defines the format of catalogue and cluster files, and converts their values to SI units and bytes.

Every entry may name another one in ``like`` and then states only what differs. Files use the units that vendors print
(MiB, GB/s, TFLOP/s, Gbit/s); they are converted to bytes, bytes/s and FLOP/s here and nowhere else in this package.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from opsk.errors import ConfigError
from opsk.units import GB, MIB, TERA, gbit_per_s

Count = Annotated[int, Field(strict=True, gt=0)]
Tally = Annotated[int, Field(strict=True, ge=0)]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)]
Format = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp4"]
FabricKind = Literal["rail-optimized", "fat-tree", "rail-only", "dragonfly"]


class Entry(BaseModel):
    """The fields of every kind of entry: its name, the entry that it is based on, aliases, and sources."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str | None = Field(default=None, max_length=100, pattern=r"^[!-~][ -~]*$")
    like: str | None = None
    aliases: tuple[str, ...] | None = None
    sources: Mapping[str, str] = {}


class GpuEntry(Entry):
    """A GPU; see `opsk.hardware.spec.GpuSpec`. Bandwidths are one direction, peaks are dense."""

    vendor: str | None = None
    architecture: str | None = None
    memory_mib: Count | None = None
    usable_mib: Count | None = None
    hbm_gb_per_s: Positive | None = None
    peak_tflop_per_s: Annotated[dict[Format, Positive], Field(min_length=1)] | None = None
    hb_gb_per_s: NotNegative | None = None
    pcie_gb_per_s: Positive | None = None
    tdp_w: Positive | None = None
    sustained_share: dict[Format, Share] | None = None
    launch_factor: Positive | None = None


class NicEntry(Entry):
    """A NIC port; see `opsk.hardware.spec.NicSpec`."""

    gbit_per_s: Positive | None = None


class NodeEntry(Entry):
    """A node type; GPU and NICs by catalogue name or as a table of their own."""

    gpu: str | GpuEntry | None = None
    gpus: Count | None = None
    nic: str | NicEntry | None = None
    nics: Count | None = None
    hb_domain_gpus: Count | None = None
    storage_nic: str | NicEntry | None = None
    storage_nics: Tally | None = None
    power_w: Positive | None = None


class ClusterEntry(Entry):
    """A cluster; its node by catalogue name or as a table of its own."""

    node: str | NodeEntry | None = None
    nodes: Count | None = None
    fabric: FabricKind | None = None
    switches: Tally | None = None
    oversubscription: Annotated[float, Field(strict=True, ge=1, allow_inf_nan=False)] | None = None
    leaves: Tally | None = None
    spines: Tally | None = None
    cores: Tally | None = None
    cables: Tally | None = None
    nodes_per_unit: Count | None = None
    in_network_reduction: Annotated[bool, Field(strict=True)] | None = None


MAX_DEPTH = 16
"""No valid file of hardware or clusters is half as deep."""
MAX_SHOWN = 80
"""Characters of a wrong name or value that an error message quotes."""

_MESSAGES = {"extra_forbidden": "there is no such field"}
_UNIONS = frozenset(("str", "GpuEntry", "NicEntry", "NodeEntry"))
_SHAPES = _UNIONS | {"[key]"}
"""Parts of pydantic's error locations that are not in the file: which shape of a value it tried."""


def _identity(value: Any) -> Any:
    return value


def _mib(value: int) -> int:
    return value * MIB


def _gb_per_s(value: float) -> float:
    return value * GB


def _peaks(value: Mapping[str, float]) -> dict[str, float]:
    return {number_format: peak * TERA for number_format, peak in value.items()}


Conversion = tuple[str, Callable[[Any], Any]]

GPU_FIELDS: Mapping[str, Conversion] = {
    "vendor": ("vendor", _identity),
    "architecture": ("architecture", _identity),
    "memory_mib": ("memory_bytes", _mib),
    "usable_mib": ("usable_bytes", _mib),
    "hbm_gb_per_s": ("hbm_bytes_per_s", _gb_per_s),
    "peak_tflop_per_s": ("peak_flop_per_s", _peaks),
    "hb_gb_per_s": ("hb_bytes_per_s", _gb_per_s),
    "pcie_gb_per_s": ("pcie_bytes_per_s", _gb_per_s),
    "tdp_w": ("tdp_w", float),
    "sustained_share": ("sustained_share", dict),
    "launch_factor": ("launch_factor", float),
}
"""Field of a `GpuEntry` to the field of `GpuSpec` it sets and the conversion between them."""

NIC_FIELDS: Mapping[str, Conversion] = {"gbit_per_s": ("bytes_per_s", gbit_per_s)}

NODE_FIELDS: Mapping[str, Conversion] = {
    name: (name, _identity) for name in ("gpus", "nics", "hb_domain_gpus", "storage_nics", "power_w")
}

CLUSTER_FIELDS: Mapping[str, Conversion] = {
    name: (name, _identity)
    for name in (
        *("nodes", "fabric", "switches", "oversubscription"),
        *("leaves", "spines", "cores", "cables", "nodes_per_unit", "in_network_reduction"),
    )
}

OPTIONAL_FIELDS = frozenset(
    (
        *("usable_mib", "sustained_share", "launch_factor"),
        *("architecture", "storage_nic", "storage_nics", "power_w"),
        *("switches", "oversubscription", "leaves", "spines", "cores", "cables", "nodes_per_unit"),
        "in_network_reduction",
    )
)
"""Fields that an entry without ``like`` may leave out."""

NOT_CITED = frozenset(("name", "like", "aliases", "sources", "vendor", "architecture"))
"""Fields that are not measurements and are in no data sheet."""


class CatalogFile(BaseModel):
    """One catalogue file: its bibliography, ambiguous names, and the entries.

    ``ambiguous`` maps a name that people use to the entries it may mean; the first one is taken.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    bibliography: Mapping[str, str]
    ambiguous: Mapping[str, Annotated[tuple[str, ...], Field(min_length=2)]] = {}
    entries: Mapping[str, dict[str, Any]]


def parse_toml(text: str, *, origin: str) -> dict[str, Any]:
    """Return the tables of a TOML text.

    Raises
    ------
    ConfigError
        Names ``origin`` and the line that is not TOML.
    """
    hint = "see docs/howto/add-a-cluster.md for an example"
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits are no TOMLDecodeError
        raise ConfigError(f"{origin}: {error}", hint=hint) from error
    if _measure_depth(tables) > MAX_DEPTH:
        raise ConfigError(f"{origin}: tables more than {MAX_DEPTH} deep", hint=hint)
    return tables


def _measure_depth(tables: dict[str, Any]) -> int:
    """Return the nesting depth of tables and lists, up to one more than ``MAX_DEPTH``."""
    level: list[Any] = [tables]
    for depth in range(MAX_DEPTH + 1):
        inside = [entry for part in level for entry in (part.values() if isinstance(part, dict) else part)]
        level = [entry for entry in inside if isinstance(entry, dict | list)]
        if not level:
            return depth
    return MAX_DEPTH + 1


def format_violations(error: ValidationError) -> dict[tuple[str | int, ...], str]:
    """Return pydantic's errors: the path inside the file to one line of text.

    A value that may be a name or a table is reported for the form that was given, not once for each form.
    """
    lines: dict[tuple[str | int, ...], str] = {}
    for item in error.errors():
        unknown = item["type"] == "extra_forbidden"
        unknown_key = item["loc"][-1:] if unknown else ()
        place = (*(part for part in item["loc"][: -1 if unknown else None] if part not in _SHAPES), *unknown_key)
        value, is_union = item["input"], not unknown and item["loc"][-1] in _UNIONS
        if is_union and item["type"] == "string_type" and isinstance(value, dict):
            continue
        message = "Input should be a name or a table" if is_union else _MESSAGES.get(item["type"], item["msg"])
        if isinstance(value, str | int | float) and not unknown:
            message += f", not {(value[:MAX_SHOWN] if isinstance(value, str) else value)!r}"
        lines.setdefault(place, f"{'.'.join(_format_key(part) for part in place) or 'file'}: {message}")
    return lines


def _format_key(part: str | int) -> str:
    """Return a key of a file, printable and of limited length."""
    text = str(part)[:MAX_SHOWN]
    return text if text.isprintable() else ascii(text)


def omit_values(tables: dict[str, Any], places: Iterable[tuple[str | int, ...]]) -> dict[str, Any]:
    """Return a copy of ``tables`` without the values at ``places``, so that the rest can be validated too."""
    remaining = copy.deepcopy(tables)
    for place in places:
        table: Any = remaining
        for part in place[:-1]:
            table = table.get(part) if isinstance(table, dict) else None
        if isinstance(table, dict) and place:
            table.pop(place[-1], None)
    return remaining
