"""What launch scripts of the Megatron family say: every rule on a small script of its own."""

from __future__ import annotations

import pytest

from opsk.workload.plan import Precision, Recompute, Sharding
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script
from tests.fakes.workloads import evidence, why

HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n"
SHAPE = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048"
DEEPSPEED = "deepspeed --hostfile hosts pretrain_gpt.py --deepspeed --deepspeed_config=ds.json"


def read(body: str, *, head: str = HEAD) -> Workload:
    """Read a script with the usual first lines."""
    return read_script(head + body, file="job.sh")


def trained(flags: str = "") -> Workload:
    """Read a script whose one command trains with these flags."""
    return read(f"srun python pretrain_gpt.py {SHAPE} {flags}\n")


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        ("--tensor-model-parallel-size 4", "tp", 4),
        ("--tensor-model-parallel-size=4", "tp", 4),
        ("--tensor-model-parallel-size 2 --tensor-model-parallel-size 4", "tp", 4),
        ("--pipeline-model-parallel-size 08", "pp", 8),
        ("--pipe-parallel-size 2", "pp", 2),
        ("--context-parallel-size 2", "cp", 2),
        ("--ds-sequence-parallel-size 2", "cp", 2),
        ("--expert-model-parallel-size 8", "ep", 8),
        ("--num-virtual-stages-per-pipeline-rank 3", "vpp", 3),
        ("--micro-batch-size 2", "micro_batch", 2),
        ("--batch-size 2", "micro_batch", 2),
        ("--global-batch-size 512", "global_batch", 512),
        ("--sequence-parallel", "sequence_parallel", True),
        ("--use-distributed-optimizer", "sharding", Sharding.ZERO1),
        ("--use-torch-fsdp2", "sharding", Sharding.ZERO3),
        ("--bf16", "precision", Precision.BF16),
        ("--fp16", "precision", Precision.FP16),
        ("--fp8-format hybrid --bf16", "precision", Precision.FP8),
        ("--bf16 --fp8-hybrid", "precision", Precision.FP8),
        ("--recompute-granularity full", "recompute", Recompute.FULL),
        ("--recompute-activations", "recompute", Recompute.SELECTIVE),
        ("--checkpoint-activations", "recompute", Recompute.FULL),
    ],
)
def test_a_flag_states_its_field(flags: str, field: str, value: object) -> None:
    assert getattr(trained(flags).plan, field) == value


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        ("--ffn-hidden-size 11008", "ffn", 11008),
        ("--group-query-attention --num-query-groups 8", "kv_heads", 8),
        ("--kv-channels 128", "head_dim", 128),
        ("--vocab-size 32000", "vocab", 32000),
        ("--swiglu", "gated_mlp", True),
        ("--untie-embeddings-and-output-weights", "tied_embeddings", False),
        ("--position-embedding-type rope", "learned_positions", False),
        ("--position-embedding-type learned_absolute", "learned_positions", True),
        ("--use-flash-attn", "flash_attention", True),
        ("--num-experts 8", "experts", 8),
        ("--num-experts 8 --moe-router-topk 2", "top_k", 2),
        ("--moe-ffn-hidden-size 512 --moe-shared-expert-intermediate-size 1024", "shared_experts", 2),
    ],
)
def test_a_flag_states_the_shape(flags: str, field: str, value: object) -> None:
    assert getattr(trained(flags).model, field) == value


@pytest.mark.parametrize(
    "flags",
    ["--recompute-activations --recompute-granularity full", "--recompute-granularity full --recompute-activations"],
)
def test_recompute_activations_beats_the_granularity_as_in_megatron(flags: str) -> None:
    # arguments.py: "if args.recompute_activations: args.recompute_granularity = 'selective'"
    assert trained(flags).plan.recompute is Recompute.SELECTIVE


def test_a_sharding_strategy_has_no_effect_without_fsdp() -> None:
    flags = "--use-distributed-optimizer --data-parallel-sharding-strategy optim_grads_params"
    assert trained(flags).plan.sharding is Sharding.ZERO1


@pytest.mark.parametrize("flag", ["--use-megatron-fsdp", "--use-custom-fsdp"])
def test_a_sharding_strategy_beats_the_distributed_optimizer_with_fsdp(flag: str) -> None:
    flags = f"--data-parallel-sharding-strategy optim_grads {flag} --use-distributed-optimizer"
    assert trained(flags).plan.sharding is Sharding.ZERO2


def test_a_precision_that_cannot_be_told_is_not_covered_by_a_later_flag() -> None:
    workload = trained("--fp8-format $(cat format) --bf16")
    assert workload.plan.precision is None
    assert "cat format" in why(workload, "plan.precision")


@pytest.mark.parametrize(
    ("flags", "field"),
    [("--recompute-granularity most", "recompute"), ("--zero-stage 7", "sharding"), ("--fp8-format e9m9", "precision")],
)
def test_a_word_that_the_flag_does_not_take_cannot_be_told(flags: str, field: str) -> None:
    workload = trained(flags)
    assert getattr(workload.plan, field) is None
    assert flags in why(workload, f"plan.{field}")


@pytest.mark.parametrize(
    "number", ["-3", "0", "1e9999", "99999999999999999999", "3.5", "+4", "0x10", "²", "٣", "9" * 5000, "many"]
)
def test_what_is_no_positive_whole_number_is_a_problem_with_its_line(number: str) -> None:
    workload = read(f"L={number}\npython pretrain_gpt.py {SHAPE} --num-layers $L\n")
    assert workload.model.layers is None
    assert why(workload, "model.layers")
    assert [(problem.file, problem.line) for problem in workload.problems] == [("job.sh", 4)]


def test_query_groups_without_grouped_attention_cannot_be_told() -> None:
    workload = trained("--num-query-groups 8")
    assert workload.model.kv_heads is None
    assert "--group-query-attention" in why(workload, "model.kv_heads")
    assert [(entry.line, entry.hint) for entry in workload.problems] == [(4, "add --group-query-attention")]


def test_grouped_attention_may_hide_among_words_that_cannot_be_told() -> None:
    assert not trained("--num-query-groups 8 $MORE_ARGS").problems


def test_one_expert_is_a_dense_model_and_leaves_no_evidence() -> None:
    workload = trained("--num-experts 1")
    assert workload.model.experts is None
    assert all(entry.field != "model.experts" for entry in workload.evidence)


@pytest.mark.parametrize(
    "body",
    [
        f'ARGS="{SHAPE}"\nsrun python pretrain_gpt.py $ARGS\n',
        f"ARGS=({SHAPE})\nsrun python pretrain_gpt.py ${{ARGS[@]}}\n",
        f'ARGS=({SHAPE})\nsrun python pretrain_gpt.py "${{ARGS[@]}}"\n',
        f'CMD="pretrain_gpt.py {SHAPE}"\nsrun bash -c "python $CMD"\n',
        "A='--num-layers 32'\nA+=' --hidden-size 4096'\n"
        "python pretrain_gpt.py $A --num-attention-heads 32 --seq-length 2048\n",
        "python pretrain_gpt.py --num-layers \\\n  32 --hidden-size=4096 \\\n"
        "  --num-attention-heads 32 --seq-length 2048\n",
        "H=4096\npython pretrain_gpt.py --num-layers $((H / 128)) --hidden-size $H --num-attention-heads ${N:-32}"
        " --seq-length $((1 << 11))\n",
    ],
)
def test_flags_are_found_wherever_the_shell_keeps_them(body: str) -> None:
    workload = read(body)
    assert workload.framework == "megatron-lm"
    model = workload.model
    assert (model.layers, model.hidden, model.heads, model.seq) == (32, 4096, 32, 2048)


def test_evidence_is_the_line_on_which_the_value_is_written() -> None:
    body = (
        f"TP=4\nPP=2\npython pretrain_gpt.py {SHAPE} \\\n --tensor-model-parallel-size $TP \\\n --micro-batch-size 2\n"
    )
    workload = read(body)
    lines = {entry.field: entry.line for entry in workload.evidence}
    assert (lines["plan.tp"], lines["plan.micro_batch"], lines["model.layers"]) == (4, 8, 6)
    assert evidence(workload, "plan.tp").text == "--tensor-model-parallel-size 4"


def test_a_value_from_outside_has_no_number_but_a_reason() -> None:
    workload = trained("--tensor-model-parallel-size $1 --micro-batch-size $(python pick.py)")
    assert (workload.plan.tp, workload.plan.micro_batch, workload.plan.dp) == (None, None, None)
    assert "pick.py" in why(workload, "plan.micro_batch")
    assert why(workload, "plan.tp")


def test_fields_may_hide_among_words_of_which_nothing_is_known() -> None:
    workload = read("python pretrain_gpt.py --num-layers 4 --hidden-size 64 --seq-length 128 $(cat flags)\n")
    assert "cat flags" in why(workload, "model.heads")


# 16 GPUs / (tp 2 x pp 4) = 2
def test_data_parallel_size_is_what_is_left_of_the_gpus() -> None:
    workload = trained("--tensor-model-parallel-size 2 --pipeline-model-parallel-size 4")
    assert workload.plan.dp == 2
    assert evidence(workload, "plan.dp").text == "gpus 16 / (tp 2 × pp 4 × cp 1)"


def test_data_parallel_size_is_not_rounded() -> None:
    workload = trained("--tensor-model-parallel-size 3 --pipeline-model-parallel-size 1")
    assert workload.plan.dp is None
    (problem,) = workload.problems
    assert "16 GPUs are not a multiple of TP 3" in problem.what
    assert (problem.file, problem.line) == ("job.sh", 4)


def test_data_parallel_size_cannot_be_told_beside_an_unknown_axis() -> None:
    flags = "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 1 --context-parallel-size $CP"
    assert trained(flags).plan.dp is None


# 32 layers / pp 4 / 2 layers a chunk = 4 chunks a stage
def test_vpp_follows_from_the_layers_of_a_chunk() -> None:
    workload = trained("--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2")
    assert workload.plan.vpp == 4
    assert not why(workload, "plan.vpp")


@pytest.mark.parametrize("chunk", ["3", "$CHUNK", "²", "0"])
def test_vpp_cannot_be_told_from_a_chunk_that_does_not_divide(chunk: str) -> None:
    workload = trained(f"--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage {chunk}")
    assert workload.plan.vpp is None
    assert why(workload, "plan.vpp")


@pytest.mark.parametrize("command", ["echo $CMD", 'printf "%s" "$CMD"', "cat <<< $CMD", "echo $CMD > log"])
def test_a_command_that_is_only_said_does_not_train(command: str) -> None:
    workload = read(f'CMD="python pretrain_gpt.py {SHAPE}"\n{command}\n')
    assert (workload.is_training, workload.framework, workload.model.layers) == (False, None, None)


def test_a_command_that_is_said_and_run_trains() -> None:
    assert read(f'CMD="python pretrain_gpt.py {SHAPE}"\necho $CMD\n$CMD\n').model.layers == 32


def test_of_two_commands_the_one_that_states_most_counts() -> None:
    tokenize = "python prepare.py --num-layers 2 --seq-length 128 --hidden-size 8\n"
    assert read(f"{tokenize}python pretrain_gpt.py {SHAPE}\n").model.layers == 32
    assert read(f"python pretrain_gpt.py {SHAPE}\n{tokenize}").model.layers == 32


def test_of_two_equal_commands_the_first_counts() -> None:
    other = SHAPE.replace("32", "48")
    assert read(f"python pretrain_gpt.py {SHAPE}\npython pretrain_gpt.py {other}\n").model.layers == 32


def deepspeed(json: str, flags: str = "", *, launcher: str = DEEPSPEED) -> Workload:
    """Read a Megatron-DeepSpeed script that writes its own configuration from line 4 on."""
    return read(f"cat > ds.json <<EOF\n{json}\nEOF\n{launcher} {SHAPE} {flags}\n")


def test_deepspeed_states_stage_precision_and_batches() -> None:
    json = (
        '{\n "zero_optimization": {"stage": 2},\n "bf16": {"enabled": true},\n'
        ' "train_micro_batch_size_per_gpu": 4,\n "train_batch_size": 256\n}'
    )
    workload = deepspeed(json)
    plan = workload.plan
    assert workload.framework == "megatron-deepspeed"
    assert (plan.sharding, plan.precision) == (Sharding.ZERO2, Precision.BF16)
    assert (plan.micro_batch, plan.global_batch) == (4, 256)


def test_deepspeed_values_are_cited_on_their_own_lines() -> None:
    json = '{\n "train_batch_size":\n   256,\n "zero_optimization": {\n  "stage": $ZERO\n }\n}'
    workload = read(f"ZERO=1\ncat > ds.json <<EOF\n{json}\nEOF\n{DEEPSPEED} {SHAPE}\n")
    lines = {entry.field: entry.line for entry in workload.evidence}
    assert (lines["plan.global_batch"], lines["plan.sharding"]) == (8, 4)


def test_flags_beat_the_deepspeed_configuration() -> None:
    workload = deepspeed('{"train_batch_size": 256, "bf16": {"enabled": true}}', "--global-batch-size 64 --fp16")
    assert (workload.plan.global_batch, workload.plan.precision) == (64, Precision.FP16)


# micro batch 4 x 8 steps x dp 16 = 512
def test_accumulation_steps_give_the_global_batch() -> None:
    json = '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8}'
    workload = deepspeed(json, "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 1")
    assert workload.plan.global_batch == 512
    assert evidence(workload, "plan.global_batch").text == "4 × 8 × dp 16"


def test_a_deepspeed_value_that_cannot_be_told_has_a_reason() -> None:
    workload = deepspeed('{"zero_optimization": {"stage": $ZERO}, "train_batch_size": $(cat x)}')
    assert (workload.plan.sharding, workload.plan.global_batch) == (None, None)
    assert "ZERO" in why(workload, "plan.sharding")
    assert "cat x" in why(workload, "plan.global_batch")


@pytest.mark.parametrize(
    "json",
    [
        "{",
        "[]",
        "null",
        "",
        '{"zero_optimization": {"stage": true}}',
        '{"zero_optimization": {"stage": 9}}',
        '{"zero_optimization": 3, "bf16": true}',
        '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": -1}',
        '{"train_batch_size": 1e999, "gradient_accumulation_steps": 99999999999999999999}',
        '{"a":' * 3000,
        '{"train_batch_size": ' + "9" * 5000 + "}",
    ],
)
def test_a_broken_deepspeed_configuration_states_nothing(json: str) -> None:
    plan = deepspeed(json, "--micro-batch-size 1").plan
    assert (plan.sharding, plan.precision, plan.global_batch) == (None, None, None)


@pytest.mark.parametrize(("stage", "sharding"), [("0", Sharding.NONE), ("1.0", Sharding.ZERO1), ("3", Sharding.ZERO3)])
def test_the_zero_stage_may_be_a_float(stage: str, sharding: Sharding) -> None:
    assert trained(f"--deepspeed --zero-stage {stage}").plan.sharding is sharding


def test_megatron_bridge_is_read_from_its_overrides() -> None:
    workload = read(
        "srun torchrun --nnodes 2 --nproc_per_node 8 run_recipe.py --recipe llama "
        "model.num_layers=8 model.tensor_model_parallel_size=2 model.context_parallel_size=1 "
        "model.pipeline_model_parallel_size=2 ++model.virtual_pipeline_model_parallel_size=null "
        "train.micro_batch_size=1 train.global_batch_size=32 model.sequence_parallel=True "
        "model.recompute_granularity=full\n"
    )
    plan = workload.plan
    assert workload.framework == "megatron-bridge"
    assert (workload.model.layers, plan.tp, plan.pp, plan.vpp, plan.dp) == (8, 2, 2, 1, 4)
    assert (plan.micro_batch, plan.global_batch, plan.sequence_parallel) == (1, 32, True)
    assert plan.recompute is Recompute.FULL


RECIPE = "scripts/training/run_recipe.py --recipe"
BENCHMARK = "python /opt/Megatron-Bridge/scripts/performance/run_script.py -m llama -mr llama3_70b"


@pytest.mark.parametrize(
    ("command", "gradients", "precision"),
    [
        (f"{RECIPE} llama3_70b_pretrain_64gpu_h100_bf16_config", "bf16", Precision.BF16),
        (f"{RECIPE} deepseek_v3_pretrain_256gpu_gb300_fp8mx_config", "bf16", Precision.MXFP8),
        (f"{RECIPE} qwen3_30b_a3b_pretrain_32gpu_h100_bf16_dev_config", "bf16", Precision.BF16),
        (f"{RECIPE} llama3_70b_pretrain_64gpu_h100_bf16_config ddp.grad_reduce_in_fp32=true", "fp32", Precision.BF16),
        (f"{RECIPE} llama3_70b_pretrain_64gpu_h100_bf16_config mixed_precision=bf16_mixed", None, Precision.BF16),
        (f"{RECIPE} llama3_70b_pretrain_32gpu_h100_bf16_config", None, None),  # the library's
        (f"{RECIPE} llama3_8b_pretrain_64gpu_h100_bf16_128k_config", None, None),  # the library's
        (f"{RECIPE} llama3_8b_pretrain_2gpu_h100_fp8cs_config", None, None),  # the library's
        (f"{RECIPE} qwen25_14b_pretrain_4gpu_h100_bf16_config", None, None),
        (f"{RECIPE} llama3_70b_pretrain_config", None, None),
        (f"{BENCHMARK} -g h100 -c bf16 -ng 64", "bf16", None),
        (f"{BENCHMARK} --use_recipes -ng 64", None, None),
    ],
)
def test_performance_recipes_of_bridge_keep_gradients_in_16_bits(
    command: str, gradients: str | None, precision: Precision | None
) -> None:
    # perf_recipes/_common.py of Megatron-Bridge: grad_reduce_in_fp32 = False; names as of August 2026
    workload = read(f"srun {command} model.tensor_model_parallel_size=4 train.micro_batch_size=1\n")
    assert dict(workload.options).get("optimizer.main_grads") == gradients
    assert workload.plan.precision == precision


def test_bridge_overrides_shard_the_optimizer_and_leave_out_experts() -> None:
    workload = read(
        f"srun {RECIPE} x model.num_moe_experts=null model.num_layers=8 ddp.use_distributed_optimizer=true\n"
    )
    assert (workload.model.experts, workload.plan.sharding) == (0, Sharding.ZERO1)


def test_a_bridge_override_that_is_null_states_that_nothing_is_recomputed() -> None:
    command = f"srun {RECIPE} x model.num_layers=8 train.micro_batch_size=1 model.recompute_granularity"
    assert read(f"{command}=null\n").plan.recompute is Recompute.NONE
    assert read(f"{command}=$MODE\n").plan.recompute is None


def test_switches_for_embedding_and_loss_that_are_off_go_with_a_layout() -> None:
    switches = "model.account_for_embedding_in_pipeline_split=false model.account_for_loss_in_pipeline_split={}"
    layout = (
        "model.num_layers=8 model.pipeline_model_parallel_size=2 model.pipeline_model_parallel_layout='Etttt|ttttL'"
    )
    command = f"srun {RECIPE} x {layout} train.micro_batch_size=1 {switches}"
    assert not read(command.format("false") + "\n").problems
    assert "cannot be combined" in read(command.format("true") + "\n").problems[0].what


def test_a_bridge_override_that_cannot_be_told_has_a_reason() -> None:
    workload = read("torchrun r.py model.tensor_model_parallel_size=$TP train.micro_batch_size=1\n")
    assert workload.plan.tp is None
    assert "TP" in why(workload, "plan.tp")


VLM = SHAPE.replace("2048", "261") + " --decoder-seq-length 3200"


@pytest.mark.parametrize(
    ("command", "seq"),
    [
        (f"torchrun Megatron-LM/examples/multimodal/train.py {VLM}", 3200),
        (f"torchrun pretrain_vlm.py {VLM}", 3200),
        (f"torchrun megatron_train.py --img-h 448 --img-w 448 --patch-dim 14 {VLM}", 3200),
        (f"torchrun megatron_train.py {VLM}", None),
        (f"torchrun pretrain_t5.py {VLM}", 261),
    ],
)
def test_beside_an_encoder_the_length_is_that_of_the_language_model(command: str, seq: int | None) -> None:
    """``examples/multimodal/model.py`` of Megatron-LM: the language model's length is ``decoder_seq_length``."""
    assert read_script(HEAD + command + "\n", file="job.sh").model.seq == seq


def test_a_recipe_may_split_the_context_where_the_command_line_does_not_say() -> None:
    """``llama3_70b_pretrain_32gpu_h100_bf16_config`` of Megatron-Bridge has a context_parallel_size of 2."""
    recipe = "srun python scripts/training/run_recipe.py --recipe llama3_70b_pretrain_32gpu_h100_bf16_config"
    layout = "model.tensor_model_parallel_size=4 model.pipeline_model_parallel_size=2"
    plan = read_script(f"{HEAD}{recipe} {layout}\n", file="job.sh").plan
    assert (plan.tp, plan.pp, plan.cp, plan.dp) == (4, 2, None, None)
    assert read_script(f"{HEAD}{recipe} {layout} model.context_parallel_size=1\n", file="job.sh").plan.dp == 2


FLAGS = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --micro-batch-size 2"
START = "#!/bin/bash\n#SBATCH --nodes=1 --gpus-per-node=8\ntorchrun --nproc_per_node=8 "


def test_flags_with_underscores_are_those_of_another_program() -> None:
    assert read_script(f"{START}pretrain_llm.py {FLAGS}\n", file="job.sh").framework == "megatron-lm"
    written = " ".join(word.replace("-", "_").replace("__", "--", 1) for word in FLAGS.split())
    workload = read_script(f"{START}train_fsdp.py {written}\n", file="job.sh")
    assert workload.framework == "pytorch-fsdp"
    assert (workload.model.layers, workload.model.hidden, workload.plan.micro_batch) == (4, 64, 2)


IMPORTS = "from megatron.training import pretrain\npretrain()\n"
PARSES = "p.add_argument('--num-layers', type=int)\np.add_argument('--hidden-size', type=int)\nloss.backward()\n"
WRAPS = "from mine.arguments import parse\nmodel = FSDP(Model(parse()))\n"
OPAQUE = "from mine.training import main\nmain()\n"
OWN = " --train-iters 10 --lr-decay-style cosine"


@pytest.mark.parametrize(
    ("program", "text", "more", "framework"),
    [
        ("train.py", IMPORTS, "", "megatron-lm"),
        ("train.py", PARSES, "", None),
        ("train.py", PARSES, OWN, None),
        ("train.py", WRAPS, " --tensor-model-parallel-size 1", None),
        ("train_fsdp.py", PARSES, "", "pytorch-fsdp"),
        ("train.py", OPAQUE, "", None),
        ("train.py", OPAQUE, OWN, "megatron-lm"),
        ("train.py", None, "", None),
        ("train.py", None, OWN, "megatron-lm"),
        ("pretrain_gpt.py", PARSES, "", "megatron-lm"),
        ("/opt/Megatron-LM/train.py", None, "", "megatron-lm"),
    ],
)
def test_a_program_is_megatrons_by_evidence_not_by_the_spelling_of_its_flags(
    program: str, text: str | None, more: str, framework: str | None
) -> None:
    files = {} if text is None else {program: text}
    workload = read_script(f"{START}{program} {FLAGS}{more}\n", file="job.sh", files=files)
    assert workload.framework == framework
    assert (workload.model.layers, workload.model.hidden, workload.plan.micro_batch) == (4, 64, 2)


def test_the_file_of_a_program_that_may_be_megatrons_is_asked_for() -> None:
    assert read_script(f"{START}train.py {FLAGS}\n", file="job.sh").missing_files == ("train.py",)
    assert read_script(f"{START}pretrain_gpt.py {FLAGS}\n", file="job.sh").missing_files == ()
    named = f"export MEGATRON_PATH=/opt/m\n{START.splitlines()[-1]}train.py {FLAGS}\n"
    assert read_script("\n".join(START.splitlines()[:-1]) + f"\n{named}", file="job.sh").framework == "megatron-lm"


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        ("--save c", {}),
        ("--load c", {"checkpoint.loaded": "--load c"}),
        ("--load $C --ckpt-format torch", {"checkpoint.loaded": "--load …", "checkpoint.format": "torch"}),
        ("--load c --use-dist-ckpt", {"checkpoint.loaded": "--load c", "checkpoint.format": "torch_dist"}),
    ],
)
def test_a_checkpoint_that_is_loaded_is_an_option(flags: str, options: dict[str, str]) -> None:
    found = dict(read_script(f"{START}pretrain_gpt.py {FLAGS} {flags}\n", file="job.sh").options)
    assert {name: value for name, value in found.items() if name.startswith("checkpoint.")} == options
