"""The lines of the page on accuracy: errors by hand from jobs that are 0 to 11 percent slower than predicted."""

from __future__ import annotations

from opsk.app.accuracy.jobs import ComparedJobs
from opsk_tui.screens.accuracy import NO_JOBS, build_accuracy_sections
from opsk_tui.widgets.document import Document
from tests.fakes.compared_jobs import accuracy_document


def lines(document: object) -> list[str]:
    page = Document()
    page._sections = build_accuracy_sections(document)  # type: ignore[arg-type]
    return ["".join(cell[0] for cell in part.make(line)) for part in page._sections for line in range(part.count)]


def test_figures_and_jobs_have_a_line_each() -> None:
    shown = lines(accuracy_document())
    # half of the twelve within 5.5 / 105.5, nine in ten within 10 / 110; 11.1 s is beyond 11 s; memory has no ranges
    assert shown[2].split() == ["all", "jobs", "12", "5%", "9%", "92%", "6", "3%", "3%", "·"]
    assert [line.split()[0] for line in shown[3:6]] == ["2026-W09", "2026-W10", "2026-W11"]
    first, reason = shown[9 + 1 : 9 + 3]
    assert first.split()[-7:] == ["-10%", "time", "11.1", "s,", "predicted", "10", "s"]
    assert reason == "  straggler at n3: 20% of the step"
    assert max(map(len, shown)) <= 80


def test_without_jobs_the_page_says_where_to_look() -> None:
    assert lines(accuracy_document(ComparedJobs(jobs=(), predicted=0))) == [NO_JOBS]
