"""Numbers the ranks of a plan as Megatron-LM does, and computes how its groups span HB domains and rails.

Megatron-LM numbers ranks with tp fastest, then cp, then dp, then pp (``--rank-order tp-cp-ep-dp-pp``); with
``--use-tp-pp-dp-mapping`` pp and dp change places. Expert-parallel groups are runs of the ranks that share tp and pp,
in rank order: ``ep`` lies inside cp x dp (megatron/core/parallel_state.py, RankGenerator).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from opsk.costmodel.rules import expert_tensor_size
from opsk.errors import PlanInfeasibleError
from opsk.hardware.spec import ClusterSpec
from opsk.workload.plan import Plan

Ranks = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlace:
    """Where the groups of one axis lie.

    Parameters
    ----------
    ranks, stride
        Ranks of a group, and how far apart neighbours are.
    ranks_per_domain, domains
        Ranks of the first group in its first HB domain, and domains that it spans.
    is_rail_aligned
        Whether ranks of different domains have the same place in them, so that their NICs are on one rail.
    """

    axis: str
    ranks: int
    stride: int
    ranks_per_domain: int
    domains: int
    is_rail_aligned: bool


def place_groups(plan: Plan, cluster: ClusterSpec) -> tuple[GroupPlace, ...]:
    """Return the place of every axis that has more than one rank, innermost first.

    tp is innermost, then cp, then dp, pp outermost; experts spread over consecutive ranks of a stage.
    """
    domain = max(cluster.node.hb_domain_gpus, 1)
    etp = expert_tensor_size(plan)
    axes = (
        ("tp", plan.tp, 1),
        ("cp", plan.cp, plan.tp),
        ("ep", plan.ep, etp),
        ("dp", plan.dp, plan.tp * plan.cp),
        ("pp", plan.pp, plan.tp * plan.cp * plan.dp),
    )
    return tuple(_place(axis, ranks, stride, domain) for axis, ranks, stride in axes if ranks > 1)


def _place(axis: str, ranks: int, stride: int, domain: int) -> GroupPlace:
    """Return the place of the groups of one axis."""
    inside = min(ranks, -(-domain // stride))
    domains = (ranks - 1) * stride // domain + 1 if stride < domain else ranks
    return GroupPlace(
        axis=axis,
        ranks=ranks,
        stride=stride,
        ranks_per_domain=inside,
        domains=domains,
        is_rail_aligned=stride % domain == 0 or domain % stride == 0,
    )


class RankOrder(StrEnum):
    """Axes in the order in which rank numbers run through them, fastest first."""

    TP_CP_EP_DP_PP = "tp-cp-ep-dp-pp"
    TP_CP_EP_PP_DP = "tp-cp-ep-pp-dp"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGrid:
    """Rank numbers by coordinate: ``ranks`` has shape (pp, dp, cp, tp)."""

    ranks: Ranks
    ep: int
    order: RankOrder

    @property
    def data(self) -> Ranks:
        """Ranks with the same weights, in rank order: shape (pp, tp, dp x cp)."""
        stages, dp, cp, tp = self.ranks.shape
        return np.sort(self.ranks.transpose(0, 3, 1, 2).reshape(stages, tp, dp * cp), axis=-1)

    @property
    def experts(self) -> Ranks:
        """Ranks of the expert-parallel groups: shape (pp, groups, ep)."""
        stages = self.ranks.shape[0]
        return self.data.reshape(stages, -1, self.ep)

    @property
    def expert_data(self) -> Ranks:
        """Ranks with the same experts: shape (pp, groups, dp x cp / ep)."""
        stages, tp, members = self.data.shape
        split = self.data.reshape(stages, tp, members // self.ep, self.ep)
        return split.transpose(0, 1, 3, 2).reshape(stages, tp * self.ep, members // self.ep)

    def coordinates(self) -> dict[str, Ranks]:
        """Return tp, cp, dp and pp index of every rank, in rank order."""
        where = np.empty((4, self.ranks.size), dtype=np.int64)
        where[:, self.ranks.ravel()] = np.indices(self.ranks.shape).reshape(4, -1)
        return {"pp": where[0], "dp": where[1], "cp": where[2], "tp": where[3]}

    def outermost(self) -> int:
        """Return the size of the axis that runs slowest: pipeline stages, or replicas."""
        axis = 0 if self.order is RankOrder.TP_CP_EP_DP_PP else 1
        return int(self.ranks.shape[axis])


def rank_grid(plan: Plan, order: RankOrder = RankOrder.TP_CP_EP_DP_PP) -> RankGrid:
    """Number the ranks of a plan.

    Raises
    ------
    PlanInfeasibleError
        When expert-parallel groups do not fill dp x cp.
    """
    if plan.dp * plan.cp % plan.ep:
        raise PlanInfeasibleError((f"ep {plan.ep} does not divide dp {plan.dp} x cp {plan.cp}",))
    numbers = np.arange(plan.gpus, dtype=np.int64)
    if order is RankOrder.TP_CP_EP_DP_PP:
        ranks = numbers.reshape(plan.pp, plan.dp, plan.cp, plan.tp)
    else:
        ranks = numbers.reshape(plan.dp, plan.pp, plan.cp, plan.tp).transpose(1, 0, 2, 3)
    return RankGrid(ranks=ranks, ep=plan.ep, order=order)
