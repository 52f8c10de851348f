"""Korthikanti et al. 2022 (arXiv 2205.05198) by the whole model: the memory of figure 1 and the rates of table 5.

The paper's memory is computed, not measured: states 18 B x 12 l h^2 / N of the mean GPU, activations of the layers
alone. The model counts the first stage with its embedding, so it must lie above, by what embedding and head are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from opsk.costmodel.predict import predict
from opsk.costmodel.table import PlanTable, PredictionTable
from opsk.hardware.spec import ClusterSpec
from opsk.units import GIB
from opsk.workload.plan import Plan, Precision, Recompute, Software
from tests.fakes.training_runs import a100_cluster, gpt


def _selene() -> ClusterSpec:
    """Return nodes of eight A100 whose efficiencies are those fitted to their generation."""
    cluster = a100_cluster()
    gpu = replace(cluster.node.gpu, architecture="ampere")
    return replace(cluster, node=replace(cluster.node, gpu=gpu))


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A row of table 5, with figure 1's GiB a GPU where the figure has it."""

    layers: int
    hidden: int
    heads: int
    pp: int = 1
    vpp: int = 1
    dp: int = 1
    micro_batch: int = 1
    batch: int
    full_s: float = 0.0
    selective_s: float
    states_gib: float = 0.0
    plain_gib: float = 0.0
    selective_gib: float = 0.0

    def predict(self, recompute: Recompute) -> PredictionTable:
        """Return the prediction with tp 8, and sequence parallelism where recomputation is selective."""
        plan = Plan(
            tp=8,
            pp=self.pp,
            vpp=self.vpp,
            dp=self.dp,
            micro_batch=self.micro_batch,
            global_batch=self.batch,
            recompute=recompute,
            sequence_parallel=recompute is Recompute.SELECTIVE,
            precision=Precision.FP16,
            software=Software.MEGATRON,
        )
        model = gpt(layers=self.layers, hidden=self.hidden, heads=self.heads)
        return predict(model, PlanTable.of([plan]), _selene())


GPT_22B = Setting(
    layers=48, hidden=6144, heads=64, micro_batch=4, batch=4, full_s=1.42, selective_s=1.10,
    states_gib=45.5625, plain_gib=59.25, selective_gib=9.5625,
)  # fmt: skip
GPT_175B = Setting(
    layers=96, hidden=12288, heads=96, pp=8, vpp=3, batch=64, full_s=18.13, selective_s=13.75,
    states_gib=45.5625, plain_gib=66.84375, selective_gib=12.3515625,
)  # fmt: skip
GPT_530B = Setting(
    layers=105, hidden=20480, heads=128, pp=35, vpp=3, batch=280, full_s=49.05, selective_s=37.83,
    states_gib=31.640625, plain_gib=114.0234375, selective_gib=23.076171875,
)  # fmt: skip
GPT_1T = Setting(
    layers=128, hidden=25600, heads=160, pp=64, batch=512, full_s=94.42, selective_s=71.49,
    states_gib=32.958984375, plain_gib=131.25, selective_gib=26.5625,
)  # fmt: skip
GPT_530B_ON_2240 = Setting(layers=105, hidden=20480, heads=128, pp=35, vpp=3, dp=8, batch=2240, selective_s=39.1)
"""The time is derived from the printed MFU of 54.2 %."""
FIGURE_1 = pytest.mark.parametrize("setting", [GPT_22B, GPT_175B, GPT_530B, GPT_1T], ids=["22B", "175B", "530B", "1T"])


@FIGURE_1
def test_states_are_those_of_figure_1_and_the_embedding(setting: Setting):
    components = setting.predict(Recompute.NONE).memory.components
    states_gib = sum(components[name][0] for name in ("weights", "gradients", "optimizer")) / GIB
    embedding_gib = 18 * (51200 + 2048) / 8 * setting.hidden / GIB
    # plus biases and norms (13 of 12 h), and positions, which are not split over tp
    assert setting.states_gib < states_gib < setting.states_gib + 1.05 * embedding_gib + 0.7


@FIGURE_1
def test_activations_are_those_of_figure_1_and_the_ends(setting: Setting):
    plain = setting.predict(Recompute.NONE).memory.components["activations"][0] / GIB
    selective = setting.predict(Recompute.SELECTIVE).memory.components["activations"][0] / GIB
    # embedding dropout, and what is at work at the moment of the peak: at most 10 % with little else, 3 % with much
    assert setting.plain_gib < plain < 1.03 * setting.plain_gib
    assert setting.selective_gib < selective < 1.10 * setting.selective_gib


@pytest.mark.parametrize(
    "setting", [GPT_22B, GPT_175B, GPT_530B, GPT_530B_ON_2240, GPT_1T], ids=["22B", "175B", "530B", "530B-2240", "1T"]
)
def test_figure_7_of_the_rail_only_paper_and_better(setting: Setting):
    # its model misses the measured HFU, which goes as one over time, by 1.8 % (1T) to 10.8 % (22B). Ours, with rates
    # from kernels and no weight on these runs: 3 to 11 % too slow, the 1T most (docs/adr/0017-rates-from-kernels.md)
    time_s = setting.predict(Recompute.SELECTIVE).time.step_s.expected[0]
    assert time_s == pytest.approx(setting.selective_s, rel=0.11)


@FIGURE_1
def test_table_5_with_full_recomputation(setting: Setting):
    # ours: 4 to 10.4 % above; held: 11 %
    assert setting.predict(Recompute.FULL).time.step_s.expected[0] == pytest.approx(setting.full_s, rel=0.11)


@FIGURE_1
def test_full_recomputation_costs_the_third_that_table_5_shows(setting: Setting):
    # measured: 29 to 32 % more time than selective recomputation with sequence parallelism; ours 32 to 34 %, held: 4 %
    slow, fast = (
        setting.predict(recompute).time.step_s.expected[0] for recompute in (Recompute.FULL, Recompute.SELECTIVE)
    )
    assert slow / fast == pytest.approx(setting.full_s / setting.selective_s, rel=0.04)
