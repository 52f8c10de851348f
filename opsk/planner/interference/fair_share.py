"""Who gets how much of links that several want more of than there is? Max-min fair, by progressive filling.

An *entity* wants a rate on each of several links at once, and all its rates rise and fall together, since its ranks
wait for each other. Its *level* is the part of its demand that it gets, 1 for all of it. All levels rise together;
where a link is full, the levels of all that use it stay where they are. So no level can rise without lowering one that
is as low or lower (max-min fairness with demands as weights: Bertsekas and Gallager, Data Networks, 6.5.2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from opsk.costmodel.table import FloatColumn

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_TOLERANCE = 1e-12


def fair_levels(demand: csr_matrix, capacity: FloatColumn | None = None, *, until: int | None = None) -> FloatColumn:
    """Return the level of each entity [ratio].

    Parameters
    ----------
    demand
        Rates that each entity wants of each link, shape (entities, links), in units of ``capacity``.
    capacity
        Of each link; 1 when not given: demands are then parts of a link's rate.
    until
        Only this entity's level is asked for: those that rise further than it may be left at 1.

    Examples
    --------
    Two that want all of one link get half of it each; one that wants a tenth beside one that wants all: both get 1/1.1
    of what they want.
    """
    by_link = demand.T.tocsr()
    room = np.ones(by_link.shape[0]) if capacity is None else np.asarray(capacity, dtype=np.float64)
    levels = np.ones(demand.shape[0])
    rising = np.ones(demand.shape[0], dtype=np.bool_)
    while rising.any() and (until is None or rising[until]):
        wanted = by_link @ rising.astype(np.float64)
        left = room - by_link @ np.where(rising, 0.0, levels)
        asked = wanted > _TOLERANCE
        reach = np.full(room.size, np.inf)
        reach[asked] = np.maximum(left[asked], 0.0) / wanted[asked]
        level = float(reach.min(initial=np.inf))
        if level >= 1.0:
            levels[rising] = 1.0
            break
        full = reach <= level * (1.0 + _TOLERANCE)
        stopped = rising & (demand @ full.astype(np.float64) > 0)
        levels[stopped] = level
        rising &= ~stopped
    return levels
