"""How was the run of a row cut over GPUs? What is not stated is what a user would take: what fits, simplest first.

Missing tensor and pipeline sizes: the smallest product that fits in memory, tensor parallelism within a node first.
Missing recomputation: the least that fits. Missing micro-batch: the fastest that fits. All by the cost model itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from opsk.calibration.cells import Cells
from opsk.calibration.notes import Notes
from opsk.calibration.row_cluster import cluster_of
from opsk.calibration.row_software import (
    RunSoftware,
    is_compiled,
    loss_of,
    offload_of,
    optimizer_of,
    recompute_of,
    sharding_of,
    states_of,
)
from opsk.costmodel.predict import predict
from opsk.costmodel.table import PlanTable
from opsk.errors import PlanInfeasibleError
from opsk.hardware.spec import ClusterSpec, GpuSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Precision, Recompute, Sharding, Software, States

FITS_FROM = 0.5
"""A plan is taken to have fitted from this probability on."""
PLAIN_RECOMPUTE_UNTIL = 2021
"""Selective recomputation is of 2022 (Korthikanti et al., arXiv 2205.05198)."""
_MICRO_BATCHES = (1, 2, 4, 8, 16, 32)
_BATCH_TOKENS = 1 << 21
"""Tokens of a step where neither batch nor accumulation is known and the model needs a pipeline: 2 M, about GPT-3's."""
_MAX_CANDIDATES = 4096

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What is settled of a plan before the search; ``None`` is open. ``fixed`` are the fields without a choice."""

    gpus: int | None
    tp: int | None
    pp: int | None
    vpp: int | None
    micro_batch: int | None
    global_batch: int | None
    model_parallel: int | None
    recompute: Recompute | None
    cp: int
    ep: int | None
    fixed: dict[str, Any]


def plan_of(
    cells: Cells, notes: Notes, model: ModelShape, gpu: GpuSpec, software: RunSoftware
) -> tuple[Plan, ClusterSpec] | None:
    """Return the plan of a row and the cluster that it ran on; what is wrong or impossible is noted."""
    stated = _stated(cells, notes, model, gpu, software)
    if cells.wrong:
        return None
    before = len(cells.assumed)
    cluster = cluster_of(cells, gpu, stated.gpus or gpu_count_of(stated, gpu))
    candidates = _candidates(stated, model, cluster, software)
    if cells.wrong:
        return None
    if not candidates:
        cells.wrong.append(_no_candidate(stated))
        return None
    chosen = candidates[0] if len(candidates) == 1 else _choose(candidates, model, cluster)
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
    if tp is None and pp is None and sharding is Sharding.ZERO3 and "model_parallel" not in numbers:
        tp = cells.assume("plan.tp", 1, "fully sharded states need no tensor parallelism")
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
    cp = cells.size("cp")
    recompute = recompute_of(cells, notes)
    fixed = {
        "sharding": sharding,
        "precision": precision,
        "states": _states(cells, notes, software, precision),
        "optimizer": optimizer_of(notes),
        "offload": offload_of(notes),
        "loss": loss_of(notes),
        "compiled": is_compiled(notes),
        "software": software.family,
        "shard_gpus": numbers.get("shard_gpus", 0),
        "lora_rank": numbers.get("lora_rank", 16 if notes.says("lora ", "qlora") and not notes.says("q_lora") else 0),
        "base_bits": 4 if notes.says("qlora") else 16,
        "etp": notes.flag("expert-tensor-parallel-size") or 0,
        "recompute_layers": notes.flag("recompute-num-layers") or 0 if _recomputes_blocks(notes) else 0,
        "sequence_parallel": _sequence_parallel(cells, software, tp),
    }
    return Stated(
        gpus=cells.size("gpus"),
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
        precision = _PRECISIONS.get(stated)
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


def _axes(stated: Stated, model: ModelShape, cluster: ClusterSpec) -> list[tuple[int, int]]:
    """Return the tensor and pipeline sizes that may have been used, smallest product first."""
    per_node = min(cluster.node.gpus, 8)
    sizes = [tp for tp in (1, 2, 4, 8) if tp <= per_node and model.heads % tp == 0]
    if stated.tp is not None and stated.pp is not None:
        return [(stated.tp, stated.pp)]
    if stated.model_parallel is not None:
        tp = stated.tp or max((size for size in sizes if stated.model_parallel % size == 0), default=1)
        return [(tp, max(stated.model_parallel // tp, 1))]
    if stated.tp is not None:
        sizes = [stated.tp]
    stages = (
        [stated.pp]
        if stated.pp is not None
        else [pp for pp in range(1, min(model.layers, 128) + 1) if model.layers % pp == 0]
    )
    widest = max(sizes)
    pairs = [(tp, pp) for tp in sizes for pp in stages if stated.pp is not None or pp == 1 or tp == widest]
    return sorted(pairs, key=lambda pair: (pair[0] * pair[1], pair[1]))


def _candidates(stated: Stated, model: ModelShape, cluster: ClusterSpec, software: RunSoftware) -> list[Plan]:
    """Return the plans that agree with what is stated, simplest first."""
    plans: list[Plan] = []
    for tp, pp in _axes(stated, model, cluster):
        ranks = tp * pp * stated.cp
        if stated.gpus is not None and stated.gpus % ranks:
            continue
        for recompute in _recomputes(stated, model, software):
            for micro_batch, dp, batch in _batches(stated, model, cluster, ranks, pp):
                plan = _plan(stated, model, cluster, tp, pp, dp, recompute, micro_batch, batch)
                if plan is not None:
                    plans.append(plan)
                if len(plans) >= _MAX_CANDIDATES:
                    return plans
    return plans


def _recomputes(stated: Stated, model: ModelShape, software: RunSoftware) -> Sequence[Recompute]:
    """Return what may have been recomputed, least first; recipes of Megatron Core recompute modules, not layers."""
    if stated.recompute is not None:
        return (stated.recompute,)
    if model.flash_attention and software.family is Software.MEGATRON_CORE:
        return (Recompute.NONE, Recompute.SELECTIVE)
    if model.flash_attention or software.year <= PLAIN_RECOMPUTE_UNTIL:
        return (Recompute.NONE, Recompute.FULL)
    return (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)


def _batches(
    stated: Stated, model: ModelShape, cluster: ClusterSpec, ranks: int, pp: int
) -> Iterator[tuple[int, int, int]]:
    """Yield micro-batch, data-parallel size and global batch."""
    dp = max(2, cluster.node.gpus // ranks) if stated.gpus is None else stated.gpus // ranks
    whole = stated.global_batch
    sizes = _MICRO_BATCHES if stated.micro_batch is None else (stated.micro_batch,)
    dividing = [size for size in sizes if whole is None or whole % (size * dp) == 0]
    for size in dividing or sizes[:1]:
        wanted = whole if whole is not None else _BATCH_TOKENS / model.seq if pp > 1 else 1
        batch = max(round(wanted / (size * dp)), 1) * size * dp
        yield size, dp, batch


def _plan(
    stated: Stated,
    model: ModelShape,
    cluster: ClusterSpec,
    tp: int,
    pp: int,
    dp: int,
    recompute: Recompute,
    micro_batch: int,
    batch: int,
) -> Plan | None:
    """Return one candidate, ``None`` where its sizes cannot be."""
    fixed = dict(stated.fixed)
    if fixed["sequence_parallel"] is None:
        fixed["sequence_parallel"] = tp > 1
    ep = stated.ep if stated.ep is not None else usual_expert_parallel(model, cluster, tp * dp * stated.cp)
    try:
        return Plan(
            tp=tp,
            pp=pp,
            vpp=stated.vpp if stated.vpp is not None and pp > 1 else 1,
            cp=stated.cp,
            ep=ep if model.experts else 1,
            dp=dp,
            recompute=recompute,
            micro_batch=micro_batch,
            global_batch=batch,
            **fixed,
        )
    except PlanInfeasibleError:
        return None


def usual_expert_parallel(model: ModelShape, cluster: ClusterSpec, ranks: int) -> int:
    """Return the expert parallelism that is usual: as wide as a node, as far as experts and ranks divide."""
    most = min(cluster.node.gpus, 8)
    fitting = [ep for ep in range(1, most + 1) if model.experts and model.experts % ep == 0 and ranks % ep == 0]
    return max(fitting, default=1)


def _choose(candidates: Sequence[Plan], model: ModelShape, cluster: ClusterSpec) -> Plan:
    """Return the first that fits by model-parallel product and recomputation, then the fastest of its micro-batches."""
    table = predict(model, PlanTable.of(candidates), cluster)
    fits = np.broadcast_to(table.memory.fit_probability, len(candidates)) >= FITS_FROM
    memory = np.broadcast_to(table.memory.total_bytes.expected, len(candidates))
    rate = np.broadcast_to(table.time.tokens_per_s_per_gpu.expected, len(candidates))
    order = {kind: place for place, kind in enumerate(Recompute)}
    if not fits.any():
        return candidates[int(np.argmin(memory))]

    def preference(index: int) -> tuple[float, ...]:
        plan = candidates[index]
        return (plan.tp * plan.pp, plan.pp, order[plan.recompute], -float(rate[index]))

    return candidates[min((int(index) for index in np.flatnonzero(fits)), key=preference)]


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
        cells.assume("plan.ep", plan.ep, "as wide as a node")
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
