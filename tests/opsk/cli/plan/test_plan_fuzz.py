"""Whatever a plan file or a flag holds, ``opsk predict`` answers in finite numbers or refuses in one printable line."""

from __future__ import annotations

import json
import math
import tomllib
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opsk.app.inputs.plan_validation import KINDS, examine_plan
from opsk.cli.main import opsk
from opsk.cli.predict.command import build_answer, validate_plan
from opsk.costmodel.efficiency.default import DEFAULT
from opsk.errors import OpskError
from opsk.text import to_json_values

ABSURD = (0, 1, -1, 10**9, 10**9 + 1, -(10**18), 10**100, 10**5000)
ODD_FLOATS = (0.0, -0.0, 1.0, 0.5, 1e-300, 1e30, 1e308, -1.0, math.inf, -math.inf, math.nan)

numbers = st.one_of(
    st.sampled_from(ABSURD), st.integers(-4, 4096), st.sampled_from(ODD_FLOATS), st.floats(), st.booleans()
)
texts = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["bf16", "fp8", "zero3", "full", "nan", "\x1b[31m", "titan", "llama-3-8b", "a.json"]),
)
values = st.one_of(
    numbers, texts, st.lists(numbers, max_size=2), st.dictionaries(st.text(max_size=4), numbers, max_size=2)
)

MODEL = {"layers": 4, "hidden": 256, "ffn": 1024, "heads": 4, "vocab": 1000, "seq": 128}
PLAN = {"tp": 2, "pp": 2, "dp": 2, "micro_batch": 1, "global_batch": 8}
WHOLE = {"cluster": "superpod-h100", "model": MODEL, "plan": PLAN}


def keys(table: str) -> st.SearchStrategy[str]:
    return st.one_of(st.sampled_from(sorted(KINDS[table])), st.text(max_size=6))


@st.composite
def spoilt_tables(draw: st.DrawFn) -> dict[str, Any]:
    """A plan file that works, with up to six of its values replaced by anything."""
    tables: dict[str, Any] = json.loads(json.dumps(WHOLE))
    for _ in range(draw(st.integers(1, 6))):
        table = draw(st.sampled_from(sorted(KINDS)))
        content = tables.setdefault(table, {}) if table else tables
        key = draw(keys(table))
        if isinstance(content, dict):
            content[key] = draw(values)
    return tables


@st.composite
def sized_tables(draw: st.DrawFn) -> dict[str, Any]:
    """A plan file whose values all have the right type, few of them the right size."""
    tables: dict[str, Any] = json.loads(json.dumps(WHOLE))
    for table in ("model", "plan", "run", "checkpoint"):
        for key in draw(st.lists(st.sampled_from(sorted(KINDS[table])), max_size=5, unique=True)):
            tables.setdefault(table, {})[key] = draw(_of_kind(KINDS[table][key]))
    return tables


def _of_kind(kind: Any) -> st.SearchStrategy[Any]:
    """Values of the type of a key."""
    if kind is int:
        return st.one_of(st.integers(0, 64), st.sampled_from([1, 2, 4, 8, 16, 1024, 10**6, 10**9]))
    if kind is float:
        return st.one_of(st.floats(0, 1e18), st.sampled_from([1e-18, 1.0, 1e9, 1e18]))
    if kind is bool:
        return st.booleans()
    return st.just("llama-3-8b") if kind is str else st.sampled_from([member.value for member in kind])


def check(tables: dict[str, Any]) -> None:
    """Predict, and accept an answer in finite numbers or one printable line of refusal."""
    refusal, document = None, None
    try:
        document = build_answer(*validate_plan(tables, source="a.toml"), DEFAULT)
    except OpskError as error:
        refusal = error
    if refusal is not None:
        assert refusal.message.isprintable()
        assert refusal.exit_status == 2
        return
    text = json.dumps(to_json_values(document), allow_nan=False)
    for where, number in _numbers(json.loads(text), ""):
        assert number is not None or where.endswith(("_bias", "dropout", ".measured")), f"{where} is no number"


def _numbers(value: Any, where: str) -> list[tuple[str, Any]]:
    """Return every leaf of a document with its place."""
    if isinstance(value, dict):
        return [leaf for key, entry in value.items() for leaf in _numbers(entry, f"{where}.{key}")]
    if isinstance(value, list):
        return [leaf for entry in value for leaf in _numbers(entry, f"{where}[]")]
    return [(where, value)]


def test_the_plan_that_is_spoilt_works():
    validate_plan(WHOLE, source="a.toml")


@given(spoilt_tables())
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_spoilt_tables_are_answered_or_refused(tables: dict[str, Any]):
    check(tables)


@given(sized_tables())
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_strange_sizes_are_answered_in_finite_numbers_or_refused(tables: dict[str, Any]):
    check(tables)


@given(spoilt_tables())
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_is_wrong_is_told_with_its_key(tables: dict[str, Any]):
    told = examine_plan(tables).wrong
    assert len(told) == len(set(told))
    assert all(line and line.isprintable() for line in told)


@given(st.text(max_size=200))
def test_any_text_is_a_plan_file_or_is_refused(text: str):
    result = CliRunner().invoke(opsk, ["predict", "-"], input=text.encode("utf-8", "surrogatepass"))
    assert result.exception is None or isinstance(result.exception, OpskError)


FLAG_TEXTS = [
    "",
    "0",
    "-1",
    "1e30",
    "nan",
    "inf",
    "9" * 50,
    "9" * 5000,
    "٣",
    "0x10",
    "1_000",
    "tp",
    "--",
    "é\x1b[0m",
    "8.0",
]


@pytest.mark.parametrize(
    "flag", ["--tp", "--model-layers", "--global-batch", "--pue", "--precision", "--model", "--tokens"]
)
@pytest.mark.parametrize("text", FLAG_TEXTS)
def test_any_text_of_a_flag_is_taken_or_refused(flag: str, text: str):
    file = "\n".join(["cluster = 'superpod-h100'", "[model]", *_lines(MODEL), "[plan]", *_lines(PLAN)])
    assert tomllib.loads(file)
    result = CliRunner().invoke(opsk, ["predict", "-", "--json", f"{flag}={text}"], input=file)
    if result.exception is None:
        assert "NaN" not in result.stdout
        assert "Infinity" not in result.stdout
    else:
        assert isinstance(result.exception, OpskError)
        assert result.exception.message.isprintable()


def _lines(table: dict[str, int]) -> list[str]:
    """Return a table's keys as TOML."""
    return [f"{key} = {value}" for key, value in table.items()]
