"""Is text that anybody may write only ever seen, and as wide as it is said to be?"""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from opsk_tui.text import ascii_text, fit_text, safe, wrap_text
from tests.fakes.big_cluster import HOSTILE

ANYTHING = st.text(st.characters(exclude_categories=()), max_size=60)


@given(ANYTHING)
def test_nothing_that_controls_a_terminal_is_left(text: str) -> None:
    shown = safe(text)
    assert not [sign for sign in shown if unicodedata.category(sign)[0] == "C"]
    assert "\n" not in shown
    assert shown.isprintable()


@given(ANYTHING)
def test_ascii_text_has_ascii_only_and_keeps_its_width(text: str) -> None:
    shown = safe(text)
    assert ascii_text(shown).isascii()
    assert abs(cell_len(ascii_text(shown)) - cell_len(shown)) <= sum(cell_len(sign) == 0 for sign in shown)


@given(ANYTHING, st.integers(min_value=0, max_value=80), st.booleans())
def test_a_fitted_text_has_exactly_its_width(text: str, width: int, right: bool) -> None:
    assert cell_len(fit_text(safe(text), width, right=right)) == width


@given(ANYTHING, st.integers(min_value=5, max_value=40))
def test_wrapping_loses_no_sign(text: str, width: int) -> None:
    lines = wrap_text(safe(text), width)
    assert "".join(lines).replace(" ", "") == safe(text).replace(" ", "")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_stay_one_short_line(text: str) -> None:
    assert cell_len(fit_text(safe(text), 12)) == 12


def test_marks_do_not_stack_over_other_lines() -> None:
    assert safe("a" + "\u0301" * 50) == "a\u0301\u0301"


def test_a_line_of_megabytes_is_cut() -> None:
    assert len(safe("x" * 5_000_000)) < 5000
