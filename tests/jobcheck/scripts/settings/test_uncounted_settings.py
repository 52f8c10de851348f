"""Settings of files that decide memory: read, or named among the assumptions."""

from __future__ import annotations

import pytest

from opsk.workload.completion import complete
from opsk.workload.memory_settings import UNMODELLED
from opsk.workload.plan import Loss, Offload, Optimizer, OptimizerStep, Recompute, StateFormat, States
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script
from opsk_jobcheck.scripts.settings.config_file import read_config_file
from opsk_jobcheck.scripts.settings.findings import Findings
from opsk_jobcheck.scripts.settings.uncounted_settings import UNCOUNTED_DEEPSPEED, report_uncounted_settings
from tests.jobcheck.scripts.frameworks.test_torchtune import FILE, trained
from tests.jobcheck.scripts.settings.test_deepspeed_config import found

TITAN = "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nlocal_batch_size = 1\nseq_len = 4096\n"


def left_out(workload: Workload) -> set[str]:
    return {name.removeprefix(UNMODELLED) for name, _ in workload.options if name.startswith(UNMODELLED)}


def titan(more: str) -> Workload:
    script = (
        "#!/bin/bash\n#SBATCH --nodes=1 --gpus-per-node=8\nsrun torchrun -m torchtitan.train --job.config_file a.toml\n"
    )
    return read_script(script, file="job.sh", files={"a.toml": TITAN + more})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('{"zero_optimization": {"reduce_bucket_size": 2e8}}', ["reduce_bucket_size"]),
        ('{"zero_optimization": {"reduce_bucket_size": "auto", "sub_group_size": 1e9}}', []),
        ('{"zero_optimization": {"zero_hpz_partition_size": 8}}', ["zero_hpz_partition_size"]),
        ('{"zero_optimization": {"reduce_bucket_size": 500000000}}', []),
        ('{"zero_optimization": {"zero_quantized_weights": true}}', ["zero_quantized_weights"]),
        ('{"zero_optimization": {"zero_quantized_weights": false}}', []),
    ],
)
def test_settings_other_than_those_that_are_counted_are_named(text: str, names: list[str]) -> None:
    findings = Findings("job.sh")
    report_uncounted_settings(read_config_file(text, path="ds.json"), UNCOUNTED_DEEPSPEED, findings)
    assert [name.rpartition(".")[2] for name in findings.options] == names


def test_deepspeed_says_what_share_of_the_optimizer_moves_and_in_which_formats_states_are() -> None:
    options = found(
        {
            "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5}},
            "data_types": {"grad_accum_dtype": "fp32"},
            "bf16": {"enabled": True, "bf16_optimizer_states": True},
            "activation_checkpointing": {"cpu_checkpointing": True},
        }
    ).options
    assert (options["optimizer.offload_fraction"], options["optimizer.grad_accum"]) == ("0.5", "fp32")
    assert (options["optimizer.exp_avg"], options["activations.offload"]) == ("bf16", "cpu")


def test_torchtune_keeps_all_states_in_its_format_and_steps_in_the_backward() -> None:
    more = (
        "optimizer_in_bwd: True\ncompile: True\noptimizer:\n  _component_: bitsandbytes.optim.PagedAdamW8bit\n"
        "loss:\n  _component_: torchtune.modules.loss.CEWithChunkedOutputLoss\n"
    )
    plan = complete(trained(file=FILE + more)).plan
    assert plan is not None
    assert (plan.states, plan.optimizer_step) == (States.PURE_16BIT, OptimizerStep.IN_BACKWARD)
    assert (plan.optimizer, plan.loss, plan.compiled) == (Optimizer.PAGED_ADAM_8BIT, Loss.CHUNKED, True)


def test_torchtune_offloads_activations() -> None:
    plan = complete(trained(file=FILE + "enable_activation_offloading: True\n")).plan
    assert plan is not None
    assert plan.offload is Offload.ACTIVATIONS


def test_torchtitan_may_keep_weights_in_16_bits_and_compile() -> None:
    workload = titan("dtype = 'bfloat16'\n[compile]\nenable = true\n[optimizer]\nimplementation = 'foreach'\n")
    plan = complete(workload).plan
    assert plan is not None
    assert (plan.states, plan.compiled, plan.optimizer_step) == (States.PURE_16BIT, True, OptimizerStep.FOREACH)
    assert plan.moment_format is StateFormat.AS_STATES


def test_a_memory_budget_is_taken_as_selective_and_named() -> None:
    workload = titan("[activation_checkpoint]\nmode = 'memory_budget'\nmemory_budget = 0.5\n")
    assert workload.plan.recompute is Recompute.SELECTIVE
    assert left_out(workload) == {"activation_checkpoint.mode"}
