"""Advises on a job that trains one of several models, or one of which its name tells the size alone.

It fits where it does with the largest of them. Nothing else follows, above all not that a job runs out of memory.
"""

from __future__ import annotations

from dataclasses import replace

from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.errors import OpskError
from opsk.workload.advice_record import Verdict
from opsk.workload.completion import Assumption, complete
from opsk.workload.defaults import ROLE_PREFIXES
from opsk.workload.unstated.open_models import find_open_models, state_model
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.unstated.size_ranges import advise_over_range
from opsk_jobcheck.advice.worst_case import advise_worst_case, fits_for_sure, predict_case
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import OPTION as TRAINABLE


def advise_open_models(bare: Advice, efficiency: Efficiency) -> Advice | None:
    """Return the advice that a job fits with each of the models that it may train; ``None`` where it may not."""
    models = find_open_models(bare.workload)
    if models is None:
        return None
    answers: list[tuple[float, str, Advice]] = []
    for name in models.names:
        workload = state_model(bare.workload, name, models)
        completion = complete(workload)
        case = replace(bare, workload=workload, completion=completion, assumed=completion.assumed)
        answer = (
            _advise_stated(case, efficiency)
            or advise_worst_case(case, efficiency)
            or advise_over_range(case, efficiency)
        )
        if answer is None or answer.prediction is None:
            return None
        answers.append((float(answer.prediction.memory.total_bytes.high), name, answer))
    _, name, largest = max(answers, key=lambda row: row[0])
    chosen = Assumption(field="model.name", value=name, why=models.why)
    return replace(largest, workload=bare.workload, assumed=(chosen, *largest.assumed))


def _advise_stated(case: Advice, efficiency: Efficiency) -> Advice | None:
    """Return the advice that a job fits of which all is stated but the model; ``None`` where it may not."""
    model, plan, options = case.completion.model, case.completion.plan, dict(case.workload.options)
    has_more = TRAINABLE in options or any(name.startswith(ROLE_PREFIXES) for name in options)
    if model is None or plan is None or case.cluster is None or has_more or not case.is_gpu_known:
        return None
    try:
        prediction = predict_case(model, plan, case.cluster, efficiency, has_copies=False)
    except OpskError:
        return None
    is_fit = fits_for_sure(prediction, case)
    return replace(case, verdict=Verdict.FITS, prediction=prediction, is_limit=True) if is_fit else None
