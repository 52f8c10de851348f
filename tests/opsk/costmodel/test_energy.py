from __future__ import annotations

import pytest

from opsk.costmodel.energy import IDLE_FRACTION
from opsk.costmodel.predict import predict
from opsk.costmodel.table import PlanTable
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan


def test_energy_is_power_times_time_times_gpus(gpt3: ModelShape, cluster: ClusterSpec):
    table = predict(gpt3, PlanTable.of([Plan(tp=8, pp=8, global_batch=64)]), cluster)
    energy, step_s = table.energy, table.time.step_s.expected[0]
    assert energy.step_j.expected[0] == pytest.approx(64 * energy.gpu_w[0] * step_s)
    assert energy.j_per_token.expected[0] == pytest.approx(energy.step_j.expected[0] / (64 * 2048))


def test_power_lies_between_idle_and_the_board_limit(gpt3: ModelShape, cluster: ClusterSpec):
    plans = PlanTable.of([Plan(tp=8, pp=8, global_batch=8), Plan(tp=8, pp=8, global_batch=512)])
    starved, busy = predict(gpt3, plans, cluster).energy.gpu_w
    # the first plan waits in the bubble for half of the step
    assert IDLE_FRACTION * 400 < starved < busy < 400
