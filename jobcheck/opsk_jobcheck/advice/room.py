"""Finds up to which batch, or which length, a job fits whose script states its model and leaves these open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.workload.counted_model import COUNTED_PLACES, COUNTED_SIZES, COUNTED_STEP, read_sizes
from opsk.workload.counted_parameters import ParameterRange
from opsk.workload.public_models.lookup import public_model
from opsk.workload.public_models.measured import fixes_length
from opsk.workload.unstated.open_sizes import INPUT, state_sizes
from opsk.workload.workload import Workload
from opsk.workload.worst_case import MICRO_BATCH
from opsk_jobcheck.advice.advice import Advice, Room
from opsk_jobcheck.advice.worst_case import Limit, fits_for_sure, predict_limit

USUAL_LENGTH = 2048
MIN_LENGTH, MAX_LENGTH = 64, 1 << 15
MAX_MICRO_BATCH = 1 << 10
_SEQ, _MICRO_BATCH = "model.seq", "plan.micro_batch"


def find_room(bare: Advice, efficiency: Efficiency) -> Room | None:
    """Return the largest power of two that fits for sure; ``None`` where none does, or more than these are open."""
    workload, unknown = bare.workload, {entry.field for entry in bare.workload.unknown}
    if not workload.is_training or "plan.dp" in unknown or bare.cluster is None or not bare.is_gpu_known:
        return None
    if COUNTED_SIZES in dict(workload.options):
        return _find_samples(bare, efficiency)
    is_seq_open = (workload.model.seq is None or _SEQ in unknown) and not fixes_length(workload.model.name)
    is_batch_open = (workload.plan.micro_batch is None or _MICRO_BATCH in unknown) and (
        MICRO_BATCH not in dict(workload.options)
    )
    shape = public_model(workload.model.name or "")
    longest = min(MAX_LENGTH, shape.seq if shape is not None and shape.seq else MAX_LENGTH)
    if is_batch_open:
        if is_seq_open:
            workload = state_sizes(workload, {_SEQ: min(USUAL_LENGTH, longest)})
        field, sizes = _MICRO_BATCH, list(_iterate_sizes(1, MAX_MICRO_BATCH))
    elif is_seq_open and workload.plan.micro_batch is not None and _MICRO_BATCH not in unknown:
        field, sizes = _SEQ, list(_iterate_sizes(MIN_LENGTH, longest))
    else:
        return None
    best = find_largest(sizes, lambda size: _predict(state_sizes(workload, {field: size}), bare, efficiency))
    if best is None:
        return None
    size, limit = best
    model, plan = limit.completion.model, limit.completion.plan
    if model is None or plan is None:
        return None
    return Room(
        field=field,
        value=size,
        seq=None if fixes_length(workload.model.name) else model.seq,
        micro_batch=plan.micro_batch,
        memory_bytes=float(limit.prediction.memory.total_bytes.high),
        assumed=limit.assumed,
    )


def _find_samples(bare: Advice, efficiency: Efficiency) -> Room | None:
    """Return the largest samples that fit of a program of which only the data tell how large they are."""
    options = dict(bare.workload.options)
    sizes = read_sizes(options[COUNTED_SIZES])

    def predict(place: int) -> Limit | None:
        words, stored_bytes = sizes[place]
        step = ParameterRange(low=0, high=stored_bytes)
        stated = {**options, COUNTED_STEP: str(step), COUNTED_PLACES: words}
        return _predict(replace(bare.workload, options=tuple(sorted(stated.items()))), bare, efficiency)

    best = find_largest(range(len(sizes)), predict)
    if best is None:
        return None
    place, limit = best
    return Room(
        field=INPUT,
        value=place,
        seq=None,
        micro_batch=1,
        memory_bytes=float(limit.prediction.memory.total_bytes.high),
        assumed=limit.assumed,
        samples=sizes[place][0],
    )


def _predict(workload: Workload, bare: Advice, efficiency: Efficiency) -> Limit | None:
    """Return the largest case of a workload where it fits for sure."""
    limit = predict_limit(workload, bare, efficiency)
    return limit if limit is not None and fits_for_sure(limit.prediction, bare) else None


def find_largest(sizes: Sequence[int], predict: Callable[[int], Limit | None]) -> tuple[int, Limit] | None:
    """Return the largest size that fits: memory grows with it."""
    low, high, best = 0, len(sizes), None
    while low < high:
        middle = (low + high) // 2
        limit = predict(sizes[middle])
        if limit is None:
            high = middle
        else:
            low, best = middle + 1, (sizes[middle], limit)
    return best


def _iterate_sizes(first: int, last: int) -> Iterator[int]:
    """Yield powers of two."""
    while first <= last:
        yield first
        first *= 2
