"""Defaults are those of Megatron-LM's validate_args; formulas are worked out beside each number."""

from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk.workload.completion import Completion, complete
from opsk.workload.model import StatedModel
from opsk.workload.plan import (
    Loss,
    Offload,
    Plan,
    Precision,
    QkvLayout,
    Recompute,
    Sharding,
    Software,
    StatedPlan,
    States,
)
from opsk.workload.workload import Evidence, Unknown, Workload

MODEL = {"layers": 32, "hidden": 4096, "heads": 32, "seq": 4096}
PLAN = {"gpus": 16, "tp": 2, "pp": 2, "micro_batch": 1, "global_batch": 64, "precision": Precision.BF16}


def workload(
    *, model: dict[str, object] | None = None, plan: dict[str, object] | None = None, **more: object
) -> Workload:
    settings_ = {"framework": "megatron-lm", **more}
    return Workload(
        model=StatedModel(**{**MODEL, **(model or {})}),  # type: ignore[arg-type]
        plan=StatedPlan(**{**PLAN, **(plan or {})}),  # type: ignore[arg-type]
        **settings_,  # type: ignore[arg-type]
    )


def done(**more: object) -> Completion:
    return complete(workload(**more))  # type: ignore[arg-type]


def assumed(completion: Completion) -> dict[str, object]:
    return {entry.field: entry.value for entry in completion.assumed}


def test_a_megatron_workload_gets_megatrons_defaults() -> None:
    found = done()
    assert found.model is not None
    assert found.plan is not None
    # 4 x 4096; GPT-2's 50257 tokens up to a multiple of 128 x tp 2 = 256: 50432
    assert (found.model.ffn, found.model.kv_heads, found.model.head_dim) == (16384, 32, 128)
    assert found.model.vocab == 50432
    assert (found.model.tied_embeddings, found.model.learned_positions, found.model.gated_mlp) == (True, True, False)
    # 16 / (2 x 2)
    assert (found.plan.dp, found.plan.cp, found.plan.ep, found.plan.vpp) == (4, 1, 1, 1)
    assert (found.plan.sharding, found.plan.recompute) == (Sharding.NONE, Recompute.NONE)
    assert not found.problems
    assert not found.missing


def test_every_default_is_listed_with_its_reason_and_nothing_stated_is() -> None:
    found = done()
    assert {"plan.cp", "model.ffn", "model.vocab", "plan.sharding", "model.flash_attention"} <= set(assumed(found))
    assert not {"plan.tp", "plan.dp", "model.layers", "plan.global_batch"} & set(assumed(found))
    assert all(entry.why for entry in found.assumed)


@pytest.mark.parametrize("hidden", [1024, 2048, 4096, 5120, 6656, 8192, 12288])
def test_a_gated_mlp_is_as_wide_as_megatron_makes_it(hidden: int) -> None:
    found = done(model={"hidden": hidden, "heads": 32, "gated_mlp": True})
    assert found.model is not None
    # arguments.py: int((4 * args.hidden_size * 2 / 3) / 64) * 64
    assert found.model.ffn == int((4 * hidden * 2 / 3) / 64) * 64


def test_glu_activation_leaves_the_width_alone() -> None:
    evidence = (Evidence(field="model.gated_mlp", value=True, file="x", line=1, text="--glu-activation swiglu"),)
    found = done(model={"gated_mlp": True}, framework="megatron-deepspeed", evidence=evidence)
    assert assumed(found)["model.ffn"] == 16384


def test_precision_left_out_is_fp32_for_megatron_and_bf16_elsewhere() -> None:
    assert assumed(done(plan={"precision": None}))["plan.precision"] is Precision.FP32
    assert assumed(done(plan={"precision": None}, framework=None))["plan.precision"] is Precision.BF16


def test_global_batch_left_out_is_one_micro_batch_a_replica() -> None:
    # micro 1 x dp 4
    assert assumed(done(plan={"global_batch": None}))["plan.global_batch"] == 4


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, True),
        ({"framework": "megatron-deepspeed"}, False),
        ({"options": (("transformer_impl", "local"),)}, False),
        ({"gpu": "v100"}, False),
        ({"framework": None}, True),
    ],
)
def test_flash_attention_follows_framework_and_gpu(more: dict[str, object], expected: bool) -> None:
    assert assumed(done(**more))["model.flash_attention"] is expected


def test_the_tokenizer_tells_the_vocabulary() -> None:
    found = done(options=(("tokenizer.type", "Llama2Tokenizer"), ("vocab.divisor", "1")))
    assert assumed(found)["model.vocab"] == 32000


def test_stated_vocabulary_is_taken_as_it_is() -> None:
    found = done(model={"vocab": 32001})
    assert found.model is not None
    assert found.model.vocab == 32001


@pytest.mark.parametrize("name", ["layers", "hidden", "heads", "seq"])
def test_a_shape_without_its_essentials_is_missing(name: str) -> None:
    found = done(model={name: None})
    assert found.missing == (f"model.{name}",)
    assert found.model is None


@pytest.mark.parametrize("name", ["gpus", "micro_batch"])
def test_a_plan_without_its_essentials_is_missing(name: str) -> None:
    found = done(plan={name: None})
    assert found.missing == (f"plan.{name}",)
    assert found.plan is None
    assert found.model is not None


def test_gpus_follow_from_nodes_or_from_the_axes() -> None:
    by_nodes = done(plan={"gpus": None, "nodes": 2, "gpus_per_node": 8})
    by_axes = done(plan={"gpus": None, "cp": 1, "dp": 4})
    assert by_nodes.plan == by_axes.plan
    assert by_nodes.plan is not None


@pytest.mark.parametrize("name", ["plan.tp", "plan.recompute", "plan.global_batch", "model.gated_mlp", "model.ffn"])
def test_what_cannot_be_told_gets_no_default(name: str) -> None:
    group, _, field = name.partition(".")
    why = (Unknown(field=name, why="comes from $1"),)
    found = done(**{group: {field: None}}, unknown=why)
    assert name in found.missing
    assert found.model is None or found.plan is None


# rules

EVIDENCE = tuple(
    Evidence(field=name, value=0, file="job.sbatch", line=line, text="x")
    for line, name in enumerate(
        ("plan.tp", "plan.pp", "plan.global_batch", "model.layers", "model.heads", "plan.ep", "plan.dp"), start=10
    )
)


def test_a_batch_that_does_not_divide_blocks_the_plan_and_names_its_line() -> None:
    found = done(plan={"global_batch": 63}, evidence=EVIDENCE)
    assert found.plan is None
    assert found.model is not None
    assert [(entry.file, entry.line) for entry in found.problems] == [("job.sbatch", 12)]
    assert "global batch 63 is not a multiple of micro batch 1 × DP 4" in found.problems[0].what
    assert "64" in found.problems[0].hint


def test_axes_that_do_not_divide_the_gpus_block_the_plan() -> None:
    found = done(plan={"gpus": 18}, evidence=EVIDENCE)
    assert found.plan is None
    assert "18 GPUs are not a multiple of TP 2 × PP 2 × CP 1 = 4" in found.problems[0].what
    assert found.problems[0].line == 11


def test_a_contradicting_dp_blocks_the_plan() -> None:
    found = done(plan={"dp": 8}, evidence=EVIDENCE)
    assert found.plan is None
    assert found.problems[0].hint == "DP must be 4"


def test_heads_that_do_not_divide_the_width_block_the_shape() -> None:
    found = done(model={"heads": 48, "hidden": 4096})
    assert (found.model, found.plan) == (None, None)
    assert "not a multiple of 48 heads" in found.problems[0].what


def test_uneven_layers_are_a_problem_and_are_predicted() -> None:
    # 60 layers on 8 stages, as in a published Megatron-DeepSpeed script
    found = done(model={"layers": 60}, plan={"gpus": 32, "pp": 8, "tp": 4, "global_batch": 8}, evidence=EVIDENCE)
    assert found.plan is not None
    assert [entry.what for entry in found.problems] == ["60 layers do not divide evenly over PP 8 = 8 stages"]
    assert found.problems[0].line == 13


def test_embedding_and_head_may_count_as_layers() -> None:
    # BLOOM-176B: 70 layers on 72 stages, partitioned by type:transformer|embedding
    bloom = {"model": {"layers": 70, "hidden": 14336, "heads": 112}, "plan": {"gpus": 288, "tp": 1, "pp": 72}}
    option = (("pipeline.partition", "type:transformer|embedding"),)
    assert not done(**bloom, options=option, framework="megatron-deepspeed").problems
    assert done(**bloom, framework="megatron-deepspeed").plan is None


def _plan_of(*options: tuple[str, str], **more: object) -> Plan:
    plan = done(options=options, **more).plan
    assert plan is not None
    return plan


def test_stages_by_hand_are_taken_as_stated() -> None:
    stated = (("pipeline.first_layers", "7"), ("pipeline.last_layers", "5"))
    plan = _plan_of(*stated, plan={"pp": 4, "gpus": 8})
    assert (plan.first_stage_layers, plan.last_stage_layers) == (7, 5)


@pytest.mark.parametrize("text", ["40", "-1", "all", "9" * 30, "٣"])
def test_stages_by_hand_that_leave_nothing_for_the_others_are_left_even(text: str) -> None:
    assert _plan_of(("pipeline.first_layers", text)).first_stage_layers == 0


def test_recomputed_layers_count_where_they_are_a_block() -> None:
    full = {"recompute": Recompute.FULL}
    assert _plan_of(("recompute.method", "block"), ("recompute.layers", "3"), plan=full).recompute_layers == 3
    assert _plan_of(("recompute.method", "uniform"), ("recompute.layers", "1"), plan=full).recompute_layers == 0


@pytest.mark.parametrize(
    ("framework", "options", "software", "states"),
    [
        ("megatron-lm", (), Software.MEGATRON_CORE, States.MIXED),
        ("megatron-core", (), Software.MEGATRON_CORE, States.MIXED),
        ("megatron-lm", (("optimizer.main_grads", "bf16"),), Software.MEGATRON_CORE, States.MIXED_16BIT_GRADIENTS),
        ("megatron-deepspeed", (), Software.DEEPSPEED, States.MIXED_16BIT_GRADIENTS),
        ("torchtitan", (), Software.PYTORCH, States.AUTOCAST),
    ],
)
def test_the_framework_tells_what_states_it_keeps(
    framework: str, options: tuple[tuple[str, str], ...], software: Software, states: States
) -> None:
    plan = _plan_of(*options, framework=framework, model={"gated_mlp": True})
    assert (plan.software, plan.states) == (software, states)


def test_litgpt_keeps_fp32_logits_and_the_whole_product_of_queries_keys_and_values() -> None:
    axes = {"gpus": 8, "tp": 1, "pp": 1, "dp": 8}
    more = {"model": {"gated_mlp": True, "vocab": 32000}, "plan": axes}
    plain, true = (_plan_of(*said, framework="litgpt", **more) for said in ((), (("weights.dtype", "bf16"),)))
    assert (plain.qkv_layout, plain.loss) == (QkvLayout.PACKED, Loss.FP32_KERNEL)
    assert (plain.states, true.states) == (States.AUTOCAST, States.PURE_16BIT)


def test_an_optimizer_in_host_memory_is_taken_as_stated() -> None:
    assert _plan_of(("optimizer.offload", "cpu")).offload is Offload.OPTIMIZER


def test_interleaved_stages_count_too() -> None:
    assert done(plan={"vpp": 16}).problems == ()
    assert "VPP 3 = 6 stages" in done(plan={"vpp": 3}).problems[0].what


def test_interleaving_one_stage_is_no_interleaving() -> None:
    found = done(plan={"pp": 1, "tp": 4, "vpp": 2})
    assert found.plan is not None
    assert found.plan.vpp == 1
    assert "VPP 2" in found.problems[0].what


@pytest.mark.parametrize(
    ("model", "plan", "words"),
    [
        ({"heads": 33, "head_dim": 128}, {}, "33 heads cannot be split over TP 2"),
        ({"ffn": 11007}, {}, "11007 columns"),
        ({"kv_heads": 8, "heads": 24, "head_dim": 128}, {"tp": 12, "gpus": 24}, "8 key and value heads"),
        ({"seq": 4095}, {"sequence_parallel": True}, "4095 cannot be split"),
        ({"seq": 4098}, {"cp": 2}, "2 × CP 2"),
    ],
)
def test_splits_with_a_rest_are_problems(model: dict[str, object], plan: dict[str, object], words: str) -> None:
    found = done(model=model, plan=plan)
    assert any(words in entry.what for entry in found.problems)
    assert found.plan is not None


def test_key_and_value_heads_may_be_copied() -> None:
    assert not done(model={"kv_heads": 2}, plan={"tp": 4}).problems


def test_expert_parallelism_may_exceed_data_parallelism() -> None:
    # ranks of a stage: tp 8 x dp 8 = 64, as in a published Megatron-Bridge script
    moe = {"experts": 128, "top_k": 8, "expert_ffn": 1024, "heads": 32}
    plan = {"gpus": 64, "tp": 8, "pp": 1, "ep": 64}
    found = done(model=moe, plan=plan)
    assert found.problems == ()
    assert found.plan is not None
    assert (found.plan.ep, found.plan.dp) == (64, 8)


def test_expert_parallelism_must_divide_ranks_and_experts() -> None:
    found = done(model={"experts": 8}, plan={"ep": 3})
    assert [entry.what for entry in found.problems] == [
        "8 experts cannot be spread evenly over EP 3",
        "EP 3 does not divide the 8 ranks of a stage (TP × CP × DP)",
    ]


def test_expert_parallelism_without_experts_is_a_problem() -> None:
    found = done(plan={"ep": 2}, evidence=EVIDENCE)
    assert found.plan is not None
    assert found.plan.ep == 1
    assert found.problems[0].line == 15


def test_a_mixture_of_experts_gets_the_dense_width() -> None:
    found = done(model={"experts": 8, "ffn": 14336})
    assert found.model is not None
    assert (found.model.expert_ffn, found.model.top_k, found.model.shared_experts) == (14336, 2, 0)


def test_a_recipe_hides_whether_there_are_experts() -> None:
    assert "model.experts" in done(framework="megatron-bridge").missing


def test_deepspeed_refuses_zero2_with_stages() -> None:
    found = done(plan={"sharding": Sharding.ZERO2}, framework="megatron-deepspeed")
    assert "ZERO2" in found.problems[0].what.upper()


def test_an_unknown_framework_is_completed_when_all_is_stated() -> None:
    found = done(framework="homegrown", model={"ffn": 14336, "kv_heads": 8, "gated_mlp": True, "vocab": 128256})
    assert found.model is not None
    assert found.plan is not None


SIZES = st.none() | st.integers(-1, 130) | st.sampled_from([4096, 10**9, 1 << 62])


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    enums = {"sharding": Sharding, "recompute": Recompute, "precision": Precision}
    booleans = {"gated_mlp", "tied_embeddings", "learned_positions", "flash_attention", "sequence_parallel"}

    def value(name: str) -> object:
        if name in enums:
            return draw(st.none() | st.sampled_from(list(enums[name])))
        if name == "name":
            return None
        return draw(st.none() | st.booleans() if name in booleans else SIZES)

    model = {item.name: value(item.name) for item in fields(StatedModel)}
    plan = {item.name: value(item.name) for item in fields(StatedPlan)}
    unknown = draw(st.lists(st.sampled_from([f"plan.{name}" for name in plan] + [f"model.{name}" for name in model])))
    return Workload(
        framework=draw(st.sampled_from([None, "megatron-lm", "megatron-deepspeed", "megatron-bridge", "torchtitan"])),
        model=StatedModel(**model),  # type: ignore[arg-type]
        plan=StatedPlan(**plan),  # type: ignore[arg-type]
        unknown=tuple(Unknown(field=name, why="x") for name in unknown),
    )


@given(workloads())
@settings(max_examples=300)
def test_completion_never_raises_and_leaves_no_open_end(found: Workload) -> None:
    result = complete(found)
    if result.model is None or result.plan is None:
        assert result.missing or result.problems
    if result.plan is not None and found.plan.gpus is not None:
        assert result.plan.gpus == found.plan.gpus


@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 4]),
    dp=st.integers(1, 16),
    micro=st.integers(1, 4),
    steps=st.integers(1, 8),
)
def test_consistent_plans_are_never_refused(tp: int, pp: int, dp: int, micro: int, steps: int) -> None:
    found = done(
        plan={"gpus": tp * pp * dp, "tp": tp, "pp": pp, "micro_batch": micro, "global_batch": micro * dp * steps}
    )
    assert found.problems == ()
    assert found.plan is not None
    assert (found.plan.dp, found.plan.micro_batches) == (dp, steps)
