"""Ranges of counted parameters as text."""

from __future__ import annotations

import pytest

from opsk.workload.counted_parameters import ParameterRange


@pytest.mark.parametrize(("low", "high", "text"), [(5, 7, "5-7"), (5, None, "5-"), (0, 0, "0-0")])
def test_a_range_is_read_as_it_is_written(low: int, high: int | None, text: str) -> None:
    assert str(ParameterRange(low=low, high=high)) == text
    assert ParameterRange.parse(text) == ParameterRange(low=low, high=high)


@pytest.mark.parametrize("text", ["", "5", "-5", "a-b", "5-x", "5 - 7", "٣-٤"])
def test_any_other_text_is_no_range(text: str) -> None:
    assert ParameterRange.parse(text) is None
