"""Looks up published failure and repair rates of cluster parts, and parses a site's own.

The numbers are in ``catalog/failures.toml``, each with its source. Files state hours, as papers do; they are converted
to seconds here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

from pydantic import Field, ValidationError

from opsk.errors import ConfigError, InputError
from opsk.hardware.catalog_format import MAX_SHOWN, CatalogFile, Entry, format_violations, omit_values, parse_toml
from opsk.hardware.catalog_index import cite, normalise_key
from opsk.units import hours

DEFAULT_RATES = "llama3-405b"
"""The only published table with all causes, at 16,384 GPUs of one job."""
MAX_BYTES = 1 << 16
_ORIGIN = "catalog/failures.toml"

Hours = Annotated[float, Field(strict=True, gt=0)]
"""Mean time between failures [h]; infinite is never."""
RepairHours = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRates:
    """Mean times between failures of parts, and mean times to repair [s]; infinite is never.

    Parameters
    ----------
    gpu_mtbf_s
        One GPU, with its memory and the NVLink inside of a node.
    host_mtbf_s
        One node, for what is not GPU, NIC or link.
    nic_mtbf_s, link_mtbf_s
        One port on the compute fabric; its cable to the leaf, with transceivers.
    switch_mtbf_s
        One switch of the compute fabric.
    hb_domain_mtbf_s
        Failures of a whole HB domain that spans nodes: switch trays, power, cooling.
    software_mtbf_s
        One GPU of a job, between interruptions that a restart on the same nodes cures.
    node_repair_s, switch_repair_s, hb_domain_repair_s
        Mean time until it can be used again; 0 is at once.
    sources
        Field name to the page or paper that it was read from.
    """

    name: str
    gpu_mtbf_s: float = math.inf
    host_mtbf_s: float = math.inf
    nic_mtbf_s: float = math.inf
    link_mtbf_s: float = math.inf
    switch_mtbf_s: float = math.inf
    hb_domain_mtbf_s: float = math.inf
    software_mtbf_s: float = math.inf
    node_repair_s: float = 0.0
    switch_repair_s: float = 0.0
    hb_domain_repair_s: float = 0.0
    sources: Mapping[str, str] = field(default_factory=dict)


TIMES = tuple(item.name for item in fields(FailureRates) if item.name.endswith("_s"))
"""Fields that are times [s]; the file states each in hours, as ``gpu_mtbf_h``."""


class RatesEntry(Entry):
    """The fields of a catalogue entry, or of a site's file; missing ones are taken from ``like``."""

    gpu_mtbf_h: Hours | None = None
    host_mtbf_h: Hours | None = None
    nic_mtbf_h: Hours | None = None
    link_mtbf_h: Hours | None = None
    switch_mtbf_h: Hours | None = None
    hb_domain_mtbf_h: Hours | None = None
    software_mtbf_h: Hours | None = None
    node_repair_h: RepairHours | None = None
    switch_repair_h: RepairHours | None = None
    hb_domain_repair_h: RepairHours | None = None


def to_hours_field(name: str) -> str:
    """Return the name of a field in a file: ``gpu_mtbf_h`` for ``gpu_mtbf_s``."""
    return f"{name.removesuffix('_s')}_h"


def failure_rates(name: str = DEFAULT_RATES) -> FailureRates:
    """Return the published rates that ``name`` means.

    Raises
    ------
    InputError
        Lists the known names.

    Examples
    --------
    >>> round(failure_rates("rsc-1").gpu_mtbf_s / 3600)
    29500
    """
    rates = _by_key(_catalog()).get(normalise_key(name))
    if rates is None:
        raise InputError(
            f"unknown failure rates {name[:MAX_SHOWN]!r}",
            hint=f"known: {', '.join(_catalog())}; or name a TOML of your own",
        )
    return rates


def names() -> tuple[str, ...]:
    """Return the names of all published rates, in the order of the file."""
    return tuple(_catalog())


def parse_rates(text: str, *, origin: str) -> FailureRates:
    """Read a site's file: some of the times in hours, and ``like`` for the others (else those of the default).

    Raises
    ------
    ConfigError
        Names ``origin`` and everything that is wrong in it.

    Examples
    --------
    >>> parse_rates("node_repair_h = 48", origin="site.toml").node_repair_s / 3600
    48.0
    """
    if len(text) > MAX_BYTES:
        raise ConfigError(f"{origin}: larger than {MAX_BYTES} bytes", hint="is this a file of failure rates?")
    tables = parse_toml(text, origin=origin)
    wrong: list[str] = []
    try:
        entry = RatesEntry.model_validate(tables)
    except ValidationError as error:
        errors = format_violations(error)
        wrong += errors.values()
        valid = {name: value for name, value in omit_values(tables, errors).items() if name in RatesEntry.model_fields}
        entry = RatesEntry.model_validate(valid)
    base = failure_rates()
    try:
        base = failure_rates(entry.like or DEFAULT_RATES)
    except InputError as error:
        wrong.append(f"like: {error.message} ({error.hint})")
    if wrong:
        raise ConfigError(f"{origin}: {'; '.join(wrong)}", hint="docs/explanation/goodput.md has an example")
    return _build_rates(entry, base, name=entry.name or origin, origin=origin)


def _build_rates(entry: RatesEntry, base: FailureRates, *, name: str, origin: str) -> FailureRates:
    """Return the rates of an entry, which override those of ``base``."""
    stated = {field: value for field in TIMES if (value := getattr(entry, to_hours_field(field))) is not None}
    sources = {field: entry.sources.get(to_hours_field(field), origin) for field in stated}
    times = {field: hours(value) for field, value in stated.items()}
    return replace(base, name=name, sources={**base.sources, **sources}, **times)


def _by_key(rates: Mapping[str, FailureRates]) -> dict[str, FailureRates]:
    """Return the rates by the key of every name and alias."""
    return {normalise_key(alias): rates[name] for name, aliases in _names_and_aliases().items() for alias in aliases}


@cache
def _names_and_aliases() -> dict[str, tuple[str, ...]]:
    """Return the name and the aliases of each entry."""
    return {name: (name, *table.get("aliases", ())) for name, table in _file().entries.items()}


@cache
def _file() -> CatalogFile:
    """Return the catalogue file."""
    text = files("opsk.hardware").joinpath("catalog", "failures.toml").read_text(encoding="utf-8")
    return CatalogFile.model_validate(parse_toml(text, origin=_ORIGIN))


@cache
def _catalog() -> dict[str, FailureRates]:
    """Return all published rates by name.

    Raises
    ------
    ConfigError
        Lists what is wrong with the file: fields, sources, entries whose ``like`` is not above them.
    """
    return read_entries(_file().entries.items(), _file().bibliography)


def read_entries(
    entries: Iterable[tuple[str, dict[str, Any]]], bibliography: Mapping[str, str]
) -> dict[str, FailureRates]:
    """Return the rates of catalogue entries by name; each may refer to one above it.

    Raises
    ------
    ConfigError
        Lists all that is wrong.
    """
    rates: dict[str, FailureRates] = {}
    wrong: list[str] = []
    for name, table in entries:
        try:
            entry = RatesEntry.model_validate({"name": name, **table})
        except ValidationError as error:
            wrong += [f"{name}.{line}" for line in format_violations(error).values()]
            continue
        cited, faults = cite(entry, bibliography)
        wrong += [f"{name}.{fault}" for fault in faults]
        if entry.like is not None and entry.like not in rates:
            wrong.append(f"{name}.like: there is no {entry.like!r} above it")
        missing = [field for field in TIMES if entry.like is None and getattr(entry, to_hours_field(field)) is None]
        wrong += [f"{name}: {to_hours_field(field)} missing" for field in missing]
        if isinstance(cited, RatesEntry):
            rates[name] = _build_rates(
                cited, rates.get(entry.like or "", FailureRates(name=name)), name=name, origin=_ORIGIN
            )
    if wrong:
        raise ConfigError(f"{_ORIGIN}: {'; '.join(wrong)}")
    return rates
