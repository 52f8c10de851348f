"""Measures the cost model on one plan and on large tables: ``python -m benchmarks.costmodel.costmodel_rows``.

One warm plan, alone and as a table of one row, and tables of up to 100,000 rows. CPU time is reported: it does not
depend on what else the machine does. `benchmarks.costmodel.against_calculon` does the same beside Calculon.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import fields
from functools import partial

import numpy as np

from benchmarks.found import Found, arguments, run
from opsk.costmodel.predict import predict, predict_one
from opsk.costmodel.table import PlanTable, PredictionTable
from opsk.hardware.catalog import cluster
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Recompute, Sharding

MODEL = ModelShape(
    name="llama3-70b",
    layers=80,
    hidden=8192,
    ffn=28672,
    heads=64,
    kv_heads=8,
    head_dim=128,
    vocab=128256,
    seq=8192,
    gated_mlp=True,
    tied_embeddings=False,
)
REPEATS = 200
ROWS, SHORT_ROWS = (1, 10, 100, 1_000, 10_000, 100_000), (1, 100)


def plans() -> PlanTable:
    """Return some legal plans on 512 GPUs, all combinations of the axes."""
    return PlanTable.of(
        [
            Plan(
                tp=tp,
                pp=pp,
                vpp=vpp,
                dp=512 // (tp * pp),
                sharding=sharding,
                sequence_parallel=tp > 1,
                recompute=recompute,
                micro_batch=micro_batch,
                global_batch=2048,
            )
            for tp in (1, 2, 4, 8)
            for pp in (1, 2, 4, 8, 16)
            for vpp in ((1, 5) if pp > 1 else (1,))
            for sharding in Sharding
            for recompute in Recompute
            for micro_batch in (1, 2, 4)
        ]
    )


def repeat_rows(table: PlanTable, rows: int) -> PlanTable:
    """Return ``rows`` rows, the table over and over."""
    index = np.arange(rows) % len(table)
    return PlanTable(**{field.name: getattr(table, field.name)[index] for field in fields(PlanTable)})


def cpu_s(predicted: Callable[[], PredictionTable], repeats: int) -> list[float]:
    """Return the CPU seconds of each of ``repeats`` predictions."""
    predicted()
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        predicted()
        taken.append(time.process_time() - start)
    return taken


def measure(asked: argparse.Namespace) -> Found:
    """Print and return the figures."""
    some, machine, found = plans(), cluster("superpod-h100"), Found()
    alone, row = some.row(0), repeat_rows(some, 1)
    for name, key, predicted in (
        ("one plan", "one_plan_s", lambda: predict_one(MODEL, alone, machine)),
        ("a table of one row", "one_row_s", lambda: predict(MODEL, row, machine)),
    ):
        one = cpu_s(predicted, 3 if asked.short else REPEATS)
        found.figures[key] = statistics.median(one)
        print(f"{name}: median {statistics.median(one) * 1e3:.2f} ms, worst {max(one) * 1e3:.2f} ms CPU")
    for rows in SHORT_ROWS if asked.short else ROWS:
        table = repeat_rows(some, rows)
        taken = statistics.median(cpu_s(partial(predict, MODEL, table, machine), 3 if rows > 1_000 else 30))
        found.curves.setdefault("rows", []).append((rows, taken))
        found.figures["rows_per_s"] = rows / taken
        print(f"{rows:>7,} rows: {taken * 1e3:8.1f} ms CPU, {rows / taken:>10,.0f} rows/s")
    return found


if __name__ == "__main__":
    run(measure, arguments(__doc__))
