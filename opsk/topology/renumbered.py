"""Which nodes count their HCAs otherwise than their like, since one HCA is missing and those after it moved up?

When an HCA of ``mlx5_0`` to ``mlx5_7`` dies, the driver calls the seven that are left ``mlx5_0`` to ``mlx5_6``: names
then tell of five misplaced HCAs, the cabling of one that is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from opsk.topology.hosts import Host

_BETTER = 2
"""Another count of a node's HCAs must put at least this many more on their rail than their names do; one more will do
where it explains all of them and the names that are missing are the last ones, or no whole node has such names."""


def renumbered(
    hosts: Sequence[Host], carries: Mapping[str, tuple[int, ...]], rails_of: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Return the rails of the nodes of a unit that have fewer HCAs than their like and count them otherwise.

    Parameters
    ----------
    carries
        The rails of each leaf of the unit.
    rails_of
        The rail of each port of a host, by name of the device.
    """
    patterns = Counter(rails_of[host.name] for host in hosts)
    usual = max(patterns, key=lambda pattern: (patterns[pattern], len(pattern), pattern), default=())
    slots = {tuple(port.slot for port in host.ports) for host in hosts if rails_of[host.name] == usual}
    found = {}
    for host in hosts:
        if not 1 < len(host.ports) < len(usual):
            continue
        seen = [carries.get(port.switch, ()) for port in host.ports]
        by_name = sum(rail in rails for rail, rails in zip(rails_of[host.name], seen, strict=True))
        if by_name < len(seen):
            count, rails = _best_fit(seen, usual)
            own = tuple(port.slot for port in host.ports)
            silent = not any(set(own) <= set(other) for other in slots)
            moved_up = silent or any(own == other[: len(own)] for other in slots)
            if (moved_up and count == len(seen)) or count >= by_name + _BETTER:
                found[host.name] = rails
    return found


def _best_fit(seen: Sequence[tuple[int, ...]], usual: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """Return how many ports agree at most, and their rails: ports keep their order, some rails are left out."""
    best: list[tuple[int, tuple[int, ...]] | None] = [(0, ())] * (len(usual) + 1)
    for rails in seen:
        row: list[tuple[int, tuple[int, ...]] | None] = [None]
        for index, rail in enumerate(usual):
            before, skipped = best[index], row[index]
            taken = (before[0] + (rail in rails), (*before[1], rail)) if before else None
            row.append(max((entry for entry in (taken, skipped) if entry), key=lambda entry: entry[0], default=None))
        best = row
    return best[-1] or (0, ())
