"""The page of performance: is it what the kept results say, and does it hide nothing that is not kept?"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.budgets import BUDGETS, Budget, Peer
from benchmarks.catalogue import BENCHMARKS
from benchmarks.found import Found
from benchmarks.growth import PANELS, picture
from benchmarks.machine import Machine
from benchmarks.page import amount, budgets, machines, page, row
from benchmarks.report import PAGE, PICTURE
from benchmarks.results import FOLDER, Result, read_results

MACHINE = Machine(processor="a processor", processors=2, memory_bytes=8 << 30, kernel="Linux 6.1", python="3.11.2")
RENDER = "run python -m benchmarks.report --render"


def result(**figures: float) -> Result:
    """A result with these figures."""
    return Result(
        date="2026-11-22", machine=MACHINE, load=0.4, took_s=9.0, found=Found(figures=figures), said=("read 4 s",)
    )


@pytest.fixture(scope="module")
def kept() -> dict[str, Result]:
    """What is committed."""
    return read_results()


def test_the_page_is_what_the_kept_results_say(kept: dict[str, Result]) -> None:
    assert PAGE.read_text(encoding="utf-8") == page(kept), RENDER
    assert PICTURE.read_text(encoding="utf-8") == picture(kept), RENDER


def test_every_kept_result_is_of_a_benchmark(kept: dict[str, Result]) -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == kept.keys()


def test_results_name_no_place_of_the_machine(kept: dict[str, Result]) -> None:
    said = "\n".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json"))
    assert not re.findall(r"/(?:tmp|home|root|work|var|srv|opt/(?!venv))\b\S*", said)


def test_every_budget_and_panel_is_of_a_benchmark_and_said_once() -> None:
    names = {each.name for each in BENCHMARKS}
    assert {budget.benchmark for budget in BUDGETS} | {panel.benchmark for panel in PANELS} <= names
    rows = [(budget.benchmark, budget.key) for budget in BUDGETS]
    assert len(set(rows)) == len(rows)


def test_every_budget_of_the_design_is_in_the_table() -> None:
    # the rows of the design's table "Budgets", in its order
    measured = {
        "advice", "live_advice", "submissions", "search", "fabric_read", "placement", "remap", "exporter_scrape", "tui",
        "postmortem", "test_suite",
    }  # fmt: skip
    assert measured <= {budget.benchmark for budget in BUDGETS if budget.source == "design"}


BUDGET = Budget(benchmark="search", key="search_1t_s", limit=1.0, what="a search", peer=Peer(name="P", key="p_s"))


@pytest.mark.parametrize(
    ("budget", "measured", "used", "kept"),
    [
        (BUDGET, 0.5, "0.50", "yes"),
        (BUDGET, 1.25, "1.25", "**no**"),
        (replace(BUDGET, is_least=True), 1.25, "1.25", "yes"),
        (replace(BUDGET, is_least=True), 0.5, "0.50", "**no**"),
        (replace(BUDGET, limit=None), 0.5, "–", "–"),
        (replace(BUDGET, limit=0.0), 0.0, "–", "yes"),
        (replace(BUDGET, limit=0.0), 3.0, "–", "**no**"),
    ],
)
def test_a_row_says_whether_a_limit_is_kept(budget: Budget, measured: float, used: str, kept: str) -> None:
    cells = row(budget, result(search_1t_s=measured, p_s=0.002))
    assert cells[4:7] == (used, kept, "P 2.00 ms")
    assert cells[7] == "2026-11-22, 0.4"


def test_what_was_not_measured_is_not_counted_as_kept() -> None:
    for unknown in (None, result(p_s=0.002)):
        assert row(BUDGET, unknown)[3:6] == ("not measured", "–", "–")
    limits = sum(budget.limit is not None for budget in BUDGETS)
    assert f"0 of {limits} limits are kept, 0 are **not**, {limits} were not measured." in budgets({})


def test_several_machines_are_told_apart() -> None:
    other = replace(result(), machine=replace(MACHINE, processor="another"))
    assert machines({"search": result(), "remap": result()}).startswith("Measured on 2 processors (a processor)")
    both = machines({"search": result(), "remap": other})
    assert "(a processor), 8 GiB of memory, Linux 6.1, Python 3.11.2: search\n" in both
    assert "(another), 8 GiB of memory, Linux 6.1, Python 3.11.2: remap\n" in both


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("a_s", 0.00042, "0.42 ms"),
        ("a_s", 0.042, "42 ms"),
        ("a_s", 4.2, "4.2 s"),
        ("a_s", 1500.0, "25 min"),
        ("a_bytes", 153e6, "153 MB"),
        ("a_per_s", 561_000.0, "561,000/s"),
        ("a_per_s", 0.42, "0.42/s"),
        ("share", 0.0123, "1.23 %"),
        ("a_ratio", 0.9512, "0.95 ×"),
        ("a_ratio", 9600.0, "9,600 ×"),
        ("a_count", 2000.0, "2,000"),
    ],
)
def test_a_figure_has_the_unit_that_its_key_ends_with(key: str, value: float, said: str) -> None:
    assert amount(key, value) == said


def test_the_page_has_a_section_of_what_each_benchmark_printed(tmp_path: Path) -> None:
    said = page({"lab_up": result(up_s=4.0, down_s=1.0)})
    assert "## A cluster in a box\n\n`python -m benchmarks.monitoring.lab_up` (2026-11-22, load 0.4, took 9 s):" in said
    assert "```\nread 4 s\n```" in said
