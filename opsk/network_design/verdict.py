"""Summarises the rows in a few sentences for somebody who buys a network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from opsk.errors import InputError
from opsk.network_design.point import Point, Wiring, build_parts
from opsk.network_design.rows import OVERSUBSCRIPTION, Row, Step, find_reference
from opsk.network_design.techniques import Technique
from opsk.workload.plan import Sharding

_SAME = 0.01
"""Steps that differ by less are reported as equal: the cost model is no more accurate."""
_VISIBLE = 0.0005
_LARGEST_DOMAIN = 1024


def sentences(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the findings of the rows: on cost first, then on steps, options and sweeps."""
    return tuple(line for part in (_savings, _slower, _cheapest, _options, _swept) for line in _join(list(part(rows))))


Statement = tuple[str, str]
"""A sentence, and the swept values for which it holds."""


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
                f"rail-only saves {cost:.0%} of the cost and {power:.1%} of the power of a rail-optimised network: "
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
                change = after / before - 1
                model = line[0].steps[index].model
                yield f"{name}, {model}: from {key} {first:g} to {last:g} the step changes by {change:+.1%}", ""
