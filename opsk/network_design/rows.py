"""Computes the cost, the power and the step times of each network and option, one row each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.network_cost import NetworkParts, PartPrices
from opsk.errors import InputError
from opsk.hardware.spec import ClusterSpec, NodeSpec
from opsk.network_design.plans import BestPlans, Chosen, ModelRequest
from opsk.network_design.point import Point, Wiring, build_cluster, build_parts
from opsk.network_design.techniques import ASSUMES, Bill, Extras, Technique, bill, reprice_steps
from opsk.workload.plan import Plan

PRICED_BYTES_PER_S = 50e9
"""Link rate that `PartPrices` are of: 400 Gbit/s, one direction [bytes/s]."""
OVERSUBSCRIPTION = "oversubscription"
"""The swept value that makes another network of a fat tree, and none of the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One model on one network.

    Parameters
    ----------
    model, global_batch
        The trained model and its batch.
    chosen
        Its own best plan there; ``None`` where there is none, for the reason in ``why``.
    step_s
        Its step, with the option of the row [s].
    """

    model: str
    global_batch: int
    step_s: float | None
    chosen: Chosen | None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One network, with at most one option.

    Parameters
    ----------
    sweep
        The swept values of this row: ``{"nics": 4}``.
    assumes
        Assumptions of its numbers.
    """

    point: Point
    technique: Technique | None
    parts: NetworkParts
    bill: Bill
    steps: tuple[Step, ...]
    sweep: Mapping[str, float] = field(default_factory=dict)
    assumes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the network with its option: ``fat-tree:2 + sharp``."""
        return self.point.name if self.technique is None else f"{self.point.name} + {self.technique}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The inputs that are common to all rows.

    Parameters
    ----------
    node
        Provides the GPUs; its sizes and rates are those of each point.
    template
        Number format, software and all else of plans that is not searched.
    prices
        Of parts of ``PRICED_BYTES_PER_S``.
    prices_are_own
        True where prices were given: they then apply to links of any rate.
    """

    node: NodeSpec
    template: Plan
    model_requests: Sequence[ModelRequest]
    plans: BestPlans
    prices: PartPrices = field(default_factory=PartPrices)
    prices_are_own: bool = False
    extras: Extras = field(default_factory=Extras)
    efficiency: Efficiency = DEFAULT


def build_row(
    setting: Setting, point: Point, technique: Technique | None = None, *, sweep: Mapping[str, float] | None = None
) -> Row:
    """Return the row of one network with one option.

    Raises
    ------
    InputError
        The network cannot be built.
    """
    parts = build_parts(point)
    prices, scaled = _scale_prices(setting, point)
    return Row(
        point=point,
        technique=technique,
        parts=parts,
        bill=bill(parts, prices, nodes=point.nodes, technique=technique, extras=setting.extras),
        steps=tuple(compute_step(setting, model_request, point, technique) for model_request in setting.model_requests),
        sweep=sweep or {},
        assumes=tuple(_list_assumptions(point, technique, setting, scaled=scaled)),
    )


def compute_step(setting: Setting, model_request: ModelRequest, point: Point, technique: Technique | None) -> Step:
    """Return a model's best plan on a network and its step; a reason where it cannot be trained there."""
    try:
        chosen, step_s = _compute_step_s(setting, model_request, point, technique)
    except InputError as error:
        why = f"{error.message} ({error.hint})" if error.hint else error.message
        return Step(model=model_request.model.name, global_batch=point.global_batch, step_s=None, chosen=None, why=why)
    if not np.isfinite(step_s):
        why = "tensor parallelism of every good plan leaves the HB domain: circuits cannot carry it"
        return Step(model=model_request.model.name, global_batch=point.global_batch, step_s=None, chosen=None, why=why)
    return Step(model=model_request.model.name, global_batch=point.global_batch, step_s=step_s, chosen=chosen)


def _compute_step_s(
    setting: Setting, model_request: ModelRequest, point: Point, technique: Technique | None
) -> tuple[Chosen, float]:
    """Return the best plan with an option, and its step [s]."""
    sizes = {"gpus": point.gpus, "global_batch": point.global_batch}
    cluster = build_cluster(point, setting.node, in_network_reduction=technique is Technique.SHARP)
    chosen = setting.plans.best(model_request, cluster, **sizes)
    if technique in (None, Technique.SHARP, Technique.OPTICAL):
        return chosen, chosen.step_s
    tried = [chosen.plan, *chosen.runners_up]
    if technique is Technique.TOPOOPT:
        tried += _list_plans_inside(setting, model_request, point, cluster)
    else:
        tried += setting.plans.unsharded(model_request, cluster, **sizes)
    times = reprice_steps(
        model_request.model, tried, cluster, technique, extras=setting.extras, efficiency=setting.efficiency
    )
    best = int(np.argmin(times))
    step_s = float(times[best])
    return _with_plan(chosen, tried[best], step_s), step_s


def _list_plans_inside(
    setting: Setting, model_request: ModelRequest, point: Point, cluster: ClusterSpec
) -> tuple[Plan, ...]:
    """Return the best plans whose tensor parallelism stays in an HB domain."""
    sizes = model_request.fixed.get("tp", tuple(range(1, model_request.model.heads + 1)))
    inside = tuple(size for size in sizes if size <= point.hb_domain)
    narrow = replace(model_request, fixed={**model_request.fixed, "tp": inside})
    return setting.plans.plans(narrow, cluster, gpus=point.gpus, global_batch=point.global_batch) if inside else ()


def _with_plan(chosen: Chosen, plan: Plan, step_s: float) -> Chosen:
    """Return a choice with another plan or another step; rates follow the step."""
    faster = chosen.step_s / step_s if np.isfinite(step_s) else 0.0
    return replace(
        chosen,
        plan=plan,
        step_s=step_s,
        mfu=chosen.mfu * faster,
        tokens_per_s_per_gpu=chosen.tokens_per_s_per_gpu * faster,
        components=chosen.components if plan == chosen.plan and faster == 1 else {},
    )


def _scale_prices(setting: Setting, point: Point) -> tuple[PartPrices, bool]:
    """Return the prices for the links' rate, and whether they had to be scaled."""
    ratio = point.nic_bytes_per_s / PRICED_BYTES_PER_S
    if setting.prices_are_own or ratio == 1:
        return setting.prices, False
    prices = setting.prices
    return PartPrices(
        usd_per_switch_port=prices.usd_per_switch_port * ratio,
        usd_per_transceiver=prices.usd_per_transceiver * ratio,
        w_per_switch_port=prices.w_per_switch_port * ratio,
        w_per_transceiver=prices.w_per_transceiver * ratio,
    ), True


def _list_assumptions(point: Point, technique: Technique | None, setting: Setting, *, scaled: bool) -> Iterator[str]:
    """Yield the assumptions of a row."""
    if scaled:
        yield "prices and power are those of 400 Gbit/s parts, in proportion to the rate"
    if point.oversubscription > 1:
        yield (
            "all that leaves a node crosses the leaves' uplinks: every NIC has its share of these"
            if point.endpoints > point.radix
            else "one switch joins all NICs: there are no uplinks to share"
        )
    if point.wiring is Wiring.RAIL_ONLY:
        yield "data and pipeline parallelism lie along rails; an all-to-all is forwarded over NVLink, in two phases"
    if setting.model_requests and point.hb_domain > point.gpus_per_node:
        nodes = point.hb_domain // point.gpus_per_node
        yield f"NVLink joins {nodes} nodes at its full rate; its switches are not priced"
    if technique is not None:
        yield from ASSUMES[technique]


def find_reference(rows: Sequence[Row], row: Row) -> Row | None:
    """Return the reference of a row: the rail-optimised network of the same sizes, else the first row of these."""
    same = [other for other in rows if other.technique is None and _setting(other) == _setting(row)]
    best = [other for other in same if other.point.wiring is Wiring.RAIL_OPTIMIZED]
    return next(iter([*best, *same]), None)


def _setting(row: Row) -> dict[str, float]:
    """Return the swept values that are not the network's own."""
    return {name: value for name, value in row.sweep.items() if name != OVERSUBSCRIPTION}
