"""What will a plan need and how fast will it run? The one entry point of the cost model."""

from __future__ import annotations

from opsk.costmodel.table import PlanTable, PredictionTable
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape


def predict(model: ModelShape, plans: PlanTable, cluster: ClusterSpec) -> PredictionTable:
    """Return memory and time of every plan of the table."""
    raise NotImplementedError
