"""Which plans are shown, in what they are the best, and what their order rests on."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opsk.costmodel.efficiency.evidence import find_evidence, list_measured
from opsk.frameworks import megatron
from opsk.hardware import catalog
from opsk.planning.search.choices import (
    Choice,
    Role,
    count_features,
    find_variants,
    hold_in_domains,
    list_choices,
    select_measured,
)
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.result import Candidate, SearchResult
from opsk.planning.search.search import search_space
from opsk.planning.search.space import build_space
from opsk.workload.plan import Plan, Schedule, Sharding, Software
from tests.opsk.planning.search.small_requests import CLUSTER, MODEL, all_candidates, request

ASKED = request(
    template=Plan(global_batch=1, software=Software.MEGATRON_CORE), limits=megatron.LIMITS, refuses=megatron.refusals
)
STATES, WEIGHTS = (Sharding.NONE, Sharding.ZERO1), (Sharding.ZERO2, Sharding.ZERO3)


@pytest.fixture(scope="module")
def candidates() -> list[Candidate]:
    return [one for one in all_candidates(ASKED) if one.fit_probability > 0.1]


@pytest.fixture(scope="module")
def choices() -> tuple[Choice, ...]:
    (found,) = deque(search_space(build_space(ASKED)), maxlen=1)
    return list_choices([ASKED], found, 5)


def _with_role(choices: tuple[Choice, ...], role: Role) -> Candidate:
    return next(one.candidate for one in choices if role in one.roles)


def test_the_first_is_the_one_to_take_and_rests_on_measured_runs(choices: tuple[Choice, ...]):
    assert Role.TAKE in choices[0].roles
    assert choices[0].evidence.is_measured
    assert choices[0].slower_by == 0.0


def test_no_plan_that_was_measured_is_much_faster_than_the_first(
    choices: tuple[Choice, ...], candidates: list[Candidate]
):
    measured = [one for one in candidates if find_evidence(MODEL, one.plan, CLUSTER).is_measured]
    assert choices[0].candidate.likely_s <= 1.05 * 1.03 * min(one.likely_s for one in measured)


def test_the_fastest_has_the_greatest_expected_speed_of_all(choices: tuple[Choice, ...], candidates: list[Candidate]):
    fastest = min(one.likely_s for one in candidates)
    assert _with_role(choices, Role.FASTEST).likely_s <= fastest * 1.03


def test_the_plain_plan_has_neither_cp_nor_shared_weights(choices: tuple[Choice, ...], candidates: list[Candidate]):
    def is_plain(plan: Plan) -> bool:
        return (plan.cp, plan.recompute_layers, plan.shard_gpus) == (1, 0, 0) and plan.sharding in STATES

    plain = [one for one in candidates if is_plain(one.plan) and one.plan.schedule is Schedule.ONE_F_ONE_B]
    assert _with_role(choices, Role.CONVENTIONAL).likely_s <= 1.03 * min(one.likely_s for one in plain)


def test_no_two_rows_are_one_plan_to_a_person(choices: tuple[Choice, ...]):
    rows = [
        (one.candidate.kind, one.candidate.plan.cp > 1, one.candidate.plan.sharding in WEIGHTS, one.candidate.likely_s)
        for one in choices
    ]
    for place, (*kind, likely_s) in enumerate(rows):
        for *other_kind, other_s in rows[:place]:
            assert kind != other_kind or abs(likely_s / other_s - 1) > 0.03


def test_variants_are_counted_as_a_loop_counts_them(candidates: list[Candidate]):
    one = min(candidates, key=lambda candidate: candidate.likely_key)
    held = ("tp", "pp", "ep", "etp", "sharding", "shard_gpus", "sequence_parallel", "schedule", "recompute")
    alike = [
        other
        for other in candidates
        if all(getattr(other.plan, axis) == getattr(one.plan, axis) for axis in held)
        and abs(other.likely_s / one.likely_s - 1) <= 0.01
    ]
    assert find_variants(ASKED, one).count == len(alike) - 1


def test_what_is_measured_is_a_part_of_the_space():
    space = build_space(ASKED)
    names = list_measured("megatron-core", "dense")
    parts = list(select_measured(space))
    assert 0 < sum(part.size for part in parts) < space.size
    for part in parts:
        axes = [
            " ".join(axis for axis in ("tp", "pp", "cp", "ep") if part.nodes[axis][node] > 1) or "dp"
            for node in range(len(part))
        ]
        assert {name.split(",")[0] for name in names} >= set(axes)


def test_a_part_of_a_space_has_the_plans_with_these_values_and_no_others():
    space = build_space(ASKED)
    part = space.holding({"cp": (1,), "recompute_layers": (0,)})
    fixed = build_space(replace(ASKED, fixed={"cp": (1,), "recompute_layers": (0,)}))
    assert part.size == fixed.size
    assert np.array_equal(part.sizes, fixed.sizes)


@pytest.mark.parametrize(
    ("axes", "count"),
    [
        ({}, 0),
        ({"tp": 8, "pp": 4}, 2),
        ({"tp": 16}, 3),
        ({"cp": 2}, 2),
        ({"pp": 32}, 1),
        ({"pp": 64}, 3),
        ({"tp": 2, "sharding": Sharding.ZERO3, "software": Software.PYTORCH}, 3),
        ({"sharding": Sharding.ZERO3, "software": Software.PYTORCH}, 0),
        ({"sharding": Sharding.ZERO3, "software": Software.MEGATRON_CORE}, 2),
        ({"micro_batch": 3}, 1),
    ],
)
def test_what_few_runs_use_makes_a_plan_less_simple(axes: dict[str, Any], count: int):
    assert count_features(Plan(global_batch=24, **axes), hb_domain_gpus=8) == count


def _first_of(*numbers: tuple[dict[str, Any], float, float], asked: PlanRequest = ASKED) -> Plan:
    """Return the plan to take of some, each with its time and its chance to fit."""
    likely = tuple(
        Candidate(
            plan=Plan(global_batch=16, software=Software.MEGATRON_CORE, **axes),
            step_s=step_s,
            fit_probability=chance,
            device_bytes=1.0,
            needed_bytes=1.0,
            step_j=1.0,
        )
        for axes, step_s, chance in numbers
    )
    return list_choices([asked], SearchResult(best=likely), 5, searches=False)[0].candidate.plan


MEASURED, UNMEASURED = {"tp": 2, "dp": 4}, {"tp": 2, "dp": 4, "sharding": Sharding.ZERO3}


def test_a_measured_plan_comes_before_a_faster_one_of_which_no_run_was_measured():
    assert _first_of((UNMEASURED, 1.0, 0.99), (MEASURED, 1.3, 0.9)).sharding is Sharding.NONE


def test_a_plan_that_is_likelier_to_fail_than_to_fit_is_not_the_first():
    # 405B by FSDP on 512 H100: 22 % to fit, and measured; TP beside FSDP 97 %, and not
    assert _first_of((UNMEASURED, 1.0, 0.97), (MEASURED, 1.0, 0.22)).sharding is Sharding.ZERO3
    assert _first_of((UNMEASURED, 1.0, 0.1), (MEASURED, 1.0, 0.22)).sharding is Sharding.NONE


def test_of_equally_simple_plans_the_first_is_that_of_which_more_runs_were_measured():
    sharded, split = {"dp": 8, "sharding": Sharding.ZERO3}, {"tp": 4, "pp": 2}
    runs = [find_evidence(MODEL, Plan(global_batch=16, software=Software.MEGATRON_CORE, **axes), CLUSTER).runs
            for axes in (sharded, split)]  # fmt: skip
    assert runs[0] < runs[1]
    assert _first_of((sharded, 1.0, 0.99), (split, 1.02, 0.99)).pp == 2


@pytest.mark.parametrize(("slower", "pp"), [(1.04, 2), (1.06, 1)])
def test_of_plans_as_fast_as_can_be_known_the_first_was_measured_on_such_gpus(slower: float, pp: int):
    # Megatron's FSDP was measured on other GPUs than A100, TP and PP on these
    a100 = replace(ASKED, cluster=catalog.cluster("superpod-a100"))
    sharded, split = {"dp": 8, "sharding": Sharding.ZERO3}, {"tp": 4, "pp": 2}
    assert _first_of((sharded, 1.0, 0.99), (split, slower, 0.99), asked=a100).pp == pp


def test_a_conventional_plan_keeps_tensor_parallelism_in_the_hb_domain():
    cluster = replace(CLUSTER, node=replace(CLUSTER.node, hb_domain_gpus=2))
    space = build_space(replace(ASKED, cluster=cluster))
    assert space.nodes["tp"].max() > 2
    held = hold_in_domains(space)
    assert held.nodes["tp"].max() == 2
    assert len(held) == np.count_nonzero(space.nodes["tp"] <= 2)
