"""How fast is the cost model? ``python -m benchmarks.costmodel_rows``: one plan, and rows a second of large tables.

Aims: one warm plan in at most 1 ms, at least 200,000 rows a second of a table of 100,000 on one core. CPU time is
reported: it does not depend on what else the machine does. For comparison, from measurements on another machine:
Calculon takes 38 ms for one plan and about 60 plans a CPU second in its search.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import fields

import numpy as np

from opsk.costmodel.predict import predict
from opsk.costmodel.table import PlanTable
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


def repeated(table: PlanTable, rows: int) -> PlanTable:
    """Return ``rows`` rows, the table over and over."""
    index = np.arange(rows) % len(table)
    return PlanTable(**{field.name: getattr(table, field.name)[index] for field in fields(PlanTable)})


def cpu_s(table: PlanTable, repeats: int) -> list[float]:
    """Return the CPU seconds of each of ``repeats`` predictions of a table."""
    machine = cluster("superpod-h100")
    predict(MODEL, table, machine)
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        predict(MODEL, table, machine)
        taken.append(time.process_time() - start)
    return taken


def main() -> None:
    """Print the figures."""
    some = plans()
    one = cpu_s(repeated(some, 1), REPEATS)
    print(f"one plan: median {statistics.median(one) * 1e3:.2f} ms, worst {max(one) * 1e3:.2f} ms CPU")
    for rows in (1_000, 20_000, 100_000):
        taken = statistics.median(cpu_s(repeated(some, rows), 3))
        print(f"{rows:>7,} rows: {taken * 1e3:8.1f} ms CPU, {rows / taken:>10,.0f} rows/s")


if __name__ == "__main__":
    main()
