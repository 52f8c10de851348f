"""How many measured runs the prediction of a plan rests on."""

from __future__ import annotations

import pytest

from opsk.costmodel.efficiency.evidence import Evidence, build_kind, find_evidence
from opsk.hardware import catalog
from opsk.workload.plan import Plan, Schedule, Sharding, Software
from opsk.workload.public_models.lookup import public_model

H100 = catalog.cluster("superpod-h100")
LLAMA = public_model("llama-3-70b")
CORE = Software.MEGATRON_CORE


@pytest.mark.parametrize(
    ("plan", "name"),
    [
        (Plan(dp=8, global_batch=8, sharding=Sharding.ZERO1), "dp, states"),
        (Plan(dp=8, global_batch=8, sharding=Sharding.ZERO3), "dp, weights"),
        (Plan(tp=2, pp=4, global_batch=8, sharding=Sharding.ZERO3), "tp pp, states"),  # one replica shares nothing
        (Plan(tp=16, cp=2, global_batch=8), "tp cp wide-tp, states"),  # DGX H100: HB domains of eight GPUs
        (Plan(pp=2, vpp=2, global_batch=8, schedule=Schedule.ZERO_BUBBLE_V), "pp zero-bubble-v, states"),
    ],
)
def test_a_kind_is_named_after_its_axes_and_what_replicas_share(plan: Plan, name: str):
    assert LLAMA is not None
    assert build_kind(LLAMA, plan, H100).plan_name == name


def test_runs_of_other_generations_of_gpus_are_counted_apart():
    """runs.toml: of Megatron Core, dense, tp and pp, 20 runs on Hopper, 10 on Ampere and 9 on Blackwell."""
    assert LLAMA is not None
    plan = Plan(tp=8, pp=4, global_batch=8, software=CORE)
    assert find_evidence(LLAMA, plan, H100) == Evidence(runs=20, runs_elsewhere=19)


def test_what_nobody_measured_rests_on_nothing():
    assert LLAMA is not None
    plan = Plan(tp=2, dp=4, global_batch=8, sharding=Sharding.ZERO3, software=CORE)
    assert not find_evidence(LLAMA, plan, H100).is_measured
