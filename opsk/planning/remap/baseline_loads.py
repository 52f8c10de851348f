"""Evaluates a placement that differs from a known one in a few ranks, by recomputing the traffic of their groups only.

The current load of every link is stored by kind of traffic. A change subtracts the messages of the groups that are
touched, adds those that they send from their new slots, and leaves all other links unchanged. The verdict equals that
of `opsk.planning.placement.rank_placement.judge` at a small part of its cost; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

from opsk.costmodel.table import FloatColumn
from opsk.planning.placement.rank_placement import Job, Verdicts
from opsk.planning.ranks import RankGrid
from opsk.planning.routing.hca_ports import NOWHERE, Index, Ports
from opsk.planning.routing.loads import LinkSeconds, link_seconds
from opsk.planning.routing.traffic import AXES, Flows, RankPlacement, StepBytes, Touched, step_flows

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
"""A link with less than this part of its load left carries nothing: loads of large jobs are known to six digits."""


_MAX_PAIRS = 4096
"""Maximum pairs of leaves whose paths are precomputed: two seconds at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Bytes of one step between HB domains: all, those off their rail, and those off their leaf."""

    all_bytes: float = 0.0
    off_rail_bytes: float = 0.0
    off_leaf_bytes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineLoads:
    """The link loads of one placement, by kind of traffic; kinds that leave no HB domain are left out.

    ``switches`` are seconds of every link between switches as `Routes` numbers them, ``ports`` of every port sending,
    then receiving. ``is_cut`` where some message has no path: then nothing can be added or taken away.
    """

    rank_placement: RankPlacement
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


def compute_baseline(job: Job, rank_placement: RankPlacement) -> BaselineLoads:
    """Return the link loads of one placement."""
    flows = {}
    for kind, (axis, _) in KINDS.items():
        flow = step_flows(job.grid, select_kind(job.sent, kind), rank_placement, job.ports)[axis]
        if flow.size_bytes.any():
            flows[kind] = flow
    count = job.routes.rates.size
    if not flows:
        return BaselineLoads(rank_placement=rank_placement, flows={}, switches={}, ports={}, shares={}, is_cut=False)
    # A single placement of a large job is routed in bulk, which would not cache any paths for later changes.
    rows = 2 if _count_leaf_pairs(flows, job.ports) <= _MAX_PAIRS else 1
    loads = link_seconds(flows, rows, job.ports, job.routes)
    return BaselineLoads(
        rank_placement=rank_placement,
        flows=flows,
        switches={kind: _expand_links(loads, kind, 0, count) for kind in flows},
        ports={kind: loads.ports[kind][0] for kind in flows},
        shares={kind: _compute_share(flow, job.ports) for kind, flow in flows.items()},
        is_cut=any(bool(cut.any()) for cut in loads.cut.values()),
    )


def _count_leaf_pairs(flows: Mapping[str, Flows], ports: Ports) -> int:
    """Return between how many pairs of leaves messages run."""
    count = len(ports.leaves)
    pairs = [np.unique(ports.leaf[flow.source] * count + ports.leaf[flow.target]) for flow in flows.values()]
    return int(np.unique(np.concatenate(pairs)).size)


def select_kind(sent: StepBytes, kind: str) -> StepBytes:
    """Return the bytes of one kind, all others 0."""
    fields_of_kind = KINDS[kind][1]
    nothing = {
        item.name: np.zeros_like(value) if isinstance(value := getattr(sent, item.name), np.ndarray) else 0.0
        for item in fields(sent)
        if item.name not in fields_of_kind
    }
    return replace(sent, **nothing)  # type: ignore[arg-type]


def evaluate_change(
    job: Job, baseline: BaselineLoads, rank_placement: RankPlacement, fewer: Fewer | None = None
) -> Verdicts | None:
    """Return the verdict on a placement that differs slightly from the baseline; ``None`` where it is not computable.

    Parameters
    ----------
    job
        With the ports and the step model of the new state; HCAs and links are numbered as before.
    fewer
        For fewer ranks: ``rank_placement`` has one entry for each rank of its grid.
    """
    if baseline.is_cut:
        return None
    touched = None if fewer else _find_touched(baseline.rank_placement, rank_placement)
    less, more = {}, {}
    for kind, (axis, _) in KINDS.items():
        sent = select_kind(job.sent, kind)
        if not any(np.any(getattr(sent, name)) for name in KINDS[kind][1]):
            continue
        grid = fewer.grid if fewer else job.grid
        more[kind] = step_flows(grid, sent, rank_placement, job.ports, touched=touched)[axis]
        less[kind] = (
            step_flows(job.grid, sent, baseline.rank_placement, job.ports, touched=touched)[axis]
            if touched is not None
            else baseline.flows.get(kind, Flows.concatenate(iter(())))
        )
    moved = {kind: _compute_difference(less[kind], more[kind], job.ports) for kind in more}
    loads = link_seconds(moved, 2, job.ports, job.routes) if moved else None
    return _build_verdict(job, baseline, loads, moved, less, more, fewer)


def _find_touched(before: RankPlacement, after: RankPlacement) -> Touched:
    """Return the ranks that have another port, or whose HB domain goes by another number."""
    touched: Touched = (before.port[0] != after.port[0]) | (before.domain[0] != after.domain[0])
    return touched


def _compute_difference(less: Flows, more: Flows, ports: Ports) -> Flows:
    """Return the messages to add (row 0) and to remove (row 1), by port; unchanged ones cancel out."""
    count = ports.bytes_per_s.size
    keys = np.concatenate([more.source * count + more.target, less.source * count + less.target])
    sizes = np.concatenate([more.size_bytes, -less.size_bytes])
    pairs, pair = np.unique(keys, return_inverse=True)
    net = np.bincount(pair, weights=sizes, minlength=pairs.size)
    scale = np.bincount(pair, weights=np.abs(sizes), minlength=pairs.size)
    real = np.abs(net) > 1e-9 * scale
    return Flows(
        row=(net[real] < 0).astype(np.int64),
        source=pairs[real] // count,
        target=pairs[real] % count,
        size_bytes=np.abs(net[real]),
    )


def _build_verdict(
    job: Job,
    baseline: BaselineLoads,
    loads: LinkSeconds | None,
    moved: Mapping[str, Flows],
    less: Mapping[str, Flows],
    more: Mapping[str, Flows],
    fewer: Fewer | None,
) -> Verdicts:
    """Add up the baseline, the added and the removed loads."""
    links = job.routes.rates.size
    total = np.zeros(links)
    axis_s = np.zeros(len(AXES))
    shares: dict[str, Share] = {}
    cut = np.zeros(len(AXES), dtype=np.bool_)
    for number, axis in enumerate(AXES):
        link_s, port_s = np.zeros(links), np.zeros(2 * job.ports.bytes_per_s.size)
        for kind in [kind for kind, (axis_of_kind, _) in KINDS.items() if axis_of_kind == axis]:
            factor = fewer.factor.get(kind, 1.0) if fewer else 1.0
            if kind in baseline.switches:
                link_s += factor * baseline.switches[kind]
                port_s += factor * baseline.ports[kind]
            if loads is not None and kind in moved and moved[kind].size_bytes.size:
                _add(link_s, loads.links, factor * loads.switches[kind])
                _add(port_s, None, factor * loads.ports[kind])
                cut[number] |= bool(loads.cut[kind][0])
            shares[kind] = _update_share(
                baseline.shares.get(kind, Share()), less.get(kind), more.get(kind), job.ports, factor
            )
        axis_s[number] = max(link_s.max(initial=0.0), port_s.max(initial=0.0))
        total += link_s
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


def _add(seconds: FloatColumn, numbers: Index | None, change: FloatColumn) -> None:
    """Add row 0 and subtract row 1; what remains of rounding alone is set to 0."""
    busy = np.flatnonzero(change.any(axis=0))
    links = busy if numbers is None else numbers[busy]
    had = seconds[links]
    now = had + change[0, busy] - change[1, busy]
    now[now < _GONE * np.maximum(had, change[1, busy])] = 0.0
    seconds[links] = now


def _update_share(before: Share, less: Flows | None, more: Flows | None, ports: Ports, factor: float) -> Share:
    """Return the share after a change, with rounding residues set to 0."""
    if less is None or more is None:
        return before
    gone, new = _compute_share(less, ports), _compute_share(more, ports)
    after = {}
    for item in fields(Share):
        had = getattr(before, item.name)
        now = had - getattr(gone, item.name) + getattr(new, item.name)
        after[item.name] = factor * now if now > 1e-9 * max(had, before.all_bytes) else 0.0
    return Share(**after)


def _compute_share(flow: Flows, ports: Ports) -> Share:
    """Return the bytes of some messages, by what their ends share."""
    leaf = (ports.leaf[flow.source] == ports.leaf[flow.target]) & (ports.leaf[flow.source] >= 0)
    rail = leaf | ((ports.rail[flow.source] == ports.rail[flow.target]) & (ports.rail[flow.source] >= 0))
    return Share(
        all_bytes=float(flow.size_bytes.sum()),
        off_rail_bytes=float(flow.size_bytes[~rail].sum()),
        off_leaf_bytes=float(flow.size_bytes[~leaf].sum()),
    )


def _expand_links(loads: LinkSeconds, kind: str, row: int, count: int) -> FloatColumn:
    """Return the seconds of all links of the fabric."""
    seconds = np.zeros(count)
    seconds[loads.links] = loads.switches[kind][row]
    return seconds
