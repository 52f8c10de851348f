"""Everything that is wrong with a plan is told at once, and one slip is told once."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from opsk.app.inputs.plan_validation import examine_plan, find_keys

GOOD: dict[str, Any] = {
    "nodes": 2,
    "gpus_per_node": 8,
    "model": {"layers": 8, "hidden": 512, "heads": 8, "kv_heads": 4, "ffn": 2048, "vocab": 32000, "seq": 2048},
    "plan": {"tp": 4, "pp": 2, "global_batch": 16},
}


def wrong(**changes: Any) -> tuple[str, ...]:
    tables = deepcopy(GOOD)
    for key, value in changes.items():
        table, _, name = key.rpartition("__")
        (tables.setdefault(table, {}) if table else tables)[name] = value
    return examine_plan(tables).wrong


def test_a_good_plan_has_nothing_wrong():
    assert wrong() == ()


def test_a_wrong_type_hides_nothing_else():
    told = wrong(model__layers="eight", plan__tp=-1, plan__colour=3, run__pue=0.5)
    assert told == (
        "model.layers: 'eight' is not an integer",
        "plan.colour: no such key",
        "plan: tp is -1, must be at least 1",
        "run: pue is 0.5, must be 1 or more",
    )


def test_what_follows_from_one_slip_is_not_told_as_well():
    # 9 layers less than none, experts of a broken model and GPUs of a broken axis say nothing more
    assert wrong(model__layers=-3) == ("model: layers is -3, must be at least 1",)
    assert wrong(plan__pp=0) == ("plan: pp is 0, must be at least 1",)


def test_model_and_plan_are_checked_against_themselves_and_the_gpus():
    told = wrong(model__kv_heads=3, model__experts=8, model__top_k=9, plan__dp=4, plan__micro_batch=3)
    assert told == (
        "model: heads 8 is not a multiple of kv_heads 3",
        "model: top_k 9 is not between 1 and experts 8",
        "model: expert_ffn is missing for a mixture of experts",
        "plan: global batch 16 is not a multiple of micro batch 3 x dp 4",
        "plan: tp 4 x pp 2 x cp 1 x dp 4 is 32 GPUs, nodes 2 x gpus_per_node 8 is 16",
    )


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (10**9 + 1, "model.seq is 1000000001: out of range"),
        (-(10**10), "model.seq is -10000000000: out of range"),
        (10**100, "model.seq is a number of 101 digits: out of range"),
        (2048.0, "model.seq: 2048.0 is not an integer"),
        (True, "model.seq: True is not an integer"),
        ([1], "model.seq: list is not an integer"),
        ("x" * 500, "model.seq: '" + "x" * 58 + "… is not an integer"),
        ("\x1b[31m", "model.seq: '\\x1b[31m' is not an integer"),
    ],
)
def test_absurd_sizes_and_wrong_types_are_shown_short_and_printable(value: object, says: str):
    assert wrong(model__seq=value) == (says,)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_finite_number_is_refused(value: float):
    told = wrong(model__capacity_factor=value, plan__frozen_fraction=value, checkpoint__mtbf_s=value, run__tokens=value)
    assert told == tuple(
        f"{key} is {value}: must be finite"
        for key in ("model.capacity_factor", "plan.frozen_fraction", "checkpoint.mtbf_s", "run.tokens")
    )


def test_an_unknown_word_is_told_with_all_that_there_are():
    (told,) = wrong(plan__recompute="sometimes")
    assert told == "plan.recompute: 'sometimes' is none of none, selective, full"


def test_a_table_that_is_none_is_told():
    assert wrong(plan=3)[0] == "[plan] is 3, not a table"


def test_what_no_default_can_stand_for_is_missing():
    told = examine_plan({"plan": {}}).wrong
    assert told == ("model.layers: missing", "model.hidden: missing", "model.heads: missing")


def test_a_run_has_one_length():
    assert wrong(run__tokens=1e12, run__steps=10) == ("run: tokens 1e+12 and steps 10: give one of them",)


def test_violations_are_about_the_key_that_they_name_first():
    assert find_keys("global batch 4 is not a multiple of micro batch 3 x dp 1") == [
        "global_batch",
        "micro_batch",
        "dp",
    ]
    assert find_keys("vpp 3 needs micro-batches (8)") == ["vpp", "global_batch"]


def test_stand_ins_keep_every_other_rule_testable():
    tables = deepcopy(GOOD)
    tables["model"]["layers"] = "eight"
    found = examine_plan(tables)
    assert found.model is not None
    assert found.without_doubt(["layers 1 is not a multiple of pp 2", "heads 8 is not a multiple of tp 3"]) == [
        "heads 8 is not a multiple of tp 3"
    ]
