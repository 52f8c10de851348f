"""One line of advice: cut where it makes sense, wrapped whole, and in ASCII."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opsk_jobcheck.advice.layout import CUT_MARK, LABEL_WIDTH, MAX_WIDTH, Line, Weight, cut, fit_parts, to_ascii


@given(st.text(max_size=300), st.integers(min_value=60, max_value=120))
def test_a_cut_text_fits_and_says_that_it_goes_on(text: str, width: int) -> None:
    found = cut(text, width)
    assert len(found) <= max(width, 0)
    if found != text:
        assert found.endswith(CUT_MARK)
        assert text.startswith(found.removesuffix(CUT_MARK))


def test_a_text_is_cut_between_its_parts() -> None:
    text = "8 nodes fit under one leaf group: ask for --switches=1; all of the traffic between nodes stays on its rail"
    assert cut(text, 80) == "8 nodes fit under one leaf group: ask for --switches=1 …"


@given(st.lists(st.text(alphabet="abc", min_size=1, max_size=30), min_size=1, max_size=12))
def test_as_many_parts_as_fit_are_said(parts: list[str]) -> None:
    found = fit_parts(parts, joint=", ")
    count = found.count(", ") + 1
    assert found == ", ".join(parts[:count])
    assert LABEL_WIDTH + len(found) <= MAX_WIDTH
    if count < len(parts):
        assert LABEL_WIDTH + len(", ".join(parts[: count + 1])) > MAX_WIDTH


@given(st.lists(st.text(alphabet="abc-", min_size=1, max_size=20), min_size=1, max_size=60))
def test_nothing_is_lost_when_a_line_is_wrapped(words: list[str]) -> None:
    rows = Line(label="waste", text=" ".join(words), weight=Weight.WASTE).rows()
    assert " ".join(rows).split()[1:] == words
    assert all(len(row) <= MAX_WIDTH for row in rows)
    assert all(row.startswith(" " * LABEL_WIDTH) for row in rows[1:])


@given(st.text(max_size=100))
def test_any_line_becomes_ascii(text: str) -> None:
    assert to_ascii(text).isascii()
    assert to_ascii("abc 123") == "abc 123"


def test_signs_have_words_in_ascii() -> None:
    assert to_ascii("✗ 96 GiB → 64 × h100 · 3–4 …") == "NO: 96 GiB -> 64 x h100 | 3-4 ..."
