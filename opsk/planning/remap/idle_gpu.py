"""Can an idle GPU of the same HB domain take over, and what does its rail cost?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from opsk.planning.placement.judging import Verdicts, is_better
from opsk.planning.remap.failure import Wreck
from opsk.planning.remap.proposal import (
    Proposal,
    judged_seats,
    no_kill,
    seats_today,
    stays_impossible,
    victims,
)
from opsk.planning.remap.situation import Situation
from opsk.planning.remap.terms import Terms
from opsk.planning.remap.values import Kind, Refusal, Way
from opsk.planning.routing.hca_seats import Index

_MOST_JUDGED = 8
"""Idle GPUs on different leaves that are judged for one rank."""

Seat = tuple[int, int]


def idle_gpu(situation: Situation, wreck: Wreck, terms: Terms) -> Iterator[Proposal | Refusal]:
    """Yield the best idle GPUs for the ranks that were hit, or why there are none."""
    ranks = victims(situation, wreck)
    seats = idle_seats(situation, wreck, ranks)
    if isinstance(seats, str):
        yield Refusal(kind=Kind.IDLE_GPU, why=seats)
        return
    reason = stays_impossible(situation, wreck, is_running=terms.is_running)
    if reason:
        yield Refusal(kind=Kind.IDLE_GPU, why=reason)
        return
    best: tuple[Verdicts, list[Seat]] | None = None
    for chosen in _choices(situation, ranks, seats):
        node, gpu = seated(situation, ranks, chosen)
        verdict = judged_seats(situation, wreck, node, gpu)
        if best is None or is_better(verdict, best[0], situation.job.step):
            best = verdict, chosen
    if best is None:
        return
    verdict, chosen = best
    if not np.isfinite(verdict.step_s[0]):
        yield Refusal(kind=Kind.IDLE_GPU, why="the idle GPUs have no path to the other ranks")
        return
    node, gpu = seated(situation, ranks, chosen)
    yield Proposal(
        kind=Kind.IDLE_GPU,
        title=f"idle {'GPU' if len(chosen) == 1 else 'GPUs'} of the same HB domain: {_named(situation, chosen)}",
        way=Way.RELAUNCH,
        plan=situation.plan,
        node=node,
        gpu=gpu,
        step_s=float(verdict.step_s[0]),
        verdict=verdict,
        needs=no_kill(wreck),
        why=(_rail_cost(situation, wreck, ranks, chosen),),
    )


def idle_seats(situation: Situation, wreck: Wreck, ranks: Index) -> dict[int, list[Seat]] | str:
    """Return the idle GPUs that the job holds in the HB domain of each rank; or why they are not enough."""
    domains = situation.job.domains
    node = situation.seating.node[0]
    lost_hca = (wreck.ports.port != situation.job.ports.port) | wreck.dead
    usable = situation.idle & ~lost_hca & situation.held[:, None] & ~wreck.dead_nodes[:, None]
    found: dict[int, list[Seat]] = {}
    for domain in np.unique(domains[node[ranks]]).tolist():
        here = [rank for rank in ranks.tolist() if domains[node[rank]] == domain]
        seats = [(int(at), int(gpu)) for at, gpu in np.argwhere(usable & (domains == domain)[:, None])]
        if len(seats) < len(here):
            return _too_few(situation, wreck, domain, len(here), len(seats))
        found |= dict.fromkeys(here, seats)
    return found


def seated(situation: Situation, ranks: Index, chosen: Sequence[Seat]) -> tuple[Index, Index]:
    """Return node and GPU of every rank with ``ranks`` on the chosen seats."""
    node, gpu = seats_today(situation)
    node[ranks] = [seat[0] for seat in chosen]
    gpu[ranks] = [seat[1] for seat in chosen]
    return node, gpu


def _choices(situation: Situation, ranks: Index, seats: dict[int, list[Seat]]) -> Iterator[list[Seat]]:
    """Yield ways to seat the ranks: for one rank an idle GPU of each leaf, for several the nearest by rail."""
    if ranks.size == 1:
        rank = int(ranks[0])
        ordered = sorted(seats[rank], key=lambda seat: _nearness(situation, rank, seat))
        port = situation.job.ports.port
        of_leaf: dict[tuple[int, bool], Seat] = {}
        for seat in ordered:
            leaf = int(situation.job.ports.leaf[port[seat]])
            of_leaf.setdefault((leaf, seat[0] == int(situation.seating.node[0, rank])), seat)
        for seat in list(of_leaf.values())[:_MOST_JUDGED]:
            yield [seat]
        return
    taken: set[Seat] = set()
    chosen = []
    for rank in ranks.tolist():
        left = [seat for seat in seats[rank] if seat not in taken]
        seat = min(left, key=lambda seat: _nearness(situation, rank, seat))
        taken.add(seat)
        chosen.append(seat)
    yield chosen


def _nearness(situation: Situation, rank: int, seat: Seat) -> tuple[bool, bool, int, Seat]:
    """Sort seats: those on the rank's rail first, then those of its node, then those of a near number."""
    ports, seating = situation.job.ports, situation.seating
    rail = int(ports.rail[seating.port[0, rank]])
    return (
        int(ports.rail[ports.port[seat]]) != rail,
        seat[0] != int(seating.node[0, rank]),
        abs(seat[1] - int(seating.gpu[0, rank])),
        seat,
    )


def _too_few(situation: Situation, wreck: Wreck, domain: int, needed: int, have: int) -> str:
    """Say why the idle GPUs of an HB domain are not enough."""
    here = situation.job.domains == domain
    name = situation.domain_of[situation.job.nodes[int(np.flatnonzero(here)[0])]]
    others = int((situation.not_held & ~wreck.dead & here[:, None]).sum())
    said = f"HB domain {name} has {have} idle GPUs that the job holds, needed: {needed}"
    if others:
        said += (
            f"; {others} more are on its nodes, but Slurm adds no GPU to a running job, and changing the GPUs per node "
            "of a requeued one makes its inner srun fail"
        )
    return said


def _named(situation: Situation, seats: Sequence[Seat]) -> str:
    shown = ", ".join(f"{situation.job.nodes[node]}/{gpu}" for node, gpu in seats[:4])
    return shown + (f" and {len(seats) - 4} more" if len(seats) > 4 else "")


def _rail_cost(situation: Situation, wreck: Wreck, ranks: Index, seats: Sequence[Seat]) -> str:
    """Say what the rails of the new seats mean."""
    ports = situation.job.ports
    before = ports.rail[situation.seating.port[0, ranks]].tolist()
    after = [int(ports.rail[wreck.ports.port[seat]]) for seat in seats]
    off = sum(one != other for one, other in zip(before, after, strict=True))
    if not off:
        return "the idle GPU is on the same rail" if len(seats) == 1 else "the idle GPUs are on the same rails"
    if len(seats) == 1:
        return f"its messages leave rail {_rail(before[0])} for rail {_rail(after[0])}"
    return f"{off} of {len(seats)} ranks leave their rail"


def _rail(number: int) -> str:
    return str(number) if number >= 0 else "none"
