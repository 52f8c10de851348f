"""Defines the efficiency parameters that a fit can move, and their scales.

A fit works on a vector of numbers without bounds where possible: logit of a fraction, logarithm of a size or a time.
Members of a section (chip generations, software families) are pooled: each is drawn towards a shared value, which is
drawn towards the prior; one without runs gets the shared value. The section's field names decide the scale, so a new
field of `opsk.costmodel.efficiency.efficiency` needs no line here unless its prior is special.

The priors themselves are in `opsk.calibration.fitting.priors`. A width is one standard deviation on the parameter's
scale (of a logit for fractions, of a logarithm for sizes and times, of the value itself for overlaps).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any

import numpy as np

from opsk.costmodel.efficiency.efficiency import Efficiency, GpuEfficiency, LinkEfficiency, SoftwareEfficiency
from opsk.costmodel.table import FloatColumn
from opsk.workload.plan import Software

BY_KIND = "what such a number can be"
"""Source of the prior of a number without other information."""
POOLED = ""
"""Member of a section that represents all others."""
MEMBER_WIDTH = 0.5
"""Width of a member's prior around the shared value, over the shared value's own prior width."""


SITE_WIDENING = 2.0
"""Width of a parameter at one site over that of the fit to all sources, which assumes a complete model.

Chosen among 1, 2 and 3 with ``benchmarks.learning.site_learning`` on an earlier model, whose errors became smaller with
it. That benchmark asked a fit for no proof that it helps; with one, and 2, three runs leave 0.756 of the error.
"""


class Scale(Enum):
    """How a parameter is mapped to the real numbers."""

    LOGIT = "logit"
    LOG = "log"
    LINEAR = "linear"

    def coordinate(self, value: float) -> float:
        """Return the coordinate of a value."""
        if self is Scale.LOGIT:
            return math.log(value / (1.0 - value))
        return math.log(value) if self is Scale.LOG else value

    def value_at(self, coordinate: float) -> float:
        """Return the value at a coordinate."""
        if self is Scale.LOGIT:
            return 1.0 / (1.0 + math.exp(-coordinate))
        return math.exp(coordinate) if self is Scale.LOG else coordinate

    def slope(self, coordinate: float) -> float:
        """Return the change of the value with its coordinate."""
        value = self.value_at(coordinate)
        if self is Scale.LOGIT:
            return value * (1.0 - value)
        return value if self is Scale.LOG else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """The prior of a parameter: a normal distribution on its scale.

    ``centre`` and the bounds ``low`` and ``high`` are values; ``width`` is one standard deviation of the coordinate;
    ``source`` is the origin of the prior.
    """

    centre: float
    width: float
    scale: Scale
    low: float = -math.inf
    high: float = math.inf
    source: str = BY_KIND


_ENDINGS: tuple[tuple[str, Scale, float, float, float], ...] = (
    ("straggler_fraction", Scale.LINEAR, 0.01, 0.0, 0.2),
    ("trainer_fraction", Scale.LINEAR, 0.1, 0.0, 0.5),
    ("_overlap", Scale.LINEAR, 0.3, 0.0, 1.0),
    ("_fraction", Scale.LOGIT, 0.7, 0.0, 1.0),
    ("_size", Scale.LOG, 0.7, 0.0, math.inf),
    ("_factor", Scale.LOG, 0.3, 0.0, math.inf),
    ("_bytes", Scale.LOG, 0.5, 0.0, math.inf),
    ("_s", Scale.LOG, 0.7, 0.0, math.inf),
)
"""Suffix of a field's name to its scale, the width of its prior on it, and its bounds as values.

Chosen by what such a number can physically be: a fraction of 0.75 lies in 0.60 to 0.86, a time or a size within a
factor of two, traffic within a third, an overlap nearly anywhere.
"""
_ZERO_WIDTH = 0.1
"""Width of the prior of a field whose prior value is 0, where a logarithm is undefined."""


def build_prior(field: str, centre: float) -> Prior:
    """Return the prior of a field by the suffix of its name.

    Raises
    ------
    KeyError
        No suffix matches: the field needs a rule.
    """
    for ending, scale, width, low, high in _ENDINGS:
        if field.endswith(ending):
            if scale is not Scale.LINEAR and not low < centre < high:
                return Prior(centre=centre, width=_ZERO_WIDTH, scale=Scale.LINEAR, low=low, high=high)
            return Prior(centre=centre, width=width, scale=scale, low=low, high=high)
    raise KeyError(f"no rule for the prior of {field}: add its ending to {__name__}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One number that a fit moves: a ``field`` of a ``section``, of one ``member`` where the section has several."""

    section: str
    member: str
    field: str
    prior: Prior
    is_pooled: bool = False

    @property
    def name(self) -> str:
        """Name as in an efficiency file: ``gpu.hopper.matmul_fraction``, ``links.nic_fraction``."""
        return ".".join(
            part for part in (self.section, self.member or (self.is_pooled and "other"), self.field) if part
        )


_SECTIONS: Mapping[str, type[Any]] = {
    "gpu": GpuEfficiency,
    "software": SoftwareEfficiency,
    "links": LinkEfficiency,
}
"""Sections of `Efficiency` that decide the time of a step."""
MEMBERED = ("gpu", "software")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSpace:
    """The parameters of a fit, in the order of the vector.

    Parameters
    ----------
    parameters
        Shared value first, then the members, field by field.
    parents
        For every parameter the index of the one that it is drawn towards; -1 is its own prior.
    base
        Source of all other values: memory, spread.
    """

    parameters: tuple[Parameter, ...]
    parents: tuple[int, ...]
    base: Efficiency

    @classmethod
    def over(
        cls,
        architectures: Iterable[str],
        software: Iterable[Software],
        *,
        base: Efficiency | None = None,
        priors: Mapping[str, Prior] | None = None,
    ) -> ParameterSpace:
        """Return the space for runs on these chip generations with these software families.

        ``priors`` replaces the prior of a ``section.field``, or of a ``section.member.field``, which then is not
        drawn towards the shared value.
        """
        special = priors or {}
        members = {"gpu": sorted(set(architectures) - {POOLED}), "software": sorted({item.value for item in software})}
        parameters: list[Parameter] = []
        parents: list[int] = []
        for section, kind in _SECTIONS.items():
            for field in fields(kind):
                prior = special.get(f"{section}.{field.name}") or build_prior(
                    field.name, kind().__getattribute__(field.name)
                )
                shared = len(parameters)
                is_pooled = section in MEMBERED
                parameters.append(
                    Parameter(section=section, member=POOLED, field=field.name, prior=prior, is_pooled=is_pooled)
                )
                parents.append(-1)
                for member in members.get(section, ()):
                    member_prior = special.get(f"{section}.{member}.{field.name}")
                    drawn = member_prior or replace(prior, width=prior.width * MEMBER_WIDTH)
                    parameters.append(Parameter(section=section, member=member, field=field.name, prior=drawn))
                    parents.append(-1 if member_prior else shared)
        return cls(parameters=tuple(parameters), parents=tuple(parents), base=base or Efficiency())

    @classmethod
    def around(
        cls,
        architectures: Iterable[str],
        software: Iterable[Software],
        *,
        base: Efficiency,
        priors: Mapping[str, Prior] | None = None,
    ) -> ParameterSpace:
        """Return the space of a site's runs: priors centred on ``base``, as wide as its values are uncertain.

        Where ``base`` was not fitted, the width is that of ``priors``. Nothing is pooled, and members without runs stay
        as in ``base``.
        """
        full_space = cls.over(architectures, software, base=base, priors=priors)
        matrix, _ = full_space.prior_matrix()
        widths = np.sqrt(np.diag(np.linalg.inv(matrix.T @ matrix)))
        parameters: list[Parameter] = []
        for item, width in zip(full_space.parameters, widths, strict=True):
            value = full_space.value_in(base, item)
            is_off = item.prior.scale is not Scale.LINEAR and not item.prior.low < value < item.prior.high
            if item.is_pooled or is_off:
                continue
            known = base.widths.get(item.name, float(width))
            prior = replace(item.prior, centre=value, width=SITE_WIDENING * known)
            parameters.append(replace(item, prior=prior))
        return cls(parameters=tuple(parameters), parents=(-1,) * len(parameters), base=base)

    def __len__(self) -> int:
        """Return the number of parameters."""
        return len(self.parameters)

    def centre(self) -> FloatColumn:
        """Return the vector of the priors' centres."""
        return np.array([item.prior.scale.coordinate(item.prior.centre) for item in self.parameters])

    def bounds(self) -> tuple[FloatColumn, FloatColumn]:
        """Return the least and the greatest vector; a logit or a logarithm needs none."""
        limits = [
            (item.prior.low, item.prior.high) if item.prior.scale is Scale.LINEAR else (-math.inf, math.inf)
            for item in self.parameters
        ]
        low, high = zip(*limits, strict=True)
        return np.array(low), np.array(high)

    def prior_matrix(self) -> tuple[FloatColumn, FloatColumn]:
        """Return ``A, b`` so that ``A @ vector - b`` is how far each parameter is from its prior, in widths."""
        size = len(self)
        matrix, offset, centre = np.zeros((size, size)), np.zeros(size), self.centre()
        for index, (item, parent) in enumerate(zip(self.parameters, self.parents, strict=True)):
            matrix[index, index] = 1.0 / item.prior.width
            if parent < 0:
                offset[index] = centre[index] / item.prior.width
            else:
                matrix[index, parent] = -1.0 / item.prior.width
        return matrix, offset

    def values(self, vector: FloatColumn) -> list[float]:
        """Return the values of all parameters at a vector."""
        return [
            item.prior.scale.value_at(float(coordinate))
            for item, coordinate in zip(self.parameters, vector, strict=True)
        ]

    def slopes(self, vector: FloatColumn) -> FloatColumn:
        """Return the change of each value with its coordinate."""
        return np.array(
            [
                item.prior.scale.slope(float(coordinate))
                for item, coordinate in zip(self.parameters, vector, strict=True)
            ]
        )

    def value_in(self, efficiency: Efficiency, item: Parameter) -> float:
        """Return the value of a parameter in given efficiencies."""
        if item.section == "gpu":
            return float(getattr(efficiency.for_gpu(item.member), item.field))
        if item.section == "software":
            given = efficiency.software.get(Software(item.member)) if item.member else None
            return float(getattr(given or SoftwareEfficiency(), item.field))
        return float(getattr(getattr(efficiency, item.section), item.field))

    def efficiency(self, vector: FloatColumn) -> Efficiency:
        """Return the efficiencies at a vector; families without runs get the shared values, where there are any."""
        tables: dict[tuple[str, str], dict[str, float]] = {}
        for item, value in zip(self.parameters, self.values(vector), strict=True):
            tables.setdefault((item.section, item.member), {})[item.field] = value
        gpu, software = dict(self.base.gpu), dict(self.base.software)
        if ("gpu", POOLED) in tables:
            gpu = {}
        shared = tables.get(("software", POOLED))
        if shared is not None:
            software = dict.fromkeys(Software, SoftwareEfficiency(**shared))
        for (section, member), table in tables.items():
            if section == "gpu":
                gpu[member] = replace(self.base.for_gpu(member), **table)
            elif section == "software" and member != POOLED:
                family = Software(member)
                software[family] = replace(software.get(family, SoftwareEfficiency()), **table)
        links = replace(self.base.links, **tables.get(("links", POOLED), {}))
        return replace(self.base, gpu=gpu, software=software, links=links)


def group_parameters(space: ParameterSpace) -> Sequence[tuple[int, ...]]:
    """Return indices of parameters that no run shares: one field of all members of a section.

    They can be varied together, and the effect of each is read from its own runs.
    """
    groups: dict[tuple[str, str], list[int]] = {}
    for index, item in enumerate(space.parameters):
        groups.setdefault((item.section, item.field), []).append(index)
    return [tuple(indices) for indices in groups.values()]
