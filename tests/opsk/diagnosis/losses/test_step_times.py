"""Are outliers found, and only they?"""

from __future__ import annotations

import numpy as np
import pytest

from opsk.diagnosis.losses.step_times import find_odd_groups, find_outliers


@pytest.mark.parametrize("count", [4, 8, 16, 64, 256])
def test_sound_equals_hardly_ever_have_an_outlier(count: int) -> None:
    """Less than 3 in 1,000 by the module's own claim; 3,000 sets of normal values, so up to 0.5 % by chance."""
    rng = np.random.default_rng(count)
    sets = rng.normal(1.0, 0.02, (3000, count))
    found = sum(bool(find_outliers([dict(enumerate(values))], high=True, minimum=0.0)) for values in sets)
    assert found <= 0.005 * 3000


def test_one_that_is_clearly_apart_is_found_on_its_side_only() -> None:
    values = {number: 1.0 + 0.001 * (number % 3) for number in range(16)} | {5: 1.3}
    assert find_outliers([values], high=True, minimum=0.03) == pytest.approx({5: 1.3 / 1.001 - 1})
    assert find_outliers([values], high=False, minimum=0.03) == {}


def test_groups_with_other_work_are_compared_with_themselves() -> None:
    """Two stages, one with a quarter more work: nobody is odd."""
    first = {number: 1.0 + 0.002 * (number % 2) for number in range(8)}
    second = {8 + number: 1.25 + 0.002 * (number % 2) for number in range(8)}
    assert find_outliers([first, second], high=True, minimum=0.03) == {}
    assert find_outliers([{**first, **second, 3: 1.5}], high=True, minimum=0.03) == {}


def test_of_three_nobody_is_odd_and_of_halves_neither() -> None:
    assert find_outliers([{1: 1.0, 2: 1.0, 3: 2.0}], high=True, minimum=0.0) == {}
    assert find_outliers([dict(enumerate([1.0] * 8 + [2.0] * 8))], high=True, minimum=0.0) == {}


def test_of_two_nodes_the_better_one_is_the_measure() -> None:
    nodes = {"a": [1.0, 1.001] * 4, "b": [1.2, 1.201] * 4}
    assert find_odd_groups([nodes], high=True, minimum=0.04) == pytest.approx({"b": 1.2005 / 1.0005 - 1})
    assert find_odd_groups([nodes], high=False, minimum=0.04) == pytest.approx({"a": 1 - 1.0005 / 1.2005})


def test_one_node_alone_is_not_odd() -> None:
    assert find_odd_groups([{"a": [1.0] * 8}], high=True, minimum=0.0) == {}
