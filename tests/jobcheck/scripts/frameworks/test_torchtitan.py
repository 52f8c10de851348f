"""What launch scripts of torchtitan and the files that they name say: every rule on a small script of its own."""

from __future__ import annotations

import pytest

from opsk.workload.plan import Precision, Recompute, Sharding
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script
from tests.fakes.workloads import evidence, why

HEAD = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\n"
RUN = "srun torchrun --nnodes 4 --nproc_per_node 8 -m torchtitan.train --job.config_file conf/x.toml"
FILE = """[model]
name = "llama3"
flavor = "70B"
[training]
local_batch_size = 2
seq_len = 4096
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 4
pipeline_parallel_degree = 1
context_parallel_degree = 1
[activation_checkpoint]
mode = "full"
"""


def read(body: str, *, file: str | None = FILE, place: str = "conf/x.toml") -> Workload:
    """Read a script with the usual first lines, and the file that it names."""
    return read_script(HEAD + body, file="job.sh", files={place: file} if file is not None else {})


def trained(flags: str = "", *, file: str | None = FILE) -> Workload:
    """Read a script whose one command trains with a file and these flags."""
    return read(f"{RUN} {flags}\n", file=file)


def changed(old: str, new: str) -> str:
    """Return the file with one line changed."""
    assert old in FILE
    return FILE.replace(old, new)


def test_the_file_states_the_plan() -> None:
    plan = trained().plan
    assert (plan.tp, plan.pp, plan.cp, plan.dp) == (4, 1, 1, 8)
    assert (plan.micro_batch, plan.global_batch) == (2, 16)
    assert (plan.sharding, plan.recompute) == (Sharding.ZERO3, Recompute.FULL)
    assert plan.sequence_parallel is True


def test_the_file_states_the_sequence_and_names_the_model() -> None:
    model = trained().model
    assert (model.seq, model.name, model.layers) == (4096, "llama-3-70b", None)


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        ("--parallelism.tensor_parallel_degree 8", "tp", 8),
        ("--parallelism.tensor_parallel_degree=8", "tp", 8),
        ("--parallelism.tensor-parallel-degree 8", "tp", 8),
        ("--training.tensor_parallel_degree 8", "tp", 4),
        ("--parallelism.tensor_parallel_degree 8", "dp", 4),
        ("--parallelism.context_parallel_degree 2", "dp", 4),
        ("--parallelism.data_parallel_shard_degree 8", "dp", 8),
        ("--parallelism.data_parallel_shard_degree 1", "sharding", Sharding.NONE),
        ("--parallelism.fsdp_reshard_after_forward never", "sharding", Sharding.ZERO2),
        ("--parallelism.pipeline_parallel_degree 2", "sharding", Sharding.ZERO2),
        ("--parallelism.expert_parallel_degree 4", "ep", 4),
        ("--training.local_batch_size 1", "global_batch", 8),
        ("--training.global_batch_size 64", "global_batch", 64),
        ("--training.global_batch_size -1", "global_batch", 16),
        ("--parallelism.pipeline_parallel_degree 2", "micro_batch", None),
        (
            "--parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_microbatch_size 1",
            "micro_batch",
            1,
        ),
        (
            "--parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_microbatch_size 1",
            "global_batch",
            8,
        ),
        ("--parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_schedule 1F1B", "vpp", 1),
        (
            "--parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_schedule Interleaved1F1B",
            "vpp",
            None,
        ),
        ("--activation_checkpoint.mode none", "recompute", Recompute.NONE),
        ("--activation_checkpoint.mode selective", "recompute", Recompute.SELECTIVE),
        ("--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option 2", "recompute", None),
        ("--training.mixed_precision_param float32", "precision", Precision.FP32),
        ("--training.mixed_precision_param bfloat16", "precision", Precision.BF16),
        ("--training.dtype bfloat16", "precision", Precision.BF16),
        ("--model.converters float8", "precision", Precision.FP8),
        ("--model.converters quantize.linear.mx", "precision", Precision.MXFP8),
        ("--float8.enable_float8_linear", "precision", Precision.FP8),
        ("", "precision", None),
    ],
)
def test_flags_beat_the_file(flags: str, field: str, value: object) -> None:
    assert getattr(trained(flags).plan, field) == value


def test_names_of_2024_are_read() -> None:
    file = (
        "[model]\nname = 'llama2'\nflavor = '7B'\n[training]\nbatch_size = 4\nseq_len = 2048\n"
        "data_parallel_degree = -1\ntensor_parallel_degree = 2\n[experimental]\npipeline_parallel_degree = 1\n"
    )
    workload = trained(file=file)
    assert (workload.plan.tp, workload.plan.pp, workload.plan.dp) == (2, 1, 16)
    assert (workload.plan.global_batch, workload.model.name) == (64, "llama-2-7b")


def test_copies_of_shards_multiply() -> None:
    file = changed("replicate_degree = 1", "replicate_degree = 2").replace("shard_degree = -1", "shard_degree = 4")
    workload = trained(file=file)
    assert workload.plan.dp == 8
    assert ("optimizer.instances", "2") in workload.options


def test_degrees_that_contradict_the_gpus_are_a_problem() -> None:
    workload = trained(file=changed("shard_degree = -1", "shard_degree = 32"))
    assert any("DP 32" in problem.what for problem in workload.problems)


def test_evidence_cites_the_file_that_was_read() -> None:
    entry = evidence(trained(), "plan.tp")
    assert (entry.file, entry.line, entry.text) == ("conf/x.toml", 10, "tensor_parallel_degree = 4")


def test_a_file_that_was_not_read_is_wanted_and_leaves_all_open() -> None:
    workload = trained(file=None)
    assert workload.missing_files == ("conf/x.toml",)
    assert (workload.plan.tp, workload.plan.dp, workload.plan.micro_batch) == (None, None, None)
    assert "conf/x.toml" in why(workload, "plan.tp")
    assert workload.framework == "torchtitan"


def test_flags_are_read_though_the_file_was_not() -> None:
    workload = trained("--parallelism.tensor_parallel_degree 8 --training.seq_len 512", file=None)
    assert (workload.plan.tp, workload.model.seq) == (8, 512)
    assert workload.plan.dp is None


def test_a_local_batch_without_the_pipeline_is_no_micro_batch() -> None:
    workload = trained("--training.local_batch_size 4", file=None)
    assert workload.plan.micro_batch is None
    assert "pipeline" in why(workload, "plan.micro_batch")


def test_a_file_that_the_script_writes_is_read() -> None:
    body = f"cat > conf/x.toml <<EOF\n{FILE}EOF\n{RUN}\n"
    assert read(body, file=None).plan.dp == 8


def test_a_variable_names_the_file() -> None:
    body = f"CONFIG_FILE=${{CONFIG_FILE:-conf/x.toml}}\n{RUN.replace('conf/x.toml', '${CONFIG_FILE}')}\n"
    assert read(body).plan.tp == 4


def test_a_file_that_is_given_when_the_job_starts_cannot_be_told() -> None:
    workload = read(f"{RUN.replace('conf/x.toml', '$1')}\n")
    assert workload.plan.tp is None
    assert why(workload, "plan.tp")


@pytest.mark.parametrize(
    "command",
    [
        "srun torchrun --nproc_per_node 8 ./train.py --job.config_file conf/x.toml",
        "srun torchrun --nproc_per_node 8 ./torchtitan/train.py --job.config-file=conf/x.toml",
        "srun bash run_train.sh --job.config_file conf/x.toml",
        "srun python -m torchtitan.experiments.x.train --job.config_file conf/x.toml",
        "export CONFIG_FILE=conf/x.toml\nsrun ./torchtitan/run_train.sh",
    ],
)
def test_programs_are_recognised(command: str) -> None:
    workload = read(command + "\n")
    assert (workload.framework, workload.plan.tp) == ("torchtitan", 4)


def test_settings_from_python_cannot_be_told_but_the_model_can() -> None:
    workload = read("srun torchrun -m torchtitan.train --module llama3 --config llama3_8b --training.seq_len 64\n")
    assert (workload.model.name, workload.model.seq, workload.plan.tp) == ("llama-3-8b", 64, None)
    assert "Python" in why(workload, "plan.tp")


@pytest.mark.parametrize("flavour", ["debugmodel", "3B", "8B_flex", "$X"])
def test_flavours_of_its_own_are_no_public_model(flavour: str) -> None:
    workload = trained(f"--model.flavor {flavour}")
    assert workload.model.name is None
    assert why(workload, "model.layers")


@pytest.mark.parametrize(
    "file", ["[[[[", "a = 1\na = 2\n", "\x00", "parallelism = 3\n", "[parallelism]\ntensor_parallel_degree = 'x'\n"]
)
def test_damaged_files_state_nothing(file: str) -> None:
    workload = trained(file=file)
    assert (workload.framework, workload.plan.tp, workload.plan.dp) == ("torchtitan", None, None)
