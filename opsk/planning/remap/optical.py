"""What if optical circuit switches put the idle GPU's HCA on the rail of the GPU that failed?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from opsk.planning.remap.failure import Wreck
from opsk.planning.remap.idle_gpu import Seat, idle_seats, seated
from opsk.planning.remap.proposal import Proposal, judged_seats, no_kill, stays_impossible
from opsk.planning.remap.situation import Situation
from opsk.planning.remap.terms import Terms
from opsk.planning.remap.values import Kind, Refusal, Way
from opsk.planning.routing.hca_seats import Index


def optical(situation: Situation, wreck: Wreck, terms: Terms) -> Iterator[Proposal | Refusal]:
    """Yield the option for ranks whose GPU is dead; the new GPU then sends where the old one did."""
    if not terms.optical:
        yield Refusal(kind=Kind.OPTICAL, why="not asked for: --optical tells that circuits can be switched")
        return
    ranks = wreck.hit(situation)
    if not ranks.size:
        yield Refusal(kind=Kind.OPTICAL, why="no GPU failed: there is no rail to bring to another one")
        return
    seats = idle_seats(situation, wreck, ranks)
    reason = seats if isinstance(seats, str) else stays_impossible(situation, wreck, is_running=terms.is_running)
    chosen = None if isinstance(seats, str) else _patched(situation, ranks, seats)
    if reason or chosen is None:
        why = reason or "every idle GPU shares its HCA with a rank, which would lose its own rail"
        yield Refusal(kind=Kind.OPTICAL, why=why)
        return
    node, gpu = seated(situation, ranks, chosen)
    port = np.full(node.size, -1, dtype=np.int64)
    port[ranks] = situation.seating.port[0, ranks]
    verdict = judged_seats(situation, wreck, node, gpu, port=port)
    where = ", ".join(f"{situation.job.nodes[at]}/{index}" for at, index in chosen[:4])
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
        needs=(*_circuits(situation, ranks, chosen), *no_kill(wreck)),
        why=("no rail cost: the new GPU's HCA is cabled where the old one's was",),
    )


def _patched(situation: Situation, ranks: Index, seats: dict[int, list[Seat]]) -> list[Seat] | None:
    """Return an idle GPU for each rank whose HCA serves no other rank, each HCA once."""
    ports = situation.job.ports
    busy = set(situation.seating.port[0].tolist())
    chosen: list[Seat] = []
    for rank in ranks.tolist():
        own = (int(situation.seating.node[0, rank]), int(situation.seating.gpu[0, rank]))
        free = [seat for seat in seats[rank] if int(ports.port[seat]) not in busy and ports.port[seat] != ports.nowhere]
        if not free:
            return None
        seat = min(free, key=lambda seat: (seat[0] != own[0], abs(seat[1] - own[1]), seat))
        busy.add(int(ports.port[seat]))
        chosen.append(seat)
    return chosen


def _circuits(situation: Situation, ranks: Index, chosen: list[Seat]) -> tuple[str, ...]:
    """Say which circuits must be switched; opsk does not reach the switches."""
    said = []
    for rank, (at, gpu) in zip(ranks.tolist(), chosen, strict=True):
        ports = situation.job.ports
        new, old = ports.attached(at, gpu), ports.hcas[int(situation.seating.port[0, rank])]
        if new is not None and old is not None:
            leaf = situation.rails.leaves[old.leaf].description if old.leaf in situation.rails.leaves else old.leaf
            said.append(
                f"somebody switches the circuit of {situation.job.nodes[at]} {new.device} to {leaf}, in place of "
                f"{old.node} {old.device}"
            )
    return tuple(said)
