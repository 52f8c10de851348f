"""Computes collectives on special networks: rails only, reduction servers, and optical circuits between workers.

They are for comparing networks, in closed forms without a machine; the step-time model uses streamed rings instead
(`opsk.costmodel.collectives.hierarchical`). Sources:

- Rails only: Wang et al., "How to build low-cost networks for large language models" (arXiv 2307.12169), equations 1 to
  3, for x GPUs in each of y HB domains with C_hb and C_nic bytes/s a GPU. Latency is not modelled, as in the paper.
- Reduction servers (NTT's Optcast, Google's Reduction Server) receive arrays over ordinary NICs, add them up on CPUs
  and send the sum back: each worker sends its array once instead of 2(n-1)/n times. Where there are too few servers,
  they reduce a part of the array and the ring the rest at the same time, as NTT's presentation describes it for
  electrical switches.
- Circuits connect interface to interface: no packet is switched on the way, so every worker or aggregator that a piece
  of the array passes is one more transfer, and a tree branches only as often as a device has interfaces. Cases and
  printed numbers: A. Tateiwa (NTT), "Accelerating collective communication in large-scale AI training", IEICE
  Information Networks, 29 July 2024. The closed forms are derived here and reproduce the numbers that the presentation
  prints; its search for circuits by integer programming is not modelled: these are lower bounds for any circuits.
"""

from __future__ import annotations

import math

from opsk.errors import InputError


def ring_all_reduce_cost(workers: int) -> tuple[float, float]:
    """Return steps and array lengths that a worker of a ring sends: 2(N - 1) and 2(N - 1)/N.

    Source: Patarasuk and Yuan 2009; the NTT presentation compares it with the next two.
    """
    return 2.0 * (workers - 1), 2.0 * (workers - 1) / workers


def tree_all_reduce_cost(workers: int) -> tuple[float, float]:
    """Return the same of the double binary tree: 2 log2 N and, on average over the workers, 2(N - 1)/N.

    Source: Sanders, Speck and Traeff 2009. The busiest worker of three or more sends the whole array twice, which
    `opsk.costmodel.collectives.hierarchical` counts.
    """
    return 2.0 * math.log2(workers), 2.0 * (workers - 1) / workers


def switch_all_reduce_cost(workers: int) -> tuple[float, float]:
    """Return the same where switches reduce what passes through them (SHARP): one step, and the array once."""
    return (1.0, 1.0) if workers > 1 else (0.0, 0.0)


def all_gather_shares(*, inside: float, across: float) -> tuple[float, float]:
    """Return the parts of the array that one GPU moves over its NIC and over NVLink.

    32 GPUs in each of 2 domains: 1/64 and 31/32, so 98.4 % of the traffic stays in the domain (paper: 98 %).
    """
    return (across - 1) / (inside * across), (inside - 1) / inside


def rail_optimized_all_to_all_s(
    pair_bytes: float, *, inside: float, across: float, hb_bytes_per_s: float, nic_bytes_per_s: float
) -> float:
    """Return max((x - 1) D/C_hb, x (y - 1) D/C_nic) [s], equation 2; D is what each pair exchanges."""
    hb_s = (inside - 1) * pair_bytes / hb_bytes_per_s
    return max(hb_s, inside * (across - 1) * pair_bytes / nic_bytes_per_s)


def rail_only_all_to_all_s(
    pair_bytes: float, *, inside: float, across: float, hb_bytes_per_s: float, nic_bytes_per_s: float
) -> float:
    """Return y (x - 1) D/C_hb + x (y - 1) D/C_nic [s], equation 3: what goes to other rails is forwarded on NVLink."""
    hb_s = across * (inside - 1) * pair_bytes / hb_bytes_per_s
    return hb_s + inside * (across - 1) * pair_bytes / nic_bytes_per_s


def forwarding_slowdown(*, hb_bytes_per_s: float, nic_bytes_per_s: float) -> float:
    """Return about how much longer an all-to-all takes with forwarding: C_nic/C_hb [ratio].

    8.3 % on DGX A100 and 11.1 % on DGX H100; the paper prints 8.2 and 11.2 %. It takes y (x - 1) for x (y - 1).
    """
    return nic_bytes_per_s / hb_bytes_per_s


def server_share(*, workers: int, servers: int, worker_bytes_per_s: float, server_bytes_per_s: float) -> float:
    """Return the part of the array for the servers that minimises the time, 0 to 1.

    With r = 2(n-1)/n and q = n B_worker / (m B_server), a worker sends f + (1 - f) r and the servers need f q of the
    time that a worker needs for the array: equal at f = r/(r + q - 1). All of it once the servers together are as fast
    as the workers (q <= 1), none where there is no server or one worker.

    Raises
    ------
    InputError
        A negative number, or no bandwidth.
    """
    _validate_servers(workers=workers, servers=servers, rates=(worker_bytes_per_s, server_bytes_per_s))
    if servers == 0 or workers < 2:
        return 0.0
    ring = 2 * (workers - 1) / workers
    load = workers * worker_bytes_per_s / (servers * server_bytes_per_s)
    return min(ring / (ring + load - 1), 1.0)


def server_all_reduce_s(
    size_bytes: float,
    *,
    workers: int,
    servers: int,
    worker_bytes_per_s: float,
    server_bytes_per_s: float,
    hop_s: float = 0.0,
) -> float:
    """Return the time of an all-reduce that servers and a ring share [s].

    4 workers and 4 servers with equal NICs: 1.5 times as fast as the ring, as Optcast's README reports of that setting
    ("50 % speed improvement"). ``server_bytes_per_s`` is the measured rate of a server, additions included.
    """
    share = server_share(
        workers=workers,
        servers=servers,
        worker_bytes_per_s=worker_bytes_per_s,
        server_bytes_per_s=server_bytes_per_s,
    )
    ring = 2 * (workers - 1) / workers
    steps = 2 * (workers - 1) if share < 1 else 2
    return steps * hop_s + (share + (1 - share) * ring) * size_bytes / worker_bytes_per_s


def _validate_servers(*, workers: int, servers: int, rates: tuple[float, float]) -> None:
    """Validate the numbers; the error lists all that is wrong."""
    wrong = [
        f"{count} {name}"
        for name, count, minimum in (("workers", workers, 1), ("servers", servers, 0))
        if count < minimum
    ]
    wrong += [f"{rate:g} bytes/s" for rate in rates if not rate > 0]
    if wrong:
        raise InputError("no such reduction servers: " + ", ".join(wrong), hint="check the numbers")


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
    _validate_circuits(workers=workers, interfaces=interfaces if workers > 2 else 2, minimum=2)
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
    _validate_circuits(workers=workers, interfaces=interfaces, minimum=1)
    return 2 * (workers - 1) / (workers * interfaces) * size_bytes / bytes_per_s


def circuit_all_reduce_s(
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
    _validate_circuits(workers=workers, interfaces=aggregator_interfaces, minimum=3)
    return max(-(-(workers - 2) // (aggregator_interfaces - 2)), 1)


def partial_bandwidth(*, workers: int, interfaces: int, aggregators: int, aggregator_interfaces: int) -> float:
    """Return the maximum algbw of partial aggregation [links' rates].

    A tree with m aggregators takes 2(N - 1) - m (E - 2) interfaces of the workers for each unit of algbw, so with M
    aggregators algbw <= (N D + M (E - 2))/(2(N - 1)), and <= D since each worker sends its array at least once. The
    first aggregator already gains; a full tree (`full_tree_bandwidth`) needs `tree_aggregators` to gain anything.
    """
    _validate_circuits(workers=workers, interfaces=interfaces, minimum=1)
    _validate_circuits(workers=workers, interfaces=aggregator_interfaces, minimum=3)
    links = workers * interfaces + aggregators * (aggregator_interfaces - 2)
    return min(float(interfaces), links / (2 * (workers - 1)))


def full_tree_bandwidth(*, workers: int, interfaces: int, aggregators: int, aggregator_interfaces: int) -> float:
    """Return the algbw of as many full trees as there are aggregators for, and rings on the rest [links' rates].

    A tree moves the array once over one interface of each worker, a ring 2(N - 1)/N times.
    """
    needed = tree_aggregators(workers, aggregator_interfaces=aggregator_interfaces)
    trees = min(aggregators // needed, interfaces)
    return trees + (interfaces - trees) * workers / (2 * (workers - 1))


def _validate_circuits(*, workers: int, interfaces: int, minimum: int) -> None:
    """Validate the numbers; the error lists all that is wrong."""
    wrong = []
    if workers < 1:
        wrong.append(f"{workers} workers")
    if interfaces < minimum:
        wrong.append(f"{interfaces} interfaces a device, at least {minimum} are needed")
    if wrong:
        raise InputError("no such direct-connect network: " + "; ".join(wrong), hint="check the two numbers")
