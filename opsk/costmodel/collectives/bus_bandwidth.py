"""Computes ``algbw`` and ``busbw`` of nccl-tests for each collective.

``algbw`` is size over time; ``busbw`` is what each rank's link must then carry if ranks only send and receive, so that
it can be compared with the link's rate whatever the number of ranks. Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md
(read 2026-11).
"""

from __future__ import annotations

from opsk.costmodel.collectives.algorithms import Collective

_SHARED_ROOTS = (Collective.BROADCAST, Collective.REDUCE, Collective.SEND_RECV)


def bus_factor(collective: Collective, ranks: int) -> float:
    """Return busbw / algbw.

    2(n-1)/n for an all-reduce, (n-1)/n for all-gather, reduce-scatter and all-to-all, 1 for broadcast, reduce and
    send-receive, where the root's link is the bottleneck. Sizes are those of the whole array, n times what a rank has
    in an all-gather or gets from a reduce-scatter.
    """
    if collective in _SHARED_ROOTS:
        return 1.0
    share = (ranks - 1) / ranks
    return 2.0 * share if collective is Collective.ALL_REDUCE else share


def algbw_bytes_per_s(size_bytes: float, time_s: float) -> float:
    """Return size over time [bytes/s]."""
    return size_bytes / time_s


def busbw_bytes_per_s(collective: Collective, ranks: int, *, size_bytes: float, time_s: float) -> float:
    """Return what nccl-tests prints as busbw [bytes/s]; 8 GB all-reduced by 8 ranks in 40 ms are 350e9."""
    return algbw_bytes_per_s(size_bytes, time_s) * bus_factor(collective, ranks)


def time_s(collective: Collective, ranks: int, *, size_bytes: float, busbw_bytes_per_s: float) -> float:
    """Return the time that corresponds to a measured busbw [s]."""
    return size_bytes * bus_factor(collective, ranks) / busbw_bytes_per_s


def in_network_wire_bytes_per_s(ranks: int, *, size_bytes: float, time_s: float) -> float:
    """Return what each link carries when a switch reduces: algbw (n+1)/n [bytes/s].

    busbw keeps the factor 2(n-1)/n then, and may pass the link's rate. nccl-tests prints the correction as (n-1)/(n+1)
    of busbw, which is half of the inverse of (n+1)/n over 2(n-1)/n; this function uses the one that measured H100 agree
    with (`opsk.costmodel.collectives.algorithms.nvls`).
    """
    return algbw_bytes_per_s(size_bytes, time_s) * (ranks + 1) / ranks
