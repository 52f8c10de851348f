"""What a plan file says, and how everything that is wrong with one is told at once."""

from __future__ import annotations

import io
import tomllib
from pathlib import Path

import pytest

from opsk.app.inputs.plan_file import MAX_BYTES, PlanFile, build_plan_file, read_plan_file
from opsk.errors import InputError
from opsk.workload.plan import Recompute, Sharding

MODEL = """
[model]
layers = 80
hidden = 8192
ffn = 28672
heads = 64
vocab = 128256
seq = 8192
"""
PLAN = """
[plan]
tp = 4
pp = 2
sharding = "zero1"
recompute = "selective"
global_batch = 512
"""


def parse_plan(text: str, *, source: str) -> PlanFile:
    return build_plan_file(tomllib.loads(text), source=source)


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        parse_plan(text, source="a.toml")
    assert caught.value.hint
    return caught.value.message


def test_left_out_heads_are_those_of_plain_attention() -> None:
    """Key-value heads as many as heads; 8192 / 64 = 128."""
    model = parse_plan(MODEL + PLAN, source="a.toml").model
    assert (model.kv_heads, model.head_dim) == (64, 128)


def test_words_become_values() -> None:
    plan = parse_plan(MODEL + PLAN, source="a.toml").plan
    assert (plan.sharding, plan.recompute) == (Sharding.ZERO1, Recompute.SELECTIVE)


def test_dp_is_fixed_by_the_gpus_where_left_out() -> None:
    """8 nodes x 8 GPUs / (tp 4 x pp 2) = 8."""
    assert parse_plan("nodes = 8\ngpus_per_node = 8\n" + MODEL + PLAN, source="a.toml").plan.dp == 8


def test_all_violations_are_told_at_once_with_the_file() -> None:
    message = refusal("[model]\nlayers = '3'\nfoo = 1\n[plan]\nsharding = 'zero9'\ntp = true\n")
    assert message.startswith("a.toml: ")
    for where in ("model.layers", "model.hidden: missing", "model.foo: no such key", "plan.sharding", "plan.tp"):
        assert where in message


def test_impossible_shapes_and_plans_are_told_together() -> None:
    message = refusal(MODEL.replace("80", "0") + PLAN.replace("tp = 4", "tp = 0"))
    assert "layers is 0" in message
    assert "tp is 0" in message


def test_gpus_that_do_not_match_are_told_with_both_numbers() -> None:
    message = refusal("nodes = 2\ngpus_per_node = 8\n" + MODEL + PLAN + "dp = 4\n")
    assert "is 32 GPUs" in message
    assert "is 16" in message


def test_a_head_size_that_does_not_come_out_even_is_refused() -> None:
    assert "hidden 8192 is not a multiple of heads 60" in refusal(MODEL.replace("heads = 64", "heads = 60") + PLAN)


def test_a_broken_file_names_the_line(tmp_path: Path) -> None:
    broken = tmp_path / "a.toml"
    broken.write_text("nodes = 1\nwhat is this")
    with pytest.raises(InputError, match="line 2") as caught:
        read_plan_file(str(broken))
    assert caught.value.hint


def test_hostile_text_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in refusal('[model]\n"\\u001b[31m" = 1\n[plan]\nglobal_batch = 1\n')


def test_files_that_are_no_plan_are_refused_by_name(tmp_path: Path) -> None:
    large, binary = tmp_path / "large", tmp_path / "binary"
    large.write_bytes(b"#" * (MAX_BYTES + 1))
    binary.write_bytes(b"\xff\xfe\x00")
    for path, says in (
        (large, "larger than"),
        (binary, "not UTF-8"),
        (tmp_path / "none", "No such file"),
        (tmp_path, ""),
    ):
        with pytest.raises(InputError) as caught:
            read_plan_file(str(path))
        assert str(path) in caught.value.message
        assert says in caught.value.message


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((MODEL + PLAN).encode())))
    assert read_plan_file("-").source == "standard input"


@pytest.mark.parametrize("name", ["gpt3-175b-titan", "llama3-405b-gb200", "llama3-70b-64", "mixtral-8x7b-64"])
def test_the_examples_are_plans(root: Path, name: str) -> None:
    file = read_plan_file(str(root / "examples" / "plans" / f"{name}.toml"))
    assert file.plan.gpus == (file.nodes or 0) * (file.gpus_per_node or 0)
