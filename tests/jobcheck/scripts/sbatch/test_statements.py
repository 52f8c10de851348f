"""What a script says to opsk itself: ``#OPSK`` lines."""

from __future__ import annotations

import pytest

from opsk.workload.plan import StatedPlan
from opsk.workload.workload import Evidence, Problem, Unknown, Workload
from opsk_jobcheck.scripts.sbatch.statements import apply_statements, read_opsk_lines


def test_statements_are_read_by_dotted_and_by_short_name() -> None:
    found = read_opsk_lines(
        "#!/bin/bash\nsrun x\n#OPSK framework=megatron-lm model.layers=32 tp=8 seq=8_192 # why\n"
        "#OPSK sharding=zero1 sequence_parallel=yes gpu=H100 mbs=2 tokenizer.type=GPT2BPETokenizer name='my model'\n",
        file="x",
    )
    assert (found.framework, found.gpu, found.model.name) == ("megatron-lm", "h100", "my model")
    assert (found.model.layers, found.model.seq, found.plan.tp, found.plan.micro_batch) == (32, 8192, 8, 2)
    assert (found.plan.sharding, found.plan.sequence_parallel) == ("zero1", True)
    assert found.options == (("tokenizer.type", "GPT2BPETokenizer"),)
    assert {entry.line for entry in found.evidence} == {3, 4}
    assert not found.problems


def test_opting_out_wants_off_alone_in_the_first_column() -> None:
    assert read_opsk_lines("#OPSK off\n", file="x").opted_out
    assert not read_opsk_lines("echo '#OPSK off'\n #OPSK off\n#OPSK offset=3\n", file="x").opted_out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("tpp=8", "did you mean tp?"),
        ("modle.layers=3", "did you mean model.layers?"),
        ("tp=eight", "plan.tp is 'eight'"),
        ("tp=0", "plan.tp is '0'"),
        ("tp=$TP", "plan.tp is '$TP'"),
        ("sharding=zero9", "one of none, zero1, zero2, zero3"),
        ("flash_attention=maybe", "true or false"),
        ("framework=$F", "nothing is expanded"),
        ("hello", "'hello' is not key=value"),
    ],
)
def test_a_bad_statement_is_a_problem_with_line_and_cure(words: str, expected: str) -> None:
    found = read_opsk_lines(f"#!/bin/sh\n#OPSK {words} pp=4\n", file="x")
    assert [problem.line for problem in found.problems] == [2]
    assert expected in found.problems[0].what
    assert found.plan.pp == 4


def test_statements_beat_what_a_reader_found() -> None:
    found = Workload(
        framework="megatron-lm",
        plan=StatedPlan(gpus=64, tp=4, pp=2, dp=8, micro_batch=1),
        evidence=(Evidence(field="plan.tp", value=4, file="x", line=9, text="--tp 4"),),
        unknown=(Unknown(field="model.layers", why="from $1"),),
        problems=(Problem(what="earlier"),),
    )
    result = apply_statements(found, read_opsk_lines("#OPSK tp=8 layers=32\n", file="x"))
    assert (result.plan.tp, result.plan.pp, result.plan.micro_batch, result.model.layers) == (8, 2, 1, 32)
    # 64 / (8 x 2)
    assert result.plan.dp == 4
    assert [entry.line for entry in result.evidence if entry.field == "plan.tp"] == [1]
    assert result.unknown == ()
    assert result.problems == found.problems


def test_stated_nodes_change_the_gpus_that_follow_from_them() -> None:
    found = Workload(framework=None, plan=StatedPlan(nodes=2, gpus_per_node=8, gpus=16, tp=8, pp=1, dp=2))
    result = apply_statements(found, read_opsk_lines("#OPSK nodes=4\n", file="x"))
    assert (result.plan.gpus, result.plan.dp) == (32, 4)


def test_nothing_stated_changes_nothing() -> None:
    found = Workload(framework=None, is_training=False)
    assert apply_statements(found, read_opsk_lines("srun x\n", file="x")) == found
