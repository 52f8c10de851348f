"""Checks the CPUs and the time that a job requests."""

from __future__ import annotations

from opsk.text import format_duration
from opsk_jobcheck.preflight.facts import JobFacts, PreflightFinding, report
from opsk_jobcheck.scripts.run_facts import CPUS, STEPS, TIME_LIMIT, WORKERS

MIN_FIT = 0.5
"""Jobs that fit with a smaller probability are not checked."""
SURE = 1.1
"""The shortest predicted time has to exceed the limit by this factor."""


def check_cpus(facts: JobFacts) -> PreflightFinding | None:
    """Return that the data loaders of a node start more workers than the job has CPUs on it."""
    entry, workers, cpus = facts.stated.get(WORKERS), facts.find_count(WORKERS), facts.find_count(CPUS)
    if entry is None or workers is None or cpus is None or workers <= cpus or facts.is_exclusive:
        return None
    requested = facts.stated[CPUS].text
    what = f"data loaders start {workers} workers on a node ({entry.text}), and {requested} gives it {cpus} CPUs"
    return report(entry, what, "ask for more CPUs, or start fewer workers")


def check_time_limit(facts: JobFacts) -> PreflightFinding | None:
    """Return that the time limit ends the job long before its last step, where no later job goes on with it."""
    entry, steps, limit = facts.stated.get(STEPS), facts.find_count(STEPS), facts.stated.get(TIME_LIMIT)
    prediction = facts.prediction
    if entry is None or steps is None or limit is None or prediction is None:
        return None
    limit_s, step_s = float(str(limit.value)), float(prediction.time.step_s.low)
    # a job that will run out of memory has to change, and its steps with it
    if steps * step_s <= SURE * limit_s or float(prediction.memory.fit_probability) < MIN_FIT:
        return None
    needed, given = format_duration(steps * step_s), format_duration(limit_s)
    what = (
        f"{steps:,} steps take {needed} or more, and the time limit is {given}: step {int(limit_s / step_s):,} at best"
    )
    return report(entry, what, "ask for more time, or save checkpoints and resume")
