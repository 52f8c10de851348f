"""Does history tell what a program needs that nobody can read: 300 jobs of 40 programs, repeated with changes?"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from opsk.history.findings import History, RequestedGpu, summarise_program
from opsk.history.runs import PastRun
from opsk.history.submission import GPUS, Submission, read_submission
from tests.fakes.invented_programs import GPUS as MEMORY
from tests.fakes.invented_programs import InventedJob, invent_jobs, invent_programs


@dataclass
class Site:
    """Runs by user and key, as the advisor has them."""

    runs: dict[tuple[str, str], list[PastRun]] = field(default_factory=dict)

    def advise(self, job: InventedJob, submission: Submission) -> History | None:
        user = job.program.user
        same_script, same_command = (
            self.runs.get((user, key), [])[-20:] for key in (submission.script_key, submission.command_key)
        )
        gpu = RequestedGpu(name=job.gpu_type, capacity_bytes=MEMORY[job.gpu_type])
        return summarise_program(same_script, same_command, submission, gpu=gpu)

    def run(self, job: InventedJob, submission: Submission) -> None:
        run = PastRun(
            job=str(job.number), ended_at_s=float(job.number), settings={**submission.settings, GPUS: str(job.gpus)},
            gpu_type=job.gpu_type, gpus=job.gpus, capacity_bytes=MEMORY[job.gpu_type],
            memory_peak_bytes=job.memory_bytes * (0.2 if job.has_failed else 1.0), activity=0.8, idle_gpus=0,
            observed_s=3600.0, elapsed_s=3700.0, state="FAILED" if job.has_failed else "COMPLETED",
        )  # fmt: skip
        for key in (submission.script_key, submission.command_key):
            self.runs.setdefault((job.program.user, key), []).append(run)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_second_run_of_a_program_is_told_what_the_first_used(seed: int) -> None:
    draw = random.Random(seed)
    site = Site()
    owner: dict[str, str] = {}
    sizes: dict[tuple[str, str], set[float]] = {}
    repeated = lines = near = stated = knowable = wrong_user = false_alarms = 0
    for job in invent_jobs(draw, invent_programs(draw)):
        submission = read_submission(
            job.script, script_name=job.script_name, directory=job.directory, gpu_type=job.gpu_type, gpus=job.gpus
        )
        history = site.advise(job, submission)
        if job.is_repeated:
            repeated += 1
            lines += history is not None
        if history is not None:
            wrong_user += any(owner[run.job] != job.program.user for run in history.runs)
            expected = history.memory.expected_bytes if history.memory is not None else None
            stated += expected is not None
            near += expected is not None and abs(expected / job.memory_bytes - 1) <= 0.1
            warned = any("will not fit" in finding.text for finding in history.findings)
            false_alarms += warned and job.memory_bytes < MEMORY[job.gpu_type]
        known = sizes.setdefault((job.program.user, job.program.name), set())
        knowable += bool(known) and (job.size in known or len(known) > 1)
        if not job.has_failed:
            known.add(job.size)
        owner[str(job.number)] = job.program.user
        site.run(job, submission)
    assert repeated > 240, f"{repeated} repeated: {lines} with a line, {stated} with memory, {near} within 10 %"
    assert lines >= 0.99 * repeated
    assert near == stated >= 0.86 * repeated
    assert stated >= knowable, "the rest has a size that never ran, of a program that ran with one other size"
    assert wrong_user == false_alarms == 0
