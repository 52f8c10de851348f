"""One option before it is written out: seats, plan, and how good they are judged to be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from opsk.planning.placement.judging import SAME, Verdicts, is_better, judge
from opsk.planning.remap.failure import Wreck
from opsk.planning.remap.kept_loads import changed
from opsk.planning.remap.situation import Mask, Situation
from opsk.planning.remap.terms import Terms
from opsk.planning.remap.values import Kind, Part, Way
from opsk.planning.routing.hca_seats import Index
from opsk.workload.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One option: where every rank of ``plan`` then sits, and the verdict on it.

    ``verdict`` is ``None`` where the cost model alone says how long a step is (``step_s``). ``renumbered`` tells that
    ranks have other numbers than before. ``lost`` replaces the loss over a horizon where an option does not last it.
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


def judged_seats(situation: Situation, wreck: Wreck, node: Index, gpu: Index, *, port: Index | None = None) -> Verdicts:
    """Return the verdict on seats of the same plan, with the HCAs that are left.

    ``port`` replaces the ports of ranks where it is not negative.
    """
    job = replace(situation.job, ports=wreck.ports)
    seating = wreck.seated(situation, node, gpu)
    if port is not None:
        seating = replace(seating, port=np.where(port >= 0, port, seating.port[0])[None, :])
    found = changed(job, situation.kept, seating)
    return judge(job, seating) if found is None else found


def as_good_as_today(situation: Situation, verdict: Verdicts) -> bool:
    """Return whether a step is no longer than today's: then nothing farther away needs a look."""
    return bool(verdict.step_s[0] <= situation.verdict.step_s[0] * (1.0 + SAME))


def is_preferred(situation: Situation, verdict: Verdicts, moved: int, best: Verdicts | None, best_moved: int) -> bool:
    """Return whether seats are better than the best so far: by the step, then by how few ranks move, then as placed."""
    if best is None:
        return True
    ours, its = float(verdict.step_s[0]), float(best.step_s[0])
    if ours != its and not abs(ours - its) <= SAME * min(ours, its):
        return ours < its
    return moved < best_moved or (moved == best_moved and is_better(verdict, best, situation.job.step))


def seats_today(situation: Situation) -> tuple[Index, Index]:
    """Return node and GPU of every rank, to be changed."""
    return situation.seating.node[0].copy(), situation.seating.gpu[0].copy()


def victims(situation: Situation, wreck: Wreck) -> Index:
    """Return the ranks that should move: those on dead GPUs, and those that fall back to another HCA."""
    return np.union1d(wreck.hit(situation), wreck.fallen_back(situation))


def whole_rows(situation: Situation, wreck: Wreck) -> Mask:
    """Return the nodes on which every GPU is sound, idle, and uses its own HCA."""
    ports = situation.job.ports
    sound = ~wreck.dead & situation.idle & (wreck.ports.port == ports.port)
    named = np.array([node in wreck.failure.drain for node in situation.job.nodes], dtype=np.bool_)
    found: Mask = sound.all(axis=1) & ~named & ~wreck.dead_nodes
    return found


def like_gpus(situation: Situation, wanted: Sequence[int], there: int, free: Sequence[int], ranks: Index) -> list[int]:
    """Return a GPU of node ``there`` for each rank: on the rail of the rank's GPU, of the same number where that is it.

    Parameters
    ----------
    wanted
        GPU number of each rank today.
    free
        GPUs that can be taken, at least as many as ranks.
    """
    ports = situation.job.ports
    rail = [int(ports.rail[port]) for port in situation.seating.port[0, ranks]]
    rail_there = {gpu: int(ports.rail[ports.port[there, gpu]]) for gpu in free}
    left = list(free)
    chosen = [-1] * len(rail)
    for is_good in (_same_seat, _same_rail, _any_seat):
        for at, (want, need) in enumerate(zip(wanted, rail, strict=True)):
            fitting = [gpu for gpu in left if chosen[at] < 0 and is_good(gpu, want, rail_there[gpu], need)]
            if fitting:
                chosen[at] = min(fitting)
                left.remove(chosen[at])
    return chosen


def _same_seat(gpu: int, want: int, rail: int, need: int) -> bool:
    return gpu == want and rail == need


def _same_rail(gpu: int, want: int, rail: int, need: int) -> bool:
    return rail == need


def _any_seat(gpu: int, want: int, rail: int, need: int) -> bool:
    return True


def batch_host_is_down(situation: Situation, wreck: Wreck) -> bool:
    """Return whether the batch script died with its node."""
    return situation.batch_host is not None and situation.batch_host in wreck.failure.nodes


def stays_impossible(situation: Situation, wreck: Wreck, *, is_running: bool) -> str | None:
    """Return why nothing can be done inside the job's own nodes, ``None`` where it can."""
    if not is_running:
        return "the job does not run any more: its nodes are given back"
    if batch_host_is_down(situation, wreck):
        return f"{situation.batch_host} ran the batch script, and the job ends with it: only a requeue is possible"
    return None


def no_kill(wreck: Wreck) -> tuple[str, ...]:
    """Return what a job needs to outlive the failure inside its nodes."""
    if not wreck.failure.nodes:
        return ()
    return ("the job was submitted with --no-kill: else it ended with its node, and only a requeue is possible",)
