"""Computes the time of an all-reduce that reduction servers and a ring share.

Reduction servers (NTT's Optcast, Google's Reduction Server) receive arrays over ordinary NICs, add them up on CPUs and
send the sum back: each worker sends its array once instead of 2(n-1)/n times. Where there are too few servers, they
reduce a part of the array and the ring the rest at the same time, as NTT's presentation of 2024 describes it for
electrical switches. Switches that aggregate at line rate (SHARP) are in `opsk.costmodel.collectives.algorithms`.
"""

from __future__ import annotations

from opsk.errors import InputError


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
    _validate(workers=workers, servers=servers, rates=(worker_bytes_per_s, server_bytes_per_s))
    if servers == 0 or workers < 2:
        return 0.0
    ring = 2 * (workers - 1) / workers
    load = workers * worker_bytes_per_s / (servers * server_bytes_per_s)
    return min(ring / (ring + load - 1), 1.0)


def all_reduce_s(
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


def _validate(*, workers: int, servers: int, rates: tuple[float, float]) -> None:
    """Validate the numbers; the error lists all that is wrong."""
    wrong = [
        f"{count} {name}"
        for name, count, minimum in (("workers", workers, 1), ("servers", servers, 0))
        if count < minimum
    ]
    wrong += [f"{rate:g} bytes/s" for rate in rates if not rate > 0]
    if wrong:
        raise InputError("no such reduction servers: " + ", ".join(wrong), hint="check the numbers")
