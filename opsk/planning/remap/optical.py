"""Proposes to connect the HCA of an idle GPU to the rail of the failed GPU with optical circuit switches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from opsk.planning.remap.failure import FailureImpact
from opsk.planning.remap.idle_gpu import Slot, assign_slots, find_idle_slots
from opsk.planning.remap.proposal import Proposal, judge_slots, require_no_kill, stays_impossible
from opsk.planning.remap.situation import Situation
from opsk.planning.remap.terms import Terms
from opsk.planning.remap.values import Kind, Refusal, Way
from opsk.planning.routing.hca_ports import Index


def optical(situation: Situation, impact: FailureImpact, terms: Terms) -> Iterator[Proposal | Refusal]:
    """Yield the option for ranks whose GPU is dead; the new GPU then sends where the old one did."""
    if not terms.optical:
        yield Refusal(kind=Kind.OPTICAL, why="not asked for: --optical tells that circuits can be switched")
        return
    ranks = impact.find_affected(situation)
    if not ranks.size:
        yield Refusal(kind=Kind.OPTICAL, why="no GPU failed: there is no rail to bring to another one")
        return
    slots = find_idle_slots(situation, impact, ranks)
    reason = slots if isinstance(slots, str) else stays_impossible(situation, impact, is_running=terms.is_running)
    chosen = None if isinstance(slots, str) else _choose_patched(situation, ranks, slots)
    if reason or chosen is None:
        why = reason or "every idle GPU shares its HCA with a rank, which would lose its own rail"
        yield Refusal(kind=Kind.OPTICAL, why=why)
        return
    node, gpu = assign_slots(situation, ranks, chosen)
    port = np.full(node.size, -1, dtype=np.int64)
    port[ranks] = situation.rank_placement.port[0, ranks]
    verdict = judge_slots(situation, impact, node, gpu, port=port)
    where = ", ".join(f"{situation.job.nodes[number]}/{index}" for number, index in chosen[:4])
    yield Proposal(
        kind=Kind.OPTICAL,
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
        new, old = ports.attached(number, gpu), ports.hcas[int(situation.rank_placement.port[0, rank])]
        if new is not None and old is not None:
            leaf = situation.rails.leaves[old.leaf].description if old.leaf in situation.rails.leaves else old.leaf
            lines.append(
                f"somebody switches the circuit of {situation.job.nodes[number]} {new.device} to {leaf}, in place of "
                f"{old.node} {old.device}"
            )
    return tuple(lines)
