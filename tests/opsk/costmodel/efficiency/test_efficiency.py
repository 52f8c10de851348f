"""Which efficiencies hold for a plan: its software's, and what it switches on and off."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from opsk.costmodel.efficiency.cases import Case
from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency, GpuEfficiency, SoftwareColumns, SoftwareEfficiency
from opsk.costmodel.table import PlanTable
from opsk.workload.plan import Plan, Software

MEGATRON = SoftwareEfficiency(
    elementwise_factor=2.0,
    dp_overlap=0.1,
    fsdp_overlap=0.2,
    tp_overlap=0.3,
    ep_overlap=0.4,
    cp_overlap=0.5,
    pp_overlap=0.6,
    compiled_fraction=0.7,
)
OVERLAPS = ("dp_overlap", "fsdp_overlap", "tp_overlap", "ep_overlap", "cp_overlap", "pp_overlap")
EFFICIENCY = Efficiency(software={Software.MEGATRON_CORE: MEGATRON})


def _software(**how: object) -> SoftwareColumns:
    return EFFICIENCY.for_software(PlanTable.of([Plan(**{"global_batch": 1, **how})]))  # type: ignore[arg-type]


def test_every_plan_has_the_parameters_of_its_software() -> None:
    plans = [Plan(global_batch=1, software=family) for family in (Software.PYTORCH, Software.MEGATRON_CORE)]
    columns = EFFICIENCY.for_software(PlanTable.of(plans))
    # PyTorch is not among the fitted: the defaults
    assert columns.dp_overlap.tolist() == [SoftwareEfficiency().dp_overlap, 0.1]
    assert columns.elementwise_factor.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("is_on", [True, False])
def test_a_plan_can_switch_all_overlap_off(is_on: bool) -> None:
    columns = _software(overlap=is_on, tp_overlap=True, ep_overlap=True)
    assert [float(getattr(columns, name)[0]) for name in OVERLAPS] == [
        is_on * share for share in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    ]


def test_tensor_parallel_communication_is_pipelined_only_where_asked_for() -> None:
    assert _software().tp_overlap[0] == 0
    assert _software(tp_overlap=True).tp_overlap[0] == 0.3


def test_dispatch_of_experts_runs_beside_other_work_only_where_asked_for() -> None:
    assert _software().ep_overlap[0] == 0
    assert _software(ep_overlap=True).ep_overlap[0] == 0.4


def test_compiled_norms_and_activations_move_less() -> None:
    assert _software(compiled=True).elementwise_factor[0] == pytest.approx(0.7 * 2.0)


def test_programs_whose_loop_is_a_few_calls_pay_no_trainer() -> None:
    given = {family: SoftwareEfficiency(trainer_fraction=0.1) for family in Software}
    plans = [Plan(software=family, bare_loop=bare, global_batch=1) for family in Software for bare in (False, True)]
    columns = Efficiency(software=given).for_software(PlanTable.of(plans))
    found = dict(zip([(plan.software, plan.bare_loop) for plan in plans], columns.trainer_fraction, strict=True))
    assert {key for key, share in found.items() if share} == {(Software.PYTORCH, False)}


def test_a_generation_that_was_never_fitted_has_the_values_of_any_other() -> None:
    known = Efficiency(gpu={"": GpuEfficiency(), "hopper": GpuEfficiency(hbm_fraction=0.9)})
    assert known.for_gpu("hopper").hbm_fraction == 0.9
    assert known.for_gpu("volta") == GpuEfficiency()


def test_it_is_known_what_was_measured_where() -> None:
    fitted = Efficiency(fitted=frozenset({Case(architecture="hopper", software="megatron-core")}))
    assert fitted.knows("hopper", Software.MEGATRON_CORE)
    assert not fitted.knows("hopper", Software.PYTORCH)
    assert not fitted.knows("ampere", Software.MEGATRON_CORE)
    # where nobody says what was measured, nothing is said to be new
    assert Efficiency().knows("ampere", Software.PYTORCH)


def test_what_is_shipped_can_be() -> None:
    for gpu in DEFAULT.gpu.values():
        for item in fields(gpu):
            value = getattr(gpu, item.name)
            assert value > 0 if item.name.endswith(("_size", "_factor")) else 0 < value <= 1, item.name
    for family in DEFAULT.software.values():
        assert all(0 <= getattr(family, name) <= 1 for name in OVERLAPS)
        assert family.elementwise_factor > 0
        assert min(family.kernel_gap_s, family.step_overhead_s, family.straggler_fraction) >= 0
    assert 0 < DEFAULT.links.hb_fraction <= 1
    assert 0 < DEFAULT.links.nic_fraction <= 1


@pytest.mark.parametrize(
    ("changes", "share"),
    [
        ({}, 1.0),
        ({"sequence_parallel": True}, 0.5),
        ({"software": Software.MEGATRON}, 1.0),
        ({"software": Software.PYTORCH}, 0.0),
        ({"software": Software.DEEPSPEED}, 0.0),
        ({"tp_async": False}, 0.0),
        ({"overlap": False}, 0.0),
    ],
)
def test_megatron_alone_reduces_beside_weight_gradients(changes: dict[str, Any], share: float) -> None:
    plan = replace(Plan(tp=8, global_batch=8), **changes)
    assert DEFAULT.for_software(PlanTable.of([plan])).tp_async_share[0] == share
    assert DEFAULT.for_software(PlanTable.single(plan)).tp_async_share == share
