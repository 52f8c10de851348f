"""Is a report one page that a real browser shows, in which nothing that others wrote is alive?"""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

from opsk.postmortem.report import render_html
from opsk.postmortem.values import Divergence, Evidence, RankProgress, Report
from tests.fakes.browser import chromium_or_skip

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Takes a page apart: its elements, their attributes, its text; tags that are not closed are an error."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_nothing_that_others_wrote_is_alive(report: Report) -> None:
    page = Page(render_html(report))
    assert not {"script", "img", "iframe", "object", "a", "form", "link"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert "<script>document.title" in page.text  # shown to the letter
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", page.text)


def test_a_page_needs_nothing_from_outside(report: Report) -> None:
    values = [value or "" for name, value in Page(render_html(report)).attributes if name in ("src", "href", "style")]
    assert not [value for value in values if "//" in value or "url(" in value]
    assert "default-src 'none'" in render_html(report)


def test_everything_of_a_report_is_told(report: Report) -> None:
    text = Page(render_html(report)).text
    for words in ("Job 4711", "93 % sure", "gpu_memory", "scontrol show node n01", "What is missing", "Seen before"):
        assert words in text
    assert "79.10 GiB" in text
    assert "13 ranks waited" in text


def test_a_healthy_job_is_said_to_be_one() -> None:
    text = Page(render_html(Report(state="ended well"))).text
    assert "Nothing failed." in text
    assert "Evidence" not in text


def test_a_report_of_many_ranks_stays_small() -> None:
    """The issue's bound: below 2 MB for 512 ranks; every rank has a cell with its last line."""
    ranks = tuple(RankProgress(rank=rank, last_text="<&>" * 100) for rank in range(512))
    page = render_html(
        Report(
            state="failed", evidence=Evidence(ranks=ranks),
            divergence=Divergence(group="", seq=1, op="ALLREDUCE", waiting=tuple(range(511)), never_arrived=(511,)),
        )
    )  # fmt: skip
    assert page.count('class="rank ') == 512
    assert len(page.encode()) < 2_000_000


def test_a_real_browser_shows_it_and_runs_nothing(report: Report, tmp_path: Path) -> None:
    browser = chromium_or_skip()
    page = tmp_path / "report.html"
    page.write_text(render_html(report), encoding="utf-8")
    common = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    dumped = subprocess.run(
        [*common, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120, check=False
    )
    assert dumped.returncode == 0, dumped.stderr[-500:]
    assert "<title>Job 4711" in dumped.stdout  # not "taken"
    assert dumped.stdout.count("<svg") == 2
    done = subprocess.run(
        [*common, f"--screenshot={tmp_path}/page.png", "--window-size=1100,1600", page.as_uri()],
        capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert (tmp_path / "page.png").stat().st_size > 30_000  # an empty page of this size is below 10 kB


def test_a_rank_beyond_any_cluster_draws_no_map(report: Report) -> None:
    ranks = (RankProgress(rank=0), RankProgress(rank=999_999_999))
    page = render_html(replace(report, evidence=Evidence(ranks=ranks), divergence=None))
    assert 'class="ranks"' not in page
