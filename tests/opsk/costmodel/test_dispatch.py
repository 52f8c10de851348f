"""What dispatchers of experts send over which link, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opsk.costmodel.collectives.hierarchical import CollectiveTime
from opsk.costmodel.sizes.shape import build_shape
from opsk.costmodel.time.communication import (
    DEEPEP_CALL_S,
    NIC_OVERLAP_FRACTION,
    SCATTERED_FRACTION,
    exchange,
    hiding_fraction,
)
from opsk.workload.plan import MoeDispatcher, Plan
from tests.fakes.ideal_machine import HB_BYTES_PER_S, NIC_BYTES_PER_S, machine
from tests.fakes.training_runs import gpt, shares_and_stages

TOKENS, HIDDEN = 1024, 1024
VECTORS_BYTES = TOKENS * HIDDEN * 2
MODEL = replace(
    gpt(layers=4, hidden=HIDDEN, heads=16, vocab=1024, seq=TOKENS, flash=True), experts=64, top_k=4, expert_ffn=512
)
SCATTERED_BYTES_PER_S = SCATTERED_FRACTION * HB_BYTES_PER_S


def _exchange(ep: int, dispatcher: MoeDispatcher, **model: float) -> CollectiveTime:
    plan = Plan(dp=ep, ep=ep, global_batch=ep, moe_dispatcher=dispatcher)
    shape = replace(MODEL, **model)  # type: ignore[arg-type]
    shares, _ = shares_and_stages(shape, plan)
    return exchange(build_shape(shape), shares, machine())


def _s(column: np.ndarray) -> float:
    return float(np.ravel(column)[0])


def test_an_all_to_all_sends_a_copy_for_each_expert() -> None:
    # 16 ranks on 2 nodes: half of 4 copies leave, dispatch and combine
    found = _exchange(16, MoeDispatcher.ALLTOALL)
    assert _s(found.nic) == pytest.approx(2 * 4 * VECTORS_BYTES / 2 / NIC_BYTES_PER_S)
    assert _s(found.hb) == pytest.approx(2 * 4 * VECTORS_BYTES * 7 / 8 / SCATTERED_BYTES_PER_S)


@pytest.mark.parametrize("dispatcher", [MoeDispatcher.DEEPEP, MoeDispatcher.HYBRIDEP])
def test_a_token_goes_once_to_a_node_and_once_to_a_rank(dispatcher: MoeDispatcher) -> None:
    # 4 picks of 2 nodes are 2 (1 - 1/16) = 1.875 different ones, half of them remote; of 16 ranks 16 (1 - (15/16)^4)
    found = _exchange(16, dispatcher)
    assert _s(found.nic) == pytest.approx(2 * 1.875 / 2 * VECTORS_BYTES / NIC_BYTES_PER_S)
    ranks = 16 * (1 - (15 / 16) ** 4)
    assert _s(found.hb) == pytest.approx(2 * ranks * 7 / 8 * VECTORS_BYTES / SCATTERED_BYTES_PER_S)
    assert _s(found.total) == pytest.approx(_s(found.nic) + 2 * DEEPEP_CALL_S)


def test_an_all_gather_brings_all_tokens_to_all_ranks() -> None:
    # 7/8 of the tokens of 8 ranks there, and as much back
    found = _exchange(8, MoeDispatcher.ALLGATHER)
    assert _s(found.hb) == pytest.approx(2 * 7 * VECTORS_BYTES / HB_BYTES_PER_S)
    assert _s(found.nic) == 0
    # whoever is picked
    assert _s(_exchange(8, MoeDispatcher.ALLGATHER, expert_imbalance=1.5).hb) == pytest.approx(_s(found.hb))


@pytest.mark.parametrize("dispatcher", list(MoeDispatcher))
def test_one_rank_sends_nothing(dispatcher: MoeDispatcher) -> None:
    found = _exchange(1, dispatcher)
    assert (_s(found.total), _s(found.hb), _s(found.nic)) == (0, 0, 0)


@pytest.mark.parametrize(
    ("nic_s", "overlap", "hides"),
    [
        (0.0, 0.25, 0.25),
        (1.0, 0.25, 0.25),
        # three quarters of the time it is NICs alone that are busy
        (4.0, 0.25, 0.25 + 0.75 * (NIC_OVERLAP_FRACTION - 0.25)),
        (4.0, 0.95, 0.95),
        (4.0, 0.0, 0.0),
    ],
)
def test_more_of_a_dispatch_hides_the_longer_it_waits_for_nics(nic_s: float, overlap: float, hides: float) -> None:
    hb, nic = np.array([1.0]), np.array([nic_s])
    found = hiding_fraction(CollectiveTime(total=np.maximum(hb, nic), hb=hb, nic=nic), np.array([overlap]))
    assert _s(found) == pytest.approx(hides)
