"""Does advice show the site's own errors of a kind of job, and only where the published file has them?"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from opsk.config import SiteConfig
from opsk.diagnosis.accuracy.comparison import ComparedJob, Comparison, Quantity
from opsk.diagnosis.accuracy.site_error import SiteError
from opsk_jobcheck.advice.site_errors_file import FILE_NAME, FOLDER_VARIABLE, SiteErrorsFile, write_site_errors
from opsk_jobcheck.history.publisher import ERRORS_EVERY_S, SiteErrorsPublisher
from opsk_jobcheck.submission.request import SlurmRequest
from opsk_jobcheck.workers.analysis import AnalysisRequest
from opsk_jobcheck.workers.site_analyzer import WARM_UP, SiteAnalyzer

NOW = datetime(2026, 5, 1, tzinfo=UTC)
KIND = "h100-sxm/megatron-core/dense"
ERRORS = {
    Quantity.TIME: SiteError(jobs=42, distance=0.0381),
    Quantity.MEMORY: SiteError(jobs=40, distance=0.001),
}  # fmt: skip


def job(number: int) -> ComparedJob:
    step_s = 1.0 + number
    return ComparedJob(
        job=str(number), submitted_at=NOW, kind=KIND, time=Comparison(predicted=step_s, measured=1.02 * step_s)
    )


def test_the_published_file_is_read_again_when_it_was_replaced(tmp_path: Path) -> None:
    clock = [0.0]
    file = SiteErrorsFile(tmp_path / FILE_NAME, lambda: clock[0])
    assert file.find(KIND) is None
    publisher = SiteErrorsPublisher(
        path=tmp_path / FILE_NAME, read=lambda since: map(job, range(12)), days=30, clock=lambda: clock[0]
    )
    assert publisher.publish(NOW)
    assert not publisher.publish(NOW)
    clock[0] += ERRORS_EVERY_S
    errors = file.find(KIND)
    assert errors == {Quantity.TIME: SiteError(jobs=12, distance=pytest.approx(0.02))}
    assert (file.find("other"), file.find("")) == (None, None)
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("content", ["", "{", "[]", '{"x": 1}', '{"x": {"time": 3}}', '{"x": {"speed": [1, 2]}}'])
def test_a_broken_file_has_no_errors(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    assert SiteErrorsFile(tmp_path / FILE_NAME).find("x") is None


def test_advice_names_the_jobs_that_its_range_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    analyzer = SiteAnalyzer(SiteConfig(cluster="superpod-h100", store={"url": "sqlite://"}))  # type: ignore[arg-type]
    query = AnalysisRequest(text=WARM_UP, file="", request=SlurmRequest(nodes=2, gpus_per_node=8), files={})
    before = analyzer.analyze(query)
    kind = before.document.partition('"kind":"')[2].partition('"')[0]
    assert kind.startswith("h100-sxm/megatron-core/dense")
    assert '"total_bytes":{"low":' in before.document
    assert "of this kind here" not in " ".join(before.lines)
    write_site_errors(tmp_path / FILE_NAME, {kind: ERRORS})
    analyzer._site_errors = SiteErrorsFile(tmp_path / FILE_NAME)
    lines = analyzer.analyze(replace(query, detail="long")).lines
    assert any("TFLOP/s/GPU (±4% on 42 jobs of this kind here), MFU" in line for line in lines)
    assert any("GiB (±1% on 40 jobs of this kind here) of" in line for line in lines)


def test_a_look_up_takes_less_than_a_fifth_of_a_millisecond(tmp_path: Path) -> None:
    write_site_errors(tmp_path / FILE_NAME, {f"gpu{number}/pytorch/dense": ERRORS for number in range(200)})
    file = SiteErrorsFile(tmp_path / FILE_NAME)
    file.find("gpu7/pytorch/dense")
    times = []
    for _ in range(200):
        began_s = time.thread_time()
        file.find("gpu7/pytorch/dense")
        times.append(time.thread_time() - began_s)
    assert sorted(times)[100] < 0.0002
