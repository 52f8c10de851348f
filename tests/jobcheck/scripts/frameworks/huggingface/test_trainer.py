"""What launch scripts of HuggingFace's Trainer and TRL say: every rule on a small script of its own.

Global batches are micro batch × accumulation × data-parallel ranks; two nodes of eight GPUs are 16 ranks.
"""

from __future__ import annotations

import pytest

from opsk.workload.completion import complete
from opsk.workload.plan import Offload, Optimizer, OptimizerStep, Precision, Recompute, Sharding, States
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script
from tests.fakes.workloads import evidence, why

HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n"
TRAINER = "srun torchrun --nproc_per_node 8 train.py --model_name_or_path meta-llama/Llama-3.1-8B --num_train_epochs 1"
LAUNCH = "srun accelerate launch"
ZERO3 = '{\n "zero_optimization": {\n  "stage": 3\n },\n "bf16": {"enabled": "auto"}\n}\n'


def read(body: str, *, head: str = HEAD, files: dict[str, str] | None = None) -> Workload:
    """Read a script with the usual first lines."""
    return read_script(head + body, file="job.sh", files=files)


def trained(flags: str = "", *, files: dict[str, str] | None = None) -> Workload:
    """Read a script whose one command is an own program that takes the Trainer's flags."""
    return read(f"{TRAINER} {flags}\n", files=files)


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        ("--per_device_train_batch_size 4", "micro_batch", 4),
        ("--per-device-train-batch-size=4", "micro_batch", 4),
        ("--bf16", "precision", Precision.BF16),
        ("--bf16 True", "precision", Precision.BF16),
        ("--bf16 False --fp16 True", "precision", Precision.FP16),
        ("--gradient_checkpointing", "recompute", Recompute.FULL),
        ("--gradient_checkpointing False", "recompute", Recompute.NONE),
        ('--fsdp "full_shard auto_wrap"', "sharding", Sharding.ZERO3),
        ("--fsdp shard_grad_op", "sharding", Sharding.ZERO2),
        ("--training.per_device_train_batch_size 2", "micro_batch", 2),
    ],
)
def test_a_flag_states_its_field(flags: str, field: str, value: object) -> None:
    assert getattr(trained(flags).plan, field) == value


@pytest.mark.parametrize("flag", ["--block_size", "--max_seq_length", "--model_max_length", "--max_seq_len"])
def test_the_length_of_sequences_has_many_names(flag: str) -> None:
    assert trained(f"{flag} 4096").model.seq == 4096


def test_global_batch_follows_from_accumulation_and_all_ranks() -> None:
    workload = trained("--per_device_train_batch_size 4 --gradient_accumulation_steps 8")
    assert workload.framework == "hf-trainer"
    assert (workload.plan.tp, workload.plan.pp, workload.plan.dp, workload.plan.global_batch) == (1, 1, 16, 512)
    assert evidence(workload, "plan.micro_batch").line == 4


def test_a_global_batch_without_accumulation_is_assumed_and_not_stated() -> None:
    workload = trained("--per_device_train_batch_size 4")
    assert workload.plan.global_batch is None
    assert {entry.field: entry.value for entry in complete(workload).assumed}["plan.global_batch"] == 64


def test_an_unknown_number_of_steps_leaves_the_global_batch_open() -> None:
    workload = trained("--per_device_train_batch_size 4 --gradient_accumulation_steps $STEPS")
    assert workload.plan.global_batch is None
    assert "STEPS" in why(workload, "plan.global_batch")


def test_a_batch_that_the_trainer_may_lower_cannot_be_told() -> None:
    workload = trained("--per_device_train_batch_size 64 --auto_find_batch_size true")
    assert workload.plan.micro_batch is None
    assert "auto_find_batch_size" in why(workload, "plan.micro_batch")


@pytest.mark.parametrize(
    "flags",
    [
        "--tensor_parallel_size 2",
        "--tp_size 2",
        "--sequence_parallel_size 4",
        "--seq_parallel_size 8",
        "--context_parallel_degree 2",
        "--pipe_parallel_size 4",
    ],
)
def test_ranks_are_not_data_parallel_only_where_a_setting_may_split_the_model(flags: str) -> None:
    workload = trained(f"{flags} --fsdp full_shard")
    assert (workload.plan.tp, workload.plan.pp, workload.plan.dp) == (None, None, None)


def test_flags_in_words_that_cannot_be_told_leave_the_split_open() -> None:
    workload = trained('"$@"')
    assert (workload.plan.tp, workload.plan.micro_batch) == (None, None)
    assert why(workload, "plan.micro_batch")


def test_a_deepspeed_file_that_the_script_writes_is_read_and_cited_where_it_stands() -> None:
    workload = read(f"cat > ds.json <<EOT\n{ZERO3}EOT\n{TRAINER} --deepspeed ds.json --bf16\n")
    assert workload.framework == "hf-trainer+deepspeed"
    assert (workload.plan.sharding, workload.plan.tp, workload.plan.dp) == (Sharding.ZERO3, 1, 16)
    # two lines of #SBATCH and the first make 3, cat is 4, the object starts on 5
    assert evidence(workload, "plan.sharding").line == 7
    assert evidence(workload, "plan.sharding").file == "job.sh"


def test_a_deepspeed_file_by_path_is_wanted_then_read() -> None:
    flags = "--deepspeed conf/zero3.json --per_device_train_batch_size 1"
    blind = trained(flags)
    assert blind.missing_files == ("conf/zero3.json", "train.py")
    assert (blind.plan.sharding, blind.plan.tp, blind.plan.dp) == (None, None, None)
    assert "conf/zero3.json" in why(blind, "plan.sharding")
    seen = trained(flags, files={"conf/zero3.json": ZERO3})
    assert (seen.plan.sharding, seen.plan.tp, seen.missing_files) == (Sharding.ZERO3, 1, ("train.py",))
    assert (evidence(seen, "plan.sharding").file, evidence(seen, "plan.sharding").line) == ("conf/zero3.json", 3)


def test_deepspeed_numbers_fill_what_flags_leave_out() -> None:
    config = (
        '{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "zero_optimization": {"stage": 2}}'
    )
    workload = trained("--deepspeed d.json", files={"d.json": config})
    assert (workload.plan.micro_batch, workload.plan.global_batch) == (2, 128)


def test_deepspeed_keeps_states_where_its_configuration_says() -> None:
    config = '{"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}'
    workload = trained("--deepspeed d.json --block_size 2048 --bf16", files={"d.json": config})
    plan = complete(workload).plan
    assert plan is not None
    assert (plan.offload, plan.states) == (Offload.OPTIMIZER_AND_WEIGHTS, States.MIXED_16BIT_GRADIENTS)


def test_a_stage_may_be_given_to_the_program_itself() -> None:
    # as DeepSpeed-Chat has it: --deepspeed is a switch, the configuration is made from the other flags
    workload = trained("--deepspeed --zero_stage 3 --dtype bf16 --offload --per_device_train_batch_size 2")
    assert (workload.plan.sharding, workload.plan.precision) == (Sharding.ZERO3, Precision.BF16)
    assert dict(workload.options)["optimizer.offload"] == "cpu"


def test_tensor_parallelism_of_deepspeed_is_read() -> None:
    config = '{"zero_optimization": {"stage": 1}, "tensor_parallel": {"autotp_size": 4}}'
    workload = trained("--deepspeed d.json", files={"d.json": config})
    assert (workload.plan.tp, workload.plan.dp) == (4, 4)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"zero_optimization": 3}', "{" * 4000, "\x1b[31m{}", "[[["])
def test_a_broken_deepspeed_file_states_nothing(text: str) -> None:
    plan = trained("--deepspeed d.json", files={"d.json": text}).plan
    assert (plan.sharding, plan.precision) == (None, None)


def test_a_file_that_is_changed_before_it_is_read_is_not_believed() -> None:
    body = f"cat > ds.json <<EOT\n{ZERO3}EOT\nsed -i s/3/2/ ds.json\n{TRAINER} --deepspeed ds.json\n"
    workload = read(body)
    assert workload.plan.sharding is None
    assert "sed" in why(workload, "plan.sharding")


@pytest.mark.parametrize(
    ("flags", "framework"),
    [
        ("torchrun sft.py --max_length 8 --logging_steps 1", "trl"),
        (f"{LAUNCH} examples/scripts/grpo.py --config x.yaml", "trl + accelerate"),
        ("trl sft --model_name_or_path gpt2", "trl"),
        ("python -m torch.distributed.launch run_clm.py --deepspeed x.json", "hf-trainer+deepspeed"),
        (
            "torchrun -m my.train --output_dir x --learning_rate 1 --num_train_epochs 1 --bf16 --logging_steps 1",
            "hf-trainer",
        ),
        ("deepspeed --num_gpus 8 own.py --deepspeed_config ds.json", "deepspeed"),
        (f"{LAUNCH} own.py --lr 1", "accelerate"),
    ],
)
def test_the_framework_is_recognised(flags: str, framework: str) -> None:
    assert read(flags + "\n").framework == framework


@pytest.mark.parametrize(
    "command", ["trl vllm-serve --model gpt2", "accelerate launch -m lm_eval --model hf", "trl env"]
)
def test_serving_and_evaluation_are_not_read_as_training(command: str) -> None:
    workload = read(command + "\n")
    assert workload.framework in (None, "trl")
    assert workload.plan.micro_batch is None


def test_a_recipe_is_read_and_flags_beat_it() -> None:
    recipe = (
        "model_name_or_path: Qwen/Qwen2.5-7B\nbf16: true\nmax_length: 4096\nper_device_train_batch_size: 2\n"
        "gradient_accumulation_steps: 8\ngradient_checkpointing: true\n"
    )
    command = f"{LAUNCH} --multi_gpu --num_processes 16 sft.py --config r.yaml --per_device_train_batch_size 1\n"
    workload = read(command, files={"r.yaml": recipe})
    plan = workload.plan
    assert (plan.micro_batch, plan.global_batch, plan.recompute) == (1, 128, Recompute.FULL)
    assert (workload.model.name, workload.model.seq) == ("Qwen/Qwen2.5-7B", 4096)
    assert (evidence(workload, "model.seq").file, evidence(workload, "model.seq").line) == ("r.yaml", 3)
    assert evidence(workload, "plan.micro_batch").file == "job.sh"


def test_a_recipe_that_was_not_read_is_the_reason() -> None:
    workload = read(f"{LAUNCH} --multi_gpu --num_processes 16 sft.py --config r.yaml --gradient_accumulation_steps 2\n")
    assert workload.missing_files == ("r.yaml", "sft.py")
    assert "r.yaml" in why(workload, "plan.micro_batch")
    assert workload.plan.tp is None or workload.plan.dp == 16


def test_a_single_file_holds_all_arguments() -> None:
    files = {"args.json": '{"per_device_train_batch_size": 3, "block_size": 128, "model_name_or_path": "gpt2"}'}
    workload = read("torchrun run_clm.py args.json\n", files=files)
    assert (workload.plan.micro_batch, workload.model.seq, workload.model.name) == (3, 128, "gpt2")


def test_adapters_in_a_recipe_are_noticed() -> None:
    workload = read("trl sft --config r.yaml\n", files={"r.yaml": "use_peft: true\nlora_r: 16\n"})
    assert dict(workload.options)["trainable"].startswith("unknown")


def test_weights_in_16_bits_make_all_states_16_bits() -> None:
    workload = trained("--torch_dtype bfloat16 --bf16 --block_size 512 --per_device_train_batch_size 1")
    plan = complete(workload).plan
    assert plan is not None
    assert plan.states is States.PURE_16BIT


def test_the_optimizer_is_taken_over_and_an_unknown_one_is_missing() -> None:
    flags = "--block_size 512 --per_device_train_batch_size 1 --optim"
    plan = complete(trained(f"{flags} paged_adamw_8bit")).plan
    assert plan is not None
    assert plan.optimizer is Optimizer.PAGED_ADAM_8BIT
    assert "plan.optimizer" in complete(trained(f"{flags} galore_adamw")).missing


@pytest.mark.parametrize(
    ("optimizer", "step"), [("adamw_torch", OptimizerStep.FOREACH), ("adamw_torch_fused", OptimizerStep.FUSED)]
)
def test_pytorchs_own_adamw_steps_with_copies(optimizer: str, step: OptimizerStep) -> None:
    plan = complete(trained(f"--block_size 512 --per_device_train_batch_size 1 --optim {optimizer}")).plan
    assert plan is not None
    assert plan.optimizer_step is step


@pytest.mark.parametrize(
    "flags",
    [
        "--per_device_train_batch_size -1",
        "--per_device_train_batch_size 9999999999999999999",
        "--per_device_train_batch_size ''",
        "--gradient_accumulation_steps 1e9",
        "--fsdp ''",
        "--config_overrides n_layer=,n_embd=x,=,,n_head=99999999999999",
        "--deepspeed ''",
        "--fsdp_config '{'",
        "--model_name_or_path ../../..",
        "--model_name_or_path $'\\x1b[31m'",
        "--bf16 maybe",
    ],
)
def test_nonsense_is_never_a_number(flags: str) -> None:
    workload = trained(flags)
    assert (workload.plan.micro_batch, workload.plan.global_batch, workload.model.layers) == (None, None, None)


REWRITE = "d=json.load(open('ds.json')); d['zero_optimization']['stage']=1; json.dump(d,open('ds.json','w'))"


@pytest.mark.parametrize(
    "change",
    [
        f'python3 -c "import json; {REWRITE}"',
        f"srun -N1 -n1 python -u - <<PY\nimport json\n{REWRITE}\nPY",
        "python3 - ds.json <<'PY'\nimport sys\nopen(sys.argv[1], 'w').write('{}')\nPY",
        "export CFG=ds.json\npython - <<'PY'\nimport os\nopen(os.environ[\"CFG\"], \"w\").write('{}')\nPY",
        "for f in *.json; do sed -i s/3/1/ $f; done",
        "find . -name '*.json' -exec sed -i s/3/1/ {} +",
        "wget -q http://example.org/ds.json",
    ],
)
def test_a_file_that_a_program_may_change_is_not_believed(change: str) -> None:
    workload = read(f"cat > ds.json <<EOT\n{ZERO3}EOT\n{change}\n{TRAINER} --deepspeed ds.json\n")
    assert workload.plan.sharding is None
    assert "is changed by" in why(workload, "plan.sharding")


@pytest.mark.parametrize(
    "other",
    [
        "python3 -c \"import json; print(json.load(open('ds.json'))['zero_optimization'])\"",
        "python3 -c \"open('log.json', 'w').write('x')\"",
        "python make_data.py -c save.json <<< yes",
    ],
)
def test_a_file_that_a_program_only_reads_is_believed(other: str) -> None:
    workload = read(f"cat > ds.json <<EOT\n{ZERO3}EOT\n{other}\n{TRAINER} --deepspeed ds.json\n")
    assert workload.plan.sharding is Sharding.ZERO3


@pytest.mark.parametrize(
    ("config", "left_open"),
    [
        ('{"train_micro_batch_size_per_gpu": 4}', {"micro_batch", "global_batch"}),
        ('{"gradient_accumulation_steps": 2}', {"global_batch"}),
        ('{"fp16": {"enabled": true}}', {"precision"}),
        (
            '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 8, "fp16": {"enabled": "auto"}}',
            set(),
        ),
        ('{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}}', set()),
    ],
)
def test_flags_and_a_configuration_that_do_not_agree_state_nothing(config: str, left_open: set[str]) -> None:
    """transformers refuses such a job, so that none of both is what trains."""
    flags = "--per_device_train_batch_size 1 --gradient_accumulation_steps 8 --bf16 --deepspeed ds.json"
    plan = read(f"cat > ds.json <<EOT\n{config}\nEOT\n{TRAINER} {flags}\n").plan
    assert {name for name in ("micro_batch", "global_batch", "precision") if getattr(plan, name) is None} == left_open


OF_EIGHT = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=8\n"
CLM = "torchrun --nproc_per_node 8 run_clm.py --model_name_or_path gpt2"


def test_fsdp_recomputes_where_the_trainers_own_switch_is_off() -> None:
    """transformers refuses both at once, so that people turn the Trainer's off."""
    config = 'cat > f.json <<EOF\n{"activation_checkpointing": true}\nEOF\n'
    flags = '--gradient_checkpointing False --fsdp "full_shard auto_wrap" --fsdp_config f.json'
    assert read_script(f"{OF_EIGHT}{config}{CLM} {flags}\n", file="job.sh").plan.recompute == "full"
    assert read_script(f"{OF_EIGHT}{CLM} --gradient_checkpointing False\n", file="job.sh").plan.recompute == "none"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--per_device_train_batch_size 4 --reward.per_device_train_batch_size 2", 4),
        ("--reward.per_device_train_batch_size 2", None),
        ("--training.per_device_train_batch_size 2", 2),
        ("--actor.per_device_train_batch_size 2 --other.per_device_train_batch_size 4", None),
    ],
)
def test_settings_of_another_model_are_not_those_of_the_trained_one(flags: str, expected: int | None) -> None:
    workload = read_script(f"{OF_EIGHT}{CLM} --bf16 --output_dir x {flags}\n", file="job.sh")
    assert workload.plan.micro_batch == expected


def test_a_program_that_mixes_no_precisions_beats_its_launcher() -> None:
    launch = "accelerate launch --num_processes 8 --multi_gpu --mixed_precision bf16"
    script = f"{OF_EIGHT}{launch} run_clm_no_trainer.py --per_device_train_batch_size 2"
    assert read_script(f"{script}\n", file="job.sh").plan.precision == "bf16"
    assert read_script(f"{script} --mixed_precision no\n", file="job.sh").plan.precision is None


def test_a_switch_that_turns_recomputation_off_beats_the_recipe() -> None:
    recipe = "cat > c.yaml <<EOF\ngradient_checkpointing: true\nEOF\n"
    launch = "accelerate launch --num_processes 8 --multi_gpu sft.py --config c.yaml"
    assert read_script(f"{OF_EIGHT}{recipe}{launch}\n", file="job.sh").plan.recompute == "full"
    assert (
        read_script(f"{OF_EIGHT}{recipe}{launch} --no_gradient_checkpointing\n", file="job.sh").plan.recompute == "none"
    )


OF_TRAINER = (
    "--model_name_or_path Qwen/Qwen3-1.7B --per_device_train_batch_size 4 --gradient_checkpointing True --bf16 True"
    " --model_max_length 4096 --num_train_epochs 1 --warmup_ratio 0.1 --report_to none"
)


@pytest.mark.parametrize(
    ("command", "framework"),
    [
        (f"my-cli sft {OF_TRAINER}", "hf-trainer"),
        (f"echo my-cli sft {OF_TRAINER}", None),
        ("my-cli sft --model_name_or_path Qwen/Qwen3-1.7B --bf16 True --report_to none", None),
    ],
)
def test_a_command_of_a_package_with_many_flags_of_the_trainer_starts_it(command: str, framework: str | None) -> None:
    workload = read_script(f"{OF_EIGHT}{command}\n", file="job.sh")
    assert workload.framework == framework
    assert workload.plan.micro_batch == (4 if framework else None)
    assert workload.model.seq == (4096 if framework else None)
