"""The numbers that every paper of the field prints, from our closed forms."""

from __future__ import annotations

import pytest

from opsk.costmodel import closed_forms as forms

GPT3_STEP_FLOP = 3.0073e18
"""96·B·s·l·h²(1 + s/6h + V/16lh) at B=1024, s=2048, l=96, h=12288, V=51200; the Megatron-LM papers' own arithmetic."""


def test_a_gpt3_step_of_1024_sequences_takes_3e18_flop():
    flop = forms.gpt_step_flop(global_batch=1024, seq=2048, layers=96, hidden=12288, vocab=51200)
    assert flop == pytest.approx(GPT3_STEP_FLOP, rel=1e-4)


def test_100000_such_steps_take_11156_days_on_one_a100_at_its_peak():
    # 1e5 x 3.0073e18 FLOP / 312e12 FLOP/s / 86400 s = 11,156 days, as the TITAN talk prints
    flop = forms.gpt_step_flop(global_batch=1024, seq=2048, layers=96, hidden=12288, vocab=51200)
    assert 1e5 * flop / 312e12 / forms.DAY_S == pytest.approx(11156, abs=0.5)


def test_gpt3_on_1040_gpus_takes_33_days():
    # 8 x 300e9 x 175e9 / (1040 x 140e12) = 2.8846e6 s = 33.4 days (printed as "about 34")
    time_s = forms.training_time_s(tokens=300e9, parameters=175e9, gpus=1040, flop_per_s=140e12)
    assert time_s / forms.DAY_S == pytest.approx(33.4, abs=0.05)


def test_a_7_5b_model_on_256_gpus_takes_under_6_days():
    # 8 x 300e9 x 7.5e9 / (256 x 142e12) = 4.952e5 s = 5.73 days (printed as "about 6")
    time_s = forms.training_time_s(tokens=300e9, parameters=7.5e9, gpus=256, flop_per_s=142e12)
    assert time_s / forms.DAY_S == pytest.approx(5.73, abs=0.005)


def test_states_of_175b_parameters_take_2_8_tb():
    # 16 bytes x 175e9
    assert forms.state_bytes(175e9) == 2.8e12


@pytest.mark.parametrize(
    ("layers", "hidden", "printed"),
    [(24, 2304, 1.7), (30, 3072, 3.6), (36, 4096, 7.5), (96, 12288, 174.6), (105, 20480, 529.6), (128, 25600, 1008.0)],
)
def test_parameters_of_the_megatron_models(layers: int, hidden: int, printed: float):
    # Narayanan et al. 2021, tables 1 and 2: billions of parameters, one decimal
    parameters = forms.gpt_parameters(layers=layers, hidden=hidden, vocab=51200, seq=2048)
    assert parameters / 1e9 == pytest.approx(printed, abs=0.051)


@pytest.mark.parametrize(
    ("hidden", "heads", "layers", "tp", "pp", "vpp", "micro_batch", "none_gib", "best_gib"),
    [
        # Korthikanti et al. 2022, figure 1: GiB a GPU, activations without technique, and with sp + selective
        (6144, 64, 48, 8, 1, 1, 4, 59.25, 9.5625),
        (12288, 96, 96, 8, 8, 3, 1, 66.84375, 12.3515625),
        (20480, 128, 105, 8, 35, 3, 1, 114.0234375, 23.076171875),
        (25600, 160, 128, 8, 64, 1, 1, 131.25, 26.5625),
    ],
)
def test_activations_of_figure_1(
    hidden: int, heads: int, layers: int, tp: int, pp: int, vpp: int, micro_batch: int, none_gib: float, best_gib: float
):
    # the first stage holds L/p layers of p micro-batches: L layers in all, times the interleaving factor
    factor = layers * forms.interleaving_factor(pp=pp, vpp=vpp) / 2**30
    shape = {"seq": 2048, "micro_batch": micro_batch, "hidden": hidden}
    assert forms.layer_activation_bytes_tp(**shape, heads=heads, tp=tp) * factor == pytest.approx(none_gib, rel=1e-9)
    assert forms.layer_activation_bytes_selective(**shape, tp=tp) * factor == pytest.approx(best_gib, rel=1e-9)


@pytest.mark.parametrize(
    ("hidden", "layers", "gpus", "step_s", "mfu", "hfu"),
    [
        # Korthikanti et al. 2022, table 5: batch of one sequence a GPU (22B: 4 on 8), percent of 312 TFLOP/s
        (12288, 96, 64, 13.75, 0.514, 0.528),
        (20480, 105, 280, 37.83, 0.560, 0.570),
        (25600, 128, 512, 71.49, 0.563, 0.570),
    ],
)
def test_utilisation_of_table_5(hidden: int, layers: int, gpus: int, step_s: float, mfu: float, hfu: float):
    shape = {"global_batch": gpus, "seq": 2048, "layers": layers, "hidden": hidden, "vocab": 51200}
    peak_flop = gpus * 312e12 * step_s
    assert forms.gpt_model_flop(**shape) / peak_flop == pytest.approx(mfu, abs=0.001)
    assert forms.gpt_selective_flop_as_printed(**shape) / peak_flop == pytest.approx(hfu, abs=0.001)
