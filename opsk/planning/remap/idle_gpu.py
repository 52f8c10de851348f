"""Proposes idle GPUs of the same HB domain to take over, on their own rails or through optical circuit switches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from opsk.planning.placement.rank_placement import Verdicts, is_better
from opsk.planning.remap.failure import FailureImpact
from opsk.planning.remap.proposal import (
    Proposal,
    copy_current_slots,
    find_affected_ranks,
    judge_slots,
    require_no_kill,
    stays_impossible,
)
from opsk.planning.remap.situation import Situation
from opsk.planning.remap.values import OptionKind, Refusal, Terms, Way
from opsk.planning.routing.hca_ports import Index

_MAX_EVALUATED = 8
"""Maximum idle GPUs on different leaves that are evaluated for one rank."""

Slot = tuple[int, int]


def idle_gpu(situation: Situation, impact: FailureImpact, terms: Terms) -> Iterator[Proposal | Refusal]:
    """Yield the best idle GPUs for the affected ranks, or why there are none."""
    ranks = find_affected_ranks(situation, impact)
    slots = find_idle_slots(situation, impact, ranks)
    if isinstance(slots, str):
        yield Refusal(kind=OptionKind.IDLE_GPU, why=slots)
        return
    reason = stays_impossible(situation, impact, is_running=terms.is_running)
    if reason:
        yield Refusal(kind=OptionKind.IDLE_GPU, why=reason)
        return
    best: tuple[Verdicts, list[Slot]] | None = None
    for chosen in _list_choices(situation, ranks, slots):
        node, gpu = assign_slots(situation, ranks, chosen)
        verdict = judge_slots(situation, impact, node, gpu)
        if best is None or is_better(verdict, best[0], situation.job.step):
            best = verdict, chosen
    if best is None:
        return
    verdict, chosen = best
    if not np.isfinite(verdict.step_s[0]):
        yield Refusal(kind=OptionKind.IDLE_GPU, why="the idle GPUs have no path to the other ranks")
        return
    node, gpu = assign_slots(situation, ranks, chosen)
    yield Proposal(
        kind=OptionKind.IDLE_GPU,
        title=f"idle {'GPU' if len(chosen) == 1 else 'GPUs'} of the same HB domain: {_format_slots(situation, chosen)}",
        way=Way.RELAUNCH,
        plan=situation.plan,
        node=node,
        gpu=gpu,
        step_s=float(verdict.step_s[0]),
        verdict=verdict,
        needs=require_no_kill(impact),
        why=(_describe_rail_cost(situation, impact, ranks, chosen),),
    )


def find_idle_slots(situation: Situation, impact: FailureImpact, ranks: Index) -> dict[int, list[Slot]] | str:
    """Return the idle GPUs that the job holds in the HB domain of each rank; or why they are not enough."""
    domains = situation.job.domains
    node = situation.rank_placement.node[0]
    lost_hca = (impact.ports.port != situation.job.ports.port) | impact.dead
    usable = situation.idle & ~lost_hca & situation.held[:, None] & ~impact.dead_nodes[:, None]
    slots_by_rank: dict[int, list[Slot]] = {}
    for domain in np.unique(domains[node[ranks]]).tolist():
        here = [rank for rank in ranks.tolist() if domains[node[rank]] == domain]
        slots = [(int(number), int(gpu)) for number, gpu in np.argwhere(usable & (domains == domain)[:, None])]
        if len(slots) < len(here):
            return _explain_too_few(situation, impact, domain, len(here), len(slots))
        slots_by_rank |= dict.fromkeys(here, slots)
    return slots_by_rank


def assign_slots(situation: Situation, ranks: Index, chosen: Sequence[Slot]) -> tuple[Index, Index]:
    """Return node and GPU of every rank with ``ranks`` on the chosen slots."""
    node, gpu = copy_current_slots(situation)
    node[ranks] = [slot[0] for slot in chosen]
    gpu[ranks] = [slot[1] for slot in chosen]
    return node, gpu


def _list_choices(situation: Situation, ranks: Index, slots: dict[int, list[Slot]]) -> Iterator[list[Slot]]:
    """Yield slots for the ranks: for one rank an idle GPU of each leaf, for several the nearest by rail."""
    if ranks.size == 1:
        rank = int(ranks[0])
        ordered = sorted(slots[rank], key=lambda slot: _sort_key(situation, rank, slot))
        port = situation.job.ports.port
        of_leaf: dict[tuple[int, bool], Slot] = {}
        for slot in ordered:
            leaf = int(situation.job.ports.leaf[port[slot]])
            of_leaf.setdefault((leaf, slot[0] == int(situation.rank_placement.node[0, rank])), slot)
        for slot in list(of_leaf.values())[:_MAX_EVALUATED]:
            yield [slot]
        return
    taken: set[Slot] = set()
    chosen = []
    for rank in ranks.tolist():
        left = [slot for slot in slots[rank] if slot not in taken]
        slot = min(left, key=lambda slot: _sort_key(situation, rank, slot))
        taken.add(slot)
        chosen.append(slot)
    yield chosen


def _sort_key(situation: Situation, rank: int, slot: Slot) -> tuple[bool, bool, int, Slot]:
    """Return the sort key of a slot: on the rank's rail first, then on its node, then by distance of GPU numbers."""
    ports, rank_placement = situation.job.ports, situation.rank_placement
    rail = int(ports.rail[rank_placement.port[0, rank]])
    return (
        int(ports.rail[ports.port[slot]]) != rail,
        slot[0] != int(rank_placement.node[0, rank]),
        abs(slot[1] - int(rank_placement.gpu[0, rank])),
        slot,
    )


def _explain_too_few(situation: Situation, impact: FailureImpact, domain: int, needed: int, have: int) -> str:
    """Return why the idle GPUs of an HB domain are not enough."""
    here = situation.job.domains == domain
    name = situation.domain_of[situation.job.nodes[int(np.flatnonzero(here)[0])]]
    others = int((situation.not_held & ~impact.dead & here[:, None]).sum())
    text = f"HB domain {name} has {have} idle GPUs that the job holds, needed: {needed}"
    if others:
        text += (
            f"; {others} more are on its nodes, but Slurm adds no GPU to a running job, and changing the GPUs per node "
            "of a requeued one makes its inner srun fail"
        )
    return text


def _format_slots(situation: Situation, slots: Sequence[Slot]) -> str:
    shown = ", ".join(f"{situation.job.nodes[node]}/{gpu}" for node, gpu in slots[:4])
    return shown + (f" and {len(slots) - 4} more" if len(slots) > 4 else "")


def _describe_rail_cost(situation: Situation, impact: FailureImpact, ranks: Index, slots: Sequence[Slot]) -> str:
    """Return the effect of the new slots on rails."""
    ports = situation.job.ports
    before = ports.rail[situation.rank_placement.port[0, ranks]].tolist()
    after = [int(ports.rail[impact.ports.port[slot]]) for slot in slots]
    off_rail = sum(one != other for one, other in zip(before, after, strict=True))
    if not off_rail:
        return "the idle GPU is on the same rail" if len(slots) == 1 else "the idle GPUs are on the same rails"
    if len(slots) == 1:
        return f"its messages leave rail {_format_rail(before[0])} for rail {_format_rail(after[0])}"
    return f"{off_rail} of {len(slots)} ranks leave their rail"


def _format_rail(number: int) -> str:
    return str(number) if number >= 0 else "none"


def optical(situation: Situation, impact: FailureImpact, terms: Terms) -> Iterator[Proposal | Refusal]:
    """Yield the option for ranks whose GPU is dead; the new GPU then sends where the old one did."""
    if not terms.optical:
        yield Refusal(kind=OptionKind.OPTICAL, why="not requested: --optical states that circuits can be switched")
        return
    ranks = impact.find_affected(situation)
    if not ranks.size:
        yield Refusal(kind=OptionKind.OPTICAL, why="no GPU failed: there is no rail to bring to another one")
        return
    slots = find_idle_slots(situation, impact, ranks)
    reason = slots if isinstance(slots, str) else stays_impossible(situation, impact, is_running=terms.is_running)
    chosen = None if isinstance(slots, str) else _choose_patched(situation, ranks, slots)
    if reason or chosen is None:
        why = reason or "every idle GPU shares its HCA with a rank, which would lose its own rail"
        yield Refusal(kind=OptionKind.OPTICAL, why=why)
        return
    node, gpu = assign_slots(situation, ranks, chosen)
    port = np.full(node.size, -1, dtype=np.int64)
    port[ranks] = situation.rank_placement.port[0, ranks]
    verdict = judge_slots(situation, impact, node, gpu, port=port)
    where = ", ".join(f"{situation.job.nodes[number]}/{index}" for number, index in chosen[:4])
    yield Proposal(
        kind=OptionKind.OPTICAL,
        title=f"idle GPU of the same HB domain on the failed one's rail: {where}",
        way=Way.RELAUNCH,
        plan=situation.plan,
        node=node,
        gpu=gpu,
        step_s=float(verdict.step_s[0]),
        verdict=verdict,
        switches=True,
        needs=(*_describe_circuits(situation, ranks, chosen), *require_no_kill(impact)),
        why=("no rail cost: the new GPU's HCA is cabled where the old one's was",),
    )


def _choose_patched(situation: Situation, ranks: Index, slots: dict[int, list[Slot]]) -> list[Slot] | None:
    """Return an idle GPU for each rank whose HCA serves no other rank, each HCA once."""
    ports = situation.job.ports
    busy = set(situation.rank_placement.port[0].tolist())
    chosen: list[Slot] = []
    for rank in ranks.tolist():
        current = (int(situation.rank_placement.node[0, rank]), int(situation.rank_placement.gpu[0, rank]))
        free = [slot for slot in slots[rank] if int(ports.port[slot]) not in busy and ports.port[slot] != ports.nowhere]
        if not free:
            return None
        slot = min(free, key=lambda slot: (slot[0] != current[0], abs(slot[1] - current[1]), slot))
        busy.add(int(ports.port[slot]))
        chosen.append(slot)
    return chosen


def _describe_circuits(situation: Situation, ranks: Index, chosen: list[Slot]) -> tuple[str, ...]:
    """Return the circuits that must be switched by hand; opsk has no access to the switches."""
    lines = []
    for rank, (number, gpu) in zip(ranks.tolist(), chosen, strict=True):
        ports = situation.job.ports
        new, old = ports.find_attachment(number, gpu), ports.hcas[int(situation.rank_placement.port[0, rank])]
        if new is not None and old is not None:
            leaf = situation.rails.leaves[old.leaf].description if old.leaf in situation.rails.leaves else old.leaf
            lines.append(
                f"somebody switches the circuit of {situation.job.nodes[number]} {new.device} to {leaf}, in place of "
                f"{old.node} {old.device}"
            )
    return tuple(lines)
