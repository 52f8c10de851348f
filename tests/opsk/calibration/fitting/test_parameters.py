"""Are all fields of the efficiencies in the vector, and is the way there and back the same?"""

from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.calibration.fitting.parameters import MEMBER_WIDTH, ParameterSpace, Prior, Scale, build_prior
from opsk.costmodel.efficiency.efficiency import Efficiency, GpuEfficiency, LinkEfficiency, SoftwareEfficiency
from opsk.workload.plan import Software

SPACE = ParameterSpace.over(["ampere", "hopper"], [Software.PYTORCH])


@given(st.sampled_from([Scale.LOGIT, Scale.LOG]), st.floats(1e-6, 1 - 1e-6))
def test_a_scale_undoes_itself(scale: Scale, value: float) -> None:
    assert scale.value_at(scale.coordinate(value)) == pytest.approx(value, rel=1e-9)


@given(st.sampled_from(list(Scale)), st.floats(-5, 5))
def test_the_slope_of_a_scale_is_its_derivative(scale: Scale, coordinate: float) -> None:
    step = 1e-6
    numeric = (scale.value_at(coordinate + step) - scale.value_at(coordinate - step)) / (2 * step)
    assert scale.slope(coordinate) == pytest.approx(numeric, rel=1e-5, abs=1e-9)


def test_every_field_that_decides_the_time_has_a_parameter_and_a_rule() -> None:
    names = {item.name for item in SPACE.parameters}
    for section, value_class in (("gpu.ampere", GpuEfficiency), ("software.pytorch", SoftwareEfficiency)):
        assert {f"{section}.{item.name}" for item in fields(value_class)} <= names
    assert {f"links.{item.name}" for item in fields(LinkEfficiency)} <= names
    assert len(names) == len(SPACE)


def test_a_field_without_a_rule_is_named() -> None:
    with pytest.raises(KeyError, match="no rule for the prior of temperature"):
        build_prior("temperature", 20.0)


def test_the_centre_is_what_stands_in_the_efficiencies_by_default() -> None:
    found = SPACE.efficiency(SPACE.centre())
    for name in (item.name for item in fields(GpuEfficiency)):
        assert getattr(found.for_gpu("hopper"), name) == pytest.approx(getattr(GpuEfficiency(), name))


def test_bounds_hold_where_a_scale_does_not() -> None:
    low, high = SPACE.bounds()
    for item, least, most in zip(SPACE.parameters, low, high, strict=True):
        if item.prior.scale is Scale.LINEAR:
            assert least >= 0
            assert most <= 1
        else:
            assert math.isinf(least)
            assert math.isinf(most)


def test_members_are_drawn_to_the_shared_value_and_that_to_the_prior() -> None:
    matrix, offset = SPACE.prior_matrix()
    moved = SPACE.centre()
    names = [item.name for item in SPACE.parameters]
    shared, member = names.index("gpu.other.matmul_fraction"), names.index("gpu.hopper.matmul_fraction")
    width = SPACE.parameters[shared].prior.width
    moved[[shared, member]] += width
    distance = matrix @ moved - offset
    assert distance[shared] == pytest.approx(1.0)  # one width away from the prior
    assert distance[member] == pytest.approx(0.0)  # and the member still at the shared value
    moved[member] += width
    assert (matrix @ moved - offset)[member] == pytest.approx(1 / MEMBER_WIDTH)


def test_a_prior_of_its_own_takes_a_member_out_of_the_pool() -> None:
    own = Prior(centre=0.5, width=0.1, scale=Scale.LOGIT, low=0, high=1)
    space = ParameterSpace.over(["hopper"], [], priors={"gpu.hopper.hbm_fraction": own})
    place = [item.name for item in space.parameters].index("gpu.hopper.hbm_fraction")
    assert space.parents[place] == -1
    assert space.parameters[place].prior == own


def test_what_is_not_fitted_comes_from_the_base() -> None:
    base = replace(Efficiency(), memory=replace(Efficiency().memory, context_bytes=1.0), fit="theirs")
    space = ParameterSpace.over(["hopper"], [], base=base)
    found = space.efficiency(space.centre())
    assert (found.memory.context_bytes, found.spread) == (1.0, base.spread)
