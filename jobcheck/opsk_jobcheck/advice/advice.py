"""Defines the advice on one submission: the verdict, and everything that it was concluded from."""

from __future__ import annotations

from dataclasses import dataclass, field

from opsk.costmodel.table import PredictionTable
from opsk.hardware.spec import ClusterSpec
from opsk.planning.placement.placement import Placement
from opsk.workload.advice_record import Verdict
from opsk.workload.completion import Assumption, Completion
from opsk.workload.workload import Problem, Workload
from opsk_jobcheck.advice.node_choice import Sharing
from opsk_jobcheck.advice.suggestions import BestPlan, Suggestion
from opsk_jobcheck.advice.waste import Waste
from opsk_jobcheck.cluster_state.state import LiveState


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementAdvice:
    """The best placement of the ranks on the known fabric.

    Parameters
    ----------
    placement
        Ranks on ``placement.nodes``, the most compact set of nodes of the fabric; ``None`` when ``why_not`` gives the
        reason.
    leaf_groups
        Number of scalable units that the chosen nodes lie in.
    slurm_flags
        Options to pass to Slurm to get such nodes (``--switches=1``).
    fabric_from
        The dump that the fabric was read from: the evidence for all of this.
    asked_nodes
        How many nodes the job needs.
    free_nodes
        Number of eligible nodes that are free now; ``None`` where Slurm was not asked, or where ``live_why_not`` says
        why it is unknown.
    is_free
        True when the chosen nodes are free now; else the most compact of all are shown.
    live
        Slurm's last answer, and its age.
    sharing
        The other users of the links of the chosen nodes.
    """

    placement: Placement | None = None
    leaf_groups: int = 0
    slurm_flags: tuple[str, ...] = ()
    rails: int = 0
    fabric_from: str = ""
    why_not: str = ""
    asked_nodes: int = 0
    free_nodes: int | None = None
    is_free: bool = False
    live: LiveState | None = None
    live_why_not: str = ""
    sharing: Sharing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The answer to one submission.

    ``prediction`` is that of the requested plan alone (see `predict_one`); it is ``None`` when the verdict is
    ``unknown``, and then ``why_unknown`` lists the reasons. ``is_searched`` tells whether other plans were evaluated,
    ``is_short`` that they or the placement were left out because of load; ``is_gpu_known`` whether the requested GPU is
    in the catalogue.
    """

    verdict: Verdict
    workload: Workload
    completion: Completion
    cluster: ClusterSpec | None = None
    cluster_from: str = ""
    prediction: PredictionTable | None = None
    placement: PlacementAdvice = field(default_factory=PlacementAdvice)
    suggestions: tuple[Suggestion, ...] = ()
    best: BestPlan | None = None
    waste: tuple[Waste, ...] = ()
    assumed: tuple[Assumption, ...] = ()
    problems: tuple[Problem, ...] = ()
    why_unknown: tuple[str, ...] = ()
    is_searched: bool = False
    is_short: bool = False
    is_gpu_known: bool = True
