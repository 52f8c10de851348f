"""Does a loop of one's own tell opsk where it stands, and can nothing that goes wrong stop it?"""

from __future__ import annotations

import io
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.telemetry import report
from opsk.telemetry.jobs import step_report as own_loop
from opsk.telemetry.progress.follow import LogWatch
from opsk.telemetry.progress.records import StepRecord
from opsk.telemetry.progress.stream import ProgressReader

RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "WORLD_SIZE", "SLURM_NTASKS",
         "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")  # fmt: skip


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No launcher has started this process, and nothing was reported before."""
    for name in RANKS:
        monkeypatch.delenv(name, raising=False)
    forget()
    yield
    forget()


def forget() -> None:
    own_loop._PreviousCall.step, own_loop._PreviousCall.has_complained = None, False


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr("opsk.telemetry.jobs.step_report.time.monotonic", lambda: self.now_s)


def read(text: str) -> list[StepRecord]:
    reader = ProgressReader("log")
    found = [*reader.feed(text.encode()), *reader.finish()]
    assert reader.framework in ("opsk-report", None)
    return [each for each in found if isinstance(each, StepRecord)]


def test_opsk_reads_what_a_loop_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """2**20 tokens in a step of 2 s, on 8 GPUs: 524,288 tokens/s, 65,536 of one GPU."""
    clock, out = Clock(monkeypatch), io.StringIO()
    monkeypatch.setenv("WORLD_SIZE", "8")
    for step in (10, 11, 13):
        report(step=step, tokens=1 << 20, loss=2.5, total=1000, tflops_per_gpu=400, memory_bytes=7e10, file=out)
        clock.now_s += 2.0 if step == 10 else 4.0
    first, second, third = read(out.getvalue())
    assert (first.iteration, first.total_iterations, first.step_s) == (10, 1000, None)
    assert [each.step_s for each in (second, third)] == [2.0, 2.0]
    assert (second.tokens_per_s, second.tokens_per_s_per_gpu) == (524288, 65536)
    assert (second.loss, second.tflops_per_gpu, second.memory_bytes) == (2.5, 400, 7e10)
    assert second.at_unix_s is not None
    assert second.derived == ()


def test_the_exporters_watch_finds_it_in_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, log = Clock(monkeypatch), tmp_path / "slurm-1.out"
    with log.open("w", encoding="ascii") as out:
        for step in range(1, 20):
            out.write("something else\n  5%|##  | 1/20 [00:01<00:19, 1.0s/it]")
            report(step=step, tokens=1000, file=out)
            clock.now_s += 0.5
    watch = LogWatch((log,))
    found = watch.look()
    watch.close()
    assert found is not None
    assert (found.framework, found.last.iteration, found.step_s, found.tokens_per_s) == ("opsk-report", 19, 0.5, 2000)


def test_a_time_that_the_loop_measured_counts() -> None:
    out = io.StringIO()
    report(step=1, step_s=0.25, tokens=100, gpus=4, file=out)
    (only,) = read(out.getvalue())
    assert (only.step_s, only.tokens_per_s, only.tokens_per_s_per_gpu) == (0.25, 400, 100)


@pytest.mark.parametrize("name", ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"])
def test_rank_0_writes_and_others_only_if_they_are_to(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setenv(name, "3")
    report(step=1, file=out)
    assert out.getvalue() == ""
    report(step=1, file=out, every_rank=True)
    assert [(each.rank, each.iteration) for each in read(out.getvalue())] == [(3, 1)]
    monkeypatch.setenv(name, "0")
    report(step=2, file=out)
    assert out.getvalue().count("\n") == 2


def test_torchrun_knows_better_than_slurm_which_rank_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("RANK", "0")
    out = io.StringIO()
    report(step=1, file=out)
    assert out.getvalue()


def test_a_restart_measures_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, out = Clock(monkeypatch), io.StringIO()
    for step in (1, 2, 1, 2):
        report(step=step, file=out)
        clock.now_s += 3
    assert [each.step_s for each in read(out.getvalue())] == [None, 3, None, 3]
    assert [each.generation for each in read(out.getvalue())] == [0, 0, 1, 1]


def test_a_loss_that_is_no_number_is_told() -> None:
    out = io.StringIO()
    report(step=1, loss=math.nan, grad_norm=math.inf, file=out)
    (only,) = read(out.getvalue())
    assert only.loss is not None
    assert math.isnan(only.loss)
    assert only.grad_norm == math.inf


class Bad:
    def __float__(self) -> float:
        raise RuntimeError("CUDA error\n\x1b[31m")

    __int__ = __float__  # type: ignore[assignment]


class Full(io.StringIO):
    def write(self, _text: str) -> int:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    "wrong",
    [
        {"step": "x"}, {"step": None}, {"step": -1}, {"step": 10**20}, {"step": math.nan}, {"step": Bad()},
        {"step": 1, "tokens": "x"}, {"step": 1, "loss": Bad()}, {"step": 1, "file": Full()}, {"step": 1, "file": 7},
        {"step": 1, "gpus": "x"}, {"step": 1, "total": Bad()}, {"step": 1, "lr": 10**400},
    ],
)  # fmt: skip
def test_nothing_that_goes_wrong_reaches_the_loop(wrong: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        report(**wrong)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("opsk: report: ")
    assert len(re.findall("opsk: report", said.err)) == 1


def test_a_closed_output_does_not_either(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdout", "stderr"):
        closed = io.StringIO()
        closed.close()
        monkeypatch.setattr(sys, name, closed)
    report(step=1)
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    report(step=2, tokens="x")  # type: ignore[arg-type]


@given(
    st.integers(0, 10**14),
    st.floats(1e-3, 1e12),
    st.floats(allow_nan=False),
    st.floats(1e-6, 1e5),
)
def test_what_is_reported_is_what_is_read(step: int, tokens: float, loss: float, step_s: float) -> None:
    """To ten digits."""
    out = io.StringIO()
    report(step=step, tokens=tokens, loss=loss, step_s=step_s, file=out)
    (only,) = read(out.getvalue())
    assert only.iteration == step
    assert only.loss == pytest.approx(loss, rel=1e-9)
    assert only.step_s == pytest.approx(step_s, rel=1e-9)
    assert only.tokens_per_s == pytest.approx(tokens / step_s, rel=1e-8)


def test_it_needs_the_standard_library_alone() -> None:
    """In a container without opsk's dependencies: no site packages at all."""
    root = Path(own_loop.__file__).parents[3]
    code = f"import sys; sys.path.insert(0, {str(root)!r}); from opsk.telemetry import report; report(step=1, tokens=2)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("opsk:step 1 at=")
