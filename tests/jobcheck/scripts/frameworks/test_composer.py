"""What launch scripts of Composer and the YAML files that they name say: every rule on a small script of its own."""

from __future__ import annotations

import pytest

from opsk.workload.plan import Precision, Recompute, Sharding
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script
from tests.fakes.workloads import evidence, why

HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n"
RUN = "srun composer --nproc 8 scripts/train/train.py yamls/x.yaml"
FILE = """variables:
  length: 4096
max_seq_len: ${variables.length}
model:
  name: mpt_causal_lm
  d_model: 2048
  n_heads: 16
  n_layers: 24
  expansion_ratio: 4
  max_seq_len: ${max_seq_len}
  vocab_size: 50368
  attn_config:
    attn_impl: flash
    alibi: true
global_train_batch_size: 256
device_train_microbatch_size: 4
precision: amp_bf16
fsdp_config:
  sharding_strategy: FULL_SHARD
  mixed_precision: PURE
  activation_checkpointing: true
"""


def trained(more: str = "", *, file: str | None = FILE, run: str = RUN) -> Workload:
    """Read a script whose one command trains with a file and these settings."""
    files = {"yamls/x.yaml": file} if file is not None else {}
    return read_script(f"{HEAD}{run} {more}\n", file="job.sh", files=files)


def changed(old: str, new: str) -> Workload:
    """Read the script with a part of the file changed."""
    assert old in FILE
    return trained(file=FILE.replace(old, new))


def test_the_file_states_the_plan() -> None:
    plan = trained().plan
    assert (plan.tp, plan.pp, plan.dp, plan.micro_batch, plan.global_batch) == (1, 1, 16, 4, 256)
    assert (plan.sharding, plan.recompute, plan.precision) == (Sharding.ZERO3, Recompute.FULL, Precision.BF16)


def test_the_file_states_the_model_through_its_references() -> None:
    model = trained().model
    assert (model.layers, model.hidden, model.ffn, model.heads, model.seq) == (24, 2048, 8192, 16, 4096)
    assert (model.gated_mlp, model.learned_positions, model.flash_attention) == (False, False, True)
    assert trained().framework == "composer"


@pytest.mark.parametrize(
    ("more", "part", "field", "value"),
    [
        ("max_seq_len=512", "model", "seq", 512),
        ("variables.length=1024", "model", "seq", 1024),
        ("global_train_batch_size=64", "plan", "global_batch", 64),
        ("global_train_batch_size=32", "plan", "micro_batch", 2),
        ("device_train_microbatch_size=2", "plan", "micro_batch", 2),
        ("device_train_microbatch_size=auto", "plan", "micro_batch", None),
        ("device_train_microbatch_size=0.5", "plan", "micro_batch", None),
        ("model.n_layers=2 model.d_model=1024", "model", "ffn", 4096),
        ("model.expansion_ratio=2.5", "model", "ffn", 5120),
        ("model.expansion_ratio=2.0001", "model", "ffn", None),
        ("model.ffn_config.ffn_hidden_size=5504", "model", "ffn", 5504),
        ("model.attn_config.kv_n_heads=4", "model", "kv_heads", 4),
        ("model.attn_config.attn_type=multiquery_attention", "model", "kv_heads", 1),
        ("model.ffn_config.ffn_type=mptglu", "model", "gated_mlp", True),
        ("fsdp_config.sharding_strategy=SHARD_GRAD_OP", "plan", "sharding", Sharding.ZERO2),
        ("fsdp_config.activation_checkpointing=false", "plan", "recompute", Recompute.NONE),
        ("precision=fp32", "plan", "precision", Precision.FP32),
        ("precision=amp_fp8", "plan", "precision", Precision.FP8),
        ("max_duration=10ba save_folder=/x", "plan", "micro_batch", 4),
    ],
)
def test_settings_behind_the_file_beat_it(more: str, part: str, field: str, value: object) -> None:
    assert getattr(getattr(trained(more), part), field) == value


def test_experts_are_read() -> None:
    experts = "ffn_type: mb_dmoe\n    moe_num_experts: 8\n    moe_top_k: 2\n    moe_world_size: 4"
    workload = changed("  attn_config:", f"  ffn_config:\n    {experts}\n  attn_config:")
    assert (workload.model.experts, workload.model.top_k, workload.model.expert_ffn) == (8, 2, 8192)
    assert workload.plan.ep == 4


def test_steps_of_older_releases_give_the_micro_batch() -> None:
    workload = changed("device_train_microbatch_size: 4", "device_train_grad_accum: 8")
    assert workload.plan.micro_batch == 2  # 256 / 16 GPUs / 8 steps


@pytest.mark.parametrize(("steps", "micro"), [(3, 6), (5, 4), (16, 1), (17, None)])
def test_steps_that_do_not_divide_leave_less_for_the_last_one(steps: int, micro: int | None) -> None:
    """``Tensor.chunk`` makes 6, 6, 4 of 16; of fewer than there are steps it can make none."""
    assert changed("device_train_microbatch_size: 4", f"device_train_grad_accum: {steps}").plan.micro_batch == micro


def test_a_section_for_tensors_is_read() -> None:
    workload = changed("\nprecision:", "\ntp_config:\n  strategy: ffn\n  tensor_parallel_degree: 2\nprecision:")
    assert (workload.plan.tp, workload.plan.pp, workload.plan.dp) == (2, 1, 8)


def test_sharding_without_a_strategy_is_of_all() -> None:
    assert changed("  sharding_strategy: FULL_SHARD\n", "").plan.sharding is Sharding.ZERO3


def test_evidence_cites_file_and_line() -> None:
    entry = evidence(trained(), "model.layers")
    assert (entry.file, entry.line, entry.text) == ("yamls/x.yaml", 8, "n_layers: 24")


def test_a_model_of_the_hub_is_named() -> None:
    file = (
        "max_seq_len: 2048\nmodel:\n  name: hf_causal_lm\n  pretrained_model_name_or_path: meta-llama/Llama-2-7b-hf\n"
    )
    workload = trained(file=file)
    assert (workload.model.name, workload.model.layers, workload.model.seq) == ("meta-llama/Llama-2-7b-hf", None, 2048)


def test_a_file_that_was_not_read_is_wanted_and_settings_are_read_all_the_same() -> None:
    workload = trained("max_seq_len=512 global_train_batch_size=64", file=None)
    assert workload.missing_files == ("yamls/x.yaml",)
    assert (workload.model.seq, workload.plan.global_batch, workload.plan.tp) == (512, 64, None)
    assert "yamls/x.yaml" in why(workload, "model.layers")


def test_an_unknown_name_of_the_file_says_so() -> None:
    workload = trained(run="srun composer scripts/train/train.py yamls/$1.yaml")
    assert workload.model.layers is None
    assert why(workload, "model.layers")


@pytest.mark.parametrize(
    "run",
    [
        "srun torchrun --nproc_per_node 8 llm-foundry/scripts/train/train.py yamls/x.yaml",
        "composer --world_size 16 --node_rank 0 -v train.py yamls/x.yaml",
        "llmfoundry train yamls/x.yaml",
        "cd yamls && composer ../train.py x.yaml",
        'Y=yamls\nsrun bash -c "composer train.py $Y/x.yaml"',
    ],
)
def test_commands_are_recognised(run: str) -> None:
    assert trained(run=run).model.layers == 24


def test_composer_with_another_program_says_that_it_is_not_followed() -> None:
    workload = trained(run="srun composer my_train.py --epochs 3")
    assert (workload.framework, workload.plan.tp) == ("composer", None)
    assert "Python" in why(workload, "model.layers")


@pytest.mark.parametrize("command", ["composer install", "python train.py x.yaml", "llmfoundry eval yamls/x.yaml"])
def test_other_commands_are_left_alone(command: str) -> None:
    assert trained(run=command).model.layers is None


@pytest.mark.parametrize(
    "file", ["", "- 1\n", "model: 3\n", "model: {d_model: ${model.d_model}}\n", "\t\x01", "a: " * 99]
)
def test_damaged_files_state_nothing(file: str) -> None:
    workload = trained(file=file)
    assert (workload.model.layers, workload.model.hidden) == (None, None)
