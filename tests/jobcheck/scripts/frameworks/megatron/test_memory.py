"""What flags of Megatron and overrides of Megatron-Bridge say of memory, and what no prediction counts."""

from __future__ import annotations

import pytest

from opsk.hardware.catalog import cluster
from opsk.workload.completion import Completion, complete
from opsk.workload.plan import Loss, Offload, Plan, Precision, Recompute, Sharding, StateFormat, States
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8\n"
SHAPE = (
    "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --seq-length 4096 --swiglu "
    "--micro-batch-size 1 --global-batch-size 64 --bf16 --vocab-size 128256"
)
MOE = f"{SHAPE} --num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 8"
SHARDED = f"{SHAPE} --use-distributed-optimizer"
AWARE = f"{SHARDED} --use-precision-aware-optimizer"

DEEPSEEK_V3 = """#!/bin/bash
#SBATCH --nodes=128 --gpus-per-node=8
srun python pretrain_gpt.py --num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 \\
  --seq-length 4096 --position-embedding-type rope --swiglu --disable-bias-linear \\
  --untie-embeddings-and-output-weights --qk-layernorm --multi-latent-attention --q-lora-rank 1536 \\
  --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128 --num-experts 256 \\
  --moe-router-topk 8 --moe-ffn-hidden-size 2048 --moe-shared-expert-intermediate-size 2048 \\
  --moe-layer-freq "([0]*3+[1]*58)" --mtp-num-layers 1 --vocab-size 129280 --tensor-model-parallel-size 2 \\
  --pipeline-model-parallel-size 8 --expert-model-parallel-size 64 --expert-tensor-parallel-size 1 \\
  --num-virtual-stages-per-pipeline-rank 4 --sequence-parallel --use-distributed-optimizer --micro-batch-size 1 \\
  --global-batch-size 8192 --bf16 --recompute-granularity selective"""


def completed(flags: str) -> Completion:
    return complete(read_script(f"{HEAD}srun python pretrain_gpt.py {flags}\n", file="job.sh"))


def plan_of(flags: str) -> Plan:
    plan = completed(flags).plan
    assert plan is not None
    return plan


def assumed(flags: str) -> dict[str, object]:
    return {entry.field: entry.value for entry in completed(flags).assumed}


@pytest.mark.parametrize(
    "words", ["core_attn moe_act", "moe_act core_attn --bf16", "'moe_act' core_attn", '"core_attn" "moe_act"']
)
def test_recomputed_modules_are_the_words_up_to_the_next_flag(words: str) -> None:
    plan = plan_of(f"{MOE} --recompute-granularity selective --recompute-modules {words}")
    assert (plan.recompute, plan.recompute_modules) == (Recompute.SELECTIVE, "core_attn moe_act")


def test_modules_say_nothing_without_selective_recomputation() -> None:
    assert plan_of(f"{SHAPE} --recompute-modules mlp").recompute_modules == ""


def test_experts_are_recomputed_beside_the_core_by_the_old_flag() -> None:
    plan = plan_of(f"{MOE} --moe-layer-recompute")
    assert (plan.recompute, plan.recompute_modules) == (Recompute.SELECTIVE, "core_attn moe")


def test_modules_that_opsk_does_not_know_are_assumed_to_stay() -> None:
    found = assumed(f"{SHAPE} --recompute-granularity selective --recompute-modules mlp mhc")
    assert found["recompute module mhc"] == "kept"


def test_modules_that_cannot_be_told_are_named() -> None:
    assert (
        assumed(f"{SHAPE} --recompute-granularity selective --recompute-modules $1")["--recompute-modules"] == "unknown"
    )


def test_the_precision_aware_optimizer_keeps_what_a_weight_lacks_and_moments_as_asked() -> None:
    plan = plan_of(f"{AWARE} --main-grads-dtype bf16 --exp-avg-dtype bf16 --exp-avg-sq-dtype fp8")
    assert plan.states is States.MIXED_16BIT_GRADIENTS
    assert (plan.master_format, plan.moment_format) == (StateFormat.BF16, StateFormat.BF16)
    assert plan.second_moment_format is StateFormat.FP8


@pytest.mark.parametrize(
    ("flags", "master"),
    [
        (AWARE, StateFormat.BF16),
        (f"{AWARE} --main-params-dtype fp16", StateFormat.FP16),
        (f"{AWARE} --fp8-format hybrid --fp8-recipe tensorwise", StateFormat.AS_STATES),
        (f"{AWARE} --fp8-format hybrid --fp8-param-gather", StateFormat.AS_STATES),
        (f"{AWARE} --fp8-format hybrid", StateFormat.BF16),
        (f"{AWARE} --optimizer-cpu-offload", StateFormat.AS_STATES),
        (f"{SHARDED} --exp-avg-dtype bf16", StateFormat.AS_STATES),
    ],
)
def test_master_weights_are_whole_where_megatron_keeps_them_whole(flags: str, master: StateFormat) -> None:
    plan = plan_of(flags)
    assert plan.master_format is master
    assert plan.moment_format is StateFormat.AS_STATES


@pytest.mark.parametrize(
    ("more", "precision", "kept"),
    [
        ("--fp8-format hybrid --fp8-recipe tensorwise", Precision.FP8_CURRENT, False),
        ("--fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather", Precision.MXFP8, True),
    ],
)
def test_fp8_weights_need_their_flag(more: str, precision: Precision, kept: bool) -> None:
    plan = plan_of(f"{SHARDED} {more}")
    assert (plan.precision, plan.fp8_weights) == (precision, kept)


def test_a_part_of_the_optimizer_is_in_host_memory() -> None:
    plan = plan_of(f"{AWARE} --optimizer-cpu-offload --optimizer-offload-fraction 0.5")
    assert (plan.offload, plan.offload_fraction) == (Offload.OPTIMIZER, 0.5)


def test_activations_of_modules_and_of_layers_leave_the_gpu() -> None:
    moved = plan_of(f"{MOE} --fine-grained-activation-offloading --offload-modules core_attn expert_fc1")
    assert (moved.offload, moved.offload_modules) == (Offload.NONE, "core_attn expert_fc1")
    layers = plan_of(f"{SHAPE} --cpu-offloading-num-layers 8")
    assert (layers.offload, layers.offload_layers) == (Offload.ACTIVATIONS, 8)


def test_the_loss_is_fused_by_megatron_itself_or_by_transformer_engine() -> None:
    assert plan_of(f"{SHAPE} --cross-entropy-loss-fusion").loss is Loss.MEGATRON_FUSED
    assert plan_of(f"{SHAPE} --cross-entropy-loss-fusion --cross-entropy-fusion-impl te").loss is Loss.PLAIN


def test_capacity_and_predicted_tokens_are_the_models() -> None:
    model = completed(
        f"{MOE} --moe-expert-capacity-factor 1.5 --moe-pad-expert-input-to-capacity --mtp-num-layers 1"
    ).model
    assert model is not None
    assert (model.capacity_factor, model.mtp_layers) == (1.5, 1)


@pytest.mark.parametrize("flag", ["--use-nccl-ub", "--distribute-saved-activations", "--empty-unused-memory-level 2"])
def test_flags_that_change_memory_and_are_not_counted_are_named(flag: str) -> None:
    name, _, value = flag.partition(" ")
    entry = next(entry for entry in completed(f"{SHAPE} {flag}").assumed if entry.field == name)
    assert entry.value == (value or "given")
    assert entry.why


def test_values_with_which_they_change_nothing_are_not() -> None:
    assert "--empty-unused-memory-level" not in assumed(f"{SHAPE} --empty-unused-memory-level 0")


def test_several_instances_of_the_optimizer_divide_the_states_less() -> None:
    plan = plan_of(f"{SHARDED} --num-distributed-optimizer-instances 2")
    assert (plan.sharding, plan.shard_gpus) == (Sharding.ZERO1, 8)


def test_bridge_has_the_same_in_overrides() -> None:
    given = (
        "model.num_layers=32 model.hidden_size=4096 model.num_attention_heads=32 model.ffn_hidden_size=14336 "
        "model.seq_length=4096 model.tensor_model_parallel_size=1 train.micro_batch_size=1 train.global_batch_size=64 "
        "model.recompute_granularity=selective model.recompute_modules=[mlp,core_attn] "
        "mixed_precision=bf16_with_fp8_current_scaling_mixed optimizer.use_precision_aware_optimizer=true "
        "optimizer.exp_avg_dtype=torch.bfloat16 model.cross_entropy_loss_fusion=true ddp.grad_reduce_in_fp32=False"
    )
    workload = read_script(f"{HEAD}srun python run.py {given}\n", file="job.sh")
    options = dict(workload.options)
    assert workload.plan.precision is Precision.FP8_CURRENT
    assert (options["recompute.modules"], options["optimizer.exp_avg"]) == ("[mlp,core_attn]", "bf16")
    assert (options["fp8.params"], options["loss.fusion"]) == ("true", "true")
    assert options["optimizer.main_grads"] == "bf16"


def test_gradients_are_kept_in_the_format_in_which_they_are_reduced() -> None:
    assert plan_of(f"{AWARE} --grad-reduce-in-bf16 --main-grads-dtype fp32").states is States.MIXED_16BIT_GRADIENTS
    assert plan_of(f"{AWARE} --main-grads-dtype fp32").states is States.MIXED


def test_a_recipe_of_deepseek_v3_that_runs_is_not_said_to_run_out_of_memory() -> None:
    """Layout and batch of the card of Megatron-Bridge's recipe for 1,024 H100 (row brc-008 of the measured runs)."""
    adviser = Adviser(cluster=cluster("superpod-h100"))
    flags = (
        "--recompute-modules mla_up_proj mlp moe layernorm --use-precision-aware-optimizer --main-grads-dtype bf16 "
        "--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16"
    )
    bare, recipe = (adviser.advise(read_script(f"{DEEPSEEK_V3} {more}\n", file="job.sh")) for more in ("", flags))
    assert bare.prediction is not None
    assert recipe.prediction is not None
    assert str(recipe.verdict) == "fits"
    needed = [float(advice.prediction.memory.needed_bytes.expected) for advice in (bare, recipe)]  # type: ignore[union-attr]
    assert needed[1] < 0.8 * needed[0]
