"""Compares a case with those that were measured, and defines the offset that runs of a software family share."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

MEASURED = "measured"
"""Kind of models whose activations were counted layer by layer, and of which no run on a GPU was compared."""
ANY_OTHER = ""
"""Key of the families that have no offset of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwareOffset:
    """What runs of a family of software, or of one cell of it, have in common, as ln(measured / predicted).

    Parameters
    ----------
    time_log, memory_log
        Of the time of a step, and of the memory of a GPU.
    time_log_sigma, memory_log_sigma
        How well that is known of the next run: where ranges count on less, they become narrower. 1 is not at all.
    time_run_log_sigma, memory_run_log_sigma
        Standard deviation of the next run here, by the site's own jobs and measured steps, left out in turn; 0 is not
        known.
    time_jobs, memory_jobs
        Jobs of the site that show it.
    """

    time_log: float = 0.0
    time_log_sigma: float = 1.0
    memory_log: float = 0.0
    memory_log_sigma: float = 1.0
    time_run_log_sigma: float = 0.0
    memory_run_log_sigma: float = 0.0
    time_jobs: float = 0.0
    memory_jobs: float = 0.0


Offsets = Mapping[str, SoftwareOffset]
"""By the name of the family, or of a cell of it (`Case.cells`); ``""`` is any other family."""


def find_offset(offsets: Offsets, software: str, cells: Iterable[str] = ()) -> SoftwareOffset | None:
    """Return the offset of the first known cell, else that of the family; ``None`` where none is known."""
    name = find_cell(offsets, cells)
    return offsets[name] if name else offsets.get(software, offsets.get(ANY_OTHER))


def find_cell(offsets: Offsets, cells: Iterable[str]) -> str:
    """Return the first cell that has an offset; empty where none has."""
    return next((cell for cell in cells if cell in offsets), ANY_OTHER)


ASPECTS = ("gpu", "software", "kind", "precision", "axes")
"""Aspects by which cases are compared; each that no measured run shares widens the range."""
UNKNOWN = ""
"""Kind, precision and axes of a case for which a file states only GPU and software, or no axes: matches all."""
NO_AXIS = "dp"
LOW_PRECISIONS = {"fp8": "fp8", "fp4": "fp4"}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Case:
    """The properties of a run that decide which measured runs are similar to it.

    Parameters
    ----------
    architecture
        Chip generation of its GPU.
    software
        Family of software, by its name.
    kind
        ``dense``, ``moe``, ``hybrid``, ``adapters`` of fine-tuning, or ``measured``; empty is any.
    precision
        ``16-bit`` (and fp32), ``fp8`` or ``fp4``; empty is any.
    axes
        Axes above 1, ``tp-pp``, or ``dp``; empty is any.
    layout, size
        Axes and recomputation, and class of the model's size, see `classify_layout` and `classify_size`; cases that
        differ in these alone are the same.
    """

    architecture: str
    software: str
    kind: str = UNKNOWN
    precision: str = UNKNOWN
    axes: str = UNKNOWN
    layout: str = field(default=UNKNOWN, compare=False)
    size: str = field(default=UNKNOWN, compare=False)

    @property
    def cells(self) -> tuple[str, ...]:
        """Names of the jobs that a site's offsets tell apart, from narrow to wide; empty without a size.

        ``pytorch/hopper/dense/dp-full/8b``, then without the size, then software and chip generation alone.
        """
        if not self.size:
            return ()
        machine = f"{self.software}/{self.architecture}"
        kind = self.kind if self.precision not in LOW_PRECISIONS else f"{self.kind}-{self.precision}"
        layout = f"{machine}/{kind}/{self.layout}"
        return f"{layout}/{self.size}", layout, machine

    @property
    def name(self) -> str:
        """The name in an efficiency file: ``hopper/pytorch/dense/16-bit/tp-pp``."""
        parts = [self.architecture, self.software]
        if self.kind or self.precision or self.axes:
            parts += [self.kind, self.precision]
        return "/".join([*parts, self.axes] if self.axes else parts)

    @classmethod
    def parse(cls, name: str) -> Case:
        """Parse the name of a case."""
        architecture, software, *rest = name.split("/")
        kind, precision, axes = (*rest, UNKNOWN, UNKNOWN, UNKNOWN)[:3]
        return cls(architecture=architecture, software=software, kind=kind, precision=precision, axes=axes)


def build_case(model: ModelShape, plan: Plan, cluster: ClusterSpec) -> Case:
    """Return the case of a plan for a model on a cluster."""
    return Case(
        architecture=cluster.node.gpu.architecture,
        software=plan.software.value,
        kind=classify_kind(model, plan),
        precision=LOW_PRECISIONS.get(plan.precision.peak_format, "16-bit"),
        axes="-".join(list_axes(plan)),
        layout=classify_layout(plan),
        size=classify_size(model),
    )


def list_axes(plan: Plan) -> list[str]:
    """Return the axes above 1, of tp, pp, cp and ep; ``dp`` alone where there is no such axis."""
    return [axis for axis in ("tp", "pp", "cp", "ep") if getattr(plan, axis) > 1] or [NO_AXIS]


def classify_layout(plan: Plan) -> str:
    """Return the axes above 1 and what is recomputed: ``tp-pp-selective``; ``dp-none`` where there is no such axis."""
    return "-".join([*list_axes(plan), plan.recompute.value])


def classify_size(model: ModelShape) -> str:
    """Return the class of a model's size, in steps of a factor of two: ``8b`` holds 5.7 to 11.3 billion weights.

    The weights of projections, experts and embeddings are counted roughly: classes need no more.
    """
    mlp = model.ffn if not model.experts else model.expert_ffn * model.experts
    layer = 4 * model.hidden**2 + (3 if model.gated_mlp else 2) * model.hidden * mlp
    weights = model.layers * layer + model.vocab * model.hidden
    return f"{2.0 ** round(math.log2(weights / 1e9)):g}b" if weights > 0 else UNKNOWN


def classify_kind(model: ModelShape, plan: Plan) -> str:
    """Return the kind of a model and its training."""
    if model.measured is not None:
        return MEASURED
    if plan.lora_rank:
        return "adapters"
    if model.mixer_layers or model.mlp_layers:
        return "hybrid"
    return "moe" if model.experts else "dense"


def find_missing_aspects(case: Case, measured: Collection[Case]) -> frozenset[str]:
    """Return which `ASPECTS` of a case no measured run shares; none where it is not known what was measured.

    The software is compared on the same chip generation, and on all where the generation itself is new. Kind and
    precision are compared with the same software or the same generation, axes with the same software: a run that
    combined more of them is near, too.
    """
    if not measured:
        return frozenset()
    same_gpu = [known for known in measured if known.architecture == case.architecture]
    aspects = set() if same_gpu else {"gpu"}
    if all(known.software != case.software for known in same_gpu or measured):
        aspects.add("software")
    similar = [
        known for known in measured if known.architecture == case.architecture or known.software == case.software
    ]
    if all(known.kind not in (case.kind, UNKNOWN) for known in similar) and case.kind:
        aspects.add("kind")
    comparable = same_gpu or similar
    if all(known.precision not in (case.precision, UNKNOWN) for known in comparable) and case.precision:
        aspects.add("precision")
    if _lacks_axes(case, measured):
        aspects.add("axes")
    return frozenset(aspects)


def _lacks_axes(case: Case, measured: Collection[Case]) -> bool:
    """Return whether no run with the case's software, where it was measured at all, combined its axes."""
    needed = set(case.axes.split("-")) - {NO_AXIS, UNKNOWN}
    combined = [known.axes for known in measured if known.software == case.software]
    return bool(needed and combined) and not any(not axes or needed <= set(axes.split("-")) for axes in combined)


HELD_LOG_ERROR = 0.25
"""A run is predicted where ln(predicted / measured) is within this: twice the spread of runs near to others."""


def select_held(cases: Sequence[Case], log_errors: Iterable[float]) -> frozenset[Case]:
    """Return the cases of which at least half of the runs are predicted: no other tells of what is near to it."""
    held: dict[Case, list[bool]] = {}
    for case, error in zip(cases, log_errors, strict=True):
        held.setdefault(case, []).append(abs(error) <= HELD_LOG_ERROR)
    return frozenset(case for case, runs in held.items() if 2 * sum(runs) >= len(runs))
