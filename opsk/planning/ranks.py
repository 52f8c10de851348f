"""Numbers the ranks of a plan as Megatron-LM does, and lists the groups of each rank.

Megatron-LM numbers ranks with tp fastest, then cp, then dp, then pp (``--rank-order tp-cp-ep-dp-pp``); with
``--use-tp-pp-dp-mapping`` pp and dp change places. Expert-parallel groups are runs of the ranks that share tp and pp,
in rank order: ``ep`` lies inside cp x dp (megatron/core/parallel_state.py, RankGenerator).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from opsk.errors import PlanInfeasibleError
from opsk.workload.plan import Plan

Ranks = npt.NDArray[np.int64]


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
