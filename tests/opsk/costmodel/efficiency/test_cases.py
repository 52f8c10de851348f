"""What is a case of, and in what do measured runs come near to it?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.costmodel.efficiency.cases import Case, build_case, find_missing_aspects, select_held
from opsk.hardware.catalog import cluster
from opsk.workload.plan import Plan, Precision
from tests.fakes.training_runs import gpt

KNOWN = Case(architecture="ampere", software="pytorch", kind="dense", precision="16-bit")
OTHER = Case(architecture="hopper", software="megatron-core", kind="moe", precision="fp8")


@pytest.mark.parametrize(
    ("changes", "lacks"),
    [
        ({}, set()),
        ({"architecture": "cdna3"}, {"gpu"}),
        ({"software": "deepspeed"}, {"software"}),
        ({"software": "megatron-core"}, {"software"}),  # measured, but on another chip
        ({"kind": "moe"}, {"kind"}),  # measured, but neither on that chip nor with that software
        ({"precision": "fp8"}, {"precision"}),
        ({"architecture": "cdna3", "software": "nothing"}, {"gpu", "software", "kind", "precision"}),
    ],
)
def test_what_no_run_is_near_in(changes: dict[str, str], lacks: set[str]) -> None:
    assert find_missing_aspects(replace(KNOWN, **changes), [KNOWN, OTHER]) == lacks


def test_where_nobody_says_what_was_measured_nothing_is_lacked() -> None:
    assert find_missing_aspects(OTHER, []) == frozenset()


def test_a_combination_of_an_older_file_stands_for_every_kind_and_format() -> None:
    old = Case.parse("ampere/pytorch")
    assert find_missing_aspects(replace(KNOWN, kind="moe", precision="fp8"), [old]) == frozenset()
    assert old.name == "ampere/pytorch"
    assert Case.parse(KNOWN.name) == KNOWN


def test_adapters_and_formats_make_the_case() -> None:
    machine = cluster("superpod-h100")
    plan = Plan(lora_rank=8, precision=Precision.MXFP8, global_batch=8)
    found = build_case(gpt(layers=2, hidden=256, heads=4, seq=128), plan, machine)
    assert found.name == "hopper/megatron-core/adapters/fp8/dp"


@pytest.mark.parametrize(
    ("axes", "measured", "lacks"),
    [
        ("dp", "dp", set()),
        ("tp", "tp-pp", set()),  # a run with more axes tells of each
        ("tp-pp", "tp", {"axes"}),
        ("cp", "dp", {"axes"}),
        ("tp-pp", "", set()),  # a file that does not say
    ],
)
def test_axes_that_the_software_never_combined_are_new(axes: str, measured: str, lacks: set[str]) -> None:
    assert find_missing_aspects(replace(KNOWN, axes=axes), [replace(KNOWN, axes=measured), OTHER]) == lacks
    assert Case.parse(replace(KNOWN, axes=axes).name) == replace(KNOWN, axes=axes)


def test_runs_that_are_not_predicted_are_near_to_nothing() -> None:
    assert select_held([KNOWN, KNOWN, OTHER, OTHER], [0.1, -0.9, 0.3, 0.4]) == {KNOWN}
