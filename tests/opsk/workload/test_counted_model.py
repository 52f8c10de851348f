"""The largest case of a model that was counted from its program's text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.workload.counted_model import COUNTED_STEP, MARGIN, WORKSPACE_BYTES, build_largest_shape
from opsk.workload.counted_parameters import COUNTED, COUNTED_TRAINED
from opsk.workload.plan import Sharding, StatedPlan
from opsk.workload.workload import Unknown, Workload
from opsk.workload.worst_case import find_worst_case

OPTIONS = {COUNTED: "1000-1200", COUNTED_TRAINED: "700-800", COUNTED_STEP: "0-1000000"}
WORKLOAD = Workload(
    framework=None,
    plan=StatedPlan(gpus=1, micro_batch=64, global_batch=64),
    options=tuple(OPTIONS.items()),
    unknown=(Unknown(field="model.layers", why="no setting states it"),),
)


def test_what_is_not_trained_counts_in_32_bits_and_all_of_it_once_more() -> None:
    shape = build_largest_shape(OPTIONS, None)
    assert shape is not None
    assert shape.measured is not None
    assert shape.measured.parameters == 800
    assert 2 * shape.measured.frozen_parameters == 4 * (400 + 1200)
    assert shape.measured.sample_bytes == MARGIN * 1_000_000 + WORKSPACE_BYTES


@pytest.mark.parametrize("open_value", [{COUNTED: "1000-"}, {COUNTED_TRAINED: "700-"}, {COUNTED_STEP: "5-"}])
def test_without_an_upper_limit_there_is_no_largest_case(open_value: dict[str, str]) -> None:
    assert build_largest_shape(OPTIONS | open_value, None) is None


def test_the_whole_batch_is_one_sample_of_the_largest_case() -> None:
    case = find_worst_case(WORKLOAD)
    assert case is not None
    plans = [entry.plan for entry in case.completions if entry.plan is not None]
    assert {(plan.micro_batch, plan.global_batch, plan.sharding) for plan in plans} == {(1, 1, Sharding.NONE)}
    assert not any(entry.field.startswith("model.") for entry in case.completions[0].assumed)


@pytest.mark.parametrize(
    ("why", "has_case"),
    [
        ("unknown: part of the model is frozen (train.py:3)", True),
        ("unknown: other models may be in memory too: modules are loaded by name (train.py:3)", False),
    ],
)
def test_a_frozen_part_takes_less_and_other_models_have_no_limit(why: str, has_case: bool) -> None:
    workload = replace(WORKLOAD, options=(*WORKLOAD.options, ("trainable", why)))
    assert (find_worst_case(workload) is not None) is has_case
