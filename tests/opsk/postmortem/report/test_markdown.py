"""Is a report as Markdown read as text, whatever is in it?"""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from opsk.postmortem.report import render_markdown
from opsk.postmortem.report.markdown import escape_markdown, format_code
from opsk.postmortem.values import Report


def test_everything_of_a_report_is_told(report: Report) -> None:
    text = render_markdown(report)
    for heading in ("# Job 4711", "## Why", "## What happened when", "## What is missing", "## What to do"):
        assert heading in text
    assert "`scontrol show node n01`" in text


def test_nothing_becomes_markup_or_a_link(report: Report) -> None:
    spans = re.compile(r"(?<![`\\])(`+)(?!`)(.*?)(?<!`)\1(?!`)")
    outside_code = spans.sub("", render_markdown(report))
    assert "<script>" not in outside_code
    assert "](javascript:" not in outside_code


@given(st.text(max_size=200))
def test_hostile_text_keeps_to_one_line_and_shows_no_bare_markup(text: str) -> None:
    shown = escape_markdown(text)
    assert "\n" not in shown
    assert "\r" not in shown
    bare = shown.replace("\\\\", "")
    for finding in "`*_<>[]|#":
        assert bare.count(finding) == bare.count(f"\\{finding}")


@given(st.text(alphabet="`a \n<", max_size=60))
def test_code_ends_only_where_it_is_meant_to(text: str) -> None:
    shown = format_code(text)
    fence = len(shown) - len(shown.lstrip("`"))
    inside = shown[fence : len(shown) - fence]
    runs = [len(run) for run in "".join(finding if finding == "`" else " " for finding in inside).split()]
    assert fence not in runs
