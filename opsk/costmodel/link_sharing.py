"""What of the communication of a step hides beside computation when all axes share the same links?

Each axis can hide beside some of the computation. But all of them use one NVLink port and one NIC of a GPU: what a link
carries while the GPU computes is no more than it carries in that time, whichever axis it belongs to. So what is hidden
is summed over the axes for each class of link, and what goes beyond the widest of their windows shows. A step is
then never shorter than the seconds for which its NIC or its NVLink port is busy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

from opsk.costmodel.communication import Traffic
from opsk.costmodel.elementwise import any_of, maximum, minimum, where
from opsk.costmodel.table import FloatColumn


def share_links(axes: Mapping[str, Traffic], compute_s: FloatColumn) -> dict[str, Traffic]:
    """Return the communication of each axis in one step, with what the others leave of its window.

    Parameters
    ----------
    axes
        Communication of one step, by axis, as if each were alone; messages between stages (``pp``) hide beside any
        computation.
    compute_s
        Computation of the step, recomputation included [s].
    """
    alone = dict(axes)
    hidden = {name: axis.total - axis.exposed for name, axis in alone.items()}
    widest = reduce(maximum, (where(hidden[name] > 0, _window_s(alone, name, compute_s), 0.0) for name in alone))
    window = minimum(widest, compute_s)
    on_hb = {name: minimum(hidden[name], axis.hb) for name, axis in alone.items()}
    on_nic = {name: minimum(hidden[name], axis.nic) for name, axis in alone.items()}
    of_hb, of_nic = (reduce(_sum, link.values()) for link in (on_hb, on_nic))
    beyond = maximum(maximum(of_hb, of_nic) - window, 0.0)
    if not any_of(beyond):
        return alone
    is_nic = of_nic >= of_hb
    carried = maximum(where(is_nic, of_nic, of_hb), 1e-300)
    shared = {}
    for name, axis in alone.items():
        exposed = axis.exposed + beyond * (where(is_nic, on_nic[name], on_hb[name]) / carried)
        is_less = (beyond > 0) & (hidden[name] > 0)
        shared[name] = replace(axis, exposed=exposed, window=where(is_less, axis.total - exposed, axis.window))
    return shared


def _window_s(axes: Mapping[str, Traffic], name: str, compute_s: FloatColumn) -> FloatColumn:
    """Return beside how much computation an axis hides [s]."""
    return compute_s if name == "pp" else axes[name].window


def _sum(one: FloatColumn, other: FloatColumn) -> FloatColumn:
    return one + other
