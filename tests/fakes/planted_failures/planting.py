"""One healthy job from a seed, and the same with a cause planted in it."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path

from tests.fakes.planted_failures import causes_hardware, causes_memory, causes_program, causes_slurm, noise
from tests.fakes.planted_failures.frameworks import good_end, start_up, steps
from tests.fakes.planted_failures.registry import CAUSES
from tests.fakes.planted_failures.world import ERAS, FRAMEWORKS, LAYOUTS, Truth, World
from tests.fakes.planted_failures.writing import record, written

_ALL = (causes_hardware, causes_memory, causes_program, causes_slurm)
CLASSES = tuple(dict.fromkeys(each.failure for each in CAUSES))
NODE_NAMES = ("gpu-{:03d}", "node{:02d}", "hgx-{:04d}", "r7i{:d}n3", "dgx{:d}", "compute-0-{:d}")


@dataclass(frozen=True, kw_only=True)
class Planted:
    """What was written down of a job, and what is true of it."""

    truth: Truth | None
    logs: tuple[Path, ...]
    kernel_logs: tuple[tuple[str, Path], ...]
    job: dict[str, object] | None
    world: World


def plant(seed: int, folder: Path, *, held_out: bool = False, loses_cause: bool = False) -> Planted:
    """Write a job that failed; its class goes round with the seed, all else is drawn.

    ``loses_cause`` takes away what tells of the cause itself: the log of the rank that failed, and kernel logs.
    """
    rng = random.Random(f"planted {seed}")
    failure = CLASSES[seed % len(CLASSES)]
    wording = rng.choice([each for each in CAUSES if each.failure == failure and each.is_held_out == held_out])
    world = _healthy(rng)
    truth = replace(wording.plant(world), wording=wording.name, nodes=len(world.nodes))
    if truth.rank is not None and rng.random() < 0.15:
        others = [rank for rank in world.ranks if rank != truth.rank]
        world.lost_logs = set(rng.sample(others, rng.randint(1, max(1, len(others) // 6))))
    if loses_cause:
        world.lost_logs = {truth.rank} if truth.rank is not None else set(world.ranks_of(truth.node))
        world.kernel_nodes = []
    return _written(world, folder, truth)


def plant_healthy(seed: int, folder: Path) -> Planted:
    """Write a job that ended well, with all its noise."""
    world = _healthy(random.Random(f"healthy {seed}"))
    good_end(world)
    return _written(world, folder, None)


def _healthy(rng: random.Random) -> World:
    form, first = rng.choice(NODE_NAMES), rng.randint(1, 60)
    count, per_node = rng.choice([(1, 8), (2, 4), (2, 8), (4, 4), (4, 8), (8, 8), (8, 4)])
    nodes = [form.format(first + number) for number in range(count)]
    layout = rng.choice(LAYOUTS)
    era = rng.choice(ERAS)
    world = World(
        rng=rng, nodes=nodes, per_node=per_node, framework=rng.choice(FRAMEWORKS), layout=layout, era=era,
        launcher="torchrun" if layout in ("torchrun_dirs", "rank_labels") else "srun",
        start_s=1_780_000_000.0 + rng.randint(0, 20_000_000), step_s=rng.choice([0.8, 2.5, 7.0, 20.0, 45.0]),
        steps=rng.choice([40, 150, 600, 2000]), has_record=rng.random() < 0.6,
        skew={node: rng.uniform(-2.0, 2.0) for node in nodes}, job_id=str(rng.randint(10_000, 9_999_999)),
    )  # fmt: skip
    if rng.random() < 0.4:
        world.kernel_nodes = list(nodes)
    start_up(world)
    noise.at_start(world)
    steps(world)
    noise.while_running(world)
    noise.of_kernels(world)
    return world


def _written(world: World, folder: Path, truth: Truth | None) -> Planted:
    logs, kernels = written(world, folder)
    return Planted(
        truth=truth, logs=tuple(logs), kernel_logs=tuple(kernels), job=record(world) if world.has_record else None,
        world=world,
    )  # fmt: skip
