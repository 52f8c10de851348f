"""Advises on a job whose script leaves values open.

It fits where even its largest case does, and runs out of memory where even its smallest does. Where the largest case
may fit or not, the job is tight: most of what is open lowers its memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.predict import predict_one
from opsk.costmodel.sizes.parameters import total_parameters
from opsk.costmodel.table import MemoryTable, PredictionTable
from opsk.costmodel.uncertainty.verdict import compute_verdict
from opsk.errors import OpskError
from opsk.hardware.catalog import gpu, resolve_gpu
from opsk.hardware.spec import ClusterSpec
from opsk.workload.advice_record import Verdict
from opsk.workload.completion import Assumption, Completion
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Precision
from opsk.workload.public_models.tower_limits import OPEN_TOWER, TowerLimit, limit_tower
from opsk.workload.roles import complete_roles
from opsk.workload.smallest_case import find_smallest_case
from opsk.workload.unstated.open_sizes import find_open_input, state_sizes
from opsk.workload.workload import Workload
from opsk.workload.worst_case import WorstCase, find_worst_case
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.roles import predict_largest_phase

COPY_BYTES = 2
LIKELY = 0.75
"""The probability from which a largest case that may run out is told: that of the job itself is higher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The prediction of the largest case of a workload, and the assumptions that it stands on."""

    completion: Completion
    prediction: PredictionTable
    assumed: tuple[Assumption, ...]


def advise_worst_case(bare: Advice, efficiency: Efficiency) -> Advice | None:
    """Return the advice that a job fits, by its largest case; ``None`` where that is not known, or does not fit."""
    limit = predict_limit(bare.workload, bare, efficiency)
    if limit is None or not fits_for_sure(limit.prediction, bare):
        return None
    return _make_advice(bare, limit, Verdict.FITS)


def advise_tight_case(bare: Advice, efficiency: Efficiency) -> Advice | None:
    """Return the advice that a job is tight, since its largest case likely fits; ``None`` where it likely does not."""
    limit = predict_limit(bare.workload, bare, efficiency)
    if limit is None:
        return None
    memory = limit.prediction.memory
    is_likely = float(memory.fit_probability) >= LIKELY
    expected_bytes = float(memory.total_bytes.expected)
    return (
        _make_advice(bare, limit, Verdict.TIGHT) if is_likely and expected_bytes <= _find_bytes(memory, bare) else None
    )


def _make_advice(bare: Advice, limit: Limit, verdict: Verdict) -> Advice:
    """Return the advice that stands on the largest case of a job."""
    return replace(
        bare,
        verdict=verdict,
        completion=limit.completion,
        prediction=limit.prediction,
        assumed=(*limit.assumed, *limit.completion.assumed),
        is_limit=True,
    )


def advise_smallest_case(bare: Advice, efficiency: Efficiency) -> Advice | None:
    """Return the advice that a job runs out of memory in any case; ``None`` where that is not certain."""
    case = find_smallest_case(bare.workload) if bare.cluster is not None and bare.is_gpu_known else None
    if case is None or bare.cluster is None or bare.workload.gpu is None:
        return None
    completion, assumed = case
    if completion.model is None or completion.plan is None or any(entry.field == "gpu" for entry in bare.assumed):
        return None
    try:
        prediction = predict_case(completion.model, completion.plan, bare.cluster, efficiency, has_copies=False)
    except OpskError:
        return None
    if float(prediction.memory.total_bytes.low) <= float(prediction.memory.capacity_bytes):
        return None
    return replace(
        bare,
        verdict=Verdict.OOM,
        completion=completion,
        prediction=prediction,
        assumed=(*assumed, *completion.assumed),
        is_limit=True,
    )


def predict_limit(workload: Workload, bare: Advice, efficiency: Efficiency) -> Limit | None:
    """Return the prediction of the largest case of a workload; ``None`` where that is not known."""
    if bare.cluster is None or not bare.is_gpu_known:
        return None
    row = find_open_input(workload)
    case = find_worst_case(workload if row is None else state_sizes(workload, {row.field: row.generous}))
    if case is None:
        return None
    if row is not None:
        why = f"rarely more, usually {row.typical}"
        case = replace(case, assumed=(*case.assumed, Assumption(field=row.field, value=row.generous, why=why)))
    try:
        rows = [
            (entry, _predict_models(case, entry.model, entry.plan, bare.cluster, efficiency))
            for entry in case.completions
            if entry.model is not None and entry.plan is not None
        ]
    except OpskError:
        return None
    if not rows:
        return None
    completion, prediction = max(rows, key=lambda row: float(row[1].memory.total_bytes.high))
    return Limit(completion=completion, prediction=prediction, assumed=case.assumed)


def _predict_models(
    case: WorstCase, model: ModelShape, plan: Plan, cluster: ClusterSpec, efficiency: Efficiency
) -> PredictionTable:
    """Return the prediction of a largest case, that of its largest phase where a job holds several models.

    Raises
    ------
    OpskError
        When it cannot be predicted.
    """
    plan = _choose_16_bits(plan, cluster)
    roles = complete_roles(case.workload, model, plan)
    if roles is not None:
        return predict_largest_phase(roles, cluster, efficiency)
    prediction = predict_case(model, plan, cluster, efficiency, has_copies=case.has_copies)
    open_tower = dict(case.workload.options).get(OPEN_TOWER, "")
    tower = limit_tower(case.workload.model.name or "", model, open_tower)
    return prediction if tower is None else _add_tower(prediction, tower)


def _add_tower(prediction: PredictionTable, tower: TowerLimit) -> PredictionTable:
    """Return the prediction with what a tower takes at most at the high end."""
    memory = prediction.memory
    more = tower.state_bytes + tower.activation_share * float(memory.components["activations"])
    whole = replace(memory.total_bytes, high=memory.total_bytes.high + more)
    return replace(prediction, memory=replace(memory, total_bytes=whole))


def _choose_16_bits(plan: Plan, cluster: ClusterSpec) -> Plan:
    """Return the plan in fp16 where it is in bf16 and the GPU has none, which takes as much."""
    is_lacking = plan.precision is Precision.BF16 and "bf16" not in cluster.node.gpu.peak_flop_per_s
    return replace(plan, precision=Precision.FP16) if is_lacking else plan


def predict_case(
    model: ModelShape, plan: Plan, cluster: ClusterSpec, efficiency: Efficiency, *, has_copies: bool
) -> PredictionTable:
    """Return the prediction of a plan; in 16 bits as in fp16 where the GPU has no bf16, which takes as much.

    Raises
    ------
    OpskError
        When it cannot be predicted.
    """
    prediction = predict_one(model, _choose_16_bits(plan, cluster), cluster, efficiency)
    if not has_copies:
        return prediction
    total = prediction.memory.total_bytes
    whole = replace(total, high=total.high + COPY_BYTES * total_parameters(model))
    return replace(prediction, memory=replace(prediction.memory, total_bytes=whole))


def fits_for_sure(prediction: PredictionTable, bare: Advice) -> bool:
    """Return whether the largest case fits as surely as a job that states all, on every GPU that the job may get.

    The high end of its memory must fit, too: it has what is not in the prediction.
    """
    memory = prediction.memory
    is_safe = compute_verdict(float(memory.fit_probability)) is Verdict.FITS
    return is_safe and float(memory.total_bytes.high) <= _find_bytes(memory, bare)


def _find_bytes(memory: MemoryTable, bare: Advice) -> float:
    """Return the memory of the smallest GPU that a job may get [bytes]."""
    return min(float(memory.capacity_bytes), _find_smallest_bytes(bare))


def _find_smallest_bytes(bare: Advice) -> float:
    """Return the memory of the smallest GPU that the requested type may mean, where one was assumed [bytes]."""
    if bare.workload.gpu is None or not any(entry.field == "gpu" for entry in bare.assumed):
        return inf
    spec, others = resolve_gpu(bare.workload.gpu)
    return float(min(entry.capacity_bytes for entry in (spec, *map(gpu, others))))
