"""Lists the layers of a model that differ from the others, and the layers of each pipeline stage."""

from __future__ import annotations

from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan


def dense_layers(model: ModelShape) -> tuple[bool, ...]:
    """Return for each layer whether it has the dense MLP: the first ones, or evenly between the others."""
    if not model.experts:
        return (True,) * model.layers
    if not model.dense_interleaved:
        return tuple(index < model.dense_layers for index in range(model.layers))
    return spread(model.dense_layers, model.layers)


def windowed_layers(model: ModelShape) -> tuple[bool, ...]:
    """Return for each layer whether its attention has a window, evenly spread as public models have them."""
    return spread(model.windowed_layers if model.attention_window else 0, model.layers)


def spread(some: int, among: int) -> tuple[bool, ...]:
    """Return ``among`` flags of which ``some`` are true, spread evenly, as early as possible."""
    return tuple(-(-(index + 1) * some // among) > -(-index * some // among) for index in range(among))


def chunk_layers(model: ModelShape, plan: Plan) -> tuple[int, ...]:
    """Return how many layers each chunk holds, in the order in which a token passes them.

    Stage ``s`` holds chunks ``s``, ``s + pp``, ...: a stage's layers are split evenly over its chunks. Where those of
    the first or last stage do not divide, its chunks are those of other stages, and what it lacks is taken from the
    chunk with the embedding, or with the loss, down to none, then from the chunks next to it, down to one.
    """
    vpp, ends = plan.vpp, (plan.first_stage_layers, plan.last_stage_layers)
    fixed = {stage: layers for stage, layers in zip((0, plan.pp - 1), ends, strict=True) if layers}
    others = plan.pp - len(fixed)
    full = (model.layers - sum(fixed.values())) // others if others else -(-max(ends) // vpp) * vpp
    stages = [[fixed.get(stage, full) // vpp] * vpp for stage in range(plan.pp)]
    for stage, layers in fixed.items():
        if layers % vpp:
            stages[stage] = _split_light_stage(layers, chunk=full // vpp, vpp=vpp, is_first=stage == 0)
    return tuple(stages[stage][chunk] for chunk in range(vpp) for stage in range(plan.pp))


def _split_light_stage(layers: int, *, chunk: int, vpp: int, is_first: bool) -> list[int]:
    """Return the chunks of a stage that has fewer layers than others, in the order in which a token passes them."""
    chunks, lacking = [chunk] * vpp, chunk * vpp - layers
    for index in range(vpp):
        taken = min(lacking, chunk - (index > 0))
        chunks[index] -= taken
        lacking -= taken
    return chunks if is_first else chunks[::-1]


def pattern(marks: tuple[bool, ...]) -> str:
    """Return a list of marks as the Python expression that Megatron's flags take: ``([0]*3+[1]*58)``."""
    runs: list[tuple[bool, int]] = []
    for mark in marks:
        if runs and runs[-1][0] == mark:
            runs[-1] = (mark, runs[-1][1] + 1)
        else:
            runs.append((mark, 1))
    period = _period(marks)
    if len(runs) > 4 and period:
        return f"([{','.join(str(int(mark)) for mark in marks[:period])}]*{len(marks) // period})"
    return "(" + "+".join(f"[{int(mark)}]*{count}" for mark, count in runs) + ")"


def _period(marks: tuple[bool, ...]) -> int:
    """Return after how many marks they repeat; 0 when they do not."""
    return next(
        (
            size
            for size in range(1, len(marks) // 2 + 1)
            if len(marks) % size == 0 and marks[:size] * (len(marks) // size) == marks
        ),
        0,
    )
