from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk.app.inputs.plan_file import PlanFile
from opsk.cli.predict.command import build_answer
from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.predict import predict
from opsk.costmodel.table import PlanTable
from opsk.costmodel.uncertainty.verdict import FITS_FROM, OOM_UP_TO, Verdict
from opsk.hardware import catalog
from opsk.planning.search.parts import join_all, search_part, select_part
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.result import LAYOUT, Candidate, SearchResult, build_candidate
from opsk.planning.search.search import (
    BATCH_TOLERANCE,
    MAX_BATCHES,
    WALKED,
    best_plans,
    list_cases,
    nearby_batches,
    search_cases,
    search_space,
    with_gpus,
)
from opsk.planning.search.space import build_space
from opsk.workload.plan import Plan, Recompute, Schedule, Sharding
from tests.fakes.training_runs import gpt
from tests.opsk.planning.search.plain_enumeration import legal_plans
from tests.opsk.planning.search.random_requests import requests, tiny_requests
from tests.opsk.planning.search.small_requests import request

H100 = catalog.cluster("superpod-h100")
GPUS = st.sampled_from([1, 2, 4, 6, 8, 16, 24])
BATCHES = st.sampled_from([1, 2, 4, 6, 8, 24])
ROUNDING = 1e-11
"""Rows that are predicted together or alone add up in another order."""


def _last(found: Iterable[SearchResult]) -> SearchResult:
    return deque(found, maxlen=1)[0]


def _times(candidates: Iterable[Candidate]) -> list[float]:
    return [one.step_s for one in candidates]


def _one_by_one(request: PlanRequest, plans: Iterable[Plan]) -> list[Candidate]:
    """Return every plan, predicted alone."""
    tables = [PlanTable.of([plan]) for plan in plans]
    return [
        build_candidate(table, predict(request.model, table, request.cluster, request.efficiency), 0)
        for table in tables
    ]


def _fastest_of_layouts(candidates: Iterable[Candidate], most: int) -> list[float]:
    """Return the times of the fastest layouts."""
    fastest: dict[tuple[int, ...], float] = {}
    for one in candidates:
        layout = tuple(getattr(one.plan, axis) for axis in LAYOUT)
        fastest[layout] = min(one.step_s, fastest.get(layout, one.step_s))
    return sorted(fastest.values())[:most]


def _assert_is_the_best(found: SearchResult, request: PlanRequest, predicted: list[Candidate]) -> None:
    """Fail unless what a search lists is the fastest of plans that were predicted one by one."""
    feasible = [one for one in predicted if one.fit_probability > OOM_UP_TO]
    fitting = [one for one in predicted if one.fit_probability >= FITS_FROM]
    for listed, among in ((found.best, feasible), (found.best_fitting, fitting)):
        assert _times(listed) == pytest.approx(_fastest_of_layouts(among, request.most), rel=ROUNDING)
        of_plan = {one.plan: one.step_s for one in among}
        for one in listed:
            assert one.step_s == pytest.approx(of_plan[one.plan], rel=ROUNDING)
    assert _likely(found.likely) == pytest.approx(_likeliest_of_kinds(feasible, request.most), rel=ROUNDING)


def _likely(candidates: Iterable[Candidate]) -> list[float]:
    return [one.likely_s for one in candidates]


def _likeliest_of_kinds(candidates: Iterable[Candidate], most: int) -> list[float]:
    """Return the times of a sequence over the chance to fit of the kinds for which they are smallest."""
    smallest: dict[tuple[int, ...], float] = {}
    for one in candidates:
        kind = (one.plan.tp, one.plan.pp, one.plan.ep, one.plan.etp)
        likely_s = one.step_s / one.plan.global_batch / one.fit_probability
        smallest[kind] = min(likely_s, smallest.get(kind, likely_s))
    return sorted(smallest.values())[:most]


@settings(max_examples=12, deadline=None)
@given(tiny_requests())
def test_both_searches_find_what_a_plain_loop_finds(request: PlanRequest):
    predicted = _one_by_one(request, list(legal_plans(request))[:2000])
    space = build_space(request)
    if len(predicted) < space.size:
        return  # too many to walk one by one here
    walked, bounded = (_last(search_space(space, walk=walk)) for walk in (True, False))
    assert walked.evaluated == len(predicted)
    assert walked.feasible == sum(one.fit_probability > OOM_UP_TO for one in predicted)
    assert walked.fitting == sum(one.fit_probability >= FITS_FROM for one in predicted)
    for found in (walked, bounded):
        assert found.evaluated + found.bounded == found.space == len(predicted)
        _assert_is_the_best(found, request, predicted)


@pytest.mark.parametrize(
    ("layers", "fixed"),
    [
        # 14 layers, embedding and loss are 4 stages of 4 chunks: 3, 4, 4 and 3 layers
        (14, {"pp": (4,), "first_stage_layers": (0, 3), "last_stage_layers": (0, 3), "vpp": (1, 2, 4)}),
        (15, {"pp": (4,), "last_stage_layers": (0, 3), "vpp": (1, 2, 4)}),
        # a layout of all chunks: the last stage has 2, 2, 1 and 0 of 8 layers, as DeepSeek-V3's on 8 stages
        (29, {"pp": (4,), "last_stage_layers": (5,), "vpp": (1, 2, 4)}),
        (7, {"pp": (2,), "first_stage_layers": (0, 3), "sharding": (Sharding.ZERO1, Sharding.ZERO3)}),
        (8, {"pp": (1,), "shard_gpus": (0, 2, 4)}),
        (8, {"pp": (2,), "shard_gpus": (2,), "schedule": (Schedule.ONE_F_ONE_B,)}),
    ],
)
def test_uneven_stages_and_shared_states_of_some_replicas_are_searched_as_a_loop_does(
    layers: int, fixed: dict[str, tuple[object, ...]]
):
    some = {"cp": (1,), "recompute": (Recompute.NONE,), "micro_batch": (1,), **fixed}
    asked = replace(request(fixed=some), model=gpt(layers=layers, hidden=2048, heads=16, flash=True))
    predicted = _one_by_one(asked, legal_plans(asked))
    assert predicted
    for walk in (True, False):
        found = _last(search_space(build_space(asked), walk=walk))
        assert found.evaluated + found.bounded == found.space == len(predicted)
        _assert_is_the_best(found, asked, predicted)


def test_the_best_plan_is_the_one_that_a_loop_over_opsk_predict_finds():
    # 8B on four GPUs of 80 GB: 18 bytes a parameter need half of them all, so memory decides
    model = gpt(layers=4, hidden=12288, heads=96, flash=True)
    fixed = {"cp": (1,), "recompute_layers": (0,)}
    request = PlanRequest(
        model=model, cluster=H100, template=Plan(global_batch=1), gpus=4, global_batch=8, fixed=fixed, most=3
    )
    documents = [
        (plan, build_answer(PlanFile(source="a loop", model=model, plan=plan), H100, DEFAULT))
        for plan in legal_plans(
            replace(request, fixed={**fixed, "first_stage_layers": (0,), "last_stage_layers": (0,)})
        )
    ]
    runs = [(plan, document) for plan, document in documents if document["verdict"] != Verdict.OOM]
    best, document = min(runs, key=lambda run: run[1]["time"]["step_s"]["expected"])
    found = best_plans(request)
    assert (found.space, found.feasible) == (len(documents), len(runs))
    assert 0 < len(runs) < len(documents)
    assert found.best[0].step_s == pytest.approx(document["time"]["step_s"]["expected"], rel=ROUNDING)
    assert found.best[0].plan == best
    bounded = _last(search_space(build_space(request), walk=False))
    assert bounded.best[0].plan == best
    assert bounded.evaluated < found.evaluated


@settings(max_examples=12, deadline=None)
@given(requests(GPUS, BATCHES))
def test_bounding_finds_what_walking_finds(request: PlanRequest):
    space = build_space(request)
    if space.size > 20_000:
        return
    walked, bounded = (_last(search_space(space, walk=walk)) for walk in (True, False))
    assert walked.bounded == 0
    assert bounded.is_whole
    assert _times(bounded.best) == pytest.approx(_times(walked.best), rel=ROUNDING)
    assert _times(bounded.best_fitting) == pytest.approx(_times(walked.best_fitting), rel=ROUNDING)
    assert _likely(bounded.likely) == pytest.approx(_likely(walked.likely), rel=ROUNDING)


@settings(max_examples=6, deadline=None)
@given(requests(GPUS, BATCHES), st.booleans())
def test_every_feasible_plan_has_one_on_the_front_that_is_hardly_worse(request: PlanRequest, walk: bool):
    space = build_space(request)
    if space.size > 20_000:
        return
    front = _last(search_space(space, walk=walk, front=True)).front
    assert front is not None
    for plans in space.list_tables(rows=5000):
        predicted = predict(request.model, plans, request.cluster, request.efficiency)
        costs = [
            predicted.time.step_s.expected / request.global_batch,
            predicted.memory.needed_bytes.expected,
            predicted.energy.step_j.expected / request.global_batch,
            np.full(len(plans), float(request.gpus)),
        ]
        feasible = predicted.memory.fit_probability > OOM_UP_TO
        assert front.covers(np.stack(costs) * (1 + ROUNDING))[feasible].all()


@settings(max_examples=8, deadline=None)
@given(requests(GPUS, BATCHES), st.integers(2, 4), st.booleans())
def test_parts_searched_apart_find_what_one_search_finds(request: PlanRequest, parts: int, walk: bool):
    space = build_space(request)
    if space.size > 20_000:
        return
    whole = _last(search_space(space, walk=walk))
    joined = join_all(_last(search_part([request], number, parts, walk=walk)) for number in range(parts))
    assert joined.is_whole
    assert joined.space == whole.space
    assert _times(joined.best) == pytest.approx(_times(whole.best), rel=ROUNDING)
    assert _times(joined.best_fitting) == pytest.approx(_times(whole.best_fitting), rel=ROUNDING)
    assert _likely(joined.likely) == pytest.approx(_likely(whole.likely), rel=ROUNDING)
    if walk:
        assert (joined.evaluated, joined.feasible, joined.fitting) == (whole.evaluated, whole.feasible, whole.fitting)


def test_what_is_known_of_other_plans_bounds_a_search_and_changes_nothing():
    request = PlanRequest(
        model=gpt(layers=8, hidden=4096, heads=32, flash=True),
        cluster=H100,
        template=Plan(global_batch=1),
        gpus=8,
        global_batch=16,
    )
    space = build_space(request)
    halves = [select_part(space, number, 2) for number in range(2)]
    first = _last(search_space(halves[0], walk=False))
    alone, helped = (_last(search_space(halves[1], known=known, walk=False)) for known in (None, first))
    assert helped.evaluated <= alone.evaluated
    assert first.merge(helped).best == first.merge(alone).best == _last(search_space(space, walk=False)).best


def test_the_best_plan_of_one_gpu_by_hand():
    # one GPU, two sequences: together they pay the gaps between kernels once, and the weights are read once; there is
    # room, so nothing is recomputed
    request = PlanRequest(
        model=gpt(layers=2, hidden=1024, heads=16, flash=True),
        cluster=H100,
        template=Plan(global_batch=1),
        gpus=1,
        global_batch=2,
    )
    found = best_plans(request)
    # two micro-batches, times none, selective, and full for all layers or one of two
    assert (found.space, found.evaluated, found.feasible, found.fitting) == (8, 8, 8, 8)
    assert found.best[0].plan == Plan(micro_batch=2, global_batch=2)
    assert len(found.best) == 1  # of each layout one, and there is one


def test_small_spaces_are_walked_and_large_ones_bounded():
    model = gpt(layers=16, hidden=2048, heads=16, flash=True)
    small = PlanRequest(model=model, cluster=H100, template=Plan(global_batch=1), gpus=4, global_batch=8)
    found = best_plans(small)
    assert (found.bounded, found.evaluated) == (0, found.space)
    large = best_plans(replace(small, gpus=64, global_batch=512))
    assert large.space > WALKED
    assert large.evaluated < large.space / 10
    assert large.is_whole


def test_a_request_without_plans_finds_nothing():
    request = PlanRequest(
        model=gpt(layers=3, hidden=1024, heads=16), cluster=H100, template=Plan(global_batch=1), gpus=7, global_batch=5
    )
    for walk in (None, True, False):
        found = _last(search_space(build_space(request), walk=walk))
        assert (found.space, found.evaluated, found.best, found.is_whole) == (0, 0, (), True)


def test_nothing_fits_where_no_gpu_could_hold_the_weights():
    # 1T parameters on 8 GPUs: 2 bytes of each alone are 250 GB a GPU
    model = gpt(layers=128, hidden=25600, heads=160, flash=True)
    request = PlanRequest(model=model, cluster=H100, template=Plan(global_batch=1), gpus=8, global_batch=8)
    found = _last(search_space(build_space(request), walk=False))
    assert (found.evaluated, found.feasible, found.best) == (0, 0, ())
    assert found.bounded == found.space > 0


def test_progress_never_goes_back():
    request = PlanRequest(
        model=gpt(layers=16, hidden=4096, heads=32, flash=True),
        cluster=H100,
        template=Plan(global_batch=1),
        gpus=16,
        global_batch=64,
    )
    done, best_s = 0, float("inf")
    for found in search_space(build_space(request), walk=False):
        assert found.evaluated + found.bounded >= done
        done = found.evaluated + found.bounded
        if found.best:
            assert found.best[0].step_s <= best_s
            best_s = found.best[0].step_s
    assert done == found.space


def test_plans_that_the_software_refuses_are_never_listed():
    request = PlanRequest(
        model=gpt(layers=2, hidden=2048, heads=16, flash=True),
        cluster=H100,
        template=Plan(global_batch=1),
        gpus=2,
        global_batch=4,
        refuses=lambda model, plan: ("no",) if plan.sharding is Sharding.ZERO1 or plan.tp > 1 else (),
    )
    for walk in (True, False):
        found = _last(search_space(build_space(request), walk=walk))
        assert found.best
        assert all(one.plan.tp == 1 and one.plan.sharding is not Sharding.ZERO1 for one in found.best)
    allowed = [plan for plan in legal_plans(request) if plan.tp == 1 and plan.sharding is not Sharding.ZERO1]
    assert _times(found.best) == pytest.approx(_fastest_of_layouts(_one_by_one(request, allowed), 5), rel=ROUNDING)


@given(st.integers(1, 10**6), st.integers(1, 4096))
def test_batches_nearby_are_near_and_can_be_shared(batch: int, gpus: int):
    found = nearby_batches(batch, gpus)
    assert len(found) == len(set(found)) <= MAX_BATCHES
    for one in found:
        assert one != batch
        assert abs(one - batch) <= BATCH_TOLERANCE * batch
        assert one % max(size for size in range(1, gpus + 1) if gpus % size == 0 and one % size == 0) == 0


def test_a_prime_batch_has_neighbours_that_all_replicas_share():
    """61 on 16 GPUs: 64 is shared by 16, 56 by 8, 60 by 4; 48 is too far."""
    assert nearby_batches(61, 16)[0] == 64
    assert {56, 60, 64, 62} == set(nearby_batches(61, 16))


def test_a_batch_that_all_replicas_share_still_has_neighbours_only_within_a_tenth():
    assert nearby_batches(64, 64) == []
    assert nearby_batches(1, 64) == []


def test_the_request_itself_is_the_first_case():
    asked = request(gpus=8, batch=31)
    cases = list_cases(asked, gpu_counts=[4, 8, 16], keep_batch=False)
    assert (cases[0].gpus, cases[0].global_batch) == (8, 31)
    assert list(dict.fromkeys(case.gpus for case in cases)) == [8, 4, 16]
    pairs = [(case.gpus, case.global_batch) for case in cases]
    assert len(set(pairs)) == len(pairs)


def test_a_cluster_is_never_smaller_than_its_job():
    asked = request()
    assert with_gpus(asked, 2048).cluster.gpus >= 2048
    assert with_gpus(asked, 1).cluster == asked.cluster


def test_cases_together_are_what_each_alone_is():
    held = {"sharding": (Sharding.ZERO1,), "recompute": (Recompute.NONE,)}
    asked = request(gpus=4, batch=7, fixed=held)
    cases = list_cases(asked, gpu_counts=[2, 8], keep_batch=False)
    *_, together = search_cases(cases, front=True)
    each = [best_plans(case) for case in cases]
    for name in ("space", "evaluated", "feasible", "fitting"):
        assert getattr(together, name) == sum(getattr(one, name) for one in each)
    assert together.best[0] == min((one.best[0] for one in each if one.best), key=lambda one: one.key)
    assert together.space == sum(build_space(case).size for case in cases)
    # what is refused would be faster by the sequence, whatever its batch
    for one in together.refused:
        assert one.key < together.best[0].key
    assert together.front is not None
    assert {one.plan.gpus for one in together.front.plans} == {2, 4, 8}


def test_refused_plans_of_a_smaller_batch_are_compared_by_the_sequence():
    asked = request(gpus=2, batch=31, gpu_bytes=14e9)
    *_, found = search_cases(list_cases(asked, keep_batch=False))
    first = found.best[0].step_s / found.best[0].plan.global_batch
    assert found.refused
    for one in found.refused:
        assert one.step_s / one.plan.global_batch < first
    assert len({one.layout for one in found.refused}) == len(found.refused)


def test_a_case_without_plans_adds_nothing():
    asked = request(gpus=4, batch=4)
    *_, alone = search_cases([asked])
    *_, both = search_cases([asked, replace(asked, gpus=7, global_batch=3, fixed={"dp": (7,)})])
    assert (both.space, both.best) == (alone.space, alone.best)
