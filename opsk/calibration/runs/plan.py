"""Builds the plan of a row from what it states, and chooses what it leaves open.

What the row leaves open is listed as assumed: the likeliest of the plans that agree with it.

Tensor and pipeline sizes: the smallest product that fits in memory, tensor parallelism within a node first; experts as
wide as a node, then wider. Recomputation: the least that fits. Micro-batch: the fastest that fits. The cost model
itself predicts what fits and what is fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from opsk.calibration.runs.cluster import build_cluster
from opsk.calibration.runs.columns import MAX_SHOWN, Cells
from opsk.calibration.runs.software import (
    RunSoftware,
    has_varied_lengths,
    is_compiled,
    is_tuned,
    pipelines_tensor_parallel,
    read_adapters,
    read_attention,
    read_expert_settings,
    read_loss,
    read_micro_batch,
    read_module_settings,
    read_offload,
    read_optimizer,
    read_optimizer_step,
    read_recompute,
    read_sharding,
    read_states,
    uses_cuda_graphs,
)
from opsk.costmodel.memory.states import RECIPES
from opsk.costmodel.predict import predict
from opsk.costmodel.sizes.shares import FORMAT_BYTES
from opsk.costmodel.table import PlanTable
from opsk.errors import PlanInfeasibleError
from opsk.hardware.spec import ClusterSpec, GpuSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import (
    OffloadModule,
    Optimizer,
    Plan,
    Precision,
    Recompute,
    RecomputeModule,
    Schedule,
    Sharding,
    Software,
    StateFormat,
    States,
    sorted_words,
)
from opsk.workload.rules import MAX_GPUS

FITS_FROM = 0.5
"""A plan is assumed to fit from this probability on."""
SELECTIVE_RECOMPUTE_SINCE = "2022-05"
"""Recomputing attention alone came with Korthikanti et al. (arXiv 2205.05198); before it all layers were, or none."""
_MICRO_BATCHES = (1, 2, 4, 8, 16, 32)
_BATCH_TOKENS = 1 << 21
"""Tokens of a step whose batch is not known, where software accumulates gradients: 2 M, somewhat below GPT-3's 3.2 M.

Benchmarks of fully sharded training run one micro-batch a replica in a step unless stated otherwise. A pipeline has
micro-batches for all of its stages: PyTorch's schedules warn of fewer, and torchtitan and NeMo AutoModel ask for them.
"""
_EXPERT_PARALLELS = (1, 2, 4, 8, 16, 32, 64)
_MAX_CANDIDATES = 4096
_KINDS = {"recompute_modules": RecomputeModule, "offload_modules": OffloadModule}
_COLUMNS = {"grad_dtype": "gradient", "master_dtype": "master", "moment_dtype": "moment"}
_PARTS = {"gradient": "gradients", "master": "master", "moment": "moment"}
_LOW_OPTIMIZERS = (Optimizer.ADAM_8BIT, Optimizer.PAGED_ADAM_8BIT)
_GATHERS_FP8 = frozenset({"megatron-bridge", "nemo"})
"""Software whose FP8 recipes gather weights in FP8: ``fp8_param_gather`` of ``mixed_precision.py`` of Megatron-Bridge,
``fp8_params`` of NeMo's."""


def memory_settings(
    cells: Cells, software: RunSoftware, states: States, optimizer: Optimizer, precision: Precision
) -> dict[str, Any]:
    """Return the plan's modules, formats beyond those of its states, and whether weights are stored in FP8."""
    settings: dict[str, Any] = {name: _modules(cells, name) for name in _KINDS}
    if not precision.is_wide:
        settings |= _formats(cells, states, optimizer)
    if precision.is_low and software.family is Software.MEGATRON_CORE:
        settings["fp8_weights"] = _keeps_fp8(cells, software)
    return settings


def _modules(cells: Cells, name: str) -> str:
    """Return the modules of a column; unknown ones are reported and ignored."""
    known, unknown = sorted_words(_KINDS[name], cells.text(name))
    if unknown:
        cells.odd.append(f"{name} {', '.join(unknown)[:MAX_SHOWN]!r}: not known, and left out")
    return known


def _formats(cells: Cells, states: States, optimizer: Optimizer) -> dict[str, StateFormat]:
    """Return the stated formats that differ from those of the row's states."""
    formats = {}
    for column, part in _COLUMNS.items():
        stated = cells.choice(column)
        if stated not in set(StateFormat) or (part == "moment" and optimizer in _LOW_OPTIMIZERS):
            continue
        format_ = StateFormat(stated)
        usual = getattr(RECIPES[states], _PARTS[part])
        if usual and FORMAT_BYTES[format_] != usual:
            formats[f"{part}_format"] = format_
    return formats


def _keeps_fp8(cells: Cells, software: RunSoftware) -> bool:
    """Return whether weights are stored and gathered in FP8."""
    stated = cells.flag("fp8_params")
    if stated is not None:
        return stated
    usual = software.name in _GATHERS_FP8 or not software.name
    return bool(cells.assume("plan.fp8_weights", usual, f"usual in {software.words}"))


def balanced_ends(model: ModelShape, stages: int) -> tuple[int, int]:
    """Return the layers of the first and the last stage of nanotron's split by parameters in products.

    Blocks are assigned to a stage until it passes its share, and the head counts as one (nanotron/models/base.py,
    ``build_model``; models/llama.py, ``get_block_compute_costs``): 24 layers of 42 M and a head of 103 M on four
    stages are 7, 7, 6, 4. A last stage that holds the head alone is given a layer, as a plan has one on each.
    """
    layer = 4 * model.heads * model.head_dim * model.hidden + 3 * model.ffn * model.hidden
    costs = [layer] * model.layers + [model.vocab * model.hidden]
    share, stage, passed = sum(costs) / stages, 0, 0
    stage_layers = [0] * stages
    for index, cost in enumerate(costs):
        stage_layers[stage] += index < model.layers
        passed += cost
        stage += passed > share * (stage + 1) and stage < stages - 1
    return stage_layers[0], max(stage_layers[-1], 1)


_PRECISIONS = {
    "tf32": Precision.TF32,
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
    "fp8-rowwise": Precision.FP8_ROWWISE,
    "fp8-sc": Precision.FP8_BLOCK,
    "fp8-block": Precision.FP8_BLOCK,
    "fp8-mx": Precision.MXFP8,
    "mxfp8": Precision.MXFP8,
    "nvfp4": Precision.NVFP4,
    "fp4": Precision.NVFP4,
    "int8": Precision.BF16,
}
_RECIPES = {
    "delayed": Precision.FP8,
    "tensorwise": Precision.FP8_CURRENT,
    "rowwise": Precision.FP8_ROWWISE,
    "blockwise": Precision.FP8_BLOCK,
    "mxfp8": Precision.MXFP8,
    "nvfp4": Precision.NVFP4,
}
LIKELY = 0.5
"""Chance to fit below which a run that ran did not have the micro-batch that its software usually takes."""
_SCHEDULES = {
    "zero-bubble": Schedule.ZERO_BUBBLE,
    "zbv": Schedule.ZERO_BUBBLE_V,
    "v-half": Schedule.ZERO_BUBBLE_V,
    "v-min": Schedule.ZERO_BUBBLE_V,
    "dualpipe": Schedule.DUALPIPE,
    "gpipe": Schedule.GPIPE,
    "afab": Schedule.GPIPE,
}


def build_plan(cells: Cells, model: ModelShape, gpu: GpuSpec, software: RunSoftware) -> tuple[Plan, ClusterSpec] | None:
    """Return the plan of a row and the cluster that it ran on; errors are recorded."""
    stated = _read_constraints(cells, model, gpu, software)
    if cells.wrong:
        return None
    before = len(cells.assumed)
    cluster = build_cluster(cells, gpu, stated.gpus or estimate_gpu_count(stated, gpu))
    candidates = enumerate_plans(stated, model, cluster, software)
    if cells.wrong:
        return None
    if not candidates:
        cells.wrong.append(_describe_no_candidate(stated))
        return None
    chosen = candidates[0] if len(candidates) == 1 else choose_likeliest_plan(candidates, model, cluster)
    if _takes_usual_batch(cells) and not _likely_fits([chosen], model, cluster):
        smaller = replace(stated, micro_batch=None)
        fewer = [
            plan for plan in enumerate_plans(smaller, model, cluster, software) if plan.micro_batch < chosen.micro_batch
        ]
        if _likely_fits(fewer, model, cluster):
            cells.assumed[:] = [entry for entry in cells.assumed if entry.field != "plan.micro_batch"]
            before, stated, chosen = (
                min(before, len(cells.assumed)),
                smaller,
                choose_likeliest_plan(fewer, model, cluster),
            )
    if stated.gpus is None:
        del cells.assumed[before:]
        cluster = build_cluster(cells, gpu, chosen.gpus)
    _note_choice(cells, stated, chosen, has_experts=bool(model.experts))
    return _fit_states(cells, chosen, model, cluster), cluster


def _takes_usual_batch(cells: Cells) -> bool:
    """Return whether the micro-batch of a run that ran is the one that its software usually takes."""
    is_assumed = any(entry.field == "plan.micro_batch" for entry in cells.assumed)
    ran_out = "OOM" in cells.text("notes").replace("close to OOM", "")
    return is_assumed and cells.size("micro_batch") is None and not ran_out


def _likely_fits(plans: Sequence[Plan], model: ModelShape, cluster: ClusterSpec) -> bool:
    """Return whether one of the plans fits more likely than not."""
    if not plans:
        return False
    return bool(np.any(predict(model, PlanTable.of(plans), cluster).memory.fit_probability >= LIKELY))


def _fit_states(cells: Cells, plan: Plan, model: ModelShape, cluster: ClusterSpec) -> Plan:
    """Return the plan with 16-bit states where unsharded fp32 ones were assumed and do not fit on that GPU."""
    indices = [index for index, entry in enumerate(cells.assumed) if entry.field == "plan.states"]
    is_wide = plan.states is States.AUTOCAST and plan.sharding is Sharding.NONE and not plan.precision.is_wide
    if not indices or not is_wide:
        return plan
    if predict(model, PlanTable.of([plan]), cluster).memory.fit_probability[0] >= FITS_FROM:
        return plan
    del cells.assumed[indices[0]]
    states = cells.assume(
        "plan.states", States.PURE_16BIT, f"it ran, and fp32 states do not fit on {cluster.node.gpu.name}"
    )
    return replace(plan, states=states)


def needs_sharding(cells: Cells, software: RunSoftware, model: ModelShape, plan: Plan, cluster: ClusterSpec) -> bool:
    """Return whether replicas of whole weights were assumed that do not fit, of software that can only shard them."""
    splits = software.defaults.get("splits_model")
    is_assumed = any(entry.field == "plan.sharding" for entry in cells.assumed)
    if splits is None or splits.value or not is_assumed or plan.sharding is Sharding.ZERO3 or plan.dp == 1:
        return False
    return float(predict(model, PlanTable.of([plan]), cluster).memory.fit_probability[0]) < FITS_FROM


def estimate_gpu_count(stated: PlanConstraints, gpu: GpuSpec) -> int:
    """Return a number of GPUs large enough for any candidate where none is stated."""
    return (stated.tp or 8) * (stated.pp or 64) * stated.cp * 2


def _read_constraints(cells: Cells, model: ModelShape, gpu: GpuSpec, software: RunSoftware) -> PlanConstraints:
    """Return the constraints from the row and its software."""
    precision = _precision(cells, gpu, software)
    sharding = read_sharding(cells, software)
    model_parallel = cells.size("model_parallel")
    tp, pp, cp = cells.size("tp"), cells.size("pp"), cells.size("cp") or 1
    gpus = _count_gpus(cells, tp, pp)
    tp, pp = _complete_axes(cells, gpus, tp, pp, cp)
    tp, pp = _leave_whole(cells, software, sharding, tp, pp) if model_parallel is None else (tp, pp)
    states, optimizer = _states(cells, software, precision), read_optimizer(cells)
    fixed = {
        "sharding": sharding,
        "precision": precision,
        "states": states,
        "optimizer": optimizer,
        "optimizer_step": read_optimizer_step(cells, software),
        "offload": read_offload(cells),
        "offload_layers": cells.size("offload_layers") or 0,
        "loss": read_loss(cells, software),
        "attention": read_attention(cells, software, gpu),
        "compiled": is_compiled(cells, software),
        "tp_overlap": pipelines_tensor_parallel(cells, software),
        "cuda_graphs": uses_cuda_graphs(cells, software),
        "software": software.family,
        "schedule": _SCHEDULES.get(cells.choice("schedule"), Schedule.ONE_F_ONE_B),
        "shard_gpus": cells.size("shard_group") or 0,
        "etp": (cells.size("etp") or 0) if model.experts else 0,
        "recompute_layers": _recomputed_layers(cells, model, pp),
        "sequence_parallel": _sequence_parallel(cells, software, tp),
        "varied_lengths": has_varied_lengths(cells, software),
        **(read_expert_settings(cells, software) if model.experts else {}),
        **read_module_settings(cells, software),
        **_ends(cells, model, software, pp),
        **read_adapters(cells, software),
        **memory_settings(cells, software, states, optimizer, precision),
    }
    ranks = (tp or 1) * (pp or 1) * cp
    batch = _global_batch(cells, model, gpus, ranks, software)
    return PlanConstraints(
        gpus=gpus,
        tp=tp,
        pp=pp,
        vpp=cells.size("vpp"),
        micro_batch=read_micro_batch(cells, software, batch * ranks // gpus if batch and gpus else None),
        global_batch=batch,
        model_parallel=model_parallel,
        recompute=read_recompute(cells, software),
        cp=cp,
        ep=_expert_ranks(cells, model, software),
        fixed=fixed,
    )


def _expert_ranks(cells: Cells, model: ModelShape, software: RunSoftware) -> int | None:
    """Return the expert parallelism: stated, or none where the software splits no model; ``None`` is open."""
    stated, splits = cells.size("ep"), software.defaults.get("splits_model")
    if stated is not None or not model.experts or splits is None or splits.value:
        return stated
    return int(cells.assume("plan.ep", 1, f"{software.words}: {splits.why}"))


def _ends(cells: Cells, model: ModelShape, software: RunSoftware, pp: int | None) -> dict[str, int]:
    """Return the layers of the first and last stage where the software does not distribute them evenly."""
    balance = software.defaults.get("stage_balance")
    if balance is None or not pp or pp == 1 or cells.size("vpp") not in (None, 1) or model.layers < 2 * pp:
        return {}
    first, last = balanced_ends(model, pp)
    if not first or not last:
        return {}
    why = f"{software.words}: {balance.why}"
    cells.assume("plan.first_stage_layers", first, why)
    return {"first_stage_layers": first, "last_stage_layers": cells.assume("plan.last_stage_layers", last, why)}


def _global_batch(cells: Cells, model: ModelShape, gpus: int | None, ranks: int, software: RunSoftware) -> int | None:
    """Return the sequences of a step: stated, computed from what is, or those of the framework's fine-tuning."""
    stated = cells.size("global_batch")
    if stated is not None:
        return stated
    dp = cells.size("dp") or (gpus // ranks if gpus and gpus % ranks == 0 else None)
    local, micro, steps = cells.size("local_batch"), cells.size("micro_batch"), cells.size("grad_accum")
    if dp and local:
        return dp * local
    if dp and micro and steps:
        return dp * micro * steps
    tokens = cells.quantity("batch_tokens")
    if tokens:
        return max(round(tokens / model.seq), 1)
    usual = software.defaults.get("tuning_batch")
    if usual is None or not is_tuned(cells) or dp is None or usual.value % (dp * (micro or 1)):
        return None
    return int(software.assume(cells, "plan.global_batch", "tuning_batch"))


def _recomputed_layers(cells: Cells, model: ModelShape, pp: int | None) -> int:
    """Return how many layers of a stage are fully recomputed; 0 is all of them."""
    if cells.text("recompute").lower() == Recompute.SELECTIVE:
        return 0
    if cells.choice("recompute_method") == "block":
        return cells.size("recompute_layers") or 0
    share = cells.share("recompute_share")
    return max(round(share * model.layers / (pp or 1)), 1) if share and share < 1 else 0


def _count_gpus(cells: Cells, tp: int | None, pp: int | None) -> int | None:
    """Return the number of GPUs, by the product of the axes where only these are stated."""
    gpus, dp = cells.size("gpus"), cells.size("dp")
    if gpus is not None and gpus > MAX_GPUS:
        cells.wrong.append(f"gpus is {gpus}, more than any cluster has")
    if gpus is None and tp and pp and dp:
        return tp * pp * dp * (cells.size("cp") or 1)
    return gpus


def _complete_axes(
    cells: Cells, gpus: int | None, tp: int | None, pp: int | None, cp: int
) -> tuple[int | None, int | None]:
    """Return tensor and pipeline size, the missing one of them from gpus = tp x pp x cp x dp where that is whole."""
    dp = cells.size("dp")
    if gpus is None or dp is None or (tp is None) == (pp is None) or gpus % ((tp or pp or 1) * cp * dp):
        return tp, pp
    rest = gpus // ((tp or pp or 1) * cp * dp)
    return (tp, rest) if pp is None else (rest, pp)


def _leave_whole(
    cells: Cells, software: RunSoftware, sharding: Sharding, tp: int | None, pp: int | None
) -> tuple[int | None, int | None]:
    """Return both sizes: unstated ones are 1 where states are sharded, or the software splits no model."""
    splits = software.defaults.get("splits_model")
    if sharding is Sharding.ZERO3:
        reasons = ("fully sharded states need no tensor parallelism", "fully sharded states need no pipeline")
    elif splits is not None and not splits.value:
        reasons = (f"{software.words}: {splits.why}",) * 2
    else:
        return tp, pp
    tp = cells.assume("plan.tp", 1, reasons[0]) if tp is None else tp
    return tp, cells.assume("plan.pp", 1, reasons[1]) if pp is None else pp


def _precision(cells: Cells, gpu: GpuSpec, software: RunSoftware) -> Precision:
    """Return the number format of the products; records an unknown or unsupported one."""
    stated = cells.text("precision").lower()
    has_bf16 = "bf16" in gpu.peak_flop_per_s
    if stated == "int8":
        cells.odd.append("precision int8: products are predicted as in bf16")
    if stated:
        precision = _PRECISIONS.get(stated) or _match_precision(stated)
        if precision is None:
            cells.wrong.append(f"precision is {stated[:40]!r}, must be one of {', '.join(_PRECISIONS)}")
            return Precision.BF16
        precision = _RECIPES.get(cells.choice("fp8_recipe"), precision) if precision.is_low else precision
        if precision is Precision.TF32 and precision.peak_format not in gpu.peak_flop_per_s:
            precision = Precision.FP32
    else:
        is_fp16 = not has_bf16 or (software.year <= 2022 and software.family is not Software.PYTORCH)
        chosen = Precision.FP16 if is_fp16 else Precision.BF16
        precision = Precision(cells.assume("plan.precision", chosen.value, f"usual in {software.year} on {gpu.name}"))
    plain = precision in (Precision.FP32, Precision.TF32, Precision.FP16)
    if precision.peak_format not in gpu.peak_flop_per_s or not (plain or has_bf16):
        have = ", ".join(sorted(gpu.peak_flop_per_s))
        cells.wrong.append(f"{gpu.name} has no {precision.value} peak in the catalogue; it has {have}")
    return precision


def _match_precision(stated: str) -> Precision | None:
    """Return the number format whose name is part of a longer one (``bf16 + fp8 matmul``), the smallest first."""
    words = ("nvfp4", "fp4", "mxfp8", "fp8", "bf16", "bfloat16", "fp16", "fp32")
    return next((_PRECISIONS[word] for word in words if word in stated), None)


def _states(cells: Cells, software: RunSoftware, precision: Precision) -> States:
    """Return the formats of the states; without mixed precision all are in fp32."""
    return States.AUTOCAST if precision.is_wide else read_states(cells, software)


def _sequence_parallel(cells: Cells, software: RunSoftware, tp: int | None) -> bool | None:
    """Return whether norms and dropout are split over tp; ``None`` means wherever there is tensor parallelism."""
    stated = cells.flag("sequence_parallel")
    if stated is not None or tp == 1:
        return bool(stated)
    default = software.defaults.get("sequence_parallel")
    is_usual = default is not None and bool(default.value)
    cells.assume("plan.sequence_parallel", is_usual, software.words)
    return None if is_usual else False


def _note_choice(cells: Cells, stated: PlanConstraints, plan: Plan, *, has_experts: bool) -> None:
    """Record the chosen values that the row leaves open."""
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
    elif stated.ep is None and has_experts:
        cells.assume("plan.ep", plan.ep, "a layout is stated, and no split of experts")
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


def _describe_no_candidate(stated: PlanConstraints) -> str:
    """Return the message that no plan matches."""
    return (
        f"gpus {stated.gpus}, tp {stated.tp or '?'} x pp {stated.pp or '?'} x cp {stated.cp}, micro batch "
        f"{stated.micro_batch or '?'}, global batch {stated.global_batch or '?'}: no plan has these numbers"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanConstraints:
    """The known values of a plan before the search; ``None`` is open. ``fixed`` are the fields without a choice."""

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


def _axes(stated: PlanConstraints, model: ModelShape, cluster: ClusterSpec) -> list[tuple[int, int]]:
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


def enumerate_plans(
    stated: PlanConstraints, model: ModelShape, cluster: ClusterSpec, software: RunSoftware
) -> list[Plan]:
    """Return the plans that agree with what is stated, simplest first."""
    plans: list[Plan] = []
    for tp, pp in _axes(stated, model, cluster):
        ranks = tp * pp * stated.cp
        if stated.gpus is not None and stated.gpus % ranks:
            continue
        for recompute in _recomputes(stated, model, software):
            for micro_batch, dp, batch in _batches(stated, model, cluster, ranks, pp):
                for ep in _expert_parallels(stated, model, cluster, tp * dp * stated.cp):
                    sizes = {"tp": tp, "pp": pp, "dp": dp, "ep": ep, "micro_batch": micro_batch, "global_batch": batch}
                    plan = _plan(stated, recompute, sizes)
                    if plan is not None:
                        plans.append(plan)
                if len(plans) >= _MAX_CANDIDATES:
                    return plans
    return plans


def _recomputes(stated: PlanConstraints, model: ModelShape, software: RunSoftware) -> Sequence[Recompute]:
    """Return what may have been recomputed, least first; recipes of Megatron Core recompute modules, not layers."""
    if stated.recompute is not None:
        return (stated.recompute,)
    usual = software.defaults.get("pretrain_recompute")
    if usual is not None:
        return tuple(Recompute)[tuple(Recompute).index(Recompute(usual.value)) :]
    if model.flash_attention and software.family is Software.MEGATRON_CORE:
        return (Recompute.NONE, Recompute.SELECTIVE)
    if model.flash_attention or software.month < SELECTIVE_RECOMPUTE_SINCE:
        return (Recompute.NONE, Recompute.FULL)
    return (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)


def _batches(
    stated: PlanConstraints, model: ModelShape, cluster: ClusterSpec, ranks: int, pp: int
) -> Iterator[tuple[int, int, int]]:
    """Yield micro-batch, data-parallel size and global batch."""
    dp = max(2, cluster.node.gpus // ranks) if stated.gpus is None else stated.gpus // ranks
    global_batch, software = stated.global_batch, stated.fixed["software"]
    accumulates = software is not Software.PYTORCH and stated.fixed["sharding"] is not Sharding.ZERO3
    fills = pp > 1 or (accumulates and ranks * dp > cluster.node.gpus)
    sizes = _MICRO_BATCHES if stated.micro_batch is None else (stated.micro_batch,)
    dividing = [size for size in sizes if global_batch is None or global_batch % (size * dp) == 0]
    for size in dividing or sizes[:1]:
        target = global_batch if global_batch is not None else _BATCH_TOKENS / model.seq if fills else 1
        steps = max(round(target / (size * dp)), 1 if global_batch is not None else pp)
        batch = steps * size * dp
        yield size, dp, batch


def _plan(stated: PlanConstraints, recompute: Recompute, sizes: Mapping[str, Any]) -> Plan | None:
    """Return one candidate, ``None`` where its sizes are invalid."""
    fixed = dict(stated.fixed)
    if fixed["sequence_parallel"] is None:
        fixed["sequence_parallel"] = sizes["tp"] > 1
    vpp = stated.vpp if stated.vpp is not None and sizes["pp"] > 1 else 1
    try:
        return Plan(vpp=vpp, cp=stated.cp, recompute=recompute, **sizes, **fixed)
    except PlanInfeasibleError:
        return None


def _expert_parallels(stated: PlanConstraints, model: ModelShape, cluster: ClusterSpec, ranks: int) -> Sequence[int]:
    """Return the expert parallelism that may have been used.

    A node's width, then wider, where all divides; before these none where the row states the rest of the layout, for a
    framework splits experts only where it is asked to.
    """
    if stated.ep is not None:
        return (stated.ep if model.experts else 1,)
    if not model.experts:
        return (1,)
    fitting = [ep for ep in _EXPERT_PARALLELS if model.experts % ep == 0 and ranks % ep == 0]
    node_wide = [ep for ep in fitting if ep >= min(cluster.node.gpus, 8)] or fitting[-1:]
    states_layout = stated.tp is not None and stated.pp is not None
    return tuple(sorted({1, *node_wide}) if states_layout else node_wide)


def choose_likeliest_plan(candidates: Sequence[Plan], model: ModelShape, cluster: ClusterSpec) -> Plan:
    """Return the first that fits by model-parallel product and recomputation, then the fastest of its micro-batches."""
    table = predict(model, PlanTable.of(candidates), cluster)
    fits = np.broadcast_to(table.memory.fit_probability, len(candidates)) >= FITS_FROM
    memory = np.broadcast_to(table.memory.total_bytes.expected, len(candidates))
    rate = np.broadcast_to(table.time.tokens_per_s_per_gpu.expected, len(candidates))
    order = {kind: rank for rank, kind in enumerate(Recompute)}
    if not fits.any():
        return candidates[int(np.argmin(memory))]

    def preference(index: int) -> tuple[float, ...]:
        plan = candidates[index]
        return (plan.tp * plan.pp, plan.pp, plan.ep, order[plan.recompute], -float(rate[index]))

    return candidates[min((int(index) for index in np.flatnonzero(fits)), key=preference)]
