from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.costmodel.memory.peak import fit_probability
from opsk.costmodel.verdict import Verdict, verdict_of


@given(z=st.floats(-4, 4))
def test_the_chance_to_fit_is_the_normal_distribution(z: float):
    # Phi(z) of the error function; the approximation's published error is below 1.4e-4
    exact = 0.5 * (1 + math.erf(z / math.sqrt(2)))
    chance = fit_probability(np.array([1e9]), 1e9 * math.exp(z * 0.1), 0.1)[0]
    assert chance == pytest.approx(exact, abs=2e-4)


def test_the_chance_falls_as_memory_grows():
    chance = fit_probability(np.linspace(1e9, 200e9, 400), 80e9, 0.11)
    assert (np.diff(chance) <= 0).all()
    assert chance[0] == pytest.approx(1)
    assert chance[-1] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("chance", "verdict"),
    [
        (1.0, Verdict.FITS),
        (0.9, Verdict.FITS),
        (0.899, Verdict.TIGHT),
        (0.101, Verdict.TIGHT),
        (0.1, Verdict.OOM),
        (0.0, Verdict.OOM),
        (math.nan, Verdict.UNKNOWN),
    ],
)
def test_verdicts(chance: float, verdict: Verdict):
    assert verdict_of(chance) is verdict
