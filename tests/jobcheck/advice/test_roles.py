"""What the advice says of jobs of several models.

The tuned examples of verl ran on the GPUs that their names say (docs/perf/device_tuning.rst, examples/tuning).
"""

from __future__ import annotations

import pytest

from opsk.hardware.catalog import cluster
from opsk.workload.advice_record import Verdict
from opsk_jobcheck.advice.advice import Advice, find_memory_guesses
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.advice.rendering.document import document, record
from opsk_jobcheck.advice.rendering.terminal import lines
from opsk_jobcheck.scripts.script import read_script

ADVISER = Adviser(cluster=cluster("superpod-h100"))
PPO = "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.rollout.name=vllm"
OFFLOAD = (
    "actor_rollout_ref.actor.fsdp_config.param_offload=True actor_rollout_ref.actor.fsdp_config.optimizer_offload=True "
    "actor_rollout_ref.ref.fsdp_config.param_offload=True actor_rollout_ref.actor.use_kl_loss=True"
)
SWIFT = "swift rlhf --rlhf_type dpo --model Qwen/Qwen2.5-7B-Instruct --torch_dtype bfloat16 --max_length 8192"


def sized(model: str, micro: int, share: float, tp: int, tokens: int = 1024, more: str = "") -> str:
    """Return a command of verl."""
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    return (
        f"{PPO} actor_rollout_ref.model.path={model} {actor}.ppo_micro_batch_size_per_gpu={micro} "
        f"{rollout}.log_prob_micro_batch_size_per_gpu={micro} {rollout}.gpu_memory_utilization={share} "
        f"{rollout}.tensor_model_parallel_size={tp} data.max_response_length={tokens} {more}"
    )


def advised(command: str, gpus: int = 8, nodes: int = 1) -> Advice:
    """Return the advice on a script of one command."""
    head = f"#!/bin/bash\n#SBATCH --nodes={nodes}\n#SBATCH --gpus-per-node={gpus}\n"
    return ADVISER.advise(read_script(f"{head}{command}\n", file="job.sh"))


@pytest.mark.parametrize(
    ("gpus", "nodes", "command"),
    [
        (2, 1, sized("Qwen/Qwen2-7B-Instruct", 16, 0.6, 2, 1536, OFFLOAD)),
        (4, 1, sized("Qwen/Qwen2.5-14B-Instruct", 16, 0.5, 4, 1536, OFFLOAD)),
        (1, 1, sized("Qwen/Qwen2.5-7B-Instruct", 16, 0.2, 1, 1024, f"{OFFLOAD} actor_rollout_ref.model.lora_rank=32")),
        (8, 4, sized("Qwen/Qwen2-72B-Instruct", 16, 0.6, 16, 512, OFFLOAD)),
        (8, 1, sized("Qwen/Qwen2-7B-Instruct", 40, 0.6, 2, 1024)),
    ],
)
def test_what_ran_is_not_called_out_of_memory(gpus: int, nodes: int, command: str) -> None:
    assert advised(command, gpus, nodes).verdict in (Verdict.FITS, Verdict.TIGHT)


# examples/train/rlhf/dpo of ms-swift: 4 x 57 GiB with all parameters, 24 GiB with adapters on one GPU
@pytest.mark.parametrize(
    ("gpus", "measured_gib", "more"),
    [
        (4, 57, "--train_type full --per_device_train_batch_size 4 --deepspeed zero3"),
        (1, 24, "--train_type lora --max_length 2048 --per_device_train_batch_size 1"),
    ],
)
def test_what_was_measured_lies_in_the_range(gpus: int, measured_gib: int, more: str) -> None:
    advice = advised(f"NPROC_PER_NODE={gpus} {SWIFT} {more}", gpus)
    assert advice.prediction is not None
    total = advice.prediction.memory.total_bytes
    assert float(total.low) < measured_gib * 2**30 < float(total.high)


def test_an_engine_and_an_optimizer_that_exceed_the_gpu_together_run_out() -> None:
    advice = advised(sized("Qwen/Qwen2.5-32B-Instruct", 1, 0.85, 4))  # 32.8 billion x 12 bytes over 8: 46 of 79 GiB
    assert advice.verdict is Verdict.OOM
    assert advice.roles is not None
    assert advice.roles.binding.phase == "generate"


@pytest.mark.parametrize(
    ("command", "setting"),
    [
        (sized("Qwen/Qwen2.5-7B-Instruct", 1, 0.85, 2), "actor_rollout_ref.rollout.gpu_memory_utilization=0."),
        (sized("Qwen/Qwen2.5-32B-Instruct", 1, 0.35, 2, 1024, OFFLOAD), "tensor_model_parallel_size=4"),
        (
            "python3 -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen2.5-7B --zero_stage 3 --bf16 "
            "--micro_train_batch_size 1 --prompt_max_len 512 --generate_max_len 512 --colocate_all_models "
            "--vllm_num_engines 8 --vllm_enable_sleep --vllm_gpu_memory_utilization 0.9 --gradient_checkpointing "
            "--advantage_estimator group_norm --init_kl_coef 0",
            "--vllm_gpu_memory_utilization 0.",
        ),
    ],
)
def test_a_setting_of_the_script_is_named_with_which_it_fits(command: str, setting: str) -> None:
    advice = advised(command)
    assert advice.verdict is not Verdict.FITS
    assert setting in " ".join(change.setting for change in advice.role_changes)
    assert setting in "\n".join(lines(advice))


def test_what_fits_needs_no_change() -> None:
    assert not advised(sized("Qwen/Qwen2.5-7B-Instruct", 1, 0.5, 2)).role_changes


def test_the_lines_name_phases_and_roles_and_say_that_it_is_an_estimate() -> None:
    text = "\n".join(lines(advised(sized("Qwen/Qwen2-7B-Instruct", 8, 0.6, 2)), "long"))
    assert "generate" in text
    assert "rollout engine" in text
    assert "an estimate from formulas" in text
    assert "TFLOP/s" not in text


def test_the_document_has_every_role_in_every_phase_and_no_time() -> None:
    found = document(advised(sized("Qwen/Qwen2-7B-Instruct", 8, 0.6, 2)))
    phases = {entry["phase"]: entry for entry in found["memory"]["roles"]}
    assert set(phases) == {"engine start", "generate", "log-probs", "update"}
    assert [entry["phase"] for entry in phases.values() if entry["decides"]] == ["generate"]
    assert found["time"]["step_s"] is None
    parts = sum(found["memory"]["components"].values())
    assert parts == pytest.approx(found["memory"]["total_bytes"]["expected"])


def test_no_such_job_is_held_or_refused_for_it() -> None:
    advice = advised(sized("Qwen/Qwen2.5-32B-Instruct", 1, 0.85, 4))
    assert "roles" in find_memory_guesses(advice)
    assert (record(advice).verdict, record(advice).step_s) == (Verdict.OOM, None)
