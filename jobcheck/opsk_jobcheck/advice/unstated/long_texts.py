"""Takes back that a job runs out of memory where it does with texts alone that are longer than nearly all are."""

from __future__ import annotations

from dataclasses import replace

from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.errors import OpskError
from opsk.workload.advice_record import Verdict
from opsk.workload.completion import complete
from opsk.workload.unstated.long_texts import find_longest_usual
from opsk.workload.unstated.open_sizes import SEQ, state_sizes
from opsk_jobcheck.advice.advice import Advice, Room
from opsk_jobcheck.advice.room import find_largest
from opsk_jobcheck.advice.worst_case import Limit, fits_for_sure, predict_case

SHORTEST = 128


def doubt_long_texts(advice: Advice, efficiency: Efficiency) -> Advice:
    """Return the advice on a job that runs out of memory, or is not known to: its texts may be short."""
    usual = find_longest_usual(advice.workload) if advice.verdict is Verdict.OOM else None
    if usual is None:
        return advice
    limit = _predict(advice, usual, efficiency)
    if limit is None or float(limit.prediction.memory.total_bytes.low) > float(limit.prediction.memory.capacity_bytes):
        return advice
    sizes = [SHORTEST << step for step in range(20) if SHORTEST << step <= (advice.workload.model.seq or 0)]

    def predict(size: int) -> Limit | None:
        case = _predict(advice, size, efficiency)
        return case if case is not None and fits_for_sure(case.prediction, advice) else None

    best = find_largest(sizes, predict)
    why = f"seq: texts are cut at {advice.workload.model.seq:,} tokens, and how long they are is stated nowhere"
    return replace(
        advice,
        verdict=Verdict.UNKNOWN,
        prediction=None,
        suggestions=(),
        best=None,
        why_unknown=(why,),
        room=_make_room(*best) if best is not None else None,
    )


def _predict(advice: Advice, seq: int, efficiency: Efficiency) -> Limit | None:
    """Return the prediction of a job whose texts have a length; ``None`` where there is none."""
    completion = complete(state_sizes(advice.workload, {SEQ: seq}))
    if completion.model is None or completion.plan is None or advice.cluster is None:
        return None
    try:
        prediction = predict_case(completion.model, completion.plan, advice.cluster, efficiency, has_copies=False)
    except OpskError:
        return None
    return Limit(completion=completion, prediction=prediction, assumed=())


def _make_room(size: int, limit: Limit) -> Room:
    """Return up to which length of its texts a job fits."""
    plan = limit.completion.plan
    return Room(
        field=SEQ,
        value=size,
        seq=size,
        micro_batch=plan.micro_batch if plan is not None else 1,
        memory_bytes=float(limit.prediction.memory.total_bytes.high),
    )
