"""Is a request read the same however a hook and a release spell it?"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk_jobcheck.submission.protocol import AdviseQuestion, SubmitQuestion
from opsk_jobcheck.submission.request import (
    SlurmRequest,
    command_text,
    contradicts,
    job_environment,
    node_count,
    number,
    parse_advise_request,
    parse_gpus,
    parse_options,
    parse_submit_request,
    seconds,
)

NO_VAL = 4294967294


def submitted(**job: Any) -> SlurmRequest:
    return parse_submit_request(SubmitQuestion(kind="submit", uid=1, argv=("train.sh", "8"), job=job))


def typed(argv: tuple[str, ...] = ("train.sh",), env: dict[str, str] | None = None, **options: str) -> SlurmRequest:
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return parse_advise_request(AdviseQuestion(kind="advise", argv=argv, options_json=json.dumps(named), env=env or {}))


# Spellings measured on 22.05 (colon) and 24.11 to 26.05 (slash), for --gres, --gpus-per-node, --gpus, --gpus-per-task.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gres:gpu:8", (8, None)),
        ("gres/gpu:8", (8, None)),
        ("gres:gpu:h100:8", (8, "h100")),
        ("gres/gpu:h100:8", (8, "h100")),
        ("gres/gpu=1", (1, None)),
        ("gres/gpu:h100=8", (8, "h100")),
        ("gpu:8", (8, None)),
        ("gpu:A100:4", (4, "a100")),
        ("gpu", (1, None)),
        ("gpu:h100", (1, "h100")),
        ("cpu=4,gres/gpu=2", (2, None)),
        ("gres/nic:2,gres/gpu:h100:8(S:0-1)", (8, "h100")),
        ("gres/gpu:a100:2,gres/gpu:h100:2", (4, None)),
        ("gpu:0", (0, None)),
        ("gres/gpu_mem:80", (None, None)),
        ("gres/shard:4", (None, None)),
        ("nic:1", (None, None)),
        ("", (None, None)),
        (None, (None, None)),
        ("gpu:9x", (None, None)),
    ],
)
def test_gpus_of_a_tres_text(text: str | None, expected: tuple[int | None, str | None]) -> None:
    assert parse_gpus(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("8", (8, None)), ("h100:8", (8, "h100")), ("h100", (1, "h100"))])
def test_gpus_of_an_option(text: str, expected: tuple[int | None, str | None]) -> None:
    assert parse_gpus(text, bare=True) == expected


@given(st.text())
def test_any_text_asks_for_some_gpus_or_none(text: str) -> None:
    count, _ = parse_gpus(text)
    assert count is None or count >= 0


def test_both_hooks_see_the_same_request() -> None:
    """``sbatch -N 2 --gpus-per-node=h100:8 --ntasks-per-node=8 -p gpu -C ib train.sh 8``."""
    from_options = typed(
        ("train.sh", "8"), nodes="2", gpus_per_node="h100:8", ntasks_per_node="8", partition="gpu", constraint="ib"
    )
    from_job = submitted(
        min_nodes=2,
        max_nodes=2,
        num_tasks=NO_VAL,
        ntasks_per_node=8,
        cpus_per_task=65534,
        tres_per_node="gres/gpu:h100:8",
        gres="gres/gpu:h100:8",
        partition="gpu",
        features="ib",
    )
    expected = SlurmRequest(
        nodes=2,
        gpus_per_node=8,
        gpu_type="h100",
        ntasks_per_node=8,
        partition="gpu",
        constraint="ib",
        is_merged=True,
        arguments=("8",),
    )
    assert from_job == expected
    assert not contradicts(from_options, from_job)


def test_the_same_options_of_another_user_or_place_are_another_request() -> None:
    """What options say is kept; who asks, where, and with which environment is not theirs."""
    options = json.dumps({"nodes": "2", "gpus-per-node": "8", "export": "A"})
    asked = [
        AdviseQuestion(
            kind="advise", options_json=options, argv=("a.sh", "1"), cwd="/home/a", env={"A": "1", "B": "2"}
        ),
        AdviseQuestion(kind="advise", options_json=options, argv=("b.sh", "2"), cwd="/home/b", env={"A": "3"}),
        AdviseQuestion(kind="advise", options_json=options, argv=("a.sh",), cwd="/home/a", heterogeneous=True),
    ]
    found = [parse_advise_request(question) for question in asked]
    assert [request.directory for request in found] == ["/home/a", "/home/b", "/home/a"]
    assert [request.environment for request in found] == [{"A": "1"}, {"A": "3"}, {}]
    assert [request.arguments for request in found] == [("1",), ("2",), ()]
    assert [request.nodes for request in found] == [2, 2, None]
    assert [parse_advise_request(question) for question in asked] == found


def test_of_a_script_without_a_name_nobody_knows_the_arguments() -> None:
    """``--wrap``, standard input, a client of slurmrestd: Slurm tells not even the path."""
    assert parse_advise_request(AdviseQuestion(kind="advise", options_json="{}", argv=())).arguments is None
    assert parse_advise_request(AdviseQuestion(kind="advise", options_json="{}", argv=("a.sh",))).arguments == ()


def test_options_that_are_longer_than_is_kept_are_read_all_the_same() -> None:
    assert typed(comment="x" * 20_000, nodes="3").nodes == 3


def test_unset_fields_are_not_asked_for() -> None:
    job = {"min_nodes": NO_VAL, "max_nodes": NO_VAL, "num_tasks": NO_VAL, "ntasks_per_node": 65534, "shared": 65534}
    assert submitted(**job) == SlurmRequest(nodes=1, is_merged=True, is_left_to_partition=True, arguments=("8",))


# Measured on 22.05 to 26.05: min_nodes is NO_VAL for all of these, and the job gets one node.
@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"gpus_per_node": "8"}, {"tres_per_node": "gres/gpu:8"}),
        ({"gres": "gpu:8", "cpus_per_task": "4"}, {"tres_per_node": "gres/gpu:8", "tres_per_task": "cpu=4"}),
        ({"gres": "gpu:8", "ntasks_per_node": "8"}, {"tres_per_node": "gres/gpu:8", "ntasks_per_node": 8}),
        ({"gres": "gpu:8", "ntasks_per_node": "8"}, {"tres_per_node": "g", "ntasks_per_node": 8, "num_tasks": 8}),
    ],
)
def test_who_asks_for_no_nodes_gets_one(options: dict[str, str], fields: dict[str, Any]) -> None:
    asked = submitted(**{"min_nodes": NO_VAL, "max_nodes": NO_VAL, "num_tasks": NO_VAL, **fields})
    assert (typed(**options).nodes, typed(**options).is_left_to_partition) == (1, True)
    assert (asked.nodes, asked.is_left_to_partition) == (1, True)


def test_host_memory_is_told_by_cli_filter() -> None:
    assert typed(mem="200G", nodes="2").memory == {"mem": "200G"}
    assert typed(**{"mem_per_gpu": "96G", "nodes": "2"}).memory == {"mem-per-gpu": "96G"}
    assert submitted(min_nodes=2).memory == {}


def test_who_asks_for_nodes_leaves_nothing_to_the_partition() -> None:
    assert not typed(nodes="1", gpus_per_node="8").is_left_to_partition
    assert not submitted(min_nodes=1, tres_per_node="gres/gpu:8").is_left_to_partition


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"ntasks": "16"}, {"num_tasks": 16}),
        ({"gpus": "16"}, {"tres_per_job": "gres/gpu:16"}),
        ({"gpus_per_task": "1"}, {"tres_per_task": "gres/gpu=1"}),
        ({"nodes": "2-4"}, {"min_nodes": 2, "max_nodes": 4}),
    ],
)
def test_what_may_take_several_nodes_tells_no_number(options: dict[str, str], fields: dict[str, Any]) -> None:
    assert typed(**options).nodes is None
    assert submitted(**{"min_nodes": NO_VAL, "max_nodes": NO_VAL, "num_tasks": NO_VAL, **fields}).nodes is None


def test_gpus_per_job_and_per_task_are_kept_apart() -> None:
    assert submitted(tres_per_job="gres:gpu:16").gpus == 16
    assert submitted(tres_per_task="cpu=4,gres/gpu=1").gpus_per_task == 1
    assert typed(gpus="16").gpus == 16
    assert typed(gpus_per_task="1").gpus_per_task == 1
    assert typed(tres_per_task="gres/gpu:2").gpus_per_task == 2


def test_gres_of_an_option_is_per_node() -> None:
    """``--gres=gpu:h100:8`` shows as ``gres:gpu:h100:8`` in 22.05's list of options."""
    assert typed(gres="gres:gpu:h100:8").gpus_per_node == 8


@pytest.mark.parametrize(
    ("text", "expected"), [("8", 8), ("2-4", None), ("4-4", 4), ("", None), ("2,4", None), ("x", None)]
)
def test_a_range_of_nodes_is_no_number(text: str, expected: int | None) -> None:
    assert node_count(text) == expected


def test_a_range_of_nodes_of_a_job_is_no_number() -> None:
    assert submitted(min_nodes=2, max_nodes=4).nodes is None


@pytest.mark.parametrize("value", [NO_VAL, 65534, 0, -1, None, "", "nan", "inf", 1e300, [], "0x10", "x"])
def test_what_is_no_count_is_not_given(value: object) -> None:
    assert number(value) is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", "null", '{"options":7}', "[" * 100_000, '{"nodes":{}}', '{"nodes":"unset"}']
)
def test_broken_options_are_none(text: str) -> None:
    found = parse_options(text)
    assert "nodes" not in found


def test_the_script_of_a_typed_command_quotes_its_words() -> None:
    assert command_text("srun", ("torchrun", "a b", "$(x)")) == "#!/bin/sh\nsrun torchrun 'a b' '$(x)'\n"
    assert command_text("salloc", ("bash", "-c", "x")) == "#!/bin/sh\nbash -c x\n"


# sbatch(1), --export: ALL is the default, NONE and NIL give nothing, names pick, name=value sets.
@pytest.mark.parametrize(
    ("export", "expected"),
    [
        ("", {"A": "1", "B": "2"}),
        ("ALL", {"A": "1", "B": "2"}),
        ("NONE", {}),
        ("NIL", {}),
        ("A", {"A": "1"}),
        ("A,C=3", {"A": "1", "C": "3"}),
        ("ALL,A=9", {"A": "9", "B": "2"}),
        ("NONE,A=9", {"A": "9"}),
    ],
)
def test_the_job_sees_what_export_lets_through(export: str, expected: dict[str, str]) -> None:
    assert job_environment({"A": "1", "B": "2"}, export) == expected


def test_requests_contradict_only_where_both_say_something() -> None:
    asked = SlurmRequest(nodes=2, gpus_per_node=8)
    assert not contradicts(asked, SlurmRequest(gpus_per_node=8, ntasks=16))
    assert contradicts(asked, SlurmRequest(nodes=4))
    assert contradicts(asked, SlurmRequest(nodes=2, arguments=("8",)))


def test_a_size_that_slurm_was_told_before_and_is_not_told_now_is_another_submission() -> None:
    before = typed(nodes="2", gpus_per_node="8")
    job = {"tres_per_node": "gres/gpu:8"}
    assert contradicts(before, submitted(**job))
    assert not contradicts(typed(nodelist="n[0-1]", argv=("train.sh", "8")), submitted(min_nodes=2, **job))
    assert contradicts(typed(gpus_per_node="8", argv=("train.sh", "8")), submitted(array_inx="0-3", **job))
    # a script of components: cli_filter may see the sizes of the first, job_submit's are not taken
    both = typed(nodes="2", argv=("train.sh", "8")), submitted(min_nodes=2, het_job_offset=0)
    assert not contradicts(*both)


# Fields measured on 22.05 to 26.05: het_job_offset is NO_VAL for a job of one component, array_inx nil without --array.
def test_components_and_arrays_are_told_apart() -> None:
    assert not submitted(het_job_offset=NO_VAL).is_heterogeneous
    assert not submitted().is_heterogeneous
    assert submitted(het_job_offset=0).is_heterogeneous
    assert submitted(array_inx="0-9%2").is_array
    assert not submitted().is_array
    assert typed(array="0-9").is_array


def test_of_a_heterogeneous_job_no_size_is_told() -> None:
    """A hook sees one component at a time."""
    request = submitted(het_job_offset=0, min_nodes=2, tres_per_node="gres/gpu:8", partition="gpu")
    assert (request.nodes, request.gpus_per_node, request.partition) == (None, None, "gpu")


@pytest.mark.parametrize("text", ["gres:gpu:4", "gres/gpu:4"])
def test_gpus_by_socket_need_the_number_of_sockets(text: str) -> None:
    assert submitted(tres_per_socket=text, sockets_per_node=2).gpus_per_node == 8
    assert submitted(tres_per_socket=text, sockets_per_node=65534).gpus_per_node is None
    assert typed(gpus_per_socket="h100:4", sockets_per_node="2").gpus_per_node == 8
    assert typed(gpus_per_socket="4", extra_node_info="2:8:1").gpus_per_node == 8
    assert typed(gpus_per_socket="4").gpus_per_node is None


def test_what_a_policy_goes_by_is_read() -> None:
    request = submitted(account="lab", qos="low", partition="a,b", shared=0, time_limit=90)
    assert (request.account, request.qos, request.partition, request.is_exclusive) == ("lab", "low", "a,b", True)
    assert request.time_limit_s == 5400
    assert submitted(time_limit=NO_VAL, shared=65534).time_limit_s is None
    assert not submitted(shared=65534).is_exclusive
    options = typed(account="lab", qos="low", exclusive="exclusive", time="1-12:30:00")
    assert (options.account, options.qos, options.is_exclusive, options.time_limit_s) == ("lab", "low", True, 131400)


@pytest.mark.parametrize("value", ["oversubscribe", "user", "mcs", "unset"])
def test_only_exclusive_itself_gives_whole_nodes(value: str) -> None:
    """``arg_get_exclusive`` in src/common/slurm_opt.c of 22.05 to 26.05 returns these words for the same option."""
    assert not typed(exclusive=value, nodes="2").is_exclusive


# sbatch(1), --time: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30", 1800),
        ("30:15", 1815),
        ("1:30:00", 5400),
        ("2-0", 172800),
        ("2-12", 216000),
        ("2-12:30", 217800),
        ("2-12:30:30", 217830),
        ("UNLIMITED", None),
        ("-1", None),
        ("", None),
        (None, None),
        ("1:2:3:4", None),
    ],
)
def test_times_are_read_as_sbatch_does(text: object, expected: float | None) -> None:
    assert seconds(text) == expected


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_none(text: str) -> None:
    found = seconds(text)
    assert found is None or (found >= 0 and any(sign.isdigit() for sign in text))
