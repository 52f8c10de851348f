"""Computes the cost, the power and the step times of each network and option, and summarises them for a buyer."""

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
from opsk.network_design.point import OVERSUBSCRIPTION, Point, Wiring, build_cluster, build_parts
from opsk.network_design.techniques import ASSUMES, Bill, Extras, Technique, bill, reprice_steps
from opsk.text import format_change
from opsk.workload.plan import Plan, Sharding

PRICED_BYTES_PER_S = 50e9
"""Link rate that `PartPrices` are of: 400 Gbit/s, one direction [bytes/s]."""
_SAME = 0.01
"""Steps that differ by less are reported as equal: the cost model is no more accurate."""
_VISIBLE = 0.0005
_LARGEST_DOMAIN = 1024
Statement = tuple[str, str]
"""A sentence, and the swept values for which it holds."""


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
    if technique in (None, Technique.SHARP, Technique.OPTICAL, Technique.JUPITER):
        return chosen, chosen.step_s
    tried = [chosen.plan, *chosen.runners_up]
    if technique in (Technique.TOPOOPT, Technique.TORUS):
        tried += _list_plans_inside(setting, model_request, point, cluster)
    else:
        tried += setting.plans.search_unsharded(model_request, cluster, **sizes)
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


def sentences(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the findings of the rows: on cost first, then on steps, options and sweeps."""
    return tuple(line for part in (_savings, _slower, _cheapest, _options, _swept) for line in _join(list(part(rows))))


def _join(statements: Sequence[Statement]) -> Iterator[str]:
    """Yield each sentence once, with all values for which it holds."""
    places_by_sentence: dict[str, list[str]] = {}
    for sentence, where in statements:
        places_by_sentence.setdefault(sentence, []).append(where)
    for sentence, places in places_by_sentence.items():
        where = "; ".join(dict.fromkeys(filter(None, places)))
        yield f"{sentence} ({where})" if where else sentence


def _format_sweep(row: Row) -> str:
    """Return the swept values for which a sentence holds."""
    return ", ".join(f"{name} {value:g}" for name, value in row.sweep.items() if name != OVERSUBSCRIPTION)


def _plain(rows: Sequence[Row]) -> list[Row]:
    """Return the rows without an option."""
    return [row for row in rows if row.technique is None]


def _savings(rows: Sequence[Row]) -> Iterator[Statement]:
    """Yield the savings of rail-only against rail-optimised, or the HB domains that it would need for any."""
    for row in _plain(rows):
        other = find_reference(rows, row)
        if row.point.wiring is not Wiring.RAIL_ONLY or other is None or other.point.wiring is not Wiring.RAIL_OPTIMIZED:
            continue
        cost, power = 1 - row.bill.cost_usd / other.bill.cost_usd, 1 - row.bill.power_w / other.bill.power_w
        if abs(cost) >= 0.005:
            yield (
                f"{_format_savings(cost, power)} a rail-optimised network: "
                f"{_tiers(row)} of switches a rail instead of {other.parts.tiers}",
                _format_sweep(row),
            )
            continue
        if other.parts.tiers == 1:
            yield (
                "one tier of switches joins all NICs: there are no spines that rail-only could save",
                _format_sweep(row),
            )
            continue
        enough = smallest_saving_domain(row.point)
        needs = f"; HB domains of {enough} GPUs would" if enough else ""
        yield (
            f"rail-only saves nothing with HB domains of {row.point.hb_domain} GPUs: each rail still needs "
            f"{_tiers(row)}{needs}",
            _format_sweep(row),
        )


def _format_savings(cost: float, power: float) -> str:
    """Return how much of cost and power rail-only saves, or by how much it needs more."""
    if cost > 0 and power >= 0:
        return f"rail-only saves {cost:.0%} of the cost and {power:.1%} of the power of"
    of_cost = format_change(-cost, more="more", less="less", same="no more", digits=0)
    of_power = format_change(-power, more="more", less="less", same="no more")
    return f"rail-only costs {of_cost} and draws {of_power} power than"


def _tiers(row: Row) -> str:
    return f"{row.parts.tiers} tier{'s' if row.parts.tiers > 1 else ''}"


def smallest_saving_domain(point: Point) -> int | None:
    """Return the smallest HB domain, doubling, with which rail-only needs fewer tiers than one Clos of all."""
    domain = max(point.hb_domain, point.gpus_per_node)
    whole = build_parts(replace(point, wiring=Wiring.RAIL_OPTIMIZED)).tiers
    while domain <= min(point.gpus, _LARGEST_DOMAIN):
        try:
            if (
                point.gpus % domain == 0
                and build_parts(replace(point, wiring=Wiring.RAIL_ONLY, hb_domain=domain)).tiers < whole
            ):
                return domain
        except InputError:
            return None
        domain *= 2
    return None


def _slower(rows: Sequence[Row]) -> Iterator[Statement]:
    """Yield for each model the networks that are slower than the fastest, once for each group of swept values."""
    for first in _groups(rows):
        plain = [row for row in _plain(rows) if find_reference(rows, row) is first]
        for index, step in enumerate(first.steps):
            times = {row.name: time for row in plain if (time := row.steps[index].step_s) is not None}
            if len(times) < 2:
                continue
            best = min(times.values())
            late = {name: time / best - 1 for name, time in times.items() if time > best * (1 + _SAME)}
            if late:
                words = ", ".join(f"{name} by {share:.1%}" for name, share in late.items())
                yield f"{step.model}: slower than the fastest network: {words}", _format_sweep(first)
            else:
                yield f"{step.model} is as fast on every network, within {_SAME:.0%}", _format_sweep(first)


def _groups(rows: Sequence[Row]) -> list[Row]:
    """Return the reference of every group of swept values."""
    references: list[Row] = []
    for row in _plain(rows):
        first = find_reference(rows, row)
        if first is not None and not any(first is other for other in references):
            references.append(first)
    return references


def _cheapest(rows: Sequence[Row]) -> Iterator[Statement]:
    """Yield the cheapest network among those that are as fast as the fastest for all models."""
    for first in _groups(rows):
        plain = [row for row in _plain(rows) if find_reference(rows, row) is first]
        able = [row for row in plain if row.steps and all(step.step_s is not None for step in row.steps)]
        if len(able) < 2:
            continue
        best = [min(row.steps[index].step_s or 0.0 for row in able) for index in range(len(first.steps))]
        fast = [
            row
            for row in able
            if all((step.step_s or 0.0) <= least * (1 + _SAME) for step, least in zip(row.steps, best, strict=True))
        ]
        if fast:
            row = min(fast, key=lambda row: row.bill.cost_usd)
            yield (
                f"cheapest of those that are as fast as the fastest: {row.name}, "
                f"{row.bill.cost_usd / 1e6:,.2f} M USD and {row.bill.power_w / 1e3:,.0f} kW",
                _format_sweep(row),
            )


def _options(rows: Sequence[Row]) -> Iterator[Statement]:
    """Yield the effect of each option on the steps of its network."""
    for row in rows:
        if row.technique is None:
            continue
        plain = next(
            (other for other in _plain(rows) if other.point == row.point and dict(other.sweep) == dict(row.sweep)), None
        )
        for index, step in enumerate(row.steps):
            before = plain.steps[index].step_s if plain is not None else None
            if before is None or step.step_s is None:
                continue
            change = step.step_s / before - 1
            if abs(change) < _VISIBLE:
                yield (
                    f"{row.technique} changes no step of {step.model}{_why_nothing(row.technique, step)}",
                    _format_sweep(row),
                )
            else:
                word = "shortens" if change < 0 else "lengthens"
                yield f"{row.name} {word} the step of {step.model} by {abs(change):.1%}", _format_sweep(row)


def _why_nothing(technique: Technique, step: Step) -> str:
    """Return why an option that should help does not."""
    aggregates = technique in (Technique.SHARP, Technique.OPTCAST, Technique.SMARTNIC)
    if aggregates and step.chosen is not None and step.chosen.plan.sharding is not Sharding.NONE:
        return ": its best plan shards the optimizer, and has no all-reduce to shorten"
    return ""


def _swept(rows: Sequence[Row]) -> Iterator[Statement]:
    """Yield the difference between the ends of a sweep of one value."""
    keys = {name for row in rows for name in row.sweep}
    if len(keys) != 1:
        return
    (key,) = keys
    for name in dict.fromkeys(row.point.wiring for row in _plain(rows)):
        line = [row for row in _plain(rows) if row.point.wiring == name and key in row.sweep]
        for index in range(len(line[0].steps) if line else 0):
            known = [(row.sweep[key], row.steps[index].step_s) for row in line]
            times = [(value, time) for value, time in known if time is not None]
            if len(times) > 1 and key != "global-batch":
                (first, before), (last, after) = times[0], times[-1]
                change = format_change(after / before - 1, more="longer", less="shorter", same="no longer")
                model = line[0].steps[index].model
                yield f"{name}, {model}: with {key} {last:g} the step is {change} than with {first:g}", ""
