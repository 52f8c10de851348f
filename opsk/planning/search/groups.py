"""Computes how the groups of a plan span HB domains and rails, with ranks numbered as in Megatron-LM."""

from __future__ import annotations

from dataclasses import dataclass

from opsk.costmodel.rules import expert_tensor_size
from opsk.hardware.spec import ClusterSpec
from opsk.workload.plan import Plan


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


def groups_of(plan: Plan, cluster: ClusterSpec) -> tuple[GroupPlace, ...]:
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
