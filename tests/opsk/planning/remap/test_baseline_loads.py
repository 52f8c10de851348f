"""Judging from kept loads gives what judging everything gives, whatever moved, failed or was left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk.planning.placement.rank_placement import Verdicts, build_rank_placement, judge
from opsk.planning.ranks import rank_grid
from opsk.planning.remap.baseline_loads import KINDS, Fewer, compute_baseline, evaluate_change, select_kind
from opsk.planning.remap.other_plan import compute_volume_factors, fewer_replicas
from opsk.planning.remap.situation import Situation
from opsk.planning.routing.traffic import StepBytes, step_bytes
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Sharding
from tests.fakes.remap_jobs import MODEL, names, situation_of

MOE = replace(MODEL, experts=8, top_k=2, expert_ffn=2048)
TIED = replace(MODEL, tied_embeddings=True)
PLANS = (
    (MODEL, Plan(tp=4, dp=4, global_batch=12), 4),
    (MODEL, Plan(tp=2, pp=2, dp=4, global_batch=12), 4),
    (TIED, Plan(tp=2, pp=2, vpp=2, dp=4, global_batch=24), 4),
    (MODEL, Plan(tp=1, cp=2, dp=8, global_batch=24, sharding=Sharding.ZERO3), 4),
    (MOE, Plan(tp=1, ep=4, dp=16, global_batch=48), 4),
    (MOE, Plan(tp=2, ep=2, pp=2, dp=4, global_batch=12, sharding=Sharding.ZERO1), 4),
)


def job_of(number: int, hcas: int = 4, domains: bool = False) -> Situation:
    model, plan, each = PLANS[number]
    pairs = {f"n{node}": f"r{node // 2}" for node in range(8)} if domains else None
    return situation_of(
        plan, names(0, 3), spares=names(4, 4), free=names(5, 7), each=each, hcas=hcas, model=model, domains=pairs
    )[0]


def assert_same(found: Verdicts, wanted: Verdicts) -> None:
    for name in ("step_s", "axis_s", "tp_bytes", "all_bytes", "off_rail_bytes", "off_leaf_bytes", "max_link_load"):
        ours, theirs = getattr(found, name), getattr(wanted, name)
        scale = float(np.abs(wanted.all_bytes).max()) if name.endswith("bytes") else 0.0
        assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-9 * scale), name


@settings(max_examples=60)
@given(data=st.data())
def test_any_new_seats_are_judged_as_if_from_scratch(data: st.DataObject) -> None:
    situation = job_of(
        data.draw(st.integers(0, len(PLANS) - 1)), data.draw(st.sampled_from([2, 4])), data.draw(st.booleans())
    )
    node, gpu = situation.rank_placement.node[0].copy(), situation.rank_placement.gpu[0].copy()
    idle = [tuple(seat) for seat in np.argwhere(situation.idle)]
    for rank in data.draw(st.lists(st.integers(0, node.size - 1), max_size=6, unique=True)):
        at = idle.pop(data.draw(st.integers(0, len(idle) - 1)))
        node[rank], gpu[rank] = at
    rank_placement = build_rank_placement(node, gpu, situation.job.ports, situation.job.domains)
    found = evaluate_change(situation.job, situation.baseline, rank_placement)
    assert found is not None
    assert_same(found, judge(situation.job, rank_placement))


@settings(max_examples=40)
@given(data=st.data())
def test_a_job_with_fewer_replicas_is_judged_as_if_from_scratch(data: st.DataObject) -> None:
    situation = job_of(data.draw(st.integers(0, len(PLANS) - 1)), data.draw(st.sampled_from([2, 4])))
    plan = situation.plan
    left = data.draw(st.lists(st.integers(0, plan.dp - 1), min_size=1, max_size=plan.dp - 1, unique=True))
    kept = np.sort(np.array(left))
    if kept.size * plan.cp % plan.ep:
        return
    smaller, _ = fewer_replicas(plan, int(kept.size))
    grid, sent = rank_grid(smaller), step_bytes(situation.model, smaller)
    factor = compute_volume_factors(situation.job.sent, sent)
    assert factor is not None
    before = np.empty(smaller.gpus, dtype=np.int64)
    before[grid.ranks.ravel()] = situation.job.grid.ranks[:, kept].ravel()
    rank_placement = build_rank_placement(
        situation.rank_placement.node[0, before],
        situation.rank_placement.gpu[0, before],
        situation.job.ports,
        situation.job.domains,
    )
    found = evaluate_change(situation.job, situation.baseline, rank_placement, Fewer(grid=grid, factor=factor))
    assert found is not None
    assert_same(found, judge(replace(situation.job, grid=grid, sent=sent), rank_placement))


@pytest.mark.parametrize("number", range(len(PLANS)))
def test_nothing_moved_is_todays_verdict(number: int) -> None:
    situation = job_of(number)
    found = evaluate_change(situation.job, situation.baseline, situation.rank_placement)
    assert found is not None
    assert_same(found, situation.verdict)


def test_the_kinds_are_all_bytes_once() -> None:
    model: ModelShape = replace(MOE, tied_embeddings=True)
    plan = Plan(tp=2, cp=2, pp=2, vpp=2, ep=2, dp=2, global_batch=8)
    sent = step_bytes(model, plan)
    parts = [select_kind(sent, kind) for kind in KINDS]
    for name in StepBytes.__dataclass_fields__:
        assert np.sum([getattr(part, name) for part in parts], axis=0) == pytest.approx(getattr(sent, name))


def test_loads_of_a_job_that_is_cut_are_not_kept_apart() -> None:
    """Without spines leaves of two units have no path: nothing can be taken away from that."""
    situation, _ = situation_of(Plan(tp=4, dp=2, global_batch=2), ["n0", "n7"])
    lone = replace(situation.job, routes=NoPaths())
    kept = compute_baseline(lone, situation.rank_placement)
    assert kept.is_cut
    assert evaluate_change(lone, kept, situation.rank_placement) is None


class NoPaths:
    """Routes of a fabric whose leaves nothing joins."""

    by_port = False
    rates = np.ones(0)

    def ends(self, link: int) -> tuple[str, str]:
        return "", ""

    def path(self, leaf: str, target: object) -> None:
        return None
