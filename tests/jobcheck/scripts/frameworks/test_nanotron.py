"""What launch scripts of nanotron and the YAML files that they name say: every rule on a small script of its own."""

from __future__ import annotations

import pytest

from opsk.workload.completion import complete
from opsk.workload.plan import Precision, Recompute, Sharding
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script
from tests.fakes.workloads import evidence, why

HEAD = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\n"
RUN = "srun torchrun --nnodes 4 --nproc_per_node 8 run_train.py --config-file conf/x.yaml\n"
FILE = """model:
  dtype: bfloat16
  model_config:
    hidden_act: silu
    hidden_size: 2048
    intermediate_size: 5632
    num_attention_heads: 16
    num_hidden_layers: 24
    num_key_value_heads: 4
    tie_word_embeddings: true
    vocab_size: 49152
optimizer:
  zero_stage: 1
parallelism:
  dp: 4
  pp: 2
  tp: 4
  tp_mode: REDUCE_SCATTER
  recompute_layer: false
tokens:
  batch_accumulation_per_replica: 8
  micro_batch_size: 3
  sequence_length: 4096
"""


def trained(file: str | None = FILE, *, run: str = RUN, place: str = "conf/x.yaml") -> Workload:
    """Read a script whose one command trains with a file."""
    return read_script(HEAD + run, file="job.sh", files={place: file} if file is not None else {})


def changed(old: str, new: str) -> Workload:
    """Read the script with a part of the file changed."""
    assert old in FILE
    return trained(FILE.replace(old, new))


def test_the_file_states_the_plan() -> None:
    plan = trained().plan
    assert (plan.tp, plan.pp, plan.dp, plan.micro_batch, plan.global_batch) == (4, 2, 4, 3, 96)
    assert (plan.sharding, plan.recompute, plan.precision) == (Sharding.ZERO1, Recompute.NONE, Precision.BF16)
    assert plan.sequence_parallel is True


def test_the_file_states_the_model() -> None:
    model = trained().model
    assert (model.layers, model.hidden, model.ffn, model.heads, model.kv_heads) == (24, 2048, 5632, 16, 4)
    assert (model.seq, model.vocab, model.tied_embeddings, model.gated_mlp) == (4096, 49152, True, True)
    assert trained().framework == "nanotron"


@pytest.mark.parametrize(
    ("old", "new", "part", "field", "value"),
    [
        ("tp_mode: REDUCE_SCATTER", "tp_mode: ALL_REDUCE", "plan", "sequence_parallel", False),
        ("tp_mode: REDUCE_SCATTER", "tp_mode: null", "plan", "sequence_parallel", None),
        ("recompute_layer: false", "recompute_layer: true", "plan", "recompute", Recompute.FULL),
        ("dtype: bfloat16", "dtype: float32", "plan", "precision", Precision.FP32),
        ("dtype: bfloat16", "dtype: int3", "plan", "precision", None),
        ("zero_stage: 1", "zero_stage: 0", "plan", "sharding", Sharding.NONE),
        ("num_key_value_heads: 4", "num_key_value_heads: null", "model", "kv_heads", None),
        ("micro_batch_size: 3", "micro_batch_size: 3.5", "plan", "micro_batch", None),
        ("micro_batch_size: 3", "micro_batch_size: 0", "plan", "global_batch", None),
        ("batch_accumulation_per_replica: 8", "batch_accumulation_per_replica: x", "plan", "global_batch", None),
        ("  dp: 4\n", "  dp: 2\n  context_parallel_size: 2\n", "plan", "cp", 2),
        ("  dp: 4\n", "  dp: 2\n  context_parallel_size: 2\n", "plan", "global_batch", 48),
        ("  dp: 4\n", "  dp: 4\n  expert_parallel_size: 2\n", "plan", "ep", 2),
        ("hidden_act: silu", "hidden_act: silu\n    moe_config:\n      num_experts: 8", "model", "experts", 8),
        ("hidden_act: silu", "moe_num_experts: 4\n    num_experts_per_tok: 1", "model", "expert_ffn", 5632),
        ("hidden_act: silu", "moe_num_experts: 1\n    num_experts_per_tok: 1", "model", "experts", None),
    ],
)
def test_settings_state_fields(old: str, new: str, part: str, field: str, value: object) -> None:
    assert getattr(getattr(changed(old, new), part), field) == value


def test_evidence_cites_the_file() -> None:
    entry = evidence(trained(), "plan.tp")
    assert (entry.file, entry.line, entry.text) == ("conf/x.yaml", 17, "tp: 4")


def test_replicas_that_contradict_the_gpus_are_a_problem() -> None:
    workload = changed("dp: 4", "dp: 16")
    assert any("DP 16" in problem.what for problem in workload.problems)


def test_a_file_that_was_not_read_is_wanted() -> None:
    workload = trained(None)
    assert workload.missing_files == ("conf/x.yaml",)
    assert workload.plan.tp is None
    assert "conf/x.yaml" in why(workload, "plan.tp")
    assert why(workload, "model.layers")


def test_a_configuration_in_python_is_not_followed() -> None:
    workload = trained(run="srun torchrun run_train.py --config-file conf/config_tiny.py\n")
    assert "Python" in why(workload, "plan.tp")
    assert workload.plan.tp is None


@pytest.mark.parametrize(
    "run",
    [
        "srun torchrun run_train.py --config-file=conf/x.yaml\n",
        'C=conf/x.yaml\nsrun bash -c "torchrun --nproc_per_node 8 /opt/nanotron/run_train.py --config-file $C"\n',
        "cd conf\nsrun torchrun ../run_train.py --config-file x.yaml\n",
        'CMD="run_train.py --config-file conf/x.yaml"\nLAUNCHER="torchrun --nnodes 4"\nsrun $LAUNCHER $CMD\n',
    ],
)
def test_the_file_is_found_however_it_is_named(run: str) -> None:
    assert trained(run=run).plan.pp == 2


def test_a_file_that_the_script_writes_is_read_with_its_variables() -> None:
    body = FILE.replace("tp: 4", "tp: $TP").replace("dp: 4", "dp: $1")
    workload = trained(None, run=f"TP=4\ncat > conf/x.yaml <<EOF\n{body}EOF\n{RUN}")
    assert workload.plan.tp == 4
    plan = complete(workload).plan
    assert plan is not None
    assert plan.dp == 4  # what the GPUs leave


def test_its_file_names_it_whatever_the_program_is_called() -> None:
    run = "srun python train_x.py --config-file conf/x.yaml\n"
    assert trained(FILE, run=run).framework == "nanotron"
    assert trained("model: {model_config: {hidden_size: 64}}\n", run=run).framework is None


@pytest.mark.parametrize("file", ["", "[1, 2]", "parallelism: 3\n", "a: &a [*a]\n", "{{{{", "parallelism: {tp: [4]}\n"])
def test_damaged_files_state_nothing(file: str) -> None:
    workload = trained(file)
    assert (workload.plan.tp, workload.model.layers) == (None, None)
