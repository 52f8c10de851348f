from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import PlanInfeasibleError
from opsk.workload.plan import PLAN_FIELDS, Plan, Recompute, Sharding, StatedPlan

SIZE = st.integers(1, 64)


def test_everything_of_a_stated_plan_may_be_unknown() -> None:
    assert all(getattr(StatedPlan(), name) is None for name in PLAN_FIELDS)


@given(SIZE, SIZE, SIZE, SIZE, SIZE, SIZE)
def test_gpus_and_micro_batches_follow_from_the_axes(
    tp: int, pp: int, cp: int, dp: int, micro: int, steps: int
) -> None:
    plan = Plan(tp=tp, pp=pp, cp=cp, dp=dp, micro_batch=micro, global_batch=micro * dp * steps)
    assert plan.gpus == tp * pp * cp * dp
    assert plan.micro_batches == steps


@given(SIZE, SIZE, st.integers(1, 4096))
def test_a_batch_that_does_not_divide_is_refused_with_its_numbers(dp: int, micro: int, batch: int) -> None:
    if batch % (dp * micro) == 0:
        assert Plan(dp=dp, micro_batch=micro, global_batch=batch).global_batch == batch
        return
    with pytest.raises(PlanInfeasibleError, match=f"global batch {batch} .* micro batch {micro} x dp {dp}"):
        Plan(dp=dp, micro_batch=micro, global_batch=batch)


def test_every_size_below_one_is_named() -> None:
    with pytest.raises(PlanInfeasibleError) as caught:
        Plan(tp=0, pp=-1, vpp=0, cp=0, ep=0, dp=0, micro_batch=0, global_batch=0)
    assert len(caught.value.violations) == 8


def test_absurd_sizes_and_what_is_no_number_are_named() -> None:
    with pytest.raises(PlanInfeasibleError) as caught:
        Plan(tp=10**12, dp=float("nan"), recompute_layers=-1, frozen_fraction=float("nan"), global_batch=8)  # type: ignore[arg-type]
    assert caught.value.violations == (
        "dp is nan, must be at least 1",
        "recompute_layers is -1, must not be negative",
        "tp is 1e+12, at most 1e+09",
        "frozen_fraction is nan, must be between 0 and 1",
    )


@pytest.mark.parametrize("kind", [Sharding, Recompute])
def test_words_of_a_plan_read_as_in_the_measured_runs(kind: type[Sharding | Recompute]) -> None:
    # sharding: none, zero1, zero2, zero3; recompute: none, selective, full
    words = {Sharding: ["none", "zero1", "zero2", "zero3"], Recompute: ["none", "selective", "full"]}
    assert [str(word) for word in kind] == words[kind]
