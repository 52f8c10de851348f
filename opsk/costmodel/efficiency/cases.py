"""Compares a case with those that were measured, and defines the offset that runs of a software family share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

MEASURED = "measured"
"""Kind of models whose activations were counted layer by layer, and of which no run on a GPU was compared."""
ANY_OTHER = ""
"""Key of the families that have no offset of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwareOffset:
    """What runs of a family of software have in common beyond what is predicted, as ln(measured / predicted).

    Parameters
    ----------
    time_log, memory_log
        Of the time of a step, and of the memory of a GPU.
    time_log_sigma, memory_log_sigma
        How well that is known of the next run: where ranges count on less, they become narrower. 1 is not at all.
    """

    time_log: float = 0.0
    time_log_sigma: float = 1.0
    memory_log: float = 0.0
    memory_log_sigma: float = 1.0


Offsets = Mapping[str, SoftwareOffset]
"""By the family's name; ``""`` is any other."""


def find_offset(offsets: Offsets, software: str) -> SoftwareOffset | None:
    """Return the offset of a family, ``None`` where none is known."""
    return offsets.get(software, offsets.get(ANY_OTHER))


ASPECTS = ("gpu", "software", "kind", "precision")
"""Aspects by which cases are compared; each that no measured run shares widens the range."""
UNKNOWN = ""
"""Kind and precision of a case for which a file states only GPU and software: matches all."""
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
    """

    architecture: str
    software: str
    kind: str = UNKNOWN
    precision: str = UNKNOWN

    @property
    def name(self) -> str:
        """The name in an efficiency file: ``hopper/pytorch/dense/16-bit``."""
        parts = [self.architecture, self.software]
        return "/".join([*parts, self.kind, self.precision] if self.kind or self.precision else parts)

    @classmethod
    def parse(cls, name: str) -> Case:
        """Parse the name of a case."""
        architecture, software, *rest = name.split("/")
        kind, precision = rest if len(rest) == 2 else (UNKNOWN, UNKNOWN)
        return cls(architecture=architecture, software=software, kind=kind, precision=precision)


def build_case(model: ModelShape, plan: Plan, cluster: ClusterSpec) -> Case:
    """Return the case of a plan for a model on a cluster."""
    return Case(
        architecture=cluster.node.gpu.architecture,
        software=plan.software.value,
        kind=classify_kind(model, plan),
        precision=LOW_PRECISIONS.get(plan.precision.peak_format, "16-bit"),
    )


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
    precision are compared with the same software or the same generation.
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
    return frozenset(aspects)
