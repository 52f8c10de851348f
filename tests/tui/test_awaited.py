"""Is it said what the answer to where a job's time goes waits for, and only where none is that none was predicted?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.diagnosis.losses.step_times import MIN_STEPS
from opsk.diagnosis.losses.values import Cause, Finding, Losses
from opsk.slurm.records import JobRecord
from opsk.workload.advice_record import AdviceRecord, Verdict
from opsk_tui.data.view import JobView, Measured
from opsk_tui.screens.job_sections import explain_missing, findings, format_loss
from opsk_tui.text import UNICODE

RECORD = JobRecord(id=7, label="7", user="ada", name="train", state="RUNNING")
ADVICE = AdviceRecord(verdict=Verdict.FITS, step_s=2.0, mfu=0.4)
NO_PLAN = "no prediction: opsk left none when it was submitted"


def measured(step_times: int) -> Measured:
    return Measured(step_s=2.1, iteration=9, source="log", history=tuple((float(at), 2.1) for at in range(step_times)))


PREDICTED = JobView(record=RECORD, advice=ADVICE)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (replace(PREDICTED, record=replace(RECORD, state="PENDING")), "the job has not started"),
        (replace(PREDICTED, record=replace(RECORD, state="COMPLETED")), "not measured: the job has ended"),
        (PREDICTED, "waits for the first progress line"),
        (replace(PREDICTED, measured=Measured(memory_peak_bytes=7e10)), "waits for the first progress line"),
        (replace(PREDICTED, measured=measured(1)), f"measuring: 1 of {MIN_STEPS} step times"),
        (replace(PREDICTED, measured=measured(4)), f"measuring: 4 of {MIN_STEPS} step times"),
        (replace(PREDICTED, measured=measured(5)), "measured: it is looked at next"),
        (JobView(record=RECORD), NO_PLAN),
        (JobView(record=RECORD, measured=measured(9)), NO_PLAN),
        (replace(PREDICTED, advice=AdviceRecord(verdict=Verdict.UNKNOWN)), "no prediction: the plan in its script is"),
    ],
)
def test_it_is_said_what_is_waited_for(job: JobView, said: str) -> None:
    assert (explain_missing(job) or "").startswith(said)
    shown = findings(job, UNICODE, 80)
    lines = ["".join(text for text, _ in shown.make(number)) for number in range(shown.count)]
    assert len(lines) == 1
    assert lines[0].startswith(said)


def test_with_prediction_and_measurement_nothing_is_waited_for() -> None:
    found = Losses(expected_step_s=2.0, measured_step_s=2.1, gap=0.05)
    assert explain_missing(replace(PREDICTED, measured=measured(5), losses=found)) is None


def test_without_a_prediction_no_job_is_as_fast_as_predicted() -> None:
    """A job without a plan was called so once it had run for a minute, and what slows it down stood under that."""
    data = Finding(cause=Cause.DATA_LOADING, share=0.03, confidence=0.9, text="GPUs stand without work")
    for found, words in ((), "–"), ((data,), "data loading 3%"):
        losses = Losses(measured_step_s=2.1, gap=sum(each.share for each in found), findings=found)
        job = JobView(record=RECORD, measured=measured(9), losses=losses)
        shown = findings(job, UNICODE, 80)
        lines = ["".join(text for text, _ in shown.make(number)) for number in range(shown.count)]
        assert lines[0].startswith(NO_PLAN)
        assert "as fast as predicted" not in " ".join(lines)
        assert ("GPUs stand without work" in " ".join(lines)) == bool(found)
        assert format_loss(job)[0] == words
