"""Small micro-batches wait for the host's launches."""

from __future__ import annotations

import numpy as np
import pytest

from opsk.costmodel.sizes.shape import build_shape
from opsk.costmodel.table import PlanTable
from opsk.costmodel.time.launches import launches_s
from opsk.costmodel.time.layer_time import layer_time
from opsk.workload.plan import Plan, Precision, Software
from tests.fakes.ideal_machine import machine, software
from tests.fakes.training_runs import gpt, shares_and_stages

EAGER = Plan(global_batch=1, software=Software.PYTORCH)


def seconds(plan: Plan, launch_factor: float = 1.0) -> tuple[float, float]:
    found = launches_s(PlanTable.of([plan]), machine(launch_factor=launch_factor))
    forward, backward = (float(np.ravel(time)[0]) for time in found)
    return forward, backward


def test_an_eager_layer_is_forty_kernels_of_nine_microseconds_and_ninety_of_six() -> None:
    assert seconds(EAGER) == (pytest.approx(360e-6), pytest.approx(540e-6))


def test_compiled_layers_have_fewer_kernels() -> None:
    plan = Plan(global_batch=1, software=Software.PYTORCH, compiled=True)
    assert seconds(plan) == (pytest.approx(65e-6), pytest.approx(140e-6))


def test_cuda_graphs_leave_the_host_out() -> None:
    assert seconds(Plan(global_batch=1, cuda_graphs=True)) == (0, 0)


def test_a_slower_host_and_casts_take_longer() -> None:
    plain = seconds(Plan(global_batch=1))[0]
    assert seconds(Plan(global_batch=1), launch_factor=2.5)[0] == pytest.approx(2.5 * plain)
    assert seconds(Plan(global_batch=1, precision=Precision.FP8))[0] == pytest.approx(2.0 * plain)


def test_a_layer_is_never_faster_than_its_launches_and_a_large_one_does_not_wait() -> None:
    for seq, waits in ((64, True), (16384, False)):
        model = gpt(layers=2, hidden=512, heads=8, vocab=512, seq=seq, flash=True)
        shares, _ = shares_and_stages(model, EAGER)
        with_host, without = (
            layer_time(
                build_shape(model), PlanTable.of([EAGER]), shares, machine(launch_factor=factor), software()
            ).plain
            for factor in (1.0, 0.0)
        )
        assert with_host.total[0] >= without.total[0]
        assert bool(with_host.total[0] == pytest.approx(900e-6)) is waits
        assert waits or with_host.total[0] == without.total[0]
