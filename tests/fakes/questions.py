"""What is asked about a job whose workload is complete, on the catalogue's usual machine."""

from __future__ import annotations

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.predict import predict_one
from opsk.hardware.catalog import cluster
from opsk.workload.completion import complete
from opsk.workload.workload import Workload
from opsk_jobcheck.advice.suggestions import Question

CLUSTER = cluster("superpod-h100")


def question_of(workload: Workload) -> Question:
    """Return what a complete workload asks."""
    completion = complete(workload)
    assert completion.model is not None
    assert completion.plan is not None
    return Question(
        model=completion.model,
        plan=completion.plan,
        cluster=CLUSTER,
        efficiency=DEFAULT,
        workload=workload,
        prediction=predict_one(completion.model, completion.plan, CLUSTER),
    )
