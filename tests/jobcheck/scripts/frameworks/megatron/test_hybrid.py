"""Tests the kinds of layers that Megatron Core's flags of hybrids state."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.costmodel.sizes.parameters import total_parameters
from opsk.workload.completion import complete
from opsk.workload.model import Mixer
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=8\n"
COMMON = "--micro-batch-size 1 --global-batch-size 64 --bf16 --disable-bias-linear --normalization RMSNorm"
NEMOTRON_H = (
    "--hybrid-override-pattern M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M- --num-layers 52 --hidden-size 4096 "
    "--ffn-hidden-size 21504 --num-attention-heads 32 --group-query-attention --num-query-groups 8 --seq-length 8192 "
    "--position-embedding-type none --untie-embeddings-and-output-weights --vocab-size 131072 --squared-relu"
)
GPT = "--num-layers 8 --hidden-size 1024 --num-attention-heads 8 --seq-length 2048 --vocab-size 32000"


def trained(flags: str, program: str = "pretrain_gpt.py") -> Workload:
    """Read a script whose one command trains with these flags."""
    return read_script(f"{HEAD}srun python {program} {COMMON} {flags}\n", file="job.sh")


def test_a_pattern_states_the_layers_of_nemotron_h() -> None:
    model = trained(NEMOTRON_H, "pretrain_mamba.py").model
    assert (model.layers, model.mixer, model.mixer_layers, model.mlp_layers) == (52, Mixer.MAMBA2, 24, 24)
    # 2 x 4096 in heads of 64, 8 groups and a state of 128: Megatron's defaults
    assert (model.mixer_heads, model.mixer_head_dim, model.mixer_groups, model.mixer_state) == (128, 64, 8, 128)


def test_its_parameters_are_those_of_the_checkpoint() -> None:
    """arXiv 2504.03624: 8.1 billion."""
    shape = complete(trained(NEMOTRON_H, "pretrain_mamba.py")).model
    assert shape is not None
    assert total_parameters(shape) / 1e9 == pytest.approx(8.10, abs=0.01)


def test_stated_sizes_of_a_mixer_win() -> None:
    flags = f"{NEMOTRON_H} --mamba-num-heads 256 --mamba-state-dim 256 --mamba-head-dim 32 --mamba-num-groups 4"
    model = trained(flags, "pretrain_mamba.py").model
    assert (model.mixer_heads, model.mixer_head_dim, model.mixer_groups, model.mixer_state) == (256, 32, 4, 256)


def test_gated_deltanet_lies_in_all_but_one_layer_of_each_period() -> None:
    flags = "--experimental-attention-variant gated_delta_net --linear-attention-freq 4 --attention-output-gate"
    model = trained(f"{GPT} {flags} --linear-num-value-heads 16").model
    assert (model.mixer, model.mixer_layers, model.mixer_heads) == (Mixer.GATED_DELTANET, 6, 16)
    assert model.attention_gate is True
    pattern = "freq '([1]*7+[0])'"
    assert trained(f"{GPT} {flags.replace('freq 4', pattern)}").model.mixer_layers == 7


@pytest.mark.parametrize(
    ("flags", "window", "layers"),
    [
        ("--window-size 127,0", 128, 8),
        ("--window-size (1023,0) --window-attn-skip-freq 4", 1024, 6),
        ("--window-size 127,0 --window-attn-skip-freq ([1,0]*4)", 128, 4),
    ],
)
def test_a_window_and_its_layers_are_read(flags: str, window: int, layers: int) -> None:
    model = trained(f"{GPT} {quoted(flags)}").model
    assert (model.attention_window, model.windowed_layers) == (window, layers)


def quoted(flags: str) -> str:
    """Return flags with their values in quotes, as brackets need in a shell."""
    return " ".join(word if word.startswith("--") else f"'{word}'" for word in flags.split())


@pytest.mark.parametrize("flag", ["--hybrid-override-pattern MMXX", "--hybrid-attention-ratio 0.1"])
def test_layers_that_cannot_be_told_are_named(flag: str) -> None:
    workload = trained(f"{GPT} {flag}")
    assert "model.mixer_layers" in {entry.field for entry in workload.unknown}


@given(st.text(alphabet="M*-E|/[](),+0123456789 x", max_size=40))
def test_no_text_breaks_the_reader(text: str) -> None:
    trained(f"{GPT} --hybrid-override-pattern '{text}' --window-size '{text}' --linear-attention-freq '{text}'")
