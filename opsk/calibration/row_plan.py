"""How was the run of a row cut over GPUs: what does the row say, what its notes, and what do both leave open?

What is open is settled by `opsk.calibration.plan_choice`, and listed as assumed.
"""

from __future__ import annotations

from typing import Any

from opsk.calibration.cells import Cells
from opsk.calibration.notes import Notes
from opsk.calibration.plan_choice import Stated, candidate_plans, likeliest_plan
from opsk.calibration.row_cluster import cluster_of
from opsk.calibration.row_software import (
    RunSoftware,
    is_compiled,
    loss_of,
    moe_is_fused,
    offload_of,
    optimizer_of,
    pipelines_tensor_parallel,
    recompute_of,
    sharding_of,
    states_of,
)
from opsk.hardware.spec import ClusterSpec, GpuSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Precision, Sharding, Software, States
from opsk.workload.rules import MAX_GPUS

PUBLISHED_MICRO_BATCHES = {
    "GPT-1.7B": (16, 1),
    "GPT-3.6B": (16, 1),
    "GPT-7.5B": (16, 1),
    "GPT-18.4B": (8, 1),
    "GPT-39.1B": (4, 1),
    "GPT-76.1B": (2, 3),
    "GPT-145.6B": (2, 2),
    "GPT-310.1B": (1, 2),
    "GPT-529.6B": (1, 3),
    "GPT-1008.0B": (1, 1),
}
"""Micro-batch and model chunks a stage of the GPT models of Narayanan et al. 2021, table 1, which leaves them out.

Source: the authors' own launch script for that table, Megatron-LM examples/sc21/run_table_1.sh.
"""

_PRECISIONS = {
    "tf32": Precision.FP32,
    "fp32": Precision.FP32,
    "float32": Precision.FP32,
    "fp16": Precision.FP16,
    "float16": Precision.FP16,
    "mixed": Precision.FP16,
    "bf16": Precision.BF16,
    "bfloat16": Precision.BF16,
    "amp_bf16": Precision.BF16,
    "amp_fp16": Precision.FP16,
    "bf16-mixed": Precision.BF16,
    "fp8": Precision.FP8,
    "amp_fp8": Precision.FP8,
    "fp8 hybrid": Precision.FP8,
    "fp8-hybrid": Precision.FP8,
    "fp8-ds": Precision.FP8,
    "fp8-delayed": Precision.FP8,
    "fp8-cs": Precision.FP8_CURRENT,
    "fp8-current": Precision.FP8_CURRENT,
    "fp8-sc": Precision.FP8_BLOCK,
    "fp8-block": Precision.FP8_BLOCK,
    "fp8-mx": Precision.MXFP8,
    "mxfp8": Precision.MXFP8,
    "nvfp4": Precision.NVFP4,
    "fp4": Precision.NVFP4,
}


def plan_of(
    cells: Cells, notes: Notes, model: ModelShape, gpu: GpuSpec, software: RunSoftware
) -> tuple[Plan, ClusterSpec] | None:
    """Return the plan of a row and the cluster that it ran on; what is wrong or impossible is noted."""
    stated = _stated(cells, notes, model, gpu, software)
    if cells.wrong:
        return None
    before = len(cells.assumed)
    cluster = cluster_of(cells, gpu, stated.gpus or gpu_count_of(stated, gpu))
    candidates = candidate_plans(stated, model, cluster, software)
    if cells.wrong:
        return None
    if not candidates:
        cells.wrong.append(_no_candidate(stated))
        return None
    chosen = candidates[0] if len(candidates) == 1 else likeliest_plan(candidates, model, cluster)
    if stated.gpus is None:
        del cells.assumed[before:]
        cluster = cluster_of(cells, gpu, chosen.gpus)
    _note_choice(cells, stated, chosen)
    return chosen, cluster


def gpu_count_of(stated: Stated, gpu: GpuSpec) -> int:
    """Return a number of GPUs large enough for any candidate where none is stated."""
    return (stated.tp or 8) * (stated.pp or 64) * stated.cp * 2


def _stated(cells: Cells, notes: Notes, model: ModelShape, gpu: GpuSpec, software: RunSoftware) -> Stated:
    """Return what the row, its notes and its software settle."""
    numbers = notes.numbers
    precision = _precision(cells, gpu, software)
    sharding = sharding_of(cells, software)
    tp, pp, vpp = (_noted(cells, numbers, name) for name in ("tp", "pp", "vpp"))
    gpus, cp = _gpus(cells, tp, pp), cells.size("cp")
    tp, pp = _by_arithmetic(cells, gpus, tp, pp, cp or 1)
    if sharding is Sharding.ZERO3 and "model_parallel" not in numbers:
        if tp is None:
            tp = cells.assume("plan.tp", 1, "fully sharded states need no tensor parallelism")
        if pp is None:
            pp = cells.assume("plan.pp", 1, "fully sharded states need no pipeline")
    micro_batch, ep = _noted(cells, numbers, "micro_batch"), _noted(cells, numbers, "ep")
    published = PUBLISHED_MICRO_BATCHES.get(cells.text("model"))
    if micro_batch is None and published:
        micro_batch, chunks = published
        cells.assume("plan.micro_batch", micro_batch, "the authors' script for this model (examples/sc21)")
        if vpp is None and chunks > 1:
            vpp = cells.assume("plan.vpp", chunks, "the authors' script for this model (examples/sc21)")
    global_batch = _noted(cells, numbers, "global_batch")
    if global_batch is None and notes.batch_tokens:
        global_batch = max(round(notes.batch_tokens / model.seq), 1)
    recompute = recompute_of(cells, notes)
    fixed = {
        "sharding": sharding,
        "precision": precision,
        "states": _states(cells, notes, software, precision),
        "optimizer": optimizer_of(notes),
        "offload": offload_of(notes),
        "loss": loss_of(cells, notes),
        "compiled": is_compiled(notes),
        "tp_overlap": pipelines_tensor_parallel(cells, notes),
        "fused_moe": moe_is_fused(cells, notes),
        "software": software.family,
        "shard_gpus": numbers.get("shard_gpus", 0),
        "lora_rank": numbers.get("lora_rank", 16 if notes.says("lora ", "qlora") and not notes.says("q_lora") else 0),
        "base_bits": 4 if notes.says("qlora") else 16,
        "etp": notes.flag("expert-tensor-parallel-size") or 0,
        "recompute_layers": notes.flag("recompute-num-layers") or 0 if _recomputes_blocks(notes) else 0,
        "sequence_parallel": _sequence_parallel(cells, software, tp),
    }
    return Stated(
        gpus=gpus,
        tp=tp,
        pp=pp,
        vpp=vpp,
        micro_batch=micro_batch,
        global_batch=global_batch,
        model_parallel=numbers.get("model_parallel"),
        recompute=recompute,
        cp=cp or 1,
        ep=ep,
        fixed=fixed,
    )


def _gpus(cells: Cells, tp: int | None, pp: int | None) -> int | None:
    """Return the number of GPUs, by the product of the axes where only these are stated."""
    gpus, dp = cells.size("gpus"), cells.size("dp")
    if gpus is not None and gpus > MAX_GPUS:
        cells.wrong.append(f"gpus is {gpus}, more than any cluster has")
    if gpus is None and tp and pp and dp:
        return tp * pp * dp * (cells.size("cp") or 1)
    return gpus


def _by_arithmetic(
    cells: Cells, gpus: int | None, tp: int | None, pp: int | None, cp: int
) -> tuple[int | None, int | None]:
    """Return tensor and pipeline size, the missing one of them from gpus = tp x pp x cp x dp where that is whole."""
    dp = cells.size("dp")
    if gpus is None or dp is None or (tp is None) == (pp is None) or gpus % ((tp or pp or 1) * cp * dp):
        return tp, pp
    rest = gpus // ((tp or pp or 1) * cp * dp)
    return (tp, rest) if pp is None else (rest, pp)


def _recomputes_blocks(notes: Notes) -> bool:
    """Return whether ``--recompute-num-layers`` counts the layers of a stage that are recomputed."""
    return notes.flags.get("recompute-method", "") == "block"


def _noted(cells: Cells, numbers: Any, name: str) -> int | None:
    """Return a stated size, or the one of the recipe that the notes name, which is an assumption."""
    stated = cells.size(name)
    if stated is None and name in numbers:
        return int(cells.assume(f"plan.{name}", numbers[name], "the recipe that the notes name"))
    return stated


def _precision(cells: Cells, gpu: GpuSpec, software: RunSoftware) -> Precision:
    """Return the number format of the products; notes one that is not known or that the GPU has not."""
    stated = cells.text("precision").lower()
    has_bf16 = "bf16" in gpu.peak_flop_per_s
    if stated:
        precision = _PRECISIONS.get(stated) or _like(stated)
        if precision is None:
            cells.wrong.append(f"precision is {stated[:40]!r}, must be one of {', '.join(_PRECISIONS)}")
            return Precision.BF16
    else:
        is_fp16 = not has_bf16 or (software.year <= 2022 and software.family is not Software.PYTORCH)
        chosen = Precision.FP16 if is_fp16 else Precision.BF16
        precision = Precision(cells.assume("plan.precision", chosen.value, f"usual in {software.year} on {gpu.name}"))
    plain = precision in (Precision.FP32, Precision.FP16)
    if precision.peak_format not in gpu.peak_flop_per_s or not (plain or has_bf16):
        have = ", ".join(sorted(gpu.peak_flop_per_s))
        cells.wrong.append(f"{gpu.name} has no {precision.value} peak in the catalogue; it has {have}")
    return precision


def _like(stated: str) -> Precision | None:
    """Return the number format whose name stands in a longer one (``bf16 + fp8 matmul``), the smallest first."""
    words = ("nvfp4", "fp4", "mxfp8", "fp8", "bf16", "bfloat16", "fp16", "fp32")
    return next((_PRECISIONS[word] for word in words if word in stated), None)


def _states(cells: Cells, notes: Notes, software: RunSoftware, precision: Precision) -> States:
    """Return the formats of the states; without mixed precision all are in fp32."""
    return States.AUTOCAST if precision is Precision.FP32 else states_of(cells, notes, software)


def _sequence_parallel(cells: Cells, software: RunSoftware, tp: int | None) -> bool | None:
    """Return whether norms and dropout are split over tp; ``None`` is: wherever there is tensor parallelism."""
    stated = cells.text("sequence_parallel").lower()
    if stated in ("yes", "true", "1", "on"):
        return True
    if stated in ("no", "false", "0", "off") or tp == 1:
        return False
    if stated:
        cells.wrong.append(f"sequence_parallel is {stated[:40]!r}, must be yes or no")
    is_usual = software.family is Software.MEGATRON_CORE
    cells.assume("plan.sequence_parallel", is_usual, f"{software.family.value} of {software.year}")
    return None if is_usual else False


def _note_choice(cells: Cells, stated: Stated, plan: Plan) -> None:
    """Note what the choice settled that the row leaves open."""
    smallest = "the smallest model-parallel product that fits, tensor parallelism within a node first"
    if stated.model_parallel is not None:
        smallest = f"model-parallel size {stated.model_parallel}, tensor parallelism within a node first"
    if stated.gpus is None:
        cells.assume("plan.gpus", plan.gpus, "two replicas, at least one node")
    if stated.tp is None:
        cells.assume("plan.tp", plan.tp, smallest)
    if stated.pp is None:
        cells.assume("plan.pp", plan.pp, smallest)
    if stated.vpp is None and plan.pp > 1:
        cells.assume("plan.vpp", plan.vpp, "stages are not interleaved unless asked for")
    if stated.ep is None and plan.ep > 1:
        cells.assume("plan.ep", plan.ep, "as wide as a node, wider where that does not fit")
    if stated.recompute is None:
        cells.assume("plan.recompute", plan.recompute.value, "the least that fits")
    if stated.micro_batch is None:
        cells.assume("plan.micro_batch", plan.micro_batch, "the fastest that fits")
    if stated.global_batch is None:
        count = plan.micro_batches
        cells.assume("plan.global_batch", plan.global_batch, f"{count} micro-batches of every replica")
    elif stated.global_batch != plan.global_batch:
        why = f"{stated.global_batch} is no multiple of micro batch {plan.micro_batch} x dp {plan.dp}"
        cells.assume("plan.global_batch", plan.global_batch, why)
    printed = cells.size("dp")
    if printed is not None and printed != plan.dp:
        cells.assume("plan.dp", plan.dp, f"{printed} is printed, which is not gpus / (tp x pp x cp)")


def _no_candidate(stated: Stated) -> str:
    """Return why there is no plan."""
    return (
        f"gpus {stated.gpus}, tp {stated.tp or '?'} x pp {stated.pp or '?'} x cp {stated.cp}, micro batch "
        f"{stated.micro_batch or '?'}, global batch {stated.global_batch or '?'}: no plan has these numbers"
    )
