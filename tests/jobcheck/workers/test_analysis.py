"""What the advisor asks survives the way to a worker of another release, and so does the answer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opsk_jobcheck.submission.request import SlurmRequest
from opsk_jobcheck.workers.analysis import Analysis, AnalysisRequest

words = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)


@given(words, st.lists(words, max_size=3), st.dictionaries(words, words, max_size=3))
def test_a_thought_survives_the_way_to_its_worker(text: str, arguments: list[str], files: dict[str, str]) -> None:
    asked = AnalysisRequest(
        text=text, file="s", request=SlurmRequest(arguments=tuple(arguments), environment=files), files=files
    )
    assert AnalysisRequest.unpack(asked.pack()) == asked


@given(st.lists(words, max_size=3), words)
def test_advice_survives_the_way_from_its_worker(lines: list[str], comment: str) -> None:
    analysis = Analysis(verdict="fits", lines=tuple(lines), comment=comment)
    assert Analysis.unpack(analysis.pack()) == analysis


def test_what_a_newer_release_packs_beside_is_passed_over() -> None:
    """An advisor that was not restarted after an upgrade starts workers of the new release."""
    query = AnalysisRequest(text="#!/bin/sh\n", file="a.sh", request=SlurmRequest(nodes=2), files={})
    packed = query.pack()
    newer = packed | {"later": 1, "request": packed["request"] | {"later": 2}}
    assert AnalysisRequest.unpack(newer) == query
    analysis = Analysis(verdict="fits", lines=("a",))
    assert Analysis.unpack(analysis.pack() | {"later": 3}) == analysis
