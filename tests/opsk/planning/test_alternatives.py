"""Which plans are one or two changes away: legal, on the same GPUs, and within what a framework has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.costmodel.rules import Rule, find_violations
from opsk.frameworks import fsdp, megatron
from opsk.frameworks.limits import ANYTHING, Limits, SequenceParallel, expresses
from opsk.planning.alternatives import find_new_refusals, is_legal, neighbours
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Recompute, Sharding

MODEL = ModelShape(
    name="m", layers=32, hidden=4096, ffn=14336, heads=32, kv_heads=8, head_dim=128, vocab=128256, seq=8192
)
PLAN = Plan(tp=2, pp=2, dp=8, micro_batch=4, global_batch=256)
SIZES = st.sampled_from((1, 2, 4, 8))


@given(tp=SIZES, pp=SIZES, dp=SIZES, micro=SIZES, sharding=st.sampled_from(Sharding), mode=st.sampled_from(Recompute))
def test_every_neighbour_is_another_legal_plan_of_the_same_training(
    tp: int, pp: int, dp: int, micro: int, sharding: Sharding, mode: Recompute
) -> None:
    plan = Plan(tp=tp, pp=pp, dp=dp, micro_batch=micro, global_batch=512, sharding=sharding, recompute=mode)
    found = neighbours(MODEL, plan, hb_domain_gpus=8)
    plans = [entry.plan for entry in found]
    assert plan not in plans
    assert len(set(plans)) == len(plans)
    for entry in found:
        assert (entry.plan.gpus, entry.plan.global_batch) == (plan.gpus, plan.global_batch)
        assert is_legal(MODEL, entry.plan, hb_domain_gpus=8)
        assert 1 <= len(entry.changes) <= 2
        assert len({change.axis for change in entry.changes}) == len(entry.changes)


@pytest.mark.parametrize("limits", [ANYTHING, megatron.LIMITS, fsdp.LIMITS])
def test_no_neighbour_breaks_a_limit_that_the_asked_plan_keeps(limits: Limits) -> None:
    asked = Plan(
        dp=32, micro_batch=4, global_batch=256, sharding=Sharding.ZERO3, software=limits.software or PLAN.software
    )
    kept = {*expresses(limits, asked, MODEL)}
    found = neighbours(MODEL, asked, hb_domain_gpus=8, limits=limits)
    assert found
    for entry in found:
        assert not {*expresses(limits, entry.plan, MODEL)} - kept


def test_changes_that_only_cost_memory_are_among_them() -> None:
    asked = replace(PLAN, recompute=Recompute.FULL, sharding=Sharding.ZERO1)
    single = [entry for entry in neighbours(MODEL, asked, hb_domain_gpus=8) if len(entry.changes) == 1]
    axes = {(entry.changes[0].axis, getattr(entry.plan, entry.changes[0].axis)) for entry in single}
    assert {("recompute", Recompute.NONE), ("micro_batch", 8), ("tp", 1), ("pp", 1), ("vpp", 2)} <= axes


def test_without_sequence_parallelism_none_is_switched_on() -> None:
    limits = Limits(name="none", sequence_parallel=SequenceParallel.NEVER)
    found = neighbours(MODEL, PLAN, hb_domain_gpus=8, limits=limits)
    assert found
    assert not any(entry.plan.sequence_parallel for entry in found)


def test_what_is_refused_of_the_asked_plan_too_is_no_reason() -> None:
    def refuses(_: ModelShape, plan: Plan) -> tuple[str, ...]:
        return ("always",) if plan.micro_batch == 4 else ("always", "micro batch")

    told = {"limits": ANYTHING, "refuses": refuses}
    assert find_new_refusals(MODEL, PLAN, replace(PLAN, tp=4, dp=4), **told) == ()  # type: ignore[arg-type]
    assert find_new_refusals(MODEL, PLAN, replace(PLAN, micro_batch=2), **told) == ("micro batch",)  # type: ignore[arg-type]


@pytest.mark.parametrize(("first", "last"), [(15, 15), (0, 14)])
@pytest.mark.parametrize("vpp", [1, 8])
def test_stages_that_are_laid_out_by_hand_have_all_layers_whatever_their_number(
    first: int, last: int, vpp: int
) -> None:
    # 126 layers, 7 or 15 or 16 on most stages; 15 + 15 on 2 stages would be a model of 30
    model = replace(MODEL, layers=126)
    plan = Plan(tp=8, pp=8, vpp=vpp, dp=8, global_batch=512, first_stage_layers=first, last_stage_layers=last)
    others = [entry.plan for entry in neighbours(model, plan, hb_domain_gpus=8)]
    assert all(not find_violations(model, other, (Rule.LAYERS,)) for other in others)
    assert {other.pp for other in others} >= {16, 32, 4}
    (deeper,) = [other for other in others if (other.pp, other.vpp, other.tp, other.micro_batch) == (16, 1, 8, 1)][:1]
    assert (deeper.first_stage_layers, deeper.last_stage_layers) in {(7, 7), (0, 6)}


def test_no_stage_is_without_layers() -> None:
    # 126 layers, embedding and head on 64 chunks are 2 each, on 128 chunks most would have one and some none
    model = replace(MODEL, layers=126)
    plan = Plan(tp=8, pp=16, vpp=4, dp=2, global_batch=512)
    others = [entry.plan for entry in neighbours(model, plan, hb_domain_gpus=8, layer_slack=2)]
    assert others
    assert max(other.pp * other.vpp for other in others) <= 126


@pytest.mark.parametrize("vpp", [1, 4])
def test_recomputed_layers_stay_those_of_a_chunk(vpp: int) -> None:
    # --recompute-num-layers counts layers of each chunk; a chunk with no more layers has all of them repeated
    model = replace(MODEL, layers=64)
    plan = Plan(tp=2, pp=4, vpp=vpp, dp=8, global_batch=512, recompute=Recompute.FULL, recompute_layers=2 * vpp)
    others = [entry.plan for entry in neighbours(model, plan, hb_domain_gpus=8)]
    for other in others:
        if other.recompute is Recompute.FULL and other.recompute_layers:
            assert other.recompute_layers == 2 * other.vpp
            assert other.recompute_layers < 64 // other.pp
    assert any(other.recompute is Recompute.FULL and not other.recompute_layers for other in others)
