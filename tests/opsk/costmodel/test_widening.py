"""Which assumed fields widen which range, and by how much."""

from __future__ import annotations

import pytest

from opsk.costmodel.efficiency import Efficiency, Spread
from opsk.costmodel.widening import assumed_inputs, widened, with_assumed
from opsk.workload.plan import Software

SPREAD = Spread(time_log_sigma=0.1, time_assumed_log_sigma=0.3, memory_log_sigma=0.05, memory_assumed_log_sigma=0.2)
MEASURED = Efficiency(spread=SPREAD, fitted=frozenset({("hopper", "megatron-core")}))
ON = {"architecture": "hopper", "software": Software.MEGATRON_CORE}


def test_what_is_stated_keeps_its_spread() -> None:
    assert widened(SPREAD, time_inputs=0, memory_inputs=0) == SPREAD


def test_three_assumed_inputs_are_the_spread_of_rows_with_assumed_inputs() -> None:
    found = widened(SPREAD, time_inputs=3, memory_inputs=3)
    assert (found.time_log_sigma, found.memory_log_sigma) == (pytest.approx(0.3), pytest.approx(0.2))


def test_half_of_what_is_added_comes_with_the_first() -> None:
    # shares of the added variance 0.3^2 - 0.1^2 = 0.08: 2/3 with one input, 5/6 with two
    for inputs, share in ((1, 2 / 3), (2, 5 / 6)):
        found = widened(SPREAD, time_inputs=inputs, memory_inputs=0)
        assert found.time_log_sigma == pytest.approx((0.01 + share * 0.08) ** 0.5)
        assert found.memory_log_sigma == pytest.approx(0.05)


def test_only_inputs_that_decide_are_counted() -> None:
    fields = ["plan.recompute", "plan.vpp", "plan.states", "cluster.nic_gbps", "model.vocab"]
    # time: recompute and the NICs; memory: recompute and the vocabulary
    assert assumed_inputs(MEASURED, fields, **ON) == (2, 2)  # type: ignore[arg-type]
    assert assumed_inputs(MEASURED, ["plan.recompute", "plan.recompute"], **ON) == (1, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("architecture", "software", "is_new"),
    [("hopper", Software.MEGATRON_CORE, 0), ("hopper", Software.PYTORCH, 1), ("ampere", Software.MEGATRON_CORE, 1)],
)
def test_software_never_measured_on_the_chip_is_one_more_guess_of_the_time(
    architecture: str, software: Software, is_new: int
) -> None:
    found = assumed_inputs(MEASURED, [], architecture=architecture, software=software)
    assert found == (is_new, 0)


def test_assumed_fields_widen_the_efficiencies_own_spread() -> None:
    found = with_assumed(MEASURED, ["plan.recompute", "plan.tp", "plan.pp"], **ON)  # type: ignore[arg-type]
    assert found.spread.time_log_sigma == pytest.approx(0.3)
    assert found.gpu == MEASURED.gpu
    assert with_assumed(MEASURED, [], **ON) == MEASURED  # type: ignore[arg-type]
