"""Plans jobs and faults over time from a seed, so that a soak can be run again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.soak.kinds import KINDS, URGENT, Kind

ALONE_S = 45.0
"""How long a node is busy with one thing that breaks."""
CALM_AT_END = 0.06
"""Share of the time at the end in which no fault begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """One submission.

    Parameters
    ----------
    number
        Stands in its name, so that it is found whatever sbatch said.
    at_s
        After the start; those with a node of their own begin when the node is free.
    node
        Of its own; empty for most.
    user
        Place in the list of users.
    """

    number: int
    kind: Kind
    at_s: float
    seconds: int
    user: int
    node: str = ""

    @property
    def name(self) -> str:
        """Its name in Slurm."""
        return f"soak-{self.number:04}-{self.kind.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFault:
    """One fault, and what may be drawn for it."""

    name: str
    at_s: float
    draw: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole soak."""

    seed: int
    span_s: float
    jobs: tuple[PlannedJob, ...]
    faults: tuple[PlannedFault, ...]

    @property
    def job_count(self) -> int:
        """Jobs as Slurm counts them: each task of an array is one."""
        return sum(job.kind.tasks for job in self.jobs)


def planned(
    seed: int, *, jobs: int, span_s: float, alone: Sequence[str], users: int, faults: Sequence[str], fault_count: int
) -> Plan:
    """Return a plan of so many jobs and faults within a time.

    Parameters
    ----------
    alone
        Nodes on which one job at a time has something break.
    faults
        Those that this machine allows; each comes at least once.
    """
    dice = random.Random(seed)
    rows = [*_alone(dice, span_s, alone, jobs // 8)]
    left = jobs - sum(job.kind.tasks for job in rows)
    shared = _shared_kinds(dice, left)
    for kind in shared:
        at_s = dice.uniform(0, span_s * (0.5 if kind.name == "too-long" else 1.0))
        rows.append(_job(dice, len(rows), kind, at_s, users))
    rows.sort(key=lambda job: job.at_s)
    return Plan(seed=seed, span_s=span_s, jobs=tuple(rows), faults=_faults(dice, span_s, faults, fault_count))


def _shared_kinds(dice: random.Random, count: int) -> list[Kind]:
    """Return kinds of which each comes at least once, and which are so many jobs together."""
    drawn = [kind for kind in KINDS if kind.share]
    found = list(drawn)
    while (left := count - sum(kind.tasks for kind in found)) > 0:
        fitting = [kind for kind in drawn if kind.tasks <= left]
        found.append(dice.choices(fitting, [kind.share for kind in fitting])[0])
    dice.shuffle(found)
    return found


def _alone(dice: random.Random, span_s: float, nodes: Sequence[str], most: int) -> list[PlannedJob]:
    """Return, node by node, what breaks one after the other; a victim and what takes its place are two jobs."""
    kinds = [kind for kind in KINDS if kind.is_alone]
    rounds = max(-(-len(kinds) // max(len(nodes), 1)), int(span_s // ALONE_S))
    rows: list[PlannedJob] = []
    drawn: list[Kind] = []
    for turn in range(rounds):
        for place, node in enumerate(nodes):
            if len(rows) >= most and turn * len(nodes) + place >= len(kinds):
                return rows
            drawn = drawn or dice.sample(kinds, len(kinds))
            kind = drawn.pop()
            rows.append(_job(dice, len(rows), kind, turn * ALONE_S, 1, node))
            if kind.act == "preempt":
                rows.append(_job(dice, len(rows), URGENT, turn * ALONE_S, 1, node))
    return rows


def _job(dice: random.Random, number: int, kind: Kind, at_s: float, users: int, node: str = "") -> PlannedJob:
    return PlannedJob(
        number=number, kind=kind, at_s=at_s, node=node, user=dice.randrange(users),
        seconds=dice.randint(12, 40) if kind.trains else dice.randint(1, 6),
    )  # fmt: skip


def _faults(dice: random.Random, span_s: float, names: Sequence[str], count: int) -> tuple[PlannedFault, ...]:
    """Return faults at about even distances, each name at least once."""
    drawn = [*names, *(dice.choice(names) for _ in range(max(0, count - len(names))))] if names else []
    dice.shuffle(drawn)
    first, last = 0.06 * span_s, (1 - CALM_AT_END) * span_s
    step_s = (last - first) / max(len(drawn), 1)
    return tuple(
        PlannedFault(name=name, at_s=first + (place + dice.uniform(0, 0.5)) * step_s, draw=dice.randrange(1 << 30))
        for place, name in enumerate(drawn)
    )
