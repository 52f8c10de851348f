"""The page of papers has the numbers that the commands print."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from opsk.network_design.papers import compare_statements, load_paper


@pytest.fixture(scope="module")
def papers(root: Path, request: pytest.FixtureRequest) -> ModuleType:
    """The program that writes the page."""
    folder = root / "docs" / "programs"
    spec = importlib.util.spec_from_file_location("docs_papers", folder / "papers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        spec.loader.exec_module(module)
    return module


def test_every_claim_has_the_numbers_that_its_command_prints(papers: ModuleType) -> None:
    lines = papers.PAGE.read_text("utf-8").splitlines()
    claims = [claim for text in papers.load_texts() for claim in text["claims"]]
    assert len(claims) > 30
    for claim in claims:
        if claim["command"].startswith("predict "):  # moves with every fit of the efficiencies
            assert any(line.startswith(f"| {claim['claim']} |") for line in lines)
            continue
        row = papers.table(("",), [papers.claim_row(claim)]).splitlines()[-1]
        assert row in lines, f"{claim['claim']}: run docs/programs/papers.py"


def test_every_statement_of_a_paper_is_on_the_page(papers: ModuleType) -> None:
    page = papers.PAGE.read_text("utf-8")
    for name in ("rail-only", "ntt"):
        compared = [entry for entry in compare_statements(load_paper(name)) if entry.stated is not None]
        for entry in compared:  # closed forms; predicted steps take a minute
            numbers = [papers.number(value, entry.unit) for value in (entry.stated, entry.computed)]
            assert f"| {entry.section}: {entry.what} | {numbers[0]} | {numbers[1]} |" in page


def test_what_differs_has_a_cause(papers: ModuleType) -> None:
    rows = [line for line in papers.PAGE.read_text("utf-8").splitlines() if "**no**" in line or "**other" in line]
    assert rows
    assert all(row.rsplit("|", 2)[1].strip() for row in rows)
