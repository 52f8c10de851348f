"""The list of what can be planted: a function a wording, two thirds open and one third held out for each class."""

# ruff: noqa: E501 -- lines are quoted as programs print them

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.fakes.planted_failures.cascades import after_death
from tests.fakes.planted_failures.world import Truth, World

Planter = Callable[[World], Truth]


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One wording of one class."""

    failure: str
    name: str
    plant: Planter
    is_held_out: bool


CAUSES: list[Cause] = []


def cause(failure: str, *, held_out: bool = False) -> Callable[[Planter], Planter]:
    """Register a function that plants a failure."""

    def take(plant: Planter) -> Planter:
        CAUSES.append(Cause(failure=failure, name=plant.__name__, plant=plant, is_held_out=held_out))
        return plant

    return take


def raised(
    failure: str, name: str, error: str, *, held_out: bool = False, end: str = "Exited with exit code 1"
) -> None:
    """Register an exception that one rank ends in, as the text of one."""

    def plant(world: World) -> Truth:
        rank = world.any_rank()
        world.raises(rank, world.fail_s, filled(error, world, rank))
        after_death(world, rank, world.fail_s, end=end)
        return Truth(failure=failure, rank=rank, node=world.node(rank))

    CAUSES.append(Cause(failure=failure, name=name, plant=plant, is_held_out=held_out))


def filled(text: str, world: World, rank: int) -> str:
    """Put this job's numbers into a text."""
    values = {
        "rank": rank, "local": world.local(rank), "node": world.node(rank), "pid": world.pid(rank), "job": world.job_id,
        "asked": f"{world.rng.uniform(0.5, 9):.2f}", "step": world.steps, "head": world.nodes[0], "pci": world.pci(rank),
        "n": world.rng.randint(100, 9999),
    }  # fmt: skip
    for name, value in values.items():
        text = text.replace(f"<{name}>", str(value))
    return text


def everywhere(failure: str, name: str, error: str, *, held_out: bool = False) -> None:
    """Register an exception that every rank ends in before training begins."""

    def plant(world: World) -> Truth:
        world.launched = world.launched[:2]
        world.said = {
            rank: [entry for entry in lines if entry[0] < world.start_s + 11] for rank, lines in world.said.items()
        }
        at = world.start_s + 15
        for rank in world.ranks:
            world.raises(rank, at + world.rng.random(), filled(error, world, rank))
        if world.launcher == "srun":
            for node in world.nodes:
                ranks = world.ranks_of(node)
                world.launch(at + 2, f"srun: error: {node}: tasks {ranks[0]}-{ranks[-1]}: Exited with exit code 1")
        world.end_s = at + 5
        return Truth(failure=failure, is_job_wide=True)

    CAUSES.append(Cause(failure=failure, name=name, plant=plant, is_held_out=held_out))
