from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.costmodel import closed_forms as forms
from opsk.costmodel.memory.activations import (
    activation_bytes,
    checkpoint_bytes,
    kept_layer_bytes,
    scores_bytes,
    stored_layer_bytes,
)
from opsk.units import as_gib
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Precision, Recompute
from tests.fakes.training_runs import gpt, parts

SHAPES = [(6144, 64, 4), (12288, 96, 1), (20480, 128, 1), (25600, 160, 1)]
"""Hidden size, heads, micro-batch of the four models of Korthikanti et al. 2022."""


@pytest.mark.parametrize(("hidden", "heads", "micro_batch"), SHAPES)
class TestKorthikantiTable2:
    """Table 2 of Korthikanti et al. 2022, row by row: the general count gives the paper's formulas exactly."""

    def _kept(self, hidden: int, heads: int, plan: Plan) -> float:
        model = gpt(layers=4, hidden=hidden, heads=heads)
        shares, _, _ = parts(model, plan)
        return float(kept_layer_bytes(model, shares)[0])

    def test_no_parallelism(self, hidden: int, heads: int, micro_batch: int):
        shape = {"seq": 2048, "micro_batch": micro_batch, "hidden": hidden, "heads": heads}
        plan = Plan(micro_batch=micro_batch, global_batch=micro_batch)
        assert self._kept(hidden, heads, plan) == pytest.approx(forms.layer_activation_bytes(**shape), rel=1e-12)

    def test_tensor_parallel(self, hidden: int, heads: int, micro_batch: int):
        shape = {"seq": 2048, "micro_batch": micro_batch, "hidden": hidden, "heads": heads}
        plan = Plan(tp=8, micro_batch=micro_batch, global_batch=micro_batch)
        assert self._kept(hidden, heads, plan) == pytest.approx(
            forms.layer_activation_bytes_tp(**shape, tp=8), rel=1e-12
        )

    def test_tensor_and_sequence_parallel(self, hidden: int, heads: int, micro_batch: int):
        shape = {"seq": 2048, "micro_batch": micro_batch, "hidden": hidden, "heads": heads}
        plan = Plan(tp=8, sequence_parallel=True, micro_batch=micro_batch, global_batch=micro_batch)
        assert self._kept(hidden, heads, plan) == pytest.approx(
            forms.layer_activation_bytes_sp(**shape, tp=8), rel=1e-12
        )

    def test_sequence_parallel_and_selective(self, hidden: int, heads: int, micro_batch: int):
        shape = {"seq": 2048, "micro_batch": micro_batch, "hidden": hidden}
        plan = Plan(
            tp=8,
            sequence_parallel=True,
            recompute=Recompute.SELECTIVE,
            micro_batch=micro_batch,
            global_batch=micro_batch,
        )
        assert self._kept(hidden, heads, plan) == pytest.approx(
            forms.layer_activation_bytes_selective(**shape, tp=8), rel=1e-12
        )

    def test_full(self, hidden: int, heads: int, micro_batch: int):
        shape = {"seq": 2048, "micro_batch": micro_batch, "hidden": hidden}
        plan = Plan(tp=8, recompute=Recompute.FULL, micro_batch=micro_batch, global_batch=micro_batch)
        assert self._kept(hidden, heads, plan) == pytest.approx(forms.layer_activation_bytes_full(**shape), rel=1e-12)


@pytest.mark.parametrize(
    ("hidden", "heads", "layers", "plan", "figure_gib"),
    [
        (6144, 64, 48, Plan(tp=8, micro_batch=4, global_batch=4), 9.5625),
        (12288, 96, 96, Plan(tp=8, pp=8, vpp=3, global_batch=64), 12.3515625),
        (20480, 128, 105, Plan(tp=8, pp=35, vpp=3, global_batch=280), 23.076171875),
        (25600, 160, 128, Plan(tp=8, pp=64, global_batch=512), 26.5625),
    ],
    ids=["22B", "175B", "530B", "1T"],
)
def test_first_stage_of_figure_1(hidden: int, heads: int, layers: int, plan: Plan, figure_gib: float):
    # Korthikanti et al. 2022, figure 1, sp + selective. Ours adds the scores of the layer that is recomputed, and the
    # embedding's dropout mask (Megatron-LM's own estimator, which has it too: 9.79, 12.38, 23.30, 26.95 GiB)
    model = gpt(layers=layers, hidden=hidden, heads=heads)
    recomputed = replace(plan, recompute=Recompute.SELECTIVE, sequence_parallel=True)
    shares, stages, _ = parts(model, recomputed)
    recomputed_gib = as_gib(scores_bytes(model, shares)[0])
    predicted_gib = as_gib(activation_bytes(model, shares, stages)[0, 0])
    assert predicted_gib - recomputed_gib == pytest.approx(figure_gib, rel=0.025)


def test_fused_attention_keeps_statistics_instead_of_scores():
    stored = [stored_layer_bytes(model, parts(model, Plan(global_batch=1))[0])[0] for model in (
        gpt(layers=4, hidden=4096, heads=32),
        gpt(layers=4, hidden=4096, heads=32, flash=True),
    )]  # fmt: skip
    # 5 a s^2 b against 4 bytes a row and head
    assert stored[0] - stored[1] == 5 * 32 * 2048**2 - 4 * 32 * 2048


def test_grouped_query_attention_keeps_narrow_keys_and_values(llama3_8b: ModelShape):
    shares, _, _ = parts(llama3_8b, Plan(global_batch=1))
    # per token, 2 bytes each: 4 x 4096 outside, query and output 2 x 4096, key and value 2 x 1024, 3 x 14336; and the
    # fp32 statistics of 32 heads
    per_token = 2 * (4 * 4096 + 2 * 4096 + 2 * 1024 + 3 * 14336) + 4 * 32
    assert stored_layer_bytes(llama3_8b, shares)[0] == per_token * 8192


def test_context_parallelism_divides_everything(llama3_8b: ModelShape):
    one, _, _ = parts(llama3_8b, Plan(global_batch=4))
    four, _, _ = parts(llama3_8b, Plan(cp=4, global_batch=4))
    assert stored_layer_bytes(llama3_8b, four)[0] == stored_layer_bytes(llama3_8b, one)[0] / 4


def test_checkpoints_are_split_by_sequence_parallelism(gpt3: ModelShape):
    shares, _, _ = parts(gpt3, Plan(tp=8, global_batch=1), Plan(tp=8, sequence_parallel=True, global_batch=1))
    whole, split = checkpoint_bytes(gpt3, shares)
    assert split == whole / 8


def test_fp8_keeps_inputs_of_products_in_one_byte(llama3_8b: ModelShape):
    kept = [
        stored_layer_bytes(llama3_8b, parts(llama3_8b, Plan(precision=precision, global_batch=1))[0])[0]
        for precision in (Precision.BF16, Precision.FP8)
    ]
    # inputs of the projections and of the MLP (2 x 4096) and of its last matrix (14336), one byte less each
    assert kept[0] - kept[1] == (2 * 4096 + 14336) * 8192
