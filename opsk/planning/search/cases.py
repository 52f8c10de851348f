"""Searches several numbers of GPUs, and batches close to the requested one, together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from opsk.planning.search.front import Front
from opsk.planning.search.layouts import divisors
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.result import SearchResult
from opsk.planning.search.search import search_space
from opsk.planning.search.space import build_space

BATCH_TOLERANCE = 0.1
"""Maximum relative difference from the requested batch for nearly the same training."""
MAX_BATCHES = 12
"""Maximum other batches that are tried, those that more replicas can share first."""


def list_cases(request: PlanRequest, *, gpu_counts: Sequence[int] = (), keep_batch: bool = True) -> list[PlanRequest]:
    """Return the request with every requested number of GPUs and every batch, its own first."""
    counts = dict.fromkeys((request.gpus, *gpu_counts))
    return [
        replace(with_gpus(request, gpus), global_batch=batch)
        for gpus in counts
        for batch in (request.global_batch, *(() if keep_batch else nearby_batches(request.global_batch, gpus)))
    ]


def with_gpus(request: PlanRequest, gpus: int) -> PlanRequest:
    """Return the request with another number of GPUs, on a cluster that has them."""
    nodes = max(-(-gpus // request.cluster.node.gpus), request.cluster.nodes)
    return replace(request, gpus=gpus, cluster=replace(request.cluster, nodes=nodes))


def nearby_batches(batch: int, gpus: int) -> list[int]:
    """Return other batches within a tenth, those that can be shared by most replicas first."""
    batches: dict[int, None] = {}
    for replicas in reversed(divisors(gpus)):
        for near in (batch // replicas * replicas, -(-batch // replicas) * replicas):
            if near != batch and abs(near - batch) <= BATCH_TOLERANCE * batch and near > 0:
                batches[near] = None
    return list(batches)[:MAX_BATCHES]


def search_cases(
    requests: Sequence[PlanRequest], *, walk: bool | None = None, front: bool = False
) -> Iterator[SearchResult]:
    """Yield the joined result of all requests after every batch of plans; a request without plans adds nothing."""
    done = SearchResult(most=requests[0].most, front=Front() if front else None)
    yield done
    for request in requests:
        result = done
        for part in search_space(build_space(request), walk=walk, front=front):
            result = done.joined(part)
            yield result
        done = result
