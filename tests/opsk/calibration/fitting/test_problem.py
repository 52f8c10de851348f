"""Which parameters stay free, and what do the others follow?"""

from __future__ import annotations

import numpy as np
import pytest

from opsk.calibration.fitting.parameters import MEMBER_WIDTH, ParameterSpace
from opsk.calibration.fitting.problem import compute_narrowing, free_all, select_identified
from opsk.workload.plan import Software

SPACE = ParameterSpace.over(["ampere", "hopper"], [Software.PYTORCH])
NAMES = [item.name for item in SPACE.parameters]
SHARED, MEMBER = NAMES.index("gpu.other.hbm_fraction"), NAMES.index("gpu.ampere.hbm_fraction")
NONE = np.zeros((0, 0))


def test_what_is_not_free_follows_the_shared_value_or_stays_at_its_prior() -> None:
    shared = free_all(SPACE, [SHARED])
    moved = shared.whole(np.array([3.0]))
    assert moved[MEMBER] == moved[SHARED] == 3.0
    others = np.delete(np.arange(len(SPACE)), [index for index, name in enumerate(NAMES) if "hbm_fraction" in name])
    assert moved[others] == pytest.approx(SPACE.centre()[others])
    member = free_all(SPACE, [MEMBER]).whole(np.array([3.0]))
    assert member[SHARED] == pytest.approx(SPACE.centre()[SHARED])


def test_a_member_without_its_shared_value_has_the_width_of_both() -> None:
    width = SPACE.parameters[SHARED].prior.width
    assert free_all(SPACE, [MEMBER]).prior_widths() == pytest.approx([width * np.hypot(1.0, MEMBER_WIDTH)])


def _evidence(*places: int, of: float) -> np.ndarray:
    found = np.zeros((len(SPACE), len(SPACE)))
    for one in places:
        for other in places:
            found[one, other] = of
    return found


def test_a_parameter_is_as_narrow_as_prior_and_runs_make_it() -> None:
    free = free_all(SPACE, [SHARED])
    width = free.prior_widths()[0]
    # runs three times as strong as the prior halve the width: 1 / sqrt(1 + 3)
    assert compute_narrowing(free, _evidence(SHARED, of=3.0 / width**2), NONE) == pytest.approx([0.5])


def test_only_what_runs_tell_stays_free() -> None:
    place = NAMES.index("links.nic_fraction")
    found = select_identified(free_all(SPACE), _evidence(place, of=1e4), NONE)
    assert found.free == (place,)


def test_of_two_that_are_told_together_one_stays() -> None:
    # runs that tell the sum of two parameters only: each alone would be known
    places = [NAMES.index(name) for name in ("links.nic_fraction", "links.hb_fraction")]
    found = select_identified(free_all(SPACE, places), _evidence(*places, of=1e4), NONE)
    assert len(found) == 1


def test_no_more_are_fitted_than_asked_for() -> None:
    found = select_identified(free_all(SPACE), np.eye(len(SPACE)) * 1e4, NONE, maximum=5)
    assert len(found) == 5
