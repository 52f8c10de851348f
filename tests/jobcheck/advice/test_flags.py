"""How a change of plan is spelled for a framework, checked by reading the changed script again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.workload.completion import complete
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Recompute, Sharding
from opsk.workload.workload import Evidence, Workload
from opsk_jobcheck.advice.flags import build_flags
from opsk_jobcheck.scripts.script import read_script
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
    assert read(with_flags(script, build_flags(workload, asked, wanted)))[1] == wanted


BLOCK = f"{PLAN} --global-batch-size 128 --recompute-granularity full --recompute-method block --recompute-num-layers 2"


@pytest.mark.parametrize(
    ("flags", "change"),
    [
        (BLOCK, {"recompute_layers": 0}),
        (BLOCK, {"recompute_layers": 0, "sharding": Sharding.ZERO1}),
        (BLOCK, {"recompute_layers": 7}),
        (BLOCK, {"pp": 4, "dp": 4}),
        (BLOCK, {"vpp": 4, "recompute_layers": 8}),
        (f"{BLOCK} --num-layers-per-virtual-pipeline-stage 10", {"vpp": 1, "recompute_layers": 2}),
        (f"{BLOCK} --num-layers-per-virtual-pipeline-stage 10", {"recompute_layers": 0}),
        # two layers of a chunk of two are all of them, of a stage of forty they are not
        (f"{BLOCK} --num-layers-per-virtual-pipeline-stage 2", {"vpp": 1, "recompute_layers": 0}),
        (f"{PLAN} --global-batch-size 128", {"recompute": Recompute.FULL, "recompute_layers": 3}),
        # one chunk a stage of 40 layers, and two of a stage of 80
        (f"{PLAN} --global-batch-size 128 --num-layers-per-virtual-pipeline-stage 40", {"pp": 1, "dp": 16}),
        (f"{PLAN} --global-batch-size 128 --num-layers-per-virtual-pipeline-stage 40", {"pp": 4, "dp": 4}),
    ],
)
def test_the_changed_script_recomputes_the_wanted_layers_and_has_the_wanted_chunks(
    flags: str, change: dict[str, object]
) -> None:
    # --recompute-num-layers counts layers of each chunk (transformer_config.py of Megatron Core)
    script = megatron_script(flags)
    workload, asked = read(script)
    wanted = replace(asked, **change)  # type: ignore[arg-type]
    changed = build_flags(workload, asked, wanted)
    assert read(with_flags(script, changed))[1] == wanted


def test_deepspeed_leaves_a_stage_of_zero_that_pipelines_do_not_take() -> None:
    # one replica has nothing to share; deepspeed/runtime/pipe/engine.py asserts ZeRO below stage 2
    script = megatron_script(f"{PLAN} --global-batch-size 128 --deepspeed --zero-stage 3".replace("-size 2", "-size 1"))
    workload, asked = read(script)
    wanted = replace(asked, pp=16, dp=1, sharding=Sharding.NONE)
    changed = with_flags(script, build_flags(workload, asked, wanted))
    assert read(changed)[1] == wanted
    assert not complete(read_script(changed, file="job.sh")).problems


def test_no_change_needs_no_flags() -> None:
    workload, asked = read(megatron_script(PLAN))
    assert build_flags(workload, asked, asked) == ()


def test_selective_recompute_takes_no_method() -> None:
    # arguments.py of Megatron-LM: "assert args.recompute_method is None" for the granularity "selective"
    workload, asked = read(megatron_script(f"{PLAN} --recompute-granularity full --recompute-method uniform"))
    flags = build_flags(workload, asked, replace(asked, recompute=Recompute.SELECTIVE))
    assert flags == ("(without --recompute-method)", "--recompute-granularity selective")


def test_chunks_are_written_with_the_flag_that_every_release_takes() -> None:
    # --num-virtual-stages-per-pipeline-rank came with Core 0.11 (ef490839, February 2025), the other in February 2021
    workload, asked = read(megatron_script(f"{PLAN} --global-batch-size 128"))
    assert workload.model.layers == 80
    assert build_flags(workload, asked, replace(asked, vpp=4)) == ("--num-layers-per-virtual-pipeline-stage 10",)
    uneven = build_flags(workload, asked, replace(asked, vpp=3))
    assert uneven == ("--num-virtual-stages-per-pipeline-rank 3",)
    counted, asked = read(megatron_script(f"{PLAN} --num-virtual-stages-per-pipeline-rank 2"))
    assert build_flags(counted, asked, replace(asked, vpp=4)) == ("--num-virtual-stages-per-pipeline-rank 4",)


def test_a_fork_of_a_release_before_2_gets_flags_of_that_release() -> None:
    # "--model-parallel-size is no longer valid, use --tensor-model-parallel-size instead" since 52a5f2f2 (2020)
    flags = "--model-parallel-size 4 --batch-size 4 --global-batch-size 128"
    workload, asked = read(megatron_script(flags))
    smaller = replace(asked, tp=8, dp=asked.dp // 2, micro_batch=1, recompute=Recompute.FULL)
    assert build_flags(workload, asked, smaller) == (
        "--model-parallel-size 8",
        "--batch-size 1",
        "--checkpoint-activations",
        "(older spelling, for releases before 2.6)",
    )
    for missing in ({"sequence_parallel": True}, {"pp": 2}, {"sharding": Sharding.ZERO1}, {"vpp": 2}):
        assert build_flags(workload, asked, replace(asked, **missing)) == ()  # type: ignore[arg-type]


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
    assert build_flags(workload, asked, wanted) == (
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


def test_words_are_not_invented() -> None:
    asked = Plan(dp=8, global_batch=8)
    for framework in ("torchtitan", "pytorch-fsdp", "some-trainer", None):
        workload = Workload(framework=framework)
        assert build_flags(workload, asked, replace(asked, recompute=Recompute.FULL)) == ()
        assert build_flags(workload, asked, replace(asked, tp=2, dp=4)) == ()


ASKED = Plan(dp=8, micro_batch=4, global_batch=64, sharding=Sharding.ZERO2)
SMALLER = {"micro_batch": 1, "recompute": Recompute.FULL}
SPELLED = {
    "hf-trainer": (
        SMALLER,
        ("--per_device_train_batch_size 1", "--gradient_accumulation_steps 8", "--gradient_checkpointing true"),
    ),
    "hf-trainer+deepspeed": (
        {"sharding": Sharding.ZERO3},
        ("zero_optimization.stage: 3 in the DeepSpeed configuration",),
    ),
    "axolotl": (
        SMALLER,
        ("micro_batch_size: 1, gradient_accumulation_steps: 8, gradient_checkpointing: true in its configuration",),
    ),
    "llama-factory": (
        SMALLER,
        (
            "per_device_train_batch_size: 1, gradient_accumulation_steps: 8, disable_gradient_checkpointing: false"
            " in its configuration",
        ),
    ),
    "nanotron": (
        {"tp": 2, "dp": 4, "sequence_parallel": True},
        (
            "parallelism.tp: 2, parallelism.dp: 4, tokens.batch_accumulation_per_replica: 4,"
            " parallelism.tp_mode: REDUCE_SCATTER in its configuration",
        ),
    ),
    "gpt-neox": (
        {"pp": 2, "dp": 4},
        ("pipe_parallel_size: 2, gradient_accumulation_steps: 4 in its configuration",),
    ),
    "nemo": (
        {"tp": 2, "dp": 4, "recompute": Recompute.SELECTIVE},
        ("model.tensor_model_parallel_size=2", "model.activations_checkpoint_granularity=selective"),
    ),
    "composer": (
        SMALLER,
        ("device_train_microbatch_size: 1, fsdp_config.activation_checkpointing: true in its configuration",),
    ),
    "fms-fsdp": ({"sharding": Sharding.ZERO3}, ("--sharding_strategy fsdp",)),
}


@pytest.mark.parametrize("framework", SPELLED)
def test_each_framework_is_spelled_by_its_own_names(framework: str) -> None:
    change, flags = SPELLED[framework]
    assert build_flags(Workload(framework=framework), ASKED, replace(ASKED, **change)) == flags  # type: ignore[arg-type]


def test_a_number_is_changed_where_and_as_the_job_states_it() -> None:
    evidence = (
        Evidence(field="plan.micro_batch", value=4, file="job.sh", line=7, text="--train_batch_size=4"),
        Evidence(field="plan.tp", value=1, file="conf/a.yaml", line=3, text="tensor_parallel: 1  # one GPU"),
        Evidence(field="plan.sharding", value="zero2", file="ds.json", line=9, text='"stage": 2,'),
    )
    workload = Workload(framework="pytorch-fsdp", evidence=evidence)
    wanted = replace(ASKED, tp=2, dp=4, micro_batch=1, sharding=Sharding.ZERO3)
    assert build_flags(workload, ASKED, wanted) == (
        "--train_batch_size=1",
        "tensor_parallel: 2 in conf/a.yaml",
        '"stage": 3 in ds.json',
    )


def test_a_line_of_opsk_s_own_is_no_setting_of_the_framework() -> None:
    said = Evidence(field="plan.micro_batch", value=4, file="job.sh", line=2, text="#OPSK micro_batch=4")
    assert build_flags(Workload(framework=None, evidence=(said,)), ASKED, replace(ASKED, micro_batch=1)) == ()


def test_nemo_2_is_told_by_its_strategy() -> None:
    text = "trainer.strategy.pipeline_model_parallel_size=1"
    said = Evidence(field="plan.pp", value=1, file="job.sh", line=2, text=text)
    flags = build_flags(Workload(framework="nemo", evidence=(said,)), ASKED, replace(ASKED, tp=2, pp=2, dp=2))
    assert flags == (
        "trainer.strategy.tensor_model_parallel_size=2",
        "trainer.strategy.pipeline_model_parallel_size=2",
    )


def test_torchtitan_is_spelled_as_opsk_plan_writes_it() -> None:
    workload = read_script(megatron_script(PLAN), file="job.sh")
    model = complete(workload).model
    assert model is not None
    asked = Plan(dp=8, micro_batch=2, global_batch=64, sharding=Sharding.ZERO3)
    wanted = replace(asked, tp=2, dp=4, micro_batch=1, sequence_parallel=True, recompute=Recompute.SELECTIVE)
    flags = build_flags(Workload(framework="torchtitan"), asked, wanted, model=model)
    assert set(flags) == {
        "--parallelism.tensor_parallel_degree 2",
        "--training.local_batch_size 1",
        "--training.global_batch_size 64",
        "--activation_checkpoint.mode selective",
        "--activation_checkpoint.selective_ac_option op",
    }


OLD_TOML = """[model]
name = "llama3"
flavor = "70B"
[training]
batch_size = 8
seq_len = 8192
data_parallel_shard_degree = -1
tensor_parallel_degree = 16
"""
NEW_TOML = """[model]
name = "llama3"
flavor = "70B"
[training]
local_batch_size = 8
seq_len = 8192
[parallelism]
tensor_parallel_degree = 16  # two nodes
"""
TITAN_SCRIPT = """#!/bin/bash
#SBATCH --nodes=16
#SBATCH --gpus-per-node=8
srun torchrun --nnodes 16 --nproc_per_node 8 torchtitan/train.py --job.config_file run.toml
"""


def titan(text: str) -> tuple[Workload, Plan, ModelShape]:
    """Return what a job of torchtitan with a TOML says."""
    workload = read_script(TITAN_SCRIPT, file="job.sh", files={"run.toml": text})
    found = complete(workload)
    assert found.plan is not None
    assert found.model is not None
    return workload, found.plan, found.model


def test_a_toml_of_torchtitan_is_changed_in_its_own_words() -> None:
    # [training] had tensor_parallel_degree and batch_size; flags of later releases would be refused
    workload, asked, model = titan(OLD_TOML)
    wanted = replace(asked, tp=4, dp=32, micro_batch=2)
    flags = build_flags(workload, asked, wanted, model=model)
    assert flags == ("tensor_parallel_degree = 4, batch_size = 2 in run.toml",)


def test_a_flag_of_torchtitan_keeps_the_former_name_that_the_job_has_for_it() -> None:
    # pipelines were in [training] first; a later release's flag would be refused
    script = TITAN_SCRIPT.rstrip() + " --training.pipeline_parallel_degree 2\n"
    workload = read_script(script, file="job.sh", files={"run.toml": OLD_TOML})
    model = complete(workload).model
    assert model is not None
    assert workload.plan.pp == 2
    asked = Plan(tp=16, pp=2, dp=4, micro_batch=8, global_batch=64, sharding=Sharding.ZERO2, sequence_parallel=True)
    flags = build_flags(workload, asked, replace(asked, pp=4, dp=2), model=model)
    assert "--training.pipeline_parallel_degree 4" in flags


def test_a_changed_job_of_torchtitan_keeps_its_global_batch() -> None:
    # torchtitan computes the global batch as local batch x replicas, 1 x 32, where it is not set; the job has 8 x 8
    workload, asked, model = titan(NEW_TOML)
    wanted = replace(asked, tp=4, dp=32, micro_batch=1)
    flags = build_flags(workload, asked, wanted, model=model)
    assert asked.global_batch == 64
    assert flags == (
        "--training.global_batch_size 64",
        "tensor_parallel_degree = 4, local_batch_size = 1 in run.toml",
    )


def test_a_number_of_shards_that_torchtitan_was_told_is_changed() -> None:
    workload, asked, model = titan(NEW_TOML + "data_parallel_shard_degree = 8\n")
    wanted = replace(asked, tp=4, dp=32, micro_batch=2)
    flags = build_flags(workload, asked, wanted, model=model)
    assert flags == ("data_parallel_shard_degree = 32, tensor_parallel_degree = 4, local_batch_size = 2 in run.toml",)


COUNTED = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"


@pytest.mark.parametrize(
    "flags",
    [
        f"--num-virtual-stages-per-pipeline-rank 4 {COUNTED}",
        f"--num-layers-per-virtual-pipeline-stage 2 {COUNTED}",
        "--decoder-first-pipeline-num-layers 7 --decoder-last-pipeline-num-layers 7",
        "--pipeline-model-parallel-layout 'Et|(tt|)*14tL'",
    ],
)
@pytest.mark.parametrize(
    "change",
    [
        {"pp": 2, "dp": 32, "vpp": 1, "first_stage_layers": 0, "last_stage_layers": 0},
        {"vpp": 4, "first_stage_layers": 7, "last_stage_layers": 7},
        {"vpp": 4, "first_stage_layers": 0, "last_stage_layers": 6},
        {"vpp": 1, "first_stage_layers": 8, "last_stage_layers": 6},
    ],
)
def test_stages_that_are_laid_out_are_laid_out_again(flags: str, change: dict[str, object]) -> None:
    words = f"--num-layers 30 --pipeline-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 128 {flags}"
    script = megatron_script(words)
    workload, asked = read(script)
    model = complete(workload).model
    wanted = replace(asked, **change)  # type: ignore[arg-type]
    changed = with_flags(script, build_flags(workload, asked, wanted, model=model))
    assert read(changed)[1] == wanted
    assert not complete(read_script(changed, file="job.sh")).problems


def test_torchtitan_keeps_the_batch_that_follows_from_the_local_one() -> None:
    # without global_batch_size one step is a local batch of each of 8 replicas
    workload, asked, model = titan(NEW_TOML)
    assert asked.global_batch == 64
    flags = build_flags(workload, asked, replace(asked, micro_batch=1), model=model)
    assert any("--training.global_batch_size 64" in flag for flag in flags)
    stated, asked, model = titan(NEW_TOML.replace("seq_len", "global_batch_size = 64\nseq_len"))
    assert not any(
        "global_batch" in flag for flag in build_flags(stated, asked, replace(asked, micro_batch=1), model=model)
    )


@pytest.mark.parametrize("change", [{"pp": 4, "dp": 2}, {"pp": 4, "dp": 2, "vpp": 5, "micro_batch": 1}])
def test_torchtitan_with_a_pipeline_still_gathers_weights_for_each_pass(change: dict[str, object]) -> None:
    # parallelize.py of torchtitan: fsdp_reshard_after_forward "default" is off with a pipeline
    workload, asked, model = titan(NEW_TOML)
    wanted = replace(asked, **change)  # type: ignore[arg-type]
    flags = build_flags(workload, asked, wanted, model=model)
    assert any("--parallelism.fsdp_reshard_after_forward always" in flag for flag in flags)


def test_chunks_of_a_stage_follow_from_their_layers_where_the_named_model_has_them() -> None:
    # 80 layers of Llama-3 70B, 4 stages, 4 layers a chunk
    chunks = (
        "--parallelism.pipeline_parallel_schedule Interleaved1F1B --parallelism.pipeline_parallel_layers_per_stage 4 "
        "--parallelism.pipeline_parallel_microbatch_size 1"
    )
    script = TITAN_SCRIPT.replace("run.toml", f"run.toml --parallelism.pipeline_parallel_degree 4 {chunks}")
    plan = complete(read_script(script, file="job.sh", files={"run.toml": NEW_TOML})).plan
    assert plan is not None
    assert (plan.pp, plan.vpp) == (4, 5)
