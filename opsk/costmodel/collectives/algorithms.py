"""Computes the steps and bytes that each algorithm needs for a collective on one level of the network.

The alpha-beta model: time = steps x alpha + bytes / bandwidth, where alpha is the latency of one step and bytes are
those that the busiest rank sends in one direction while it receives as many. Sizes are those of the whole array, as
nccl-tests defines them. Not modelled: the arithmetic of the reduction, and congestion between ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from opsk.costmodel.table import FloatColumn
from opsk.errors import InputError

Number = FloatColumn | float


class Collective(StrEnum):
    """The operations of NCCL, as nccl-tests names them."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "alltoall"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    SEND_RECV = "sendrecv"


class Algorithm(StrEnum):
    """The algorithm of a collective.

    ``auto`` selects the faster of ring and tree, as NCCL's tuner does; ``halving_doubling`` is MPI's, ``sharp`` reduces
    in the switches between HB domains (NCCL's CollNet), ``nvls`` in the switches within one (NVLink SHARP).
    """

    AUTO = "auto"
    RING = "ring"
    TREE = "tree"
    HALVING_DOUBLING = "halving_doubling"
    SHARP = "sharp"
    NVLS = "nvls"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsAndBytes:
    """What a collective needs: consecutive ``steps``, and the parts of the array that the busiest rank sends."""

    steps: Number
    bytes_per_byte: Number

    def time_s(self, size_bytes: Number, *, hop_s: Number, bytes_per_s: Number) -> FloatColumn:
        """Return steps x alpha + bytes / bandwidth for an array of ``size_bytes`` [s]."""
        return np.asarray(self.steps * hop_s + self.bytes_per_byte * size_bytes / bytes_per_s)


def ring(collective: Collective, ranks: FloatColumn) -> StepsAndBytes:
    """Return steps and bytes of the ring: n - 1 steps of 1/n of the array, twice that for an all-reduce; O(n).

    A broadcast or a reduction is a chain through which the array streams. Source: Patarasuk and Yuan 2009 for the
    all-reduce; NCCL's tuner (src/graph/tuning.cc) counts the same steps.
    """
    steps, share = ranks - 1, (ranks - 1) / ranks
    if collective is Collective.ALL_REDUCE:
        return StepsAndBytes(steps=2 * steps, bytes_per_byte=2 * share)
    if collective in (Collective.BROADCAST, Collective.REDUCE):
        return StepsAndBytes(steps=steps, bytes_per_byte=np.minimum(steps, 1.0))
    if collective is Collective.SEND_RECV:
        return StepsAndBytes(steps=np.minimum(steps, 1.0), bytes_per_byte=np.minimum(steps, 1.0))
    return StepsAndBytes(steps=steps, bytes_per_byte=share)


def tree(collective: Collective, ranks: FloatColumn) -> StepsAndBytes:
    """Return steps and bytes of the double binary tree: 2 log2 n steps for an all-reduce; O(log n).

    The n - 1 edges of each of the two trees carry half of the array each way: 2(n - 1)/n of it a rank on average, as
    NTT's presentation on in-network computing (2024) states. The busiest rank of three or more sends all of it twice:
    `opsk.costmodel.collectives.hierarchical` counts that. Source: Sanders, Speck and Traeff 2009.
    """
    depth = np.log2(ranks)
    if collective is Collective.ALL_REDUCE:
        return StepsAndBytes(steps=2 * depth, bytes_per_byte=2 * (ranks - 1) / ranks)
    if collective in (Collective.BROADCAST, Collective.REDUCE):
        return StepsAndBytes(steps=depth, bytes_per_byte=np.minimum(ranks - 1, 1.0))
    raise _build_error(Algorithm.TREE, collective)


def halving_doubling(collective: Collective, ranks: FloatColumn) -> StepsAndBytes:
    """Return steps and bytes of recursive halving and doubling: log2 n steps each, the ring's bytes.

    Where n is not a power of two the ranks beyond one first send their array to a neighbour and receive the result at
    the end: 2 more steps with the whole array. Source: Thakur, Rabenseifner and Gropp 2005, section 4.
    """
    depth = np.floor(np.log2(ranks))
    power = 2.0**depth
    extra = np.where(ranks > power, 1.0, 0.0)
    share = (power - 1) / power
    if collective is Collective.ALL_REDUCE:
        return StepsAndBytes(steps=2 * (depth + extra), bytes_per_byte=2 * (share + extra))
    if collective in (Collective.ALL_GATHER, Collective.REDUCE_SCATTER):
        return StepsAndBytes(steps=depth + extra, bytes_per_byte=share + extra)
    raise _build_error(Algorithm.HALVING_DOUBLING, collective)


def sharp(collective: Collective, ranks: FloatColumn) -> StepsAndBytes:
    """Return steps and bytes of in-network aggregation: one step up and down the switches, the array once; O(1).

    A reduce-scatter sends it all and receives a part, an all-gather the other way round: no gain over the ring in
    bytes. Source: NTT's presentation of 2024; S. Jeaugey in NCCL issue 1083.
    """
    share = np.minimum(ranks - 1, 1.0)
    if collective in (Collective.ALL_TO_ALL, Collective.SEND_RECV):
        raise _build_error(Algorithm.SHARP, collective)
    return StepsAndBytes(steps=share, bytes_per_byte=share)


def nvls(collective: Collective, ranks: FloatColumn) -> StepsAndBytes:
    """Return steps and bytes of NVLink SHARP: each rank sends its array to reduce, and 1/n of the result to multicast.

    (n + 1)/n of the array for an all-reduce. Measured on 5, 6, 7 and 8 H100 (algbw 258, 265, 270 and 273 GB/s, NCCL
    issue 1455) this gives 307 to 310 GB/s on the wire. With fewer ranks the ring is as fast.
    """
    share = np.minimum(ranks - 1, 1.0)
    if collective is Collective.ALL_REDUCE:
        return StepsAndBytes(steps=2 * share, bytes_per_byte=share * (ranks + 1) / ranks)
    return sharp(collective, ranks)


_ALGORITHMS: Mapping[Algorithm, Callable[[Collective, FloatColumn], StepsAndBytes]] = {
    Algorithm.RING: ring,
    Algorithm.TREE: tree,
    Algorithm.HALVING_DOUBLING: halving_doubling,
    Algorithm.SHARP: sharp,
    Algorithm.NVLS: nvls,
}
_TREE_COLLECTIVES = (Collective.ALL_REDUCE, Collective.BROADCAST, Collective.REDUCE)


def steps_and_bytes(collective: Collective, algorithm: Algorithm, ranks: Number) -> StepsAndBytes:
    """Return what one algorithm needs; ``auto`` is not defined without a size (`collective_s`).

    Raises
    ------
    InputError
        The algorithm cannot do this collective.
    """
    if algorithm is Algorithm.AUTO:
        raise InputError(f"auto is a choice by time, not an algorithm of {collective}", hint="ask collective_s")
    return _ALGORITHMS[algorithm](collective, np.asarray(ranks, dtype=np.float64))


def collective_s(
    collective: Collective,
    *,
    ranks: Number,
    size_bytes: Number,
    hop_s: Number,
    bytes_per_s: Number,
    algorithm: Algorithm = Algorithm.AUTO,
) -> FloatColumn:
    """Return the time of a collective among ``ranks`` equal ranks; 0 for one rank [s]; arguments broadcast.

    Raises
    ------
    InputError
        The algorithm cannot do this collective.
    """
    algorithms = candidates(collective) if algorithm is Algorithm.AUTO else (algorithm,)
    times = [
        steps_and_bytes(collective, candidate, ranks).time_s(size_bytes, hop_s=hop_s, bytes_per_s=bytes_per_s)
        for candidate in algorithms
    ]
    best: FloatColumn = np.min(np.stack(np.broadcast_arrays(*times)), axis=0)
    return best


def candidates(collective: Collective, *, in_network: bool = False) -> tuple[Algorithm, ...]:
    """Return the algorithms that NCCL chooses from: ring, tree if there is one, SHARP if switches can reduce."""
    names = [Algorithm.RING]
    if collective in _TREE_COLLECTIVES:
        names.append(Algorithm.TREE)
    if in_network and collective is Collective.ALL_REDUCE:
        names.append(Algorithm.SHARP)
    return tuple(names)


def fastest(
    collective: Collective,
    algorithms: Sequence[Algorithm],
    *,
    ranks: float,
    size_bytes: float,
    hop_s: float,
    bytes_per_s: float,
) -> Algorithm:
    """Return the fastest of ``algorithms``; the earlier one where two are equal."""
    return min(
        algorithms,
        key=lambda candidate: float(
            steps_and_bytes(collective, candidate, ranks).time_s(size_bytes, hop_s=hop_s, bytes_per_s=bytes_per_s)
        ),
    )


def _build_error(algorithm: Algorithm, collective: Collective) -> InputError:
    """Return the error of an algorithm that does not support a collective."""
    can = ", ".join(name for name in candidates(collective))
    return InputError(f"{algorithm} does no {collective}", hint=f"{collective} is done by {can}")
