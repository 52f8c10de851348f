"""Runs Calculon alone: ``python calculon_driver.py CHECKOUT evaluate COUNT`` or ``... search CPU_SECONDS [quiet]``.

For an interpreter that has Calculon's requirements (pandas, psutil) and not opsk. ``evaluate`` prints the CPU seconds
of one complete evaluation of GPT-3 175B on 64 A100; ``search`` walks its own search of that case in random order, with
the program's own loop, and prints CPU seconds, strategies completed and strategies refused. As in the recorded searches
there is no offload tier, tensor parallelism stays in a node, and a sweep of micro-batches stops where none fits.
``quiet`` keeps its logger from building debug lines that nobody reads.
"""

from __future__ import annotations

import json
import logging
import random
import sys
import time
from typing import Any

GPUS = BATCH = 64
LARGEST_TP = 8
PLAN = {
    "num_procs": 64,
    "tensor_par": 8,
    "pipeline_par": 8,
    "data_par": 1,
    "tensor_par_net": 0,
    "pipeline_par_net": 1,
    "data_par_net": 1,
    "batch_size": 64,
    "microbatch_size": 1,
    "datatype": "float16",
    "fused_activation": False,
    "attention_type": "multihead",
    "activation_recompute": "attn_only",
    "pipeline_interleaving": 3,
    "optimizer_sharding": False,
    "tensor_par_comm_type": "rs_ag",
    "tensor_par_overlap": "none",
    "seq_par_ag_redo": True,
    "data_par_overlap": False,
    "weight_offload": False,
    "activations_offload": False,
    "optimizer_offload": False,
    "training": True,
}


def read(root: str, name: str) -> Any:
    """Return one of Calculon's files."""
    with open(f"{root}/{name}", encoding="utf-8") as stream:  # noqa: PTH123 (Calculon's own Python may be old)
        return json.load(stream)


def evaluate(root: str, count: int) -> float:
    """Return the CPU seconds of one evaluation, done as its search does it."""
    from calculon.llm import Llm, System

    app, system = Llm.Application(read(root, "models/gpt3-175B.json")), System(read(root, "systems/a100_80g.json"))

    def once() -> None:
        model = Llm(app, logging.Logger("sub"))
        model.compile(system, Llm.Execution.from_json(PLAN))
        model.run(system)
        model.get_stats_json(False)

    once()
    start = time.process_time()
    for _ in range(count):
        once()
    return (time.process_time() - start) / count


def search(root: str, cpu_s: float, *, is_quiet: bool) -> tuple[float, int, int]:
    """Return CPU seconds, strategies completed and strategies refused of a search with a cap on its CPU time."""
    from calculon.llm import Llm, System
    from calculon.llm.optimal_execution import OptimalExecution

    system = read(root, "systems/a100_80g.json")
    system["mem2"]["GiB"] = 0
    app, machine = Llm.Application(read(root, "models/gpt3-175B.json")), System(system)
    if is_quiet:
        logging.disable(logging.CRITICAL)
    groups = list(parameter_groups(Llm, app))
    random.Random(1).shuffle(groups)
    good = bad = 0
    start = time.process_time()
    for tp, pp, dp, chunks, recompute, sharding, kind in groups:
        if time.process_time() - start > cpu_s:
            break
        shared = (False, 1, False, GPUS, BATCH, "float16", app, machine)
        choice = (tp, pp, dp, chunks, BATCH, recompute, sharding, kind, [True], True, True, True)
        _, _, completed, refused, _, _ = OptimalExecution.search(*shared, *choice)
        good, bad = good + completed, bad + refused
    return time.process_time() - start, good, bad


def parameter_groups(llm: Any, app: Any) -> Any:
    """Yield what its search hands to one process at a time (the loops of its ``run_command``)."""
    for tp in llm.get_all_tensor_parallelisms(GPUS, app.hidden, app.attn_heads):
        if tp > LARGEST_TP:
            continue
        for pp in llm.get_all_pipeline_parallelisms(GPUS, tp, app.num_blocks):
            dp = llm.get_data_parallelism(GPUS, tp, pp)
            for chunks in llm.get_valid_pipeline_interleavings(app.num_blocks, pp):
                for recompute in ("full", "attn_only", "none"):
                    for sharding in (True, False) if dp > 1 else (False,):
                        for kind in ("ar", "p2p_rs_ag", "rs_ag"):
                            yield tp, pp, dp, chunks, recompute, sharding, kind


def main() -> None:
    """Print what was asked."""
    root, what, amount, *rest = sys.argv[1:]
    sys.path.insert(0, root)
    if what == "evaluate":
        print(evaluate(root, int(amount)))
    else:
        print(*search(root, float(amount), is_quiet="quiet" in rest))


if __name__ == "__main__":
    main()
