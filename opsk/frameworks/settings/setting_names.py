"""Defines the table of a framework whose settings are names with values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from opsk.workload.plan import Recompute, Sharding


class Style(StrEnum):
    """The syntax of a setting with a value: ``--name value``, ``name=value``, or a line of a file."""

    FLAG = "flag"
    OVERRIDE = "override"
    FILE = "file"


NamedValues = tuple[tuple[str, str], ...]
"""Names of settings with their values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingNames:
    """The names of one framework's settings.

    Parameters
    ----------
    numbers
        Name by field of the plan; ``micro_batches`` is the number of steps of gradient accumulation.
    recompute, sharding
        Names and values by mode.
    sequence_parallel
        Name and value of "on".
    sharding_file
        The file of the ``sharding`` settings, where it is a separate one.
    computes_batch
        Whether the framework computes the global batch from accumulation, which then has to follow a change of
        replicas.
    """

    style: Style
    numbers: Mapping[str, str]
    recompute: Mapping[Recompute, NamedValues] = field(default_factory=dict)
    sharding: Mapping[Sharding, NamedValues] = field(default_factory=dict)
    sequence_parallel: tuple[str, str] | None = None
    sharding_file: str = ""
    computes_batch: bool = False


def first_names(table: Mapping[str, str], *fields: str) -> dict[str, str]:
    """Return for each field of the plan the first name that a table lists for it."""
    return {field_: next(name for name, stated in table.items() if stated == f"plan.{field_}") for field_ in fields}
