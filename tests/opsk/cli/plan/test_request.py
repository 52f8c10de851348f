from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.cli.plan.request import ParsedRequest, PlanOptions, parse_margin, parse_request
from opsk.errors import InputError
from opsk.frameworks.limits import ANYTHING
from opsk.planning.search.request import AXES
from opsk.workload.plan import Recompute, Sharding, Software

TABLES = {
    "cluster": "superpod-h100",
    "gpus": 16,
    "model": {"like": "llama-3-8b"},
    "plan": {"global_batch": 32},
}


def asked(plan: dict[str, object] | None = None, *, wishes: PlanOptions | None = None, **top: object) -> ParsedRequest:
    tables = {**TABLES, **top, "plan": {**TABLES["plan"], **(plan or {})}}
    return parse_request(tables, wishes or PlanOptions(), source="here")


def test_what_is_stated_is_held_fixed_and_all_else_is_free():
    request = asked({"tp": 2, "sharding": "zero1", "recompute": "full", "optimizer": "sgd"}).request
    assert request.fixed == {"tp": (2,), "sharding": (Sharding.ZERO1,), "recompute": (Recompute.FULL,)}
    assert request.fixed.keys() <= set(AXES)
    assert request.template.optimizer == "sgd"
    assert (request.gpus, request.global_batch) == (16, 32)


def test_nodes_are_as_good_as_gpus():
    tables = {**TABLES, "nodes": 4}
    del tables["gpus"]
    assert parse_request(tables, PlanOptions(), source="here").request.gpus == 32
    assert parse_request({**tables, "gpus_per_node": 4}, PlanOptions(), source="here").request.gpus == 16


def test_nothing_is_assumed_of_what_is_searched():
    fields = {entry.field.removeprefix("plan.") for entry in asked().assumed}
    assert not fields & set(AXES)


def test_a_cluster_that_is_too_small_is_taken_larger_and_that_is_told():
    found = asked(gpus=2048)
    assert found.request.cluster.gpus >= 2048
    assert "planned as if it had more" in {entry.field: entry.why for entry in found.assumed}["cluster.nodes"]


def test_every_number_of_gpus_is_a_case_its_own_first():
    found = asked(wishes=PlanOptions(gpu_counts="8, 64,16"))
    assert [case.gpus for case in found.cases] == len(found.frameworks) * [16, 8, 64]
    for case in found.cases:
        assert case.cluster.gpus >= case.gpus


def test_without_a_framework_the_plans_of_all_that_train_the_model_are_searched():
    found = asked()
    assert (found.framework, found.frameworks) == ("any", ("megatron", "fsdp", "deepspeed", "torchtitan"))
    assert {case.limits.name for case in found.cases} == set(found.frameworks)
    assert all(case.refuses is not None for case in found.cases)


def test_any_framework_is_every_plan_that_no_rule_forbids():
    found = asked(wishes=PlanOptions(framework="any"))
    assert (found.framework, found.frameworks) == ("any", ())
    assert [case.limits for case in found.cases] == [ANYTHING]


@pytest.mark.parametrize(
    ("plan", "frameworks"),
    [
        ({"software": "pytorch"}, ("fsdp", "torchtitan")),
        ({"precision": "fp8"}, ("megatron",)),  # delayed scaling: torchtitan scales by the current values
        ({"offload": "optimizer-and-weights", "software": "deepspeed"}, ("deepspeed",)),
    ],
)
def test_what_a_framework_cannot_express_is_not_searched_for_it(plan: dict[str, object], frameworks: tuple[str, ...]):
    assert asked(plan).frameworks == frameworks


def test_what_no_framework_can_express_is_named_with_what_to_do():
    with pytest.raises(
        InputError, match=r"no framework of a current release trains .* megatron has no optimizer"
    ) as error:
        asked({"optimizer": "adam-8bit"})
    assert error.value.exit_status == 2
    assert "--framework any" in (error.value.hint or "")


def test_a_plan_belongs_to_the_case_with_its_gpus_and_batch():
    found = asked({"global_batch": 31}, wishes=PlanOptions(gpu_counts="8", keep_batch=False))
    for case in found.cases:
        plan = case.plan(dp=case.gpus, micro_batches=1)
        from_case = found.build_case(plan)
        if plan.global_batch == case.global_batch:
            assert from_case is case
    assert {case.gpus for case in found.cases} == {8, 16}
    assert len({case.global_batch for case in found.cases}) > 1


def test_the_framework_brings_its_software():
    assert asked(wishes=PlanOptions(framework="deepspeed")).request.template.software is Software.DEEPSPEED
    assert asked(wishes=PlanOptions(framework="fsdp")).request.template.software is Software.PYTORCH
    with pytest.raises(InputError, match="give one of them"):
        asked({"software": "pytorch"}, wishes=PlanOptions(framework="megatron"))


@pytest.mark.parametrize("software", [3, ["megatron"], "\x1b[31m"])
def test_a_software_that_is_none_is_told_and_harmless(software: object):
    with pytest.raises(InputError) as told:
        asked({"software": software}, wishes=PlanOptions(framework="megatron"))
    assert told.value.message.isprintable()


@pytest.mark.parametrize("plan", [3, [], "tp", None])
def test_a_plan_that_is_no_table_is_told(plan: object):
    with pytest.raises(InputError):
        parse_request({**TABLES, "plan": plan}, PlanOptions(), source="here")


GIB = 2**30


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("5%", 5 * GIB),
        ("0%", 0),
        ("4GiB", 4 * GIB),
        ("4 gib", 4 * GIB),
        ("4", 4 * GIB),
        ("4GB", 4e9),
        ("12.5%", 12.5 * GIB),
        *(
            (text, None)
            for text in ("", "%", "-1", "100%", "200%", "100GiB", "1e1", ".", "1.2.3", "foo", "nan", "inf%")
        ),
    ],
)
def test_a_margin_is_a_share_or_a_size(text: str, size_bytes: float | None):
    found = parse_margin(text, 100.0 * GIB)
    assert found == (size_bytes if size_bytes is None else pytest.approx(size_bytes))


@given(st.text())
def test_any_margin_is_taken_or_not(text: str):
    found = parse_margin(text, 100.0)
    assert found is None or 0.0 <= found < 100.0


@given(st.text(max_size=30) | st.text("0123456789, ", max_size=12))
def test_any_gpu_counts_are_taken_or_told(text: str):
    told = None
    try:
        found = asked(wishes=PlanOptions(gpu_counts=text))
    except InputError as error:
        told = error.message
    if told is None:
        assert {case.gpus for case in found.cases} == {16} | {int(word) for word in text.split(",") if word.strip()}
    else:
        assert "gpu-counts" in told
        assert told.isprintable()
