"""Writes recommendations on failures as sentences with numbers."""

from __future__ import annotations

from opsk.diagnosis.goodput.goodput import Goodput, SpareRow
from opsk.hardware.spec import ClusterSpec
from opsk.text import format_duration

_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_MIN_GAIN = 5e-4
"""Gains below this share are not recommended."""
_UNITS = {"node": ("spare node", "spare nodes"), "hb_domain": ("spare HB domain", "spare HB domains")}


def build_recommendation(goodput: Goodput, cluster: ClusterSpec, *, shrinks: bool) -> list[str]:
    """Return recommendations as sentences: how often to save, how many spares to hold, what else would help."""
    sentences = [_format_interval(goodput), *_format_inside(goodput, cluster), _format_spares(goodput, shrinks=shrinks)]
    if goodput.optimum is not goodput.best:
        sentences.append(_format_optimum(goodput))
    if goodput.best.held_nodes > cluster.nodes:
        sentences.append(
            f"that holds {goodput.best.held_nodes:,} nodes, {cluster.name} has {cluster.nodes:,}: "
            f"{goodput.best.held_nodes - cluster.nodes:,} would have to be bought"
        )
    top = next((lever for lever in goodput.levers if lever.gain > _MIN_GAIN), None)
    if top is not None:
        sentences.append(f"what would help most: {_format_lever(top.name, goodput)} (+{format_percent(top.gain)})")
    return sentences


def format_percent(share: float) -> str:
    """Format a share of the ideal, with enough digits to distinguish it from zero."""
    if abs(share) >= 0.0995:
        return f"{share:.0%}"
    return f"{share:.1%}" if abs(share) >= _MIN_GAIN or not share else "< 0.1%"


def format_ordinal(number: int) -> str:
    """Return an ordinal number: ``third``, ``21st``."""
    if 1 <= number <= len(_ORDINALS):
        return _ORDINALS[number - 1]
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"


def _format_interval(goodput: Goodput) -> str:
    """Return the checkpoint interval and its cost."""
    saving, shares = goodput.saving, goodput.shares
    if saving.interval_steps is None:
        return "nothing fails: no checkpoint is needed"
    steps = "step" if saving.interval_steps == 1 else f"{saving.interval_steps:,} steps"
    return (
        f"save every {steps} ({format_duration(saving.interval_s)}): {format_percent(shares.saving)} of the time goes "
        f"into saving, {format_percent(shares.again)} into work done again, "
        f"{format_percent(shares.restart)} into restarts"
    )


def _format_inside(goodput: Goodput, cluster: ClusterSpec) -> list[str]:
    """Return how many nodes of each HB domain to keep as spares, where a domain spans nodes."""
    best = goodput.best
    if goodput.kind != "hb_domain":
        return []
    node_gpus = cluster.node.gpus
    used, held = best.used_nodes_inside, best.used_nodes_inside + best.spare_nodes_inside
    words = f"use {used * node_gpus} of the {held * node_gpus} GPUs held in each HB domain"
    words += f": {best.spare_nodes_inside} of {held} nodes are spares" if best.spare_nodes_inside else ", no node spare"
    spare_counts = list(dict.fromkeys(row.spare_nodes_inside for row in goodput.rows))
    if len(spare_counts) == 1:
        return [words]
    other = spare_counts[1] if spare_counts[0] == best.spare_nodes_inside else spare_counts[0]
    at_best = max(row.per_held for row in goodput.rows if row.spare_nodes_inside == other)
    return [
        f"{words} ({format_percent(best.per_held)} of the ideal for each GPU held; with {other or 'none'}: "
        f"{format_percent(at_best)})"
    ]


def _format_spares(goodput: Goodput, *, shrinks: bool) -> str:
    """Return the number of spare units that pay for themselves, and the gain of the next one."""
    singular, plural = _UNITS[goodput.kind]
    best, count = goodput.best, goodput.best.spares
    series = [row for row in goodput.rows if row.spare_nodes_inside == best.spare_nodes_inside]
    after = next((row for row in series if row.spares == count + 1), None)
    policy = "training goes on with fewer replicas meanwhile" if shrinks else "the job waits meanwhile"
    if not count and goodput.optimum is not best:
        return f"no {singular} is held: goodput {format_percent(best.goodput)}"
    if not count:
        if after is None:
            return f"no {singular} was looked at: goodput {format_percent(best.goodput)} without"
        return (
            f"no {singular} pays for itself: the first would bring {format_percent(after.gain)} and hold "
            f"{_format_more_gpus(after, best)} more GPUs ({policy})"
        )
    first = series[0]
    words = (
        f"{count} {singular if count == 1 else plural} {'brings' if count == 1 else 'bring'} "
        f"{format_percent(best.goodput - first.goodput)} (goodput {first.goodput:.1%} → {best.goodput:.1%})"
    )
    if after is None:
        return words
    more = f"bring {format_percent(after.gain)} and hold {_format_more_gpus(after, best)} more GPUs"
    return f"{words}; the {format_ordinal(after.spares)} would {more}"


def _format_optimum(goodput: Goodput) -> str:
    """Return the best number of spares per GPU held, where another number is held."""
    singular, plural = _UNITS[goodput.kind]
    row = goodput.optimum
    inside = f" with {row.spare_nodes_inside} spare nodes in each" if goodput.kind == "hb_domain" else ""
    return (
        f"{row.spares or 'no'} {singular if row.spares < 2 else plural}{inside} would give most for each GPU held: "
        f"{row.per_held:.1%} instead of {goodput.best.per_held:.1%}"
    )


def _format_more_gpus(after: SpareRow, best: SpareRow) -> str:
    """Return how many more GPUs a row holds than another."""
    return format_percent(after.held_gpus / best.held_gpus - 1.0)


def _format_lever(name: str, goodput: Goodput) -> str:
    """Return the name of a lever for this job."""
    if not name.startswith("the other way"):
        return name
    return "synchronous checkpoints" if goodput.saving.asynchronous else "asynchronous checkpoints"
