"""Defines the efficiency parameters that a fit can move, their scales and their priors.

A fit works on a vector of numbers without bounds where possible: logit of a fraction, logarithm of a size or a time.
Members of a section (chip generations, software families) are pooled: each is drawn towards a shared value, which is
drawn towards the prior; one without runs gets the shared value. The section's field names decide the scale, so a new
field of `opsk.costmodel.efficiency.efficiency` needs no line here unless its prior is special.

Priors come from published micro-benchmarks and documentation of kernels and libraries, not from runs that a fit uses. A
width is one standard deviation on the parameter's scale (of a logit for fractions, of a logarithm for sizes and times,
of the value itself for overlaps).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from types import MappingProxyType
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


PRODUCTS = "large products under load, benchmarks/published/variants.csv"
SYSTOLIC = "large products on systolic arrays, TPU and Gaudi 2: 80 to 99 % of the peak in reports, recalled"
KERNELS = "benchmarks of attention kernels, benchmarks/published/attention_fits.csv, within 12 %"
STREAM = "copies and streams, benchmarks/published/gpus.md: median 0.83 to 0.88"
NCCL = "nccl-tests, benchmarks/published/links.csv"
SMALL = "nccl-tests of 1 MiB over the hops of a ring, benchmarks/published/links.csv"
TILES = "half the rate at about one tile of 128 x 256, NVIDIA's Matrix Multiplication Background guide"
OLD = "Megatron before Core and the first ZeRO-3 start nothing before the computation beside it ends"
ANY = "any share, from none to all"
PREFETCH = "the next is fetched beside the layer at work (Zhao et al. 2023, arXiv 2304.11277, section 3.3)"
RING = "chunks travel beside attention (Liu et al. 2023, arXiv 2310.01889, section 3)"
PASSES = "data that frameworks move over the least (Ivanov et al. 2021, arXiv 2007.00072: up to 1.3 times)"
COMPILED = "training 1.41 times as fast when compiled (Ansel et al. 2024, PyTorch 2, ASPLOS)"
OPTIMIZERS = "host time of optimizer steps, 6 to 187 ms, benchmarks/published/host.md"
SLOWEST = "one machine of 200 is a tenth slower (Jiang et al. 2024, MegaScale, arXiv 2402.15627)"
"""Sources of priors, as written to an efficiency file."""


def _fraction(centre: float, width: float, source: str) -> Prior:
    return Prior(centre=centre, width=width, scale=Scale.LOGIT, source=source)


def _amount(centre: float, width: float, source: str) -> Prior:
    return Prior(centre=centre, width=width, scale=Scale.LOG, source=source)


def _overlap(centre: float, width: float, source: str, *, high: float = 1.0) -> Prior:
    return Prior(centre=centre, width=width, scale=Scale.LINEAR, low=0.0, high=high, source=source)


PRIORS: Mapping[str, Prior] = MappingProxyType(
    {
        # what large products sustain on the usual GPU of a generation (benchmarks/published/variants.csv), within 8 %
        "gpu.matmul_fraction": _fraction(0.65, 0.30, PRODUCTS),
        "gpu.ampere.matmul_fraction": _fraction(0.80, 0.40, PRODUCTS),
        "gpu.ada.matmul_fraction": _fraction(0.59, 0.20, PRODUCTS),
        "gpu.hopper.matmul_fraction": _fraction(0.70, 0.27, PRODUCTS),
        "gpu.blackwell.matmul_fraction": _fraction(0.61, 0.20, PRODUCTS),
        "gpu.blackwell-ultra.matmul_fraction": _fraction(0.67, 0.24, PRODUCTS),
        "gpu.blackwell-rtx.matmul_fraction": _fraction(0.79, 0.38, PRODUCTS),
        "gpu.cdna2.matmul_fraction": _fraction(0.62, 0.20, PRODUCTS),
        "gpu.cdna3.matmul_fraction": _fraction(0.54, 0.17, PRODUCTS),
        "gpu.cdna4.matmul_fraction": _fraction(0.57, 0.19, PRODUCTS),
        "gpu.turing.matmul_fraction": _fraction(0.45, 0.15, PRODUCTS),
        "gpu.volta.matmul_fraction": _fraction(0.72, 0.30, PRODUCTS),
        "gpu.pascal.matmul_fraction": _fraction(0.80, 0.40, PRODUCTS),
        "gpu.tpu.matmul_fraction": _fraction(0.85, 0.30, SYSTOLIC),
        "gpu.gaudi.matmul_fraction": _fraction(0.85, 0.30, SYSTOLIC),
        "gpu.fp8_fraction": _fraction(0.60, 0.25, PRODUCTS),
        "gpu.ada.fp8_fraction": _fraction(0.54, 0.20, PRODUCTS),
        "gpu.hopper.fp8_fraction": _fraction(0.66, 0.24, PRODUCTS),
        "gpu.blackwell.fp8_fraction": _fraction(0.57, 0.19, PRODUCTS),
        "gpu.blackwell-ultra.fp8_fraction": _fraction(0.64, 0.22, PRODUCTS),
        "gpu.blackwell-rtx.fp8_fraction": _fraction(0.78, 0.36, PRODUCTS),
        "gpu.cdna3.fp8_fraction": _fraction(0.49, 0.16, PRODUCTS),
        "gpu.cdna4.fp8_fraction": _fraction(0.49, 0.16, PRODUCTS),
        "gpu.fp4_fraction": _fraction(0.42, 0.25, PRODUCTS),
        "gpu.blackwell.fp4_fraction": _fraction(0.51, 0.20, PRODUCTS),
        "gpu.blackwell-ultra.fp4_fraction": _fraction(0.42, 0.20, PRODUCTS),
        # tiles of 128 x 256 and the fill of the pipeline: a dimension of about one tile halves the rate
        "gpu.matmul_size": _amount(120.0, 0.4, TILES),
        # kernels in training against their own benchmarks
        "gpu.attention_factor": _amount(1.0, 0.12, KERNELS),
        # stream-like kernels reach 80 to 92 % of the memory's peak
        "gpu.hbm_fraction": _fraction(0.82, 0.44, STREAM),
        # modules of a framework read and write a little more than the fused kernels counted here; Megatron's are those
        "software.elementwise_factor": _amount(1.2, 0.1, PASSES),
        "software.megatron.elementwise_factor": _amount(1.0, 0.2, PASSES),
        "software.compiled_fraction": _fraction(0.70, 0.67, COMPILED),
        "software.kernel_gap_s": _amount(3e-6, 0.4, "gaps of 0.6 to 5 us, benchmarks/published/host.md"),
        "software.step_overhead_s": _amount(0.02, 0.7, OPTIMIZERS),
        # the optimizers of these benchmarks are PyTorch's own; the others have one kernel for many tensors
        "software.pytorch.step_overhead_s": _amount(0.036, 0.7, OPTIMIZERS),
        # Megatron before Core overlapped neither gradients nor messages; DeepSpeed's first ZeRO-3 little
        "software.dp_overlap": _overlap(0.5, 0.3, ANY),
        "software.megatron.dp_overlap": _overlap(0.05, 0.1, OLD),
        "software.pp_overlap": _overlap(0.3, 0.3, ANY),
        "software.megatron.pp_overlap": _overlap(0.05, 0.1, OLD),
        "software.fsdp_overlap": _overlap(0.8, 0.2, PREFETCH),
        "software.deepspeed.fsdp_overlap": _overlap(0.3, 0.3, OLD),
        "software.tp_overlap": _overlap(0.5, 0.3, ANY),
        "software.cp_overlap": _overlap(0.8, 0.2, RING),
        "software.ep_overlap": _overlap(0.3, 0.3, ANY),
        "software.straggler_fraction": _overlap(0.005, 0.004, SLOWEST, high=0.1),
        # nccl-tests: all_reduce busbw of 8 A100 about 230 of 300 GB/s, of 8 H100 about 360 of 450; rails 85 to 97 %
        "links.hb_fraction": _fraction(0.78, 0.36, NCCL),
        "links.nic_fraction": _fraction(0.92, 0.75, NCCL),
        "links.hb_hop_s": _amount(3e-6, 0.4, SMALL),
        "links.nic_hop_s": _amount(1.2e-5, 0.5, SMALL),
    }
)
"""Prior of a ``section.field``, or of a ``section.member.field``."""
