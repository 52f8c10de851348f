"""Does ``opsk probe`` show a measurement as text, JSON and a page, and say what makes it uncertain?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from opsk.cli.probe.command import probe
from tests.fakes.probe_documents import probe_document


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    path = tmp_path / "p.json"
    hostile = probe_document(skipped=[{"part": "attention", "why": "<script>\x1b[31m"}])
    path.write_text(json.dumps(hostile), encoding="ascii")
    return path


def test_a_measurement_is_shown_with_what_opsk_expects(measured: Path) -> None:
    done = CliRunner().invoke(probe, [str(measured)])
    assert done.exit_code == 0
    assert done.output.startswith("8 x NVIDIA H100 80GB HBM3 on 1 node, PyTorch 2.13.0, CUDA 12.8, driver 570.1")
    assert "matmul       bf16" in done.output
    assert "\x1b" not in done.output


def test_programs_get_one_document(measured: Path) -> None:
    document = json.loads(CliRunner().invoke(probe, [str(measured), "--json"]).output)
    assert {row["part"] for row in document["ratios"]} == {"matmul", "attention", "memory", "collectives"}
    assert document["machine"]["driver"] == "570.1"
    assert len(document["warnings"]) == 1


def test_the_page_has_charts_and_no_text_that_runs(measured: Path, tmp_path: Path) -> None:
    assert CliRunner().invoke(probe, [str(measured), "--html", str(tmp_path / "p.html")]).exit_code == 0
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "Matrix products" in page
    assert "<script" not in page


def test_a_torn_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"format": "opsk-')
    done = CliRunner().invoke(probe, [str(tmp_path / "p.json")])
    assert "no whole JSON document" in str(done.exception)
