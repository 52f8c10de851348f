"""How a change of plan is spelled for a framework, checked by reading the changed script again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.workload.completion import complete
from opsk.workload.plan import Plan, Recompute, Sharding
from opsk.workload.workload import Workload
from opsk_jobcheck.flags import flags_for
from opsk_jobcheck.readers.script import read_script
from tests.fakes.launch_scripts import megatron_script, with_flags

PLAN = "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --micro-batch-size 2"


def read(script: str) -> tuple[Workload, Plan]:
    """Return what a script says, and its complete plan."""
    workload = read_script(script, file="job.sh")
    plan = complete(workload).plan
    assert plan is not None
    return workload, plan


CHANGES = {
    "tp": {"tp": 8, "dp": 4, "sequence_parallel": True},
    "pp": {"pp": 4, "dp": 4},
    "micro_batch": {"micro_batch": 1},
    "sharding": {"sharding": Sharding.ZERO1},
    "sequence_parallel": {"sequence_parallel": True},
    "recompute_full": {"recompute": Recompute.FULL},
    "recompute_selective": {"recompute": Recompute.SELECTIVE},
    "no_recompute": {"recompute": Recompute.NONE},
    "vpp": {"vpp": 4},
    "no_vpp": {"vpp": 1},
    "several": {"tp": 8, "pp": 4, "dp": 2, "micro_batch": 1, "vpp": 2, "recompute": Recompute.FULL},
}
SCRIPTS = {
    "plain": f"{PLAN} --global-batch-size 128",
    "no global batch": PLAN,
    "chunks": f"{PLAN} --global-batch-size 128 --num-layers-per-virtual-pipeline-stage 10",
    "interleaved": f"{PLAN} --global-batch-size 128 --num-virtual-stages-per-pipeline-rank 2",
    "recomputes": f"{PLAN} --global-batch-size 128 --recompute-activations",
    "recomputes fully": f"{PLAN} --global-batch-size 128 --recompute-granularity full --recompute-method block",
    "deepspeed": f"{PLAN} --global-batch-size 128 --deepspeed",
    "deepspeed recomputes": f"{PLAN} --global-batch-size 128 --deepspeed --checkpoint-activations",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("flags", SCRIPTS.values(), ids=SCRIPTS)
def test_the_changed_script_has_the_wanted_plan(flags: str, change: dict[str, object]) -> None:
    script = megatron_script(flags)
    workload, asked = read(script)
    wanted = replace(asked, **change)  # type: ignore[arg-type]
    assert read(with_flags(script, flags_for(workload, asked, wanted)))[1] == wanted


def test_no_change_needs_no_flags() -> None:
    workload, asked = read(megatron_script(PLAN))
    assert flags_for(workload, asked, asked) == ()


def test_selective_recompute_takes_no_method() -> None:
    # arguments.py of Megatron-LM: "assert args.recompute_method is None" for the granularity "selective"
    workload, asked = read(megatron_script(f"{PLAN} --recompute-granularity full --recompute-method uniform"))
    flags = flags_for(workload, asked, replace(asked, recompute=Recompute.SELECTIVE))
    assert flags == ("(without --recompute-method)", "--recompute-granularity selective")


def test_bridge_overrides_are_spelled_with_their_sections() -> None:
    workload = Workload(framework="megatron-bridge")
    asked = Plan(tp=1, pp=1, dp=8, micro_batch=2, global_batch=64)
    wanted = replace(
        asked,
        tp=2,
        pp=2,
        dp=2,
        vpp=2,
        micro_batch=1,
        sequence_parallel=True,
        recompute=Recompute.FULL,
        sharding=Sharding.ZERO1,
    )
    assert flags_for(workload, asked, wanted) == (
        "model.tensor_model_parallel_size=2",
        "model.pipeline_model_parallel_size=2",
        "train.micro_batch_size=1",
        "model.virtual_pipeline_model_parallel_size=2",
        "train.global_batch_size=64",
        "model.sequence_parallel=true",
        "ddp.use_distributed_optimizer=true",
        "model.recompute_granularity=full",
        "model.recompute_method=uniform",
        "model.recompute_num_layers=1",
    )


def test_words_of_other_frameworks_are_not_invented() -> None:
    asked = Plan(dp=8, global_batch=8)
    assert flags_for(Workload(framework="torchtitan"), asked, replace(asked, recompute=Recompute.FULL)) == ()
    assert flags_for(Workload(framework=None), asked, replace(asked, recompute=Recompute.FULL)) == ()
