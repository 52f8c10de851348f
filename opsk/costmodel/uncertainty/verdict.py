"""Converts the probability that a job fits into a verdict."""

from __future__ import annotations

from opsk.workload.advice_record import Verdict

__all__ = ["FITS_FROM", "OOM_UP_TO", "Verdict", "compute_verdict"]

FITS_FROM = 0.95
"""A job fits from this probability on: fewer than one in twenty such jobs runs out of memory."""
OOM_UP_TO = 0.1
"""A job is called out of memory up to this probability: fewer than one in ten such jobs would have run."""


def compute_verdict(fit_probability: float) -> Verdict:
    """Return ``fits`` from 0.95, ``oom`` up to 0.1, ``tight`` between, ``unknown`` for what is no probability."""
    if not 0 <= fit_probability <= 1:
        return Verdict.UNKNOWN
    if fit_probability >= FITS_FROM:
        return Verdict.FITS
    return Verdict.OOM if fit_probability <= OOM_UP_TO else Verdict.TIGHT
