"""Who sends to whom: rings, neighbours of stages, and the rails of the rail-only paper."""

from __future__ import annotations

from collections import defaultdict

import pytest

from opsk.costmodel.time.traffic_pairs import Layout, Pair, list_pairs
from opsk.errors import InputError


def pairs(layout: Layout, *, ranks: int | None = None) -> list[Pair]:
    return list(list_pairs(layout, tp_bytes=300.0, pp_bytes=12.0, gradient_bytes=64.0, ranks=ranks))


def sent(found: list[Pair]) -> dict[str, float]:
    """Bytes by axis that all GPUs send."""
    totals: dict[str, float] = defaultdict(float)
    for pair in found:
        totals[pair.axis] += pair.size_bytes
    return totals


def test_traffic_between_domains_stays_on_a_rail() -> None:
    # figure 3 of arXiv 2307.12169: HB domains of 8, what leaves them joins GPUs a multiple of 8 apart
    layout = Layout(tp=8, dp=6, pp=4, hb_domain=8)
    found = pairs(layout)
    for pair in found:
        is_inside = pair.source // 8 == pair.target // 8
        assert is_inside == (pair.axis == "tp")
        assert is_inside or (pair.source - pair.target) % 8 == 0
    # every GPU sends once for TP, once for DP, and to the stages beside its own
    assert len(found) == 192 + 192 + 2 * 48 * 3
    assert sent(found)["tp"] == 192 * 300
    assert sent(found)["dp"] == pytest.approx(192 * 2 * 5 / 6 * 64)


def test_replicas_in_one_domain_reduce_there_first() -> None:
    # equation 1 with 32 replicas in each of 2 domains: 98.4 % of an all-reduce stays inside
    layout = Layout(tp=8, dp=64, pp=1, hb_domain=256)
    gradients = [pair for pair in pairs(layout) if pair.axis == "dp"]
    inside = sum(pair.size_bytes for pair in gradients if pair.source // 256 == pair.target // 256)
    assert inside / sum(pair.size_bytes for pair in gradients) == pytest.approx(0.984, abs=5e-4)
    assert all((pair.source - pair.target) % 256 == 0 for pair in gradients if pair.source // 256 != pair.target // 256)


def test_only_pairs_of_the_first_ranks_are_listed() -> None:
    found = pairs(Layout(tp=8, dp=6, pp=64, hb_domain=8), ranks=48)
    assert {pair.axis for pair in found} == {"tp", "dp"}
    assert max(max(pair.source, pair.target) for pair in found) == 47


def test_one_gpu_sends_nothing() -> None:
    assert pairs(Layout(tp=1, dp=1, pp=1, hb_domain=8)) == []


def test_a_domain_that_tensor_parallelism_does_not_divide_is_refused() -> None:
    with pytest.raises(InputError, match="does not divide"):
        pairs(Layout(tp=3, dp=2, pp=1, hb_domain=8))
