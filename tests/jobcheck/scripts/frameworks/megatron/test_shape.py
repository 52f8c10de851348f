"""What several flags of Megatron Core fix together: latent attention, layers without experts, biases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.frameworks.megatron.shape import MAX_MARKS, parse_layer_marks
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n"
SHAPE = "--num-layers 61 --hidden-size 7168 --num-attention-heads 128 --seq-length 4096 --num-experts 256"
LATENT = "--multi-latent-attention --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128"


def trained(flags: str) -> Workload:
    """Read a script whose one command trains with these flags."""
    return read_script(f"{HEAD}srun python pretrain_gpt.py {SHAPE} {flags}\n", file="job.sh")


def test_latent_attention_has_heads_with_a_rotary_part() -> None:
    """arXiv 2412.19437: 128 + 64 numbers of a query head, ranks 1536 and 512."""
    model = trained(f"{LATENT} --q-lora-rank 1536").model
    assert (model.head_dim, model.qk_rope_dim, model.v_head_dim) == (192, 64, 128)
    assert (model.q_lora_rank, model.kv_lora_rank) == (1536, 512)


@pytest.mark.parametrize("left_out", ["--multi-latent-attention", "--kv-lora-rank 512", "--v-head-dim 128"])
def test_half_of_latent_attention_is_not_taken_for_it(left_out: str) -> None:
    model = trained(LATENT.replace(left_out, "")).model
    assert (model.head_dim, model.kv_lora_rank) == (None, None)


@pytest.mark.parametrize(
    ("value", "dense", "between"),
    [
        ("'([0]*3+[1]*58)'", 3, False),
        ("'[1]*61'", 0, False),
        ("1", 0, False),
        # one layer in two has experts, the first of each: 31 of 61
        ("2", 30, True),
        ("'([0,1]*30+[1])'", 30, True),
    ],
)
def test_a_pattern_says_how_many_layers_have_no_experts(value: str, dense: int, between: bool) -> None:
    model = trained(f"--moe-layer-freq {value}").model
    assert (model.dense_layers, model.dense_interleaved) == (dense, between)


@pytest.mark.parametrize(
    "value", ["'[0]*3+[1]*5'", "'__import__(1)'", "'[2]*61'", "'[1]*61*99999'", "'(((('", "'[1'", "0"]
)
def test_a_pattern_that_is_none_is_told(value: str) -> None:
    workload = trained(f"--moe-layer-freq {value}")
    assert workload.model.dense_layers is None
    assert any(entry.field == "model.dense_layers" for entry in workload.unknown)


@given(st.text("[](),+*019 ", max_size=60))
def test_no_pattern_breaks_the_reader(text: str) -> None:
    marks = parse_layer_marks(text, 61)
    assert marks is None or len(marks) <= MAX_MARKS
    try:
        told = eval(text) if marks is not None and not text.strip().isdigit() else None
    except (SyntaxError, TypeError):
        told = None
    if told is not None:
        assert [int(mark) for mark in marks or ()] == told


def test_biases_into_attention_alone() -> None:
    model = trained("--disable-bias-linear --add-qkv-bias").model
    assert (model.qkv_bias, model.output_bias, model.mlp_bias) == (True, False, False)
    assert trained("--disable-bias-linear").model.qkv_bias is None


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        ("--moe-router-enable-expert-bias", "router_bias", True),
        ("--qk-layernorm", "qk_norm", True),
        ("--attention-backend unfused", "flash_attention", False),
        ("--attention-backend flash", "flash_attention", True),
    ],
)
def test_details_of_the_model(flags: str, field: str, value: bool) -> None:
    assert getattr(trained(flags).model, field) is value
