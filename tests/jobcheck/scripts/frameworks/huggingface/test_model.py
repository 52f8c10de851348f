"""Tests the model of scripts of HuggingFace's Trainer: a shape on the command line, a public name, a folder."""

from __future__ import annotations

import pytest

from opsk.workload.completion import complete
from opsk.workload.plan import Recompute
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.frameworks.huggingface.model import find_folder_name
from opsk_jobcheck.scripts.script import read_script
from tests.fakes.workloads import evidence, why

HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n"
TRAINER = "srun torchrun --nproc_per_node 8 train.py --model_name_or_path meta-llama/Llama-3.1-8B --num_train_epochs 1"


def read(body: str, *, files: dict[str, str] | None = None) -> Workload:
    """Read a script with the usual first lines."""
    return read_script(HEAD + body, file="job.sh", files=files)


def test_a_shape_on_the_command_line_is_read() -> None:
    body = (
        "L=48\nsrun torchrun run_clm.py --model_type gpt2 --config_overrides "
        '"n_embd=4096,n_head=32,n_layer=$L,n_positions=1024,gradient_checkpointing=true" --do_train\n'
    )
    workload = read(body)
    model = workload.model
    assert (model.hidden, model.heads, model.layers, model.seq, model.ffn) == (4096, 32, 48, 1024, None)
    assert workload.plan.recompute is Recompute.FULL
    shape = complete(workload).model
    assert shape is not None
    assert (shape.ffn, shape.gated_mlp, shape.learned_positions) == (4 * 4096, False, True)


def test_own_programs_take_the_shape_as_flags() -> None:
    flags = "--model_type gpt2 --n_layer 3 --n_embd 128 --n_inner 256 --n_head $HEADS --do_train --max_steps 9"
    workload = read(f"HEADS=8\ndeepspeed my/run_clm.py {flags}\n")
    model = workload.model
    assert (model.layers, model.hidden, model.ffn, model.heads) == (3, 128, 256, 8)


def test_more_positions_than_a_block_do_not_state_the_length() -> None:
    # run_clm.py packs blocks of at most 1,024 tokens unless --block_size says otherwise
    flags = '--model_type gpt2 --config_overrides "n_positions=4096,n_layer=4"'
    assert read(f"torchrun run_clm.py {flags}\n").model.seq is None
    assert read(f"torchrun run_clm.py {flags} --block_size 4096\n").model.seq == 4096


def test_overrides_that_cannot_be_told_say_why() -> None:
    workload = read('torchrun run_clm.py --model_type gpt2 --config_overrides "n_layer=$1,n_head=16"\n')
    assert workload.model.layers is None
    assert "$1" in why(workload, "model.layers")


def test_a_public_id_is_named_and_its_shape_is_assumed() -> None:
    workload = read(f"{TRAINER} --block_size 2048 --per_device_train_batch_size 1\n")
    assert (workload.model.name, workload.model.layers) == ("meta-llama/Llama-3.1-8B", None)
    assumed = {entry.field: entry for entry in complete(workload).assumed}
    # huggingface.co/meta-llama/Llama-3.1-8B: config.json
    assert (assumed["model.layers"].value, assumed["model.kv_heads"].value) == (32, 8)
    assert "catalogue" in assumed["model.layers"].why
    assert workload.missing_files == ("train.py",)


@pytest.mark.parametrize(
    "name", ["Llama-3-8B-finetuned-v2", "me/Meta-Llama-3-8B-DPO", "/data/Llama-3-8B-dpo/checkpoint-500"]
)
def test_a_derivative_has_the_shape_of_the_model_that_it_is_named_after(name: str) -> None:
    workload = read(f"torchrun train.py --model_name_or_path {name} --num_train_epochs 1 --max_seq_length 8\n")
    assumed = {entry.field: entry for entry in complete(workload).assumed}
    assert assumed["model.layers"].value == 32
    assert "llama-3-8b in opsk's catalogue, after which" in assumed["model.layers"].why
    assert workload.missing_files == (f"{name}/config.json", "train.py")


@pytest.mark.parametrize("name", ["my-org/llama-3-70b-custom", "me/Llama-3-8B-pruned", "/data/llama-3-8b/other"])
def test_a_derivative_of_another_shape_is_not_taken_for_the_model_that_it_is_named_after(name: str) -> None:
    workload = read(f"torchrun train.py --model_name_or_path {name} --num_train_epochs 1 --max_seq_length 8\n")
    assert "model.layers" in complete(workload).missing
    assert "does not know" in why(workload, "model.layers")
    assert workload.missing_files == (f"{name}/config.json", "train.py")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/data/llama-3-8b-task/checkpoint-500", "llama-3-8b-task"),
        ("runs/llama-3-8b-task/v2/final/hf", "llama-3-8b-task"),
        ("/data/llama-3-8b/vicuna", "vicuna"),
        ("/data/llama-3-8b/runner", "runner"),
        ("/checkpoint-500", "checkpoint-500"),
    ],
)
def test_a_folder_of_a_step_is_not_the_name_of_a_model(path: str, name: str) -> None:
    assert find_folder_name(path) == name


def test_a_preset_of_an_own_program_is_named() -> None:
    workload = read("srun accelerate launch --multi_gpu own.py --model llama3-70b --lr 1\n")
    assert (workload.model.name, workload.framework) == ("llama3-70b", "accelerate")
    assert "model.layers" not in complete(workload).missing
    other = read("srun accelerate launch --multi_gpu own.py --model net5\n")
    assert (other.model.name, other.missing_files) == (None, ("own.py",))
    assert "model.layers" in complete(other).missing


def test_the_own_configuration_of_a_folder_comes_first() -> None:
    config = '{\n"model_type": "llama",\n"num_hidden_layers": 7,\n"hidden_size": 512,\n"num_attention_heads": 8}'
    command = "torchrun train.py --model_name_or_path /data/Llama-3.1-8B --num_train_epochs 1\n"
    blind = read(command)
    assert blind.missing_files == ("/data/Llama-3.1-8B/config.json", "train.py")
    assert {entry.field: entry.value for entry in complete(blind).assumed}["model.layers"] == 32
    seen = read(command, files={"/data/Llama-3.1-8B/config.json": config})
    assert (seen.model.layers, seen.model.hidden, evidence(seen, "model.layers").line) == (7, 512, 3)


def test_a_folder_with_another_name_is_no_public_model() -> None:
    workload = read("torchrun train.py --model_name_or_path /data/ckpt/step-100 --num_train_epochs 1\n")
    assert "model.layers" in complete(workload).missing


def test_a_snapshot_in_the_hub_cache_is_named_after_its_model() -> None:
    path = "/hub/models--meta-llama--Llama-3.1-8B/snapshots/0e9e39f249a16976918f6564b8830bc894c89659"
    workload = read(f"torchrun train.py --model_name_or_path {path} --num_train_epochs 1\n")
    assert workload.model.name == "meta-llama/Llama-3.1-8B"


def test_a_model_in_a_variable_that_nobody_sets_cannot_be_told() -> None:
    workload = read("torchrun train.py --model_name_or_path $MODEL --num_train_epochs 1\n")
    assert "MODEL" in why(workload, "model.layers")
