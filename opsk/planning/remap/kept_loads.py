"""How good is a seating that differs from a known one in a few ranks? Only their groups are followed again.

What every link carries today is kept by kind of traffic. A change takes away the messages of the groups that are
touched, adds those that they send from their new seats, and leaves all other links alone. The verdict is the one that
`opsk.planning.placement.judging.judge` would give, at a small part of its price: a test holds the two against each
other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

from opsk.costmodel.table import FloatColumn
from opsk.planning.placement.judging import Job, Verdicts
from opsk.planning.ranks import RankGrid
from opsk.planning.routing.hca_seats import NOWHERE, Index, Ports
from opsk.planning.routing.hca_traffic import Flows, Seating, Touched, step_flows
from opsk.planning.routing.loads import LinkSeconds, link_seconds
from opsk.planning.routing.rank_traffic import AXES, StepBytes

KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "tp": ("tp", ("tp",)),
    "cp": ("cp", ("cp",)),
    "ep": ("ep", ("ep",)),
    "dp": ("dp", ("dp",)),
    "expert_dp": ("dp", ("expert_dp",)),
    "embedding": ("dp", ("embedding",)),
    "pp_forward": ("pp", ("pp_forward",)),
    "pp_wrap": ("pp", ("pp_wrap",)),
}
"""Kind of traffic to its axis and the field of `StepBytes` that it is: the volumes of one kind change by one factor."""

_GONE = 1e-5
"""A link that keeps less than this part of its load carries nothing: large jobs' loads are known to six digits."""


_MOST_PAIRS = 4096
"""Pairs of leaves whose paths are looked up beforehand: two seconds at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Bytes of one step between HB domains: all, those off their rail, and those off their leaf."""

    all_bytes: float = 0.0
    off_rail_bytes: float = 0.0
    off_leaf_bytes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLoads:
    """What a seating does to the links, by kind of traffic; kinds that leave no HB domain are left out.

    ``switches`` are seconds of every link between switches as `Routes` numbers them, ``ports`` of every port sending,
    then receiving. ``is_cut`` where some message has no path: then nothing can be added or taken away.
    """

    seating: Seating
    flows: Mapping[str, Flows]
    switches: Mapping[str, FloatColumn]
    ports: Mapping[str, FloatColumn]
    shares: Mapping[str, Share]
    is_cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Fewer:
    """The same job with replicas left out: its grid, and by which factor each rank's bytes of a kind change."""

    grid: RankGrid
    factor: Mapping[str, float]


def keep(job: Job, seating: Seating) -> KeptLoads:
    """Return what one seating does to the links."""
    flows = {}
    for kind, (axis, _) in KINDS.items():
        flow = step_flows(job.grid, only(job.sent, kind), seating, job.ports)[axis]
        if flow.size_bytes.any():
            flows[kind] = flow
    count = job.routes.rates.size
    if not flows:
        return KeptLoads(seating=seating, flows={}, switches={}, ports={}, shares={}, is_cut=False)
    # One seating of a large job would be laid on all cables at once, which leaves no paths behind for later questions.
    rows = 2 if _leaf_pairs(flows, job.ports) <= _MOST_PAIRS else 1
    loads = link_seconds(flows, rows, job.ports, job.routes)
    return KeptLoads(
        seating=seating,
        flows=flows,
        switches={kind: _spread(loads, kind, 0, count) for kind in flows},
        ports={kind: loads.ports[kind][0] for kind in flows},
        shares={kind: _share(flow, job.ports) for kind, flow in flows.items()},
        is_cut=any(bool(cut.any()) for cut in loads.cut.values()),
    )


def _leaf_pairs(flows: Mapping[str, Flows], ports: Ports) -> int:
    """Return between how many pairs of leaves messages run."""
    count = len(ports.leaves)
    pairs = [np.unique(ports.leaf[flow.source] * count + ports.leaf[flow.target]) for flow in flows.values()]
    return int(np.unique(np.concatenate(pairs)).size)


def only(sent: StepBytes, kind: str) -> StepBytes:
    """Return the bytes of one kind, all others 0."""
    kept = KINDS[kind][1]
    nothing = {
        item.name: np.zeros_like(value) if isinstance(value := getattr(sent, item.name), np.ndarray) else 0.0
        for item in fields(sent)
        if item.name not in kept
    }
    return replace(sent, **nothing)  # type: ignore[arg-type]


def changed(job: Job, kept: KeptLoads, seating: Seating, fewer: Fewer | None = None) -> Verdicts | None:
    """Return the verdict on a seating that differs a little from the kept one; ``None`` where that cannot be told.

    Parameters
    ----------
    job
        With the ports and the step model of the new state; HCAs and links are numbered as before.
    fewer
        For fewer ranks: ``seating`` has one entry for each rank of its grid.
    """
    if kept.is_cut:
        return None
    touched = None if fewer else _touched(kept.seating, seating)
    less, more = {}, {}
    for kind, (axis, _) in KINDS.items():
        sent = only(job.sent, kind)
        if not any(np.any(getattr(sent, name)) for name in KINDS[kind][1]):
            continue
        grid = fewer.grid if fewer else job.grid
        more[kind] = step_flows(grid, sent, seating, job.ports, touched=touched)[axis]
        less[kind] = (
            step_flows(job.grid, sent, kept.seating, job.ports, touched=touched)[axis]
            if touched is not None
            else kept.flows.get(kind, Flows.joined(iter(())))
        )
    moved = {kind: _difference(less[kind], more[kind], job.ports) for kind in more}
    loads = link_seconds(moved, 2, job.ports, job.routes) if moved else None
    return _verdict(job, kept, loads, moved, less, more, fewer)


def _touched(before: Seating, after: Seating) -> Touched:
    """Return the ranks that have another port, or whose HB domain goes by another number."""
    found: Touched = (before.port[0] != after.port[0]) | (before.domain[0] != after.domain[0])
    return found


def _difference(less: Flows, more: Flows, ports: Ports) -> Flows:
    """Return what must be added (row 0) and taken away (row 1), port by port; what stays cancels out."""
    count = ports.bytes_per_s.size
    keys = np.concatenate([more.source * count + more.target, less.source * count + less.target])
    sizes = np.concatenate([more.size_bytes, -less.size_bytes])
    pairs, at = np.unique(keys, return_inverse=True)
    net = np.bincount(at, weights=sizes, minlength=pairs.size)
    scale = np.bincount(at, weights=np.abs(sizes), minlength=pairs.size)
    real = np.abs(net) > 1e-9 * scale
    return Flows(
        row=(net[real] < 0).astype(np.int64),
        source=pairs[real] // count,
        target=pairs[real] % count,
        size_bytes=np.abs(net[real]),
    )


def _verdict(
    job: Job,
    kept: KeptLoads,
    loads: LinkSeconds | None,
    moved: Mapping[str, Flows],
    less: Mapping[str, Flows],
    more: Mapping[str, Flows],
    fewer: Fewer | None,
) -> Verdicts:
    """Add up what is kept, what is new and what is gone."""
    links = job.routes.rates.size
    total = np.zeros(links)
    axis_s = np.zeros(len(AXES))
    shares: dict[str, Share] = {}
    cut = np.zeros(len(AXES), dtype=np.bool_)
    for number, axis in enumerate(AXES):
        at_links, at_ports = np.zeros(links), np.zeros(2 * job.ports.bytes_per_s.size)
        for kind in [kind for kind, (its, _) in KINDS.items() if its == axis]:
            factor = fewer.factor.get(kind, 1.0) if fewer else 1.0
            if kind in kept.switches:
                at_links += factor * kept.switches[kind]
                at_ports += factor * kept.ports[kind]
            if loads is not None and kind in moved and moved[kind].size_bytes.size:
                _add(at_links, loads.links, factor * loads.switches[kind])
                _add(at_ports, None, factor * loads.ports[kind])
                cut[number] |= bool(loads.cut[kind][0])
            shares[kind] = _plus(kept.shares.get(kind, Share()), less.get(kind), more.get(kind), job.ports, factor)
        axis_s[number] = max(at_links.max(initial=0.0), at_ports.max(initial=0.0))
        total += at_links
    axis_s[cut] = np.inf
    worst = int(total.argmax()) if links else NOWHERE
    is_cut = bool(cut.any())
    load = np.inf if is_cut else float(total[worst]) if links else 0.0
    tensor = sum(share.all_bytes for kind, share in shares.items() if KINDS[kind][0] == "tp")
    return Verdicts(
        step_s=np.atleast_1d(job.step.step_s(axis_s[None, :])),
        axis_s=axis_s[None, :],
        tp_bytes=np.array([tensor]),
        all_bytes=np.array([sum(share.all_bytes for share in shares.values())]),
        off_rail_bytes=np.array([sum(share.off_rail_bytes for share in shares.values())]),
        off_leaf_bytes=np.array([sum(share.off_leaf_bytes for share in shares.values())]),
        max_link_load=np.array([load]),
        link=np.array([worst if 0 < load < np.inf else NOWHERE], dtype=np.int64),
    )


def _add(seconds: FloatColumn, where: Index | None, change: FloatColumn) -> None:
    """Add row 0 and take row 1 away; what then is left of rounding alone is nothing."""
    at = np.flatnonzero(change.any(axis=0))
    place = at if where is None else where[at]
    had = seconds[place]
    now = had + change[0, at] - change[1, at]
    now[now < _GONE * np.maximum(had, change[1, at])] = 0.0
    seconds[place] = now


def _plus(kept: Share, less: Flows | None, more: Flows | None, ports: Ports, factor: float) -> Share:
    """Return the share after a change, without what rounding leaves of nothing."""
    if less is None or more is None:
        return kept
    gone, new = _share(less, ports), _share(more, ports)
    found = {}
    for item in fields(Share):
        had = getattr(kept, item.name)
        now = had - getattr(gone, item.name) + getattr(new, item.name)
        found[item.name] = factor * now if now > 1e-9 * max(had, kept.all_bytes) else 0.0
    return Share(**found)


def _share(flow: Flows, ports: Ports) -> Share:
    """Return the bytes of some messages, by what their ends share."""
    leaf = (ports.leaf[flow.source] == ports.leaf[flow.target]) & (ports.leaf[flow.source] >= 0)
    rail = leaf | ((ports.rail[flow.source] == ports.rail[flow.target]) & (ports.rail[flow.source] >= 0))
    return Share(
        all_bytes=float(flow.size_bytes.sum()),
        off_rail_bytes=float(flow.size_bytes[~rail].sum()),
        off_leaf_bytes=float(flow.size_bytes[~leaf].sum()),
    )


def _spread(loads: LinkSeconds, kind: str, row: int, count: int) -> FloatColumn:
    """Return the seconds of all links of the fabric."""
    seconds = np.zeros(count)
    seconds[loads.links] = loads.switches[kind][row]
    return seconds
