"""How are several numbers of GPUs, and batches close to the one asked for, searched together?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from opsk.planning.search.found import Found
from opsk.planning.search.front import Front
from opsk.planning.search.layouts import divisors
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.search import searched
from opsk.planning.search.space import space_of

BATCH_TOLERANCE = 0.1
"""How far from the batch asked for another may be that is still nearly the same training."""
MOST_BATCHES = 12
"""So many other batches are tried, those that more replicas can share first."""


def cases_of(request: PlanRequest, *, gpu_counts: Sequence[int] = (), keep_batch: bool = True) -> list[PlanRequest]:
    """Return the request with every number of GPUs and every batch that is wanted, its own first."""
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
    found: dict[int, None] = {}
    for replicas in reversed(divisors(gpus)):
        for near in (batch // replicas * replicas, -(-batch // replicas) * replicas):
            if near != batch and abs(near - batch) <= BATCH_TOLERANCE * batch and near > 0:
                found[near] = None
    return list(found)[:MOST_BATCHES]


def searched_cases(
    requests: Sequence[PlanRequest], *, walk: bool | None = None, front: bool = False
) -> Iterator[Found]:
    """Yield what is known of all requests after every batch of plans; a request without plans adds nothing."""
    done = Found(most=requests[0].most, front=Front() if front else None)
    yield done
    for request in requests:
        found = done
        for part in searched(space_of(request), walk=walk, front=front):
            found = done.joined(part)
            yield found
        done = found
