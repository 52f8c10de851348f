"""How near to runs that were measured is a case: its GPU, the software on it, the kind of model, the number format?"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

ASPECTS = ("gpu", "software", "kind", "precision")
"""What a case can lack; each that no measured run is like makes its range wider."""
UNKNOWN = ""
"""Kind and precision of a combination of which a file says only GPU and software: taken for all."""
FEWEST_BITS = {"fp8": "fp8", "fp4": "fp4"}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Case:
    """What decides how far other runs tell about one.

    Parameters
    ----------
    architecture
        Chip generation of its GPU.
    software
        Family of software, by its name.
    kind
        ``dense``, ``moe``, ``hybrid``, or ``adapters`` of fine-tuning; empty is any.
    precision
        ``16-bit`` (and fp32), ``fp8`` or ``fp4``; empty is any.
    """

    architecture: str
    software: str
    kind: str = UNKNOWN
    precision: str = UNKNOWN

    @property
    def name(self) -> str:
        """As an efficiency file writes it: ``hopper/pytorch/dense/16-bit``."""
        parts = [self.architecture, self.software]
        return "/".join([*parts, self.kind, self.precision] if self.kind or self.precision else parts)

    @classmethod
    def named(cls, name: str) -> Case:
        """Return the case that a file writes so."""
        architecture, software, *rest = name.split("/")
        kind, precision = rest if len(rest) == 2 else (UNKNOWN, UNKNOWN)
        return cls(architecture=architecture, software=software, kind=kind, precision=precision)


def case_of(model: ModelShape, plan: Plan, cluster: ClusterSpec) -> Case:
    """Return the case of a plan for a model on a cluster."""
    return Case(
        architecture=cluster.node.gpu.architecture,
        software=plan.software.value,
        kind=kind_of(model, plan),
        precision=FEWEST_BITS.get(plan.precision.peak_format, "16-bit"),
    )


def kind_of(model: ModelShape, plan: Plan) -> str:
    """Return the kind of a model and its training."""
    if plan.lora_rank:
        return "adapters"
    if model.mixer_layers or model.mlp_layers:
        return "hybrid"
    return "moe" if model.experts else "dense"


def missing(case: Case, measured: Collection[Case]) -> frozenset[str]:
    """Return which `ASPECTS` of a case no measured run shares; none where nobody says what was measured.

    The software is looked for on the same chip generation, and anywhere where the generation itself is new. Kind and
    precision are looked for with the same software or the same generation.
    """
    if not measured:
        return frozenset()
    on_gpu = [known for known in measured if known.architecture == case.architecture]
    found = set() if on_gpu else {"gpu"}
    if all(known.software != case.software for known in on_gpu or measured):
        found.add("software")
    near = [known for known in measured if known.architecture == case.architecture or known.software == case.software]
    if all(known.kind not in (case.kind, UNKNOWN) for known in near) and case.kind:
        found.add("kind")
    of_chip = on_gpu or near
    if all(known.precision not in (case.precision, UNKNOWN) for known in of_chip) and case.precision:
        found.add("precision")
    return frozenset(found)
