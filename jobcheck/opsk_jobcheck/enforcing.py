"""Is advice certain enough to hold or refuse a job, and in which words is that said?"""

from __future__ import annotations

from opsk.costmodel.inputs import MEMORY_INPUTS
from opsk.text import escape
from opsk.units import as_gib
from opsk.workload.advice_record import Verdict
from opsk_jobcheck.advice import Advice
from opsk_jobcheck.guesses import guesses

MAX_WORDS = 240
"""Longest change that is named [characters]: more flags than that nobody pastes from an error message."""


def oom_probability(advice: Advice) -> float | None:
    """Return the probability to run out of memory; ``None`` when nothing was predicted."""
    if advice.prediction is None:
        return None
    fit = float(advice.prediction.memory.fit_probability)
    return 1.0 - fit if 0 <= fit <= 1 else None


def memory_guesses(advice: Advice) -> tuple[str, ...]:
    """Return the inputs of the memory that nobody stated and that may be otherwise, sorted."""
    return tuple(sorted(set(guesses(advice.workload, advice.assumed)) & MEMORY_INPUTS))


def why_oom(advice: Advice) -> str:
    """Say how much memory is needed of how much, for a job that will run out; else nothing."""
    if advice.prediction is None or advice.verdict is not Verdict.OOM:
        return ""
    memory = advice.prediction.memory
    needed, capacity = float(memory.total_bytes.expected), float(memory.capacity_bytes)
    return f"will run out of GPU memory: {as_gib(needed):.1f} GiB of {as_gib(capacity):.1f} GiB per GPU"


def would_fit(advice: Advice) -> str:
    """Name the first change that makes it fit, for a job that will run out and where one was looked for and found."""
    if advice.verdict is not Verdict.OOM:
        return ""
    for entry in advice.suggestions:
        if entry.verdict is Verdict.FITS:
            words = " ".join(entry.flags) or entry.what
            return escape(f"{words}: {as_gib(entry.memory_bytes):.1f} GiB") if len(words) <= MAX_WORDS else ""
    return ""
