"""Computes the time of an all-reduce on workers that an optical circuit switch connects directly.

Circuits connect interface to interface: no packet is switched on the way, so every worker or aggregator that a piece of
the array passes is one more transfer, and a tree branches only as often as a device has interfaces. Source of the
cases and the printed numbers: A. Tateiwa (NTT), "Accelerating collective communication in large-scale AI training",
IEICE Information Networks, 29 July 2024. The closed forms are derived here and reproduce the numbers that the
presentation prints; its search for circuits by integer programming is not modelled: these are lower bounds for any
circuits.
"""

from __future__ import annotations

from opsk.errors import InputError


def ring_transfers(workers: int) -> int:
    """Return the consecutive transfers of a ring all-reduce: 2(N - 1); 14 for 8 workers."""
    return 2 * (workers - 1)


def streamed_transfers(workers: int, *, interfaces: int) -> int:
    """Return the transfers when NICs aggregate what streams through: the least diameter of a tree of N workers.

    A piece is summed up along a tree towards its middle and sent back: the two halves meet on the middle edge, so it
    crosses each edge of the longest path once. With ``interfaces`` circuits a worker, a tree of diameter 2r + 1 holds 2
    + 2(E - 1) + ... + 2(E - 1)^r workers. In a ring (E = 2) that is N - 1: 7 for 8 workers; with E = 4 it is 3.

    Raises
    ------
    InputError
        No such tree: fewer than one worker, or one interface for more than two workers.
    """
    _validate(workers=workers, interfaces=interfaces if workers > 2 else 2, minimum=2)
    around_worker, around_edge = 1, 2
    next_to_worker, next_to_edge = interfaces, 2 * (interfaces - 1)
    diameter = 0
    while around_worker < workers:
        if around_edge >= workers:
            return diameter + 1
        diameter += 2
        around_worker, next_to_worker = around_worker + next_to_worker, next_to_worker * (interfaces - 1)
        around_edge, next_to_edge = around_edge + next_to_edge, next_to_edge * (interfaces - 1)
    return diameter


def transfer_time_s(size_bytes: float, *, workers: int, interfaces: int, bytes_per_s: float) -> float:
    """Return the time for the bytes of an all-reduce among workers only: 2(N - 1)/(N E) K/b [s].

    ``bytes_per_s`` is one interface's. Every tree of N workers has N - 1 edges that carry the array both ways; pieces
    that take different trees load all N E interfaces alike. 8 workers with 4 interfaces: 0.4375 K/b, whatever the tree.
    """
    _validate(workers=workers, interfaces=interfaces, minimum=1)
    return 2 * (workers - 1) / (workers * interfaces) * size_bytes / bytes_per_s


def all_reduce_s(
    size_bytes: float, *, transfers: int, workers: int, interfaces: int, bytes_per_s: float, hop_s: float
) -> float:
    """Return transfers x alpha + the time of the bytes [s]."""
    sent_s = transfer_time_s(size_bytes, workers=workers, interfaces=interfaces, bytes_per_s=bytes_per_s)
    return transfers * hop_s + sent_s


def tree_aggregators(workers: int, *, aggregator_interfaces: int) -> int:
    """Return how many aggregators one tree needs that has all workers as leaves: ceil((N - 2)/(E - 2)).

    M aggregators in a tree spend 2(M - 1) of their M E interfaces on each other. 128 workers, E = 4: 63, as in the
    presentation, which gives the approximation (N - 1)/(E - 2). A worker that sends on all of its interfaces is in one
    tree for each.

    Raises
    ------
    InputError
        An aggregator with fewer than three interfaces joins nothing.
    """
    _validate(workers=workers, interfaces=aggregator_interfaces, minimum=3)
    return max(-(-(workers - 2) // (aggregator_interfaces - 2)), 1)


def partial_bandwidth(*, workers: int, interfaces: int, aggregators: int, aggregator_interfaces: int) -> float:
    """Return the maximum algbw of partial aggregation [links' rates].

    A tree with m aggregators takes 2(N - 1) - m (E - 2) interfaces of the workers for each unit of algbw, so with M
    aggregators algbw <= (N D + M (E - 2))/(2(N - 1)), and <= D since each worker sends its array at least once. The
    first aggregator already gains; a full tree (`full_tree_bandwidth`) needs `tree_aggregators` to gain anything.
    """
    _validate(workers=workers, interfaces=interfaces, minimum=1)
    _validate(workers=workers, interfaces=aggregator_interfaces, minimum=3)
    links = workers * interfaces + aggregators * (aggregator_interfaces - 2)
    return min(float(interfaces), links / (2 * (workers - 1)))


def full_tree_bandwidth(*, workers: int, interfaces: int, aggregators: int, aggregator_interfaces: int) -> float:
    """Return the algbw of as many full trees as there are aggregators for, and rings on the rest [links' rates].

    A tree moves the array once over one interface of each worker, a ring 2(N - 1)/N times.
    """
    needed = tree_aggregators(workers, aggregator_interfaces=aggregator_interfaces)
    trees = min(aggregators // needed, interfaces)
    return trees + (interfaces - trees) * workers / (2 * (workers - 1))


def _validate(*, workers: int, interfaces: int, minimum: int) -> None:
    """Validate the numbers; the error lists all that is wrong."""
    wrong = []
    if workers < 1:
        wrong.append(f"{workers} workers")
    if interfaces < minimum:
        wrong.append(f"{interfaces} interfaces a device, at least {minimum} are needed")
    if wrong:
        raise InputError("no such direct-connect network: " + "; ".join(wrong), hint="check the two numbers")
