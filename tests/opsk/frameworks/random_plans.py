"""Models and plans that a framework runs, drawn at random within the rules of all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from opsk.costmodel.rules import find_violations
from opsk.errors import PlanInfeasibleError
from opsk.frameworks.catalog import Framework
from opsk.frameworks.limits import SequenceParallel
from opsk.workload.model import ModelShape
from opsk.workload.plan import Offload, Plan, Precision, Recompute, Sharding, States

WIDTH = 1024
"""Widths are multiples of this, so that they split over every tp drawn and fit every number format."""
NAMES = ("llama", "o'brien $(touch x)", "a\nb\\", "naïve ✓", '"; exit 1 #', "-rf", "'\x1b[31m")


@st.composite
def models(draw: st.DrawFn, *, layers: int, has_experts: bool) -> ModelShape:
    """Draw a model in the style of GPT or of Llama, with or without experts."""
    gated = draw(st.booleans())
    heads = draw(st.sampled_from((8, 16, 32)))
    experts: dict[str, Any] = {}
    if has_experts:
        width = WIDTH * draw(st.integers(1, 3))
        experts = {
            "experts": draw(st.sampled_from((8, 16))),
            "top_k": draw(st.integers(1, 4)),
            "expert_ffn": width,
            "shared_experts": draw(st.integers(0, 2)),
            "router_bias": draw(st.booleans()),
        }
        if dense := draw(st.integers(0, layers - 1)):
            # one alone is the first layer either way
            between = draw(st.booleans()) and 1 < dense < layers - dense
            experts |= {"dense_layers": dense, "dense_interleaved": between}
    if draw(st.integers(0, 3)) == 0:
        experts |= {"kv_lora_rank": 256, "q_lora_rank": draw(st.sampled_from((0, 512)))}
        experts |= {"qk_rope_dim": 32, "v_head_dim": 64}
    return ModelShape(
        name=draw(st.sampled_from(NAMES)),
        layers=layers,
        hidden=WIDTH * draw(st.integers(1, 4)),
        ffn=WIDTH * draw(st.integers(1, 8)),
        heads=heads,
        kv_heads=heads if "kv_lora_rank" in experts else draw(st.sampled_from([8, heads])),
        head_dim=draw(st.sampled_from((64, 128))),
        vocab=draw(st.sampled_from((32000, 50304, 128256))),
        seq=draw(st.sampled_from((2048, 8192))),
        gated_mlp=gated,
        tied_embeddings=draw(st.booleans()),
        learned_positions=draw(st.booleans()),
        flash_attention=draw(st.booleans()),
        qk_norm=draw(st.booleans()),
        **experts,
    )


@st.composite
def trainings(draw: st.DrawFn, framework: Framework) -> tuple[ModelShape, Plan]:
    """Draw a model and a plan that the framework runs and no rule forbids."""
    limits = framework.limits
    has_experts = draw(st.booleans())
    sizes = {
        axis: draw(st.sampled_from([size for size in (1, 2, 4) if not limit or size <= limit]))
        for axis, limit in (("tp", limits.largest_tp), ("pp", limits.largest_pp), ("cp", limits.largest_cp))
    }
    pp = sizes["pp"]
    schedule = draw(st.sampled_from(sorted(limits.schedules)))
    vpp = draw(st.sampled_from((1, 2, 3))) if pp > 1 and limits.interleaved else 1
    ends = draw(st.booleans()) and pp > 2 and limits.uneven_stages
    middle = vpp * draw(st.integers(1, 3))
    first, last = (vpp * draw(st.integers(1, 3)), vpp * draw(st.integers(1, 3))) if ends else (0, 0)
    layers = first + last + (pp - 2) * middle if ends else pp * middle
    model = draw(models(layers=layers, has_experts=has_experts))
    shardings = limits.pipelined_shardings if pp > 1 else limits.shardings
    sharding = draw(st.sampled_from(sorted(shardings | {Sharding.NONE})))
    dp = draw(st.sampled_from((1, 2, 4, 8)))
    precision = draw(st.sampled_from(sorted(limits.precisions)))
    recompute = draw(st.sampled_from(sorted(limits.recomputes)))
    micro_batch = draw(st.integers(1, 3))
    sequence_parallel = (
        sizes["tp"] > 1
        and {
            SequenceParallel.EITHER: draw(st.booleans()),
            SequenceParallel.WITH_TP: True,
            SequenceParallel.NEVER: False,
        }[limits.sequence_parallel]
    )
    try:
        plan = Plan(
            **sizes,
            vpp=vpp,
            dp=dp,
            ep=draw(st.sampled_from((1, 2, 4))) if has_experts and limits.largest_ep != 1 else 1,
            etp=draw(st.sampled_from((1, sizes["tp"]))) if has_experts else 0,
            sharding=sharding,
            shard_gpus=draw(st.sampled_from((0, 0, 2))) if limits.partial_sharding else 0,
            sequence_parallel=sequence_parallel,
            recompute=recompute,
            recompute_layers=vpp
            if recompute is Recompute.FULL and limits.recompute_layers and draw(st.booleans())
            else 0,
            precision=precision,
            micro_batch=micro_batch,
            global_batch=micro_batch * dp * 2 * pp * draw(st.integers(1, 3)),
            first_stage_layers=first,
            last_stage_layers=last,
            schedule=schedule,
            states=draw(st.sampled_from(sorted(_states(framework, precision)))),
            offload=draw(st.sampled_from(sorted(limits.offloads))),
            tp_overlap=sequence_parallel and draw(st.booleans()),
            compiled=draw(st.booleans()),
            software=limits.software or Plan(global_batch=1).software,
        )
    except PlanInfeasibleError:
        assume(False)
        raise
    if plan.offload is Offload.ACTIVATIONS:
        plan = replace(plan, offload_layers=1)
    if not is_partly_sharded_by(plan):
        plan = replace(plan, shard_gpus=0)
    assume(not find_violations(model, plan))
    assume(not framework.refuses(model, plan))
    return model, plan


def is_partly_sharded_by(plan: Plan) -> bool:
    """Tell whether ``shard_gpus`` says something."""
    return plan.sharding is not Sharding.NONE and 0 < plan.shard_gpus < plan.dp * plan.cp


def _states(framework: Framework, precision: Precision) -> frozenset[States]:
    """Return the formats of states that go with a number format."""
    if precision is Precision.FP32:
        return frozenset({States.AUTOCAST})
    mixed = framework.limits.states - {States.AUTOCAST}
    return mixed if States.MIXED in mixed else framework.limits.states
