"""Reads Calculon's best plans as plans of opsk and predicts them.

The record of its searches is ``calculon_searches.json``; the shapes of its models are read from
``calculon_inputs_and_space.json`` beside it. Each plan is predicted for the machine that Calculon's A100 file
describes: 8 GPUs a node, NVLink at 300 GB/s, 25 GB/s a GPU. ``calculon_tables.py`` shows it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from page_table import GIB

from opsk.costmodel.predict import predict, prediction_document
from opsk.costmodel.rules import find_cluster_violations
from opsk.costmodel.table import PlanTable
from opsk.hardware.catalog import cluster
from opsk.workload.model import ModelShape
from opsk.workload.plan import Offload, Plan, Precision, Recompute, Sharding, Software

CLUSTER = "selene"
"""DGX A100 80 GB with a 200 Gbit/s HCA for each GPU: the machine of Calculon's A100 file."""
VOCAB = 51200
"""GPT-2's tokens, padded (Korthikanti et al. 2022); Calculon's models have no embedding at all."""
SHAPES = "calculon_inputs_and_space.json"
_RECOMPUTE = {"none": Recompute.NONE, "attn_only": Recompute.SELECTIVE, "full": Recompute.FULL}
_PRECISION = {"float16": Precision.FP16, "bfloat16": Precision.BF16, "float8": Precision.FP8, "float32": Precision.FP32}
THEIR_TIMES = {
    "compute": ("fw_time", "bw_time"),
    "recompute": ("recompute_time",),
    "tp": ("tp_comm_exposed_time", "recomm_exposed_time"),
    "pp": ("pp_comm_exposed_time",),
    "bubble": ("bubble_time",),
    "dp": ("dp_comm_exposed_time",),
    "rest": ("optim_step_time", "fw_offload_exposed_time", "bw_offload_exposed_time"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """One plan that a search of Calculon's kept: what it is in our words, and what Calculon says of it.

    ``rank`` counts from 1; ``overlap`` is how Calculon hides tensor-parallel communication; ``times_s`` and
    ``memory_bytes`` are its parts, where the record has them; ``asks`` is what of its settings opsk has no word for.
    """

    case: str
    rank: int
    model: ModelShape
    plan: Plan
    overlap: str
    step_s: float
    total_bytes: float
    times_s: Mapping[str, float]
    memory_bytes: Mapping[str, float]
    asks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A winner with our prediction, the same with tensor-parallel communication exposed, and without a vocabulary."""

    winner: Winner
    ours: Mapping[str, Any]
    exposed: Mapping[str, Any]
    without_vocab: Mapping[str, Any]
    broken: tuple[str, ...]


def read_winners(path: Path) -> list[Winner]:
    """Return every plan of the file: of each search the best, and the other plans of its top five that differ."""
    shapes = json.loads((path.parent / SHAPES).read_text(encoding="utf-8"))["app"]
    found: list[Winner] = []
    for search in json.loads(path.read_text(encoding="utf-8")):
        model = read_shape(search["cli_args"], shapes)
        best = read_winner(search, model)
        seen = {_key(best)}
        found.append(best)
        for entry in search["top5"]:
            runner_up = _runner_up(best, entry)
            if _key(runner_up) not in seen:
                seen.add(_key(runner_up))
                found.append(runner_up)
    return found


def _key(winner: Winner) -> tuple[Plan, str]:
    return replace(winner.plan, overlap=True), winner.overlap


def read_shape(arguments: str, shapes: Mapping[str, Mapping[str, int]]) -> ModelShape:
    """Return the model that the arguments of a search name: GPT with biases, tied embeddings, unfused attention."""
    name = next(word.removesuffix(".json") for word in arguments.split() if word.removesuffix(".json") in shapes)
    sizes = shapes[name]
    return ModelShape(
        name=name,
        layers=sizes["blocks"],
        hidden=sizes["hidden"],
        ffn=sizes["ffn"],
        heads=sizes["heads"],
        kv_heads=sizes["heads"],
        head_dim=sizes["head"],
        vocab=VOCAB,
        seq=sizes["seq"],
        gated_mlp=False,
        tied_embeddings=True,
        learned_positions=True,
        flash_attention=False,
    )


def read_winner(search: Mapping[str, Any], model: ModelShape) -> Winner:
    """Return the best plan of a search; its settings are those of Calculon's ``Execution``."""
    best = search["best"]
    asks = []
    if best["seq_par_ag_redo"]:
        asks.append("gathers again in the backward pass")
    if best["weight_offload"] or best["optimizer_offload"]:
        asks.append("weights or states in host memory")
    return Winner(
        case=case_name(search["run"]),
        rank=1,
        model=model,
        plan=read_plan(best),
        overlap=best["tensor_par_overlap"],
        step_s=best["batch_time_s"],
        total_bytes=best["mem_tier1_GiB"] * GIB,
        times_s={name: sum(best["time_s"][part] for part in parts) for name, parts in THEIR_TIMES.items()},
        memory_bytes={name: value * GIB for name, value in best["mem_GiB"].items()},
        asks=tuple(asks),
    )


def case_name(run: str) -> str:
    """Return a search's name for people.

    Examples
    --------
    >>> case_name("best_175B_64_no_tp_overlap"), case_name("asis_1T_512_p2")
    ('175B / 64, no TP overlap', '1T / 512, as shipped, 2 processes, stopped early')
    """
    kind, model, gpus, *rest = run.split("_")
    words = " ".join(rest).replace("tp", "TP")
    if kind == "asis":
        words = f"as shipped, {words.removeprefix('p')} processes, stopped early".replace("1 processes", "1 process")
    return f"{model} / {gpus}" + (f", {words}" if words else "")


def read_plan(execution: Mapping[str, Any]) -> Plan:
    """Return one of Calculon's executions as a plan of Megatron-LM's of 2022, the software that Calculon describes."""
    pp = execution["pipeline_par"]
    return Plan(
        tp=execution["tensor_par"],
        pp=pp,
        vpp=execution["pipeline_interleaving"] if pp > 1 else 1,
        dp=execution["data_par"],
        sharding=Sharding.ZERO1 if execution["optimizer_sharding"] else Sharding.NONE,
        sequence_parallel=execution["tensor_par"] > 1 and execution["tensor_par_comm_type"] == "rs_ag",
        recompute=_RECOMPUTE[execution["activation_recompute"]],
        precision=_PRECISION[execution["datatype"]],
        micro_batch=execution["microbatch_size"],
        global_batch=execution["batch_size"],
        offload=Offload.ACTIVATIONS if execution["activations_offload"] else Offload.NONE,
        software=Software.MEGATRON,
        overlap=True,
        tp_overlap=execution["tensor_par_overlap"] != "none",
    )


def _runner_up(best: Winner, entry: Mapping[str, Any]) -> Winner:
    """Return a plan of the top five; what its short record leaves out is taken as in the best."""
    plan = replace(
        best.plan,
        tp=entry["tp"],
        pp=entry["pp"],
        vpp=entry["v"] if entry["pp"] > 1 else 1,
        dp=entry["dp"],
        micro_batch=entry["mbs"],
        recompute=_RECOMPUTE[entry["recompute"]],
        sharding=Sharding.ZERO1 if entry["opt_shard"] else Sharding.NONE,
        sequence_parallel=best.plan.sequence_parallel and entry["tp"] > 1,
        tp_overlap=entry["tp_overlap"] != "none",
    )
    return replace(
        best,
        rank=entry["rank"] + 1,
        plan=plan,
        overlap=entry["tp_overlap"],
        step_s=entry["batch_time_s"],
        total_bytes=entry["mem_tier1_GiB"] * GIB,
        times_s={},
        memory_bytes={},
    )


def judge(winners: Sequence[Winner]) -> list[Judged]:
    """Return our prediction of every winner."""
    machine = cluster(CLUSTER)

    def predict_plan(model: ModelShape, plan: Plan) -> Mapping[str, Any]:
        return prediction_document(predict(model, PlanTable.of([plan]), machine), 0)

    return [
        Judged(
            winner=winner,
            ours=predict_plan(winner.model, winner.plan),
            exposed=predict_plan(winner.model, replace(winner.plan, tp_overlap=False)),
            without_vocab=predict_plan(replace(winner.model, vocab=1), winner.plan),
            broken=find_cluster_violations(winner.model, winner.plan, machine),
        )
        for winner in winners
    ]
