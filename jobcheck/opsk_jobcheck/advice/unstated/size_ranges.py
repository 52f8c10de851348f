"""Advises on a job of which one or two sizes are stated nowhere: it fits where it does with all that they usually are.

Nothing else follows from such sizes, above all not that a job runs out of memory.
"""

from __future__ import annotations

from dataclasses import replace

from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.table import PredictionTable
from opsk.errors import OpskError
from opsk.workload.advice_record import Verdict
from opsk.workload.completion import Assumption, Completion, complete
from opsk.workload.plan import Plan
from opsk.workload.unstated.open_sizes import (
    OpenSize,
    find_open_input,
    find_open_sizes,
    list_corners,
    state_sizes,
)
from opsk.workload.unstated.sizes import Size
from opsk_jobcheck.advice.advice import Advice, MemoryOverRange, Room
from opsk_jobcheck.advice.room import find_largest
from opsk_jobcheck.advice.worst_case import Limit, fits_for_sure, predict_case, predict_limit

SIDES = (32, 48, 64, 96, 128, 160, 192, 224, 256, 288, 320, 384, 448, 480, 512, 640, 768, 896, 1024)
SECONDS = (1, 2, 3, 5, 10, 15, 20, 30, 45, 60)


def advise_over_range(bare: Advice, efficiency: Efficiency) -> Advice | None:
    """Return the advice that a job fits whatever its length and batch may usually be; ``None`` where it may not."""
    sizes = find_open_sizes(bare.workload, bare.completion.missing)
    if not sizes:
        return None
    limits: list[Limit] = []
    for values in list_corners(sizes):
        limit = predict_limit(state_sizes(bare.workload, values), bare, efficiency)
        if limit is None or not fits_for_sure(limit.prediction, bare):
            return None
        limits.append(limit)
    usual = predict_limit(state_sizes(bare.workload, {row.field: row.typical for row in sizes}), bare, efficiency)
    largest = max(limits, key=lambda limit: float(limit.prediction.memory.total_bytes.high))
    lowest = usual or largest
    assumed = tuple(entry for entry in largest.assumed if entry.field not in {row.field for row in sizes})
    return _make_advice(bare, sizes, (lowest.prediction, largest.prediction), largest.completion, assumed)


def advise_open_input(advice: Advice, efficiency: Efficiency) -> Advice:
    """Return the advice on a job whose images, or sounds, may be of any size: it fits, or is not known to."""
    row = find_open_input(advice.workload)
    if row is None or advice.prediction is None:
        return advice
    usual, known = (_predict_input(advice, size, efficiency) for size in (row.typical, row.generous))
    if usual is not None and known is not None and fits_for_sure(known[1], advice):
        return _make_advice(advice, (row,), (usual[1], known[1]), known[0], ())

    def predict(size: int) -> Limit | None:
        case = _predict_input(advice, size, efficiency)
        is_fit = case is not None and fits_for_sure(case[1], advice)
        return Limit(completion=case[0], prediction=case[1], assumed=()) if case is not None and is_fit else None

    best = find_largest(SIDES if row.size is Size.IMAGE_SIDE else SECONDS, predict)
    return replace(
        advice,
        verdict=Verdict.UNKNOWN,
        prediction=None,
        suggestions=(),
        best=None,
        why_unknown=(_explain(row),),
        room=_make_room(row, *best) if best is not None else None,
    )


def _predict_input(advice: Advice, size: int, efficiency: Efficiency) -> tuple[Completion, PredictionTable] | None:
    """Return the prediction of a job whose samples have a size; ``None`` where there is none."""
    completion = complete(state_sizes(advice.workload, {"model.input": size}))
    if completion.model is None or completion.plan is None or advice.cluster is None:
        return None
    try:
        return completion, predict_case(completion.model, completion.plan, advice.cluster, efficiency, has_copies=False)
    except OpskError:
        return None


def _make_advice(
    bare: Advice,
    sizes: tuple[OpenSize, ...],
    predictions: tuple[PredictionTable, PredictionTable],
    completion: Completion,
    assumed: tuple[Assumption, ...],
) -> Advice:
    """Return the advice that a job fits over a range of sizes, with the memory at both ends of it."""
    low, high = (prediction.memory.total_bytes for prediction in predictions)
    ranged = [
        Assumption(field=row.field, value=row.generous, why=f"rarely more, usually {row.typical}") for row in sizes
    ]
    fields = {row.field for row in sizes}
    others = tuple(entry for entry in completion.assumed if entry.field not in fields)
    return replace(
        bare,
        verdict=Verdict.FITS,
        completion=completion,
        prediction=predictions[1],
        assumed=(*ranged, *assumed, *others),
        is_limit=True,
        suggestions=(),
        best=None,
        over_range=MemoryOverRange(low_bytes=float(low.expected), high_bytes=float(high.high), sizes=sizes),
    )


def _make_room(row: OpenSize, size: int, limit: Limit) -> Room:
    """Return up to which size of its samples a job fits."""
    plan: Plan | None = limit.completion.plan
    return Room(
        field=row.field,
        value=size,
        seq=None,
        micro_batch=plan.micro_batch if plan is not None else 1,
        memory_bytes=float(limit.prediction.memory.total_bytes.high),
    )


def _explain(row: OpenSize) -> str:
    """Return why there is no verdict."""
    what = "image size" if row.size is Size.IMAGE_SIDE else "length of a sound"
    return f"{what}: no setting that opsk knows states it"
