"""NeMo's launch scripts: Hydra's file and overrides (NeMo 1), recipes (NeMo 2)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from opsk.workload.plan import Precision, Recompute, Sharding
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=4 --gpus-per-node=8 --ntasks-per-node=8\n"
PROGRAM = "srun python3 -u /opt/NeMo/examples/nlp/language_modeling/megatron_gpt_pretraining.py"
CONFIG = """
trainer:
  num_nodes: 4
  precision: bf16-mixed
model:
  micro_batch_size: 2
  global_batch_size: 128
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: null
  encoder_seq_length: 4096
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 11008
  num_attention_heads: 32
  activation: fast-swiglu
  share_embeddings_and_output_weights: false
  sequence_parallel: true
  activations_checkpoint_granularity: selective
  data:
    seq_length: ${model.encoder_seq_length}
  optim:
    name: distributed_fused_adam
"""


def read(script: str, files: Mapping[str, str] | None = None) -> Workload:
    return read_script(HEAD + script + "\n", file="job.sh", files=files or {})


NAMED = f"{PROGRAM} --config-path=/cfg --config-name=llama.yaml"


def test_the_file_is_wanted_and_read() -> None:
    assert read(NAMED).missing_files == ("/cfg/llama.yaml",)
    workload = read(NAMED, {"/cfg/llama.yaml": CONFIG})
    model, plan = workload.model, workload.plan
    assert workload.framework == "nemo"
    assert (model.layers, model.hidden, model.ffn, model.heads, model.seq) == (32, 4096, 11008, 32, 4096)
    assert (model.gated_mlp, model.tied_embeddings) == (True, False)
    assert (plan.tp, plan.pp, plan.vpp, plan.dp) == (4, 2, None, 4)
    assert (plan.micro_batch, plan.global_batch, plan.sequence_parallel) == (2, 128, True)
    assert (plan.precision, plan.recompute, plan.sharding) == (Precision.BF16, Recompute.SELECTIVE, Sharding.ZERO1)
    sources = {entry.field: (entry.file, entry.line, entry.text) for entry in workload.evidence}
    assert sources["plan.tp"] == ("/cfg/llama.yaml", 8, "tensor_model_parallel_size: 4")


@pytest.mark.parametrize("name", ["llama", "llama.yaml"])
def test_the_suffix_may_be_left_out(name: str) -> None:
    command = f"{PROGRAM} --config-path /cfg --config-name {name}"
    assert read(command, {"/cfg/llama.yaml": CONFIG}).model.layers == 32


def test_an_override_beats_the_file() -> None:
    command = f"{NAMED} model.tensor_model_parallel_size=8 ++model.num_layers=48"
    workload = read(command, {"/cfg/llama.yaml": CONFIG})
    assert (workload.plan.tp, workload.model.layers, workload.model.hidden) == (8, 48, 4096)


def test_without_the_file_only_overrides_are_told() -> None:
    workload = read(f"{NAMED} model.micro_batch_size=1 model.tensor_model_parallel_size=8")
    assert (workload.plan.micro_batch, workload.plan.tp, workload.model.layers, workload.plan.pp) == (1, 8, None, None)
    assert workload.framework == "nemo"
    reasons = {entry.field: entry.why for entry in workload.unknown}
    assert "/cfg/llama.yaml, which opsk has not read" in reasons["model.layers"]
    assert "plan.pp" in reasons


def test_a_file_beside_the_program_is_not_looked_for() -> None:
    workload = read(f"{PROGRAM} --config-path=conf --config-name=llama")
    assert workload.missing_files == ()
    assert workload.plan.tp is None


def test_a_file_that_is_composed_of_others_says_nothing() -> None:
    workload = read(NAMED, {"/cfg/llama.yaml": "defaults:\n- base\n" + CONFIG})
    assert workload.plan.tp is None
    assert any("composed" in entry.why for entry in workload.unknown)


def test_a_width_that_hydra_computes_is_left_open() -> None:
    computed = CONFIG.replace("ffn_hidden_size: 11008", "ffn_hidden_size: ${multiply:4, ${.hidden_size}}")
    workload = read(NAMED, {"/cfg/llama.yaml": computed})
    assert workload.model.ffn is None
    assert workload.model.hidden == 4096


def test_a_file_that_the_job_writes_is_read() -> None:
    script = f"mkdir -p /cfg\ncat > /cfg/llama.yaml <<EOF{CONFIG}EOF\n{NAMED}"
    assert read(script).model.layers == 32


def test_overrides_in_a_variable_and_under_a_profiler_are_read() -> None:
    arguments = "model.micro_batch_size=4 model.pipeline_model_parallel_size=1"
    script = f'ARGS="{arguments}"\nsrun nsys profile -o x {PROGRAM[5:]} $ARGS'
    assert (read(script).plan.micro_batch, read(script).plan.pp) == (4, 1)


def test_a_recipe_names_the_model_and_decides_the_rest() -> None:
    workload = read("srun nemo llm pretrain --factory llama3_8b trainer.strategy.tensor_model_parallel_size=2")
    assert workload.framework == "nemo"
    assert (workload.plan.tp, workload.plan.pp, workload.model.layers) == (2, 1, None)
    assert workload.model.name == "llama3_8b"
    # nemo/collections/llm/recipes/llama3_8b.py of NeMo 2.0 to 2.5
    assert (workload.plan.cp, workload.plan.micro_batch, workload.plan.global_batch, workload.model.seq) == (
        *(2, 1, 512),
        8192,
    )


def test_a_recipe_that_opsk_does_not_know_decides_the_rest() -> None:
    workload = read("srun nemo llm pretrain --factory my_llama trainer.strategy.tensor_model_parallel_size=2")
    reasons = {entry.field: entry.why for entry in workload.unknown}
    assert "recipe my_llama decides it" in reasons["plan.pp"]


def test_arguments_of_a_recipe_are_no_part_of_its_name() -> None:
    workload = read('nemo llm pretrain --factory "llama3_70b(num_nodes=128)" data.global_batch_size=512')
    assert (workload.model.name, workload.plan.global_batch) == ("llama3_70b", 512)


def test_fine_tuning_may_train_a_part_only() -> None:
    workload = read("nemo llm finetune --factory llama3_8b")
    assert dict(workload.options)["trainable"].startswith("unknown")


@pytest.mark.parametrize(
    "config", ["model: [", "{", "model: *x", "a: &a [*a]\nmodel: *a", "!!python/object:os.x {}", "\0"]
)
def test_a_hostile_file_says_nothing(config: str) -> None:
    assert read(NAMED, {"/cfg/llama.yaml": config}).model.layers is None


def test_bridge_recipes_decide_what_is_not_on_the_command_line() -> None:
    command = "torchrun /opt/Megatron-Bridge/scripts/training/run_recipe.py --recipe llama3_70b_pretrain_config"
    workload = read(f"{command} train.micro_batch_size=1")
    assert workload.framework == "megatron-bridge"
    assert (workload.model.name, workload.plan.micro_batch, workload.plan.tp) == ("llama3_70b", 1, None)
    assert "in Python" in {entry.field: entry.why for entry in workload.unknown}["plan.tp"]
    assert "trainable" in dict(read(f"{command.replace('_pretrain', '_peft')}").options)


def test_a_program_of_any_name_with_nemos_overrides_is_nemos() -> None:
    overrides = "trainer.devices=8 trainer.num_nodes=4 model.micro_batch_size=256 model.tensor_model_parallel_size=2"
    workload = read_script(f"#!/bin/bash\nsrun python3 pretrain.py {overrides}\n", file="job.sh")
    assert (workload.framework, workload.plan.micro_batch, workload.plan.tp) == ("nemo", 256, 2)
    assert workload.plan.pp is None


def test_flags_as_bionemo_takes_them() -> None:
    flags = "--num-layers 33 --hidden-size 1280 --num-attention-head 20 --max-seq-length 1024"
    flags += " --micro-batch-size 2 --precision=bf16-mixed"
    workload = read_script(f"#!/bin/bash\nsrun python3 /opt/bionemo2/train_esm2.py {flags}\n", file="job.sh")
    assert (workload.framework, workload.model.heads, workload.model.seq) == ("bionemo", 20, 1024)
    assert str(workload.plan.precision) == "bf16"
