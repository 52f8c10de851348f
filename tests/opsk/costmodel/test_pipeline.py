from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.costmodel.closed_forms import interleaving_factor
from opsk.workload.plan import Plan
from tests.fakes.training_runs import gpt, parts


def _plan(pp: int, vpp: int, micro_batches: int) -> Plan:
    return Plan(pp=pp, vpp=vpp, global_batch=micro_batches)


@given(layers=st.integers(4, 130), pp=st.integers(3, 64))
def test_every_layer_is_on_one_stage(layers: int, pp: int):
    _, stages, _ = parts(gpt(layers=layers, hidden=256, heads=4), _plan(pp, 1, 128))
    first, second, last = stages.layers[:, 0]
    middle = layers - first - last
    # the second stage is the fullest of the middle ones, none is more than one layer above another
    assert 0 <= middle <= second * (pp - 2)
    assert second - 1 <= last <= first <= second
    assert layers / pp <= second < layers / pp + 1


def test_embedding_and_head_may_count_as_layers_of_the_split():
    # BLOOM: 70 layers on 12 stages, 72 pieces of 6; the ends have 5 layers
    _, stages, _ = parts(gpt(layers=70, hidden=14336, heads=112), _plan(12, 1, 128))
    assert stages.layers[:, 0].tolist() == [5, 6, 5]


@pytest.mark.parametrize(("pp", "vpp"), [(8, 3), (35, 3), (4, 2), (64, 1)])
def test_the_first_stage_keeps_p_micro_batches_times_the_interleaving_factor(pp: int, vpp: int):
    # Korthikanti et al. 2022, section 4.2.3
    _, stages, _ = parts(gpt(layers=pp * vpp, hidden=256, heads=4), _plan(pp, vpp, 8 * pp))
    assert stages.in_flight[0, 0] == pytest.approx(pp * interleaving_factor(pp=pp, vpp=vpp))


def test_no_more_micro_batches_are_in_flight_than_there_are():
    _, stages, _ = parts(gpt(layers=16, hidden=256, heads=4), _plan(8, 1, 3), _plan(8, 2, 2))
    np.testing.assert_array_equal(stages.in_flight[0], [3, 2])


def test_the_last_stage_keeps_one_micro_batch():
    _, stages, _ = parts(gpt(layers=16, hidden=256, heads=4), _plan(8, 1, 32))
    assert stages.in_flight[2, 0] == 1
