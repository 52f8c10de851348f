"""How many plans a second does opsk predict, and how many Calculon, where it is present?

``python -m benchmarks.against_calculon CHECKOUT [--python PYTHON]``: CHECKOUT is a clone of calculon-ai/calculon,
PYTHON an interpreter that has its requirements (pandas, psutil). One complete evaluation of GPT-3 175B on 64 A100 (TP8
PP8x3, sequence parallelism, selective recomputation: Calculon's own validation case), blocks of both in turn in one
run, CPU seconds of one core. Calculon is run as its search does: a model object built, compiled and run for each plan.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.costmodel_rows import repeated
from opsk.costmodel.predict import predict
from opsk.costmodel.table import PlanTable
from opsk.hardware.catalog import cluster
from opsk.workload.plan import Plan, Precision, Recompute, Software
from opsk.workload.public_models.lookup import public_model

BLOCKS = 5
CALCULON_PLANS = 30
TABLE_PLANS = 100_000
ONE_PLAN_REPEATS = 200
TIME_LIMIT_S = 120

_DRIVER = """
import json, logging, sys, time
root, count = sys.argv[1], int(sys.argv[2])
sys.path.insert(0, root)
import calculon
from calculon.llm import Llm, System
def read(name):
    with open(f"{root}/{name}") as stream:
        return json.load(stream)
app, system = Llm.Application(read("models/gpt3-175B.json")), System(read("systems/a100_80g.json"))
plan = {
    "num_procs": 64, "tensor_par": 8, "pipeline_par": 8, "data_par": 1, "tensor_par_net": 0, "pipeline_par_net": 1,
    "data_par_net": 1, "batch_size": 64, "microbatch_size": 1, "datatype": "float16", "fused_activation": False,
    "attention_type": "multihead", "activation_recompute": "attn_only", "pipeline_interleaving": 3,
    "optimizer_sharding": False, "tensor_par_comm_type": "rs_ag", "tensor_par_overlap": "none",
    "seq_par_ag_redo": True, "data_par_overlap": False, "weight_offload": False, "activations_offload": False,
    "optimizer_offload": False, "training": True,
}
def evaluate():
    model = Llm(app, logging.Logger("sub"))
    model.compile(system, Llm.Execution.from_json(plan))
    model.run(system)
    model.get_stats_json(False)
evaluate()
start = time.process_time()
for _ in range(count):
    evaluate()
print((time.process_time() - start) / count)
"""


def calculon_s(checkout: Path, python: str) -> float:
    """Return the CPU seconds of one evaluation by Calculon."""
    command = [python, "-c", _DRIVER, str(checkout), str(CALCULON_PLANS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIME_LIMIT_S)
    return float(done.stdout.split()[-1])


def opsk_s(rows: int, repeats: int) -> float:
    """Return the CPU seconds a plan of a table of so many rows."""
    model, machine = public_model("GPT-3 175B"), cluster("titan")
    if model is None:
        raise LookupError("GPT-3 175B is not in the catalogue of public models")
    plan = Plan(
        tp=8,
        pp=8,
        vpp=3,
        sequence_parallel=True,
        recompute=Recompute.SELECTIVE,
        precision=Precision.FP16,
        global_batch=64,
        software=Software.MEGATRON,
    )
    table = repeated(PlanTable.of([plan]), rows)
    predict(model, table, machine)
    start = time.process_time()
    for _ in range(repeats):
        predict(model, table, machine)
    return (time.process_time() - start) / repeats / rows


def main() -> None:
    """Print both, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--python", default=sys.executable)
    asked = parser.parse_args()
    if not (asked.checkout / "bin" / "calculon").exists():
        print(f"{asked.checkout}: no clone of Calculon here, nothing compared")
        return
    blocks = [
        (calculon_s(asked.checkout, asked.python), opsk_s(1, ONE_PLAN_REPEATS), opsk_s(TABLE_PLANS, 1))
        for _ in range(BLOCKS)
    ]
    theirs, one, row = (statistics.median(column) for column in zip(*blocks, strict=True))
    print(f"Calculon, one plan             {theirs * 1e3:9.2f} ms CPU {1 / theirs:12,.0f} plans/s")
    print(f"opsk, one plan                 {one * 1e3:9.2f} ms CPU {1 / one:12,.0f} plans/s")
    print(f"opsk, a table of {TABLE_PLANS:,} plans {row * 1e3:7.4f} ms CPU {1 / row:12,.0f} plans/s")
    ratios = [(a / b, a / c) for a, b, c in blocks]
    print(
        f"ratio in one run: one plan {statistics.median(r for r, _ in ratios):,.0f} x, "
        f"table {statistics.median(r for _, r in ratios):,.0f} x"
    )


if __name__ == "__main__":
    main()
