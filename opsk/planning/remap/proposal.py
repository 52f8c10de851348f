"""Defines a proposal, an option before it is written out: its placement, its plan and its verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from opsk.planning.placement.evaluation import SAME, Verdicts, is_better, judge
from opsk.planning.remap.baseline_loads import evaluate_change
from opsk.planning.remap.failure import FailureImpact
from opsk.planning.remap.situation import Mask, Situation
from opsk.planning.remap.terms import Terms
from opsk.planning.remap.values import Kind, Part, Way
from opsk.planning.routing.hca_ports import Index
from opsk.workload.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One option: the slot of every rank of ``plan``, and the verdict.

    ``verdict`` is ``None`` where ``step_s`` is the cost model's alone. ``renumbered`` is true where ranks have other
    numbers than before. ``lost`` replaces the loss over a horizon where an option does not last it.
    """

    kind: Kind
    title: str
    way: Way
    plan: Plan
    node: Index
    gpu: Index
    step_s: float
    verdict: Verdicts | None = None
    renumbered: bool = False
    switches: bool = False
    needs: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    lost: Callable[[Terms], tuple[Part, ...]] | None = None


def judge_slots(
    situation: Situation, impact: FailureImpact, node: Index, gpu: Index, *, port: Index | None = None
) -> Verdicts:
    """Return the verdict on slots of the same plan, with the remaining HCAs.

    ``port`` replaces the ports of ranks where it is not negative.
    """
    job = replace(situation.job, ports=impact.ports)
    rank_placement = impact.place_ranks(situation, node, gpu)
    if port is not None:
        rank_placement = replace(rank_placement, port=np.where(port >= 0, port, rank_placement.port[0])[None, :])
    verdict = evaluate_change(job, situation.baseline, rank_placement)
    return judge(job, rank_placement) if verdict is None else verdict


def as_good_as_today(situation: Situation, verdict: Verdicts) -> bool:
    """Return whether a step is no longer than today's: then nodes farther away need not be evaluated."""
    return bool(verdict.step_s[0] <= situation.verdict.step_s[0] * (1.0 + SAME))


def is_preferred(situation: Situation, verdict: Verdicts, moved: int, best: Verdicts | None, best_moved: int) -> bool:
    """Return whether slots are better than the best so far: by step, then by fewest moves, then by `is_better`."""
    if best is None:
        return True
    ours, its = float(verdict.step_s[0]), float(best.step_s[0])
    if ours != its and not abs(ours - its) <= SAME * min(ours, its):
        return ours < its
    return moved < best_moved or (moved == best_moved and is_better(verdict, best, situation.job.step))


def copy_current_slots(situation: Situation) -> tuple[Index, Index]:
    """Return copies of node and GPU of every rank."""
    return situation.rank_placement.node[0].copy(), situation.rank_placement.gpu[0].copy()


def find_affected_ranks(situation: Situation, impact: FailureImpact) -> Index:
    """Return the ranks that should move: those on dead GPUs, and those that fall back to another HCA."""
    return np.union1d(impact.find_affected(situation), impact.find_fallen_back(situation))


def find_healthy_nodes(situation: Situation, impact: FailureImpact) -> Mask:
    """Return the nodes on which every GPU is healthy, idle, and uses its own HCA."""
    ports = situation.job.ports
    gpu_ok = ~impact.dead & situation.idle & (impact.ports.port == ports.port)
    drained = np.array([node in impact.failure.drain for node in situation.job.nodes], dtype=np.bool_)
    is_healthy: Mask = gpu_ok.all(axis=1) & ~drained & ~impact.dead_nodes
    return is_healthy


def match_gpus(
    situation: Situation, current: Sequence[int], there: int, free: Sequence[int], ranks: Index
) -> list[int]:
    """Return a GPU of node ``there`` for each rank: on the rail of the rank's GPU, of the same number where that is it.

    Parameters
    ----------
    current
        GPU number of each rank today.
    free
        GPUs that can be taken, at least as many as ranks.
    """
    ports = situation.job.ports
    rail = [int(ports.rail[port]) for port in situation.rank_placement.port[0, ranks]]
    rail_there = {gpu: int(ports.rail[ports.port[there, gpu]]) for gpu in free}
    left = list(free)
    chosen = [-1] * len(rail)
    for is_good in (_same_slot, _same_rail, _any_slot):
        for index, (gpu_today, rail_today) in enumerate(zip(current, rail, strict=True)):
            matching = [
                gpu for gpu in left if chosen[index] < 0 and is_good(gpu, gpu_today, rail_there[gpu], rail_today)
            ]
            if matching:
                chosen[index] = min(matching)
                left.remove(chosen[index])
    return chosen


def _same_slot(gpu: int, want: int, rail: int, need: int) -> bool:
    return gpu == want and rail == need


def _same_rail(gpu: int, want: int, rail: int, need: int) -> bool:
    return rail == need


def _any_slot(gpu: int, want: int, rail: int, need: int) -> bool:
    return True


def batch_host_is_down(situation: Situation, impact: FailureImpact) -> bool:
    """Return whether the batch script died with its node."""
    return situation.batch_host is not None and situation.batch_host in impact.failure.nodes


def stays_impossible(situation: Situation, impact: FailureImpact, *, is_running: bool) -> str | None:
    """Return why nothing can be done inside the job's own nodes, ``None`` where it can."""
    if not is_running:
        return "the job does not run any more: its nodes are given back"
    if batch_host_is_down(situation, impact):
        return f"{situation.batch_host} ran the batch script, and the job ends with it: only a requeue is possible"
    return None


def require_no_kill(impact: FailureImpact) -> tuple[str, ...]:
    """Return the requirement for a job to survive the failure inside its nodes."""
    if not impact.failure.nodes:
        return ()
    return ("the job was submitted with --no-kill: else it ended with its node, and only a requeue is possible",)
