from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.cli.document import echo_json, harmless, plain


class _Colour(StrEnum):
    RED = "red"


class _Pair(Enum):
    BOTH = (1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inner:
    sizes: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outer:
    inner: _Inner
    where: Path
    colour: _Colour


def test_values_become_what_json_knows() -> None:
    value = _Outer(inner=_Inner(sizes=(1.5, float("nan"), float("inf"))), where=Path("/a"), colour=_Colour.RED)
    assert plain(value) == {"inner": {"sizes": [1.5, None, None]}, "where": "/a", "colour": "red"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.float64("nan"), None),
        (np.bool_(True), True),
        (np.array([1.0, np.nan]), [1.0, None]),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        ({_Colour.RED: {"b", "a"}}, {"red": ["a", "b"]}),
        (_Pair.BOTH, [1, 2]),
        (b"\xffx", "\ufffdx"),
        (datetime(2026, 11, 21, tzinfo=UTC), "2026-11-21T00:00:00+00:00"),
        (None, None),
    ],
)
def test_a_value_becomes_plain(value: Any, expected: Any) -> None:
    assert plain(value) == expected


def test_one_json_document_is_printed_and_is_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    echo_json({"name": "\x1b[31m韓\u202e\udc80", "n": np.arange(2)})
    out = capsys.readouterr().out
    assert out.isascii()
    assert "\x1b" not in out
    assert json.loads(out)["name"] == "\x1b[31m韓\u202e\udc80"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, 한국어 und Übung", "plain text, 한국어 und Übung"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x9b31m", "\\x9b31m"),  # CSI as one sign
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("a\rb\x08c\x7f", "a\\x0db\\x08c\\x7f"),
        ("one\nsbatch: opsk  all fine", "one sbatch: opsk  all fine"),
        ("tab\there", "tab here"),
        ("abc\u202ecba", "abc\\u202ecba"),  # right-to-left override
        ("a\u2066b\u2069c\u061cd", "a\\u2066b\\u2069c\\u061cd"),
        ("line\u2028para\u2029", "line\\u2028para\\u2029"),
        ("zero\u200bwidth\ufeff\u00ad", "zero\\u200bwidth\\ufeff\\xad"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("lone\udc9b", "lone\\udc9b"),
        ("wide\u3000space\u00a0", "wide space "),
    ],
)
def test_hostile_text_is_shown_and_not_obeyed(text: str, shown: str) -> None:
    assert harmless(text) == shown


@given(st.text(alphabet=st.characters()))
def test_no_text_can_steer_a_terminal_or_start_a_line(text: str) -> None:
    shown = harmless(text)
    assert shown.isprintable()
    assert shown.encode("utf-8").decode("utf-8") == shown
    assert harmless(shown) == shown
