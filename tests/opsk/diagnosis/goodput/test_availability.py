"""Enough nodes in order: against hand calculation, every state of a small cluster, and published numbers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.diagnosis.goodput.spares import (
    compute_shares_out,
    share_domain_out,
    share_out_of_service,
    share_with_enough,
    share_with_enough_under_groups,
)


def test_a_unit_is_out_for_its_repair_in_each_round_of_failure_and_repair():
    assert share_out_of_service(99.0, 1.0) == pytest.approx(0.01)
    assert share_out_of_service(math.inf, 100.0) == 0
    assert share_out_of_service(100.0, 0.0) == 0


def test_spares_add_up_as_a_binomial_does():
    # 0.99^100; with one spare 0.99^101 + 101 x 0.01 x 0.99^100
    assert share_with_enough(100, 0, 0.01) == pytest.approx(0.99**100)
    assert share_with_enough(100, 1, 0.01) == pytest.approx(0.99**101 + 101 * 0.01 * 0.99**100)


def test_numbers_out_cover_all_of_the_time():
    shares = compute_shares_out(50, 0.03)
    assert shares.sum() == pytest.approx(1.0)
    assert shares @ np.arange(51) == pytest.approx(50 * 0.03)
    assert compute_shares_out(3, 0.0).tolist() == [1, 0, 0, 0]


def test_an_hb_domain_without_spares_is_lost_with_any_of_its_gpus():
    """Arfeen et al. 2025 (arXiv 2504.06095), figure 3, as told in a public summary: TP 64, 0.1 % of GPUs out: 94 %."""
    assert 1 - share_domain_out(nodes=64, spare_nodes=0, node_out=0.001, itself_out=0.0) == pytest.approx(
        0.94, abs=0.005
    )


def test_domains_with_spare_nodes_are_right_in_every_state_of_a_small_cluster():
    # two domains of four nodes are needed, one is spare; each needs three of its nodes and its switches
    node, itself, nodes, domains = 0.07, 0.02, 4, 3
    exact = 0.0
    one_domain = list(itertools.product((True, False), repeat=nodes + 1))
    chance = {state: math.prod(
        (1 - rate if is_up else rate) for is_up, rate in zip(state, [itself, *[node] * nodes], strict=True)
    ) for state in one_domain}  # fmt: skip
    good = {state: state[0] and sum(state[1:]) >= 3 for state in one_domain}
    for states in itertools.product(one_domain, repeat=domains):
        if sum(good[state] for state in states) >= 2:
            exact += math.prod(chance[state] for state in states)
    out = share_domain_out(nodes=nodes, spare_nodes=1, node_out=node, itself_out=itself)
    assert share_with_enough(2, 1, out) == pytest.approx(exact)


def test_a_set_of_leaves_takes_all_its_nodes_with_it():
    spares = np.arange(6.0)
    alone = share_with_enough(10, spares, 0.01)
    found = share_with_enough_under_groups(10, spares, 0.01, group_units=2, group_out=0.001)
    assert np.all(found < alone)
    # without a spare: all nodes and all five sets must be in order
    assert found[0] == pytest.approx(alone[0] * 0.999**5)
    # two spares make up for one set
    assert found[2] == pytest.approx(0.999**5 * alone[2] + 5 * 0.001 * 0.999**4 * alone[0])
    assert share_with_enough_under_groups(10, spares, 0.01, group_units=2, group_out=0.0) == pytest.approx(alone)


@given(
    needed=st.integers(1, 3000),
    out=st.floats(0, 0.2),
    group=st.integers(1, 64),
    group_out=st.floats(0, 1e-3),
)
def test_another_spare_never_makes_it_rarer_that_there_are_enough(
    needed: int, out: float, group: int, group_out: float
):
    found = share_with_enough(needed, np.arange(60.0), out)
    assert np.all((found >= 0) & (found <= 1))
    assert np.all(np.diff(found) >= -1e-12)
    grouped = share_with_enough_under_groups(needed, np.arange(60.0), out, group_units=group, group_out=group_out)
    assert np.all((grouped >= 0) & (grouped <= found + 1e-12))
