"""Are answers about short texts kept, and those about long ones not?"""

from __future__ import annotations

import pytest

from opsk_jobcheck.submission.recent_texts import MAX_CHARS, cache_short_texts


@pytest.mark.parametrize(("text", "times"), [("a", 1), ("a" * MAX_CHARS, 1), ("a" * (MAX_CHARS + 1), 2)])
def test_only_short_texts_are_kept(text: str, times: int) -> None:
    asked: list[str] = []

    @cache_short_texts
    def length(text: str, unit: str) -> tuple[int, str]:
        asked.append(text)
        return len(text), unit

    assert [length(text, "chars"), length(text, "chars")] == [(len(text), "chars")] * 2
    assert len(asked) == times
    assert length(text, "signs") == (len(text), "signs")
