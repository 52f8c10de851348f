"""Requests that can be answered one plan at a time, by hand as it were."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from opsk.costmodel.predict import predict
from opsk.hardware import catalog
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.result import Candidate, build_candidate
from opsk.planning.search.space import build_space
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

MODEL = ModelShape(
    name="small", layers=8, hidden=2048, ffn=8192, heads=16, kv_heads=8, head_dim=128, vocab=32000, seq=2048
)
CLUSTER = catalog.cluster("superpod-h100")


def request(*, gpus: int = 8, batch: int = 16, gpu_bytes: float | None = None, **changes: Any) -> PlanRequest:
    """Return a request for the small model; ``gpu_bytes`` gives the GPUs other memory."""
    cluster = CLUSTER
    if gpu_bytes is not None:
        gpu = replace(cluster.node.gpu, usable_bytes=int(gpu_bytes))
        cluster = replace(cluster, node=replace(cluster.node, gpu=gpu))
    given = {"model": MODEL, "cluster": cluster, "template": Plan(global_batch=1), "gpus": gpus, "global_batch": batch}
    return PlanRequest(**{**given, **changes})


def all_candidates(asked: PlanRequest) -> list[Candidate]:
    """Return every plan of a space with its numbers, predicted in tables of a few rows."""
    found = []
    for table in build_space(asked).list_tables(rows=512):
        predicted = predict(asked.model, table, asked.cluster, asked.efficiency)
        found += [build_candidate(table, predicted, row) for row in range(len(table))]
    return found
