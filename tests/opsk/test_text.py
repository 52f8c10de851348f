"""Text of others cannot steer a terminal, and numbers read as people write them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.text import (
    blank_controls,
    escape,
    format_bytes,
    format_change,
    format_count,
    format_duration,
    format_share,
    to_json_values,
)


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
    assert to_json_values(value) == {"inner": {"sizes": [1.5, None, None]}, "where": "/a", "colour": "red"}


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
    assert to_json_values(value) == expected


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, 한국어 und Übung", "plain text, 한국어 und Übung"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x9b31m", "\\x9b31m"),  # CSI as one sign
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("a\rb\x08c\x7f", "a b\\x08c\\x7f"),
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
    assert escape(text) == shown


@given(st.text(alphabet=st.characters()))
def test_no_text_can_steer_a_terminal_or_start_a_line(text: str) -> None:
    shown = escape(text)
    assert shown.isprintable()
    assert shown.encode("utf-8").decode("utf-8") == shown
    assert escape(shown) == shown


def test_a_message_of_another_program_is_one_short_printable_line() -> None:
    assert blank_controls("a\x1b[1m\nb" + "c" * 500) == "a [1m b" + "c" * 193
    assert blank_controls("abc", max_chars=2) == "ab"


@pytest.mark.parametrize(("number", "text"), [(0, "0 jobs"), (1, "1 job"), (2, "2 jobs")])
def test_a_noun_agrees_with_its_number(number: int, text: str) -> None:
    assert format_count(number, "job") == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 MiB"),
        (50 * 2**20, "50 MiB"),
        (2**30, "1.0 GiB"),
        (81559 * 2**20, "79.6 GiB"),  # nvidia-smi's total of an H100: 81559 / 1024
        (-(2**31), "-2.0 GiB"),
    ],
)
def test_a_size_is_readable(size_bytes: float, text: str) -> None:
    assert format_bytes(size_bytes) == text


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [
        (0.85, "850 ms"),
        (0.9994, "999 ms"),
        (0.9999, "1 s"),  # three digits of milliseconds would read 1e+03
        (13.7, "13.7 s"),
        (720, "12 min"),
        (11520, "3.2 h"),
        (33.4 * 86400, "33.4 days"),
        (999.96 * 86400, "1,000 days"),
        (11156 * 86400, "11,156 days"),
        (-5, "-5 s"),
        (math.nan, "unknown"),
        (math.inf, "unknown"),
    ],
)
def test_a_duration_is_readable(duration_s: float, text: str) -> None:
    assert format_duration(duration_s) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0.0, "0%"),
        (0.004, "< 1%"),
        (0.005, "< 1%"),
        (0.006, "1%"),
        (0.18, "18%"),
        (0.9949, "99%"),
        (0.9996, "> 99%"),
        (1.0, "100%"),
    ],
)
def test_what_is_not_quite_all_or_nothing_is_not_rounded_to_it(ratio: float, text: str) -> None:
    assert format_share(ratio) == text


@given(st.floats(min_value=1e-6, max_value=1e9))
def test_a_duration_never_reads_as_a_power_of_ten(duration_s: float) -> None:
    assert "e+" not in format_duration(duration_s)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (0.041, "4.1% dearer"),
        (-0.2, "20.0% cheaper"),
        (0.0, "same"),
        (-0.0004, "same"),
        (0.0006, "0.1% dearer"),
        (12.5, "1250.0% dearer"),
        (math.nan, "unknown"),
        (math.inf, "unknown"),
    ],
)
def test_a_difference_has_its_direction_in_words(change: float, expected: str) -> None:
    assert format_change(change, more="dearer", less="cheaper") == expected


@given(change=st.floats(-10, 10))
def test_a_difference_never_has_a_sign(change: float) -> None:
    assert not set("+-") & set(format_change(change, more="more", less="less", digits=0))
