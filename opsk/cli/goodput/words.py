"""What should somebody do about failures, in a few sentences with numbers?"""

from __future__ import annotations

from opsk.diagnosis.goodput.goodput import Goodput, SpareRow
from opsk.hardware.spec import ClusterSpec
from opsk.text import format_duration

_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_WORTH_TELLING = 5e-4
"""Gains below this share are not recommended."""
_UNITS = {"node": ("spare node", "spare nodes"), "hb_domain": ("spare HB domain", "spare HB domains")}


def recommendation(found: Goodput, cluster: ClusterSpec, *, shrinks: bool) -> list[str]:
    """Return what to do, a sentence each: how often to save, how many spares to hold, what else would help."""
    sentences = [_interval(found), *_inside(found, cluster), _spares(found, shrinks=shrinks)]
    if found.optimum is not found.best:
        sentences.append(_optimum(found))
    if found.best.held_nodes > cluster.nodes:
        sentences.append(
            f"that holds {found.best.held_nodes:,} nodes, {cluster.name} has {cluster.nodes:,}: "
            f"{found.best.held_nodes - cluster.nodes:,} would have to be bought"
        )
    top = next((lever for lever in found.levers if lever.gain > _WORTH_TELLING), None)
    if top is not None:
        sentences.append(f"what would help most: {_lever(top.name, found)} (+{percent(top.gain)})")
    return sentences


def percent(share: float) -> str:
    """Format a share of the ideal, with as many digits as tell it from nothing."""
    if abs(share) >= 0.0995:
        return f"{share:.0%}"
    return f"{share:.1%}" if abs(share) >= _WORTH_TELLING or not share else "< 0.1%"


def ordinal(number: int) -> str:
    """Return the word for a place in a row: ``third``, ``21st``."""
    if 1 <= number <= len(_ORDINALS):
        return _ORDINALS[number - 1]
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"


def _interval(found: Goodput) -> str:
    """Return how often to save, and what that costs."""
    saving, shares = found.saving, found.shares
    if saving.interval_steps is None:
        return "nothing fails: no checkpoint is needed"
    steps = "step" if saving.interval_steps == 1 else f"{saving.interval_steps:,} steps"
    return (
        f"save every {steps} ({format_duration(saving.interval_s)}): {percent(shares.saving)} of the time goes into "
        f"saving, {percent(shares.again)} into work done again, {percent(shares.restart)} into restarts"
    )


def _inside(found: Goodput, cluster: ClusterSpec) -> list[str]:
    """Return how many nodes of each HB domain to keep as spares, where a domain spans nodes."""
    best = found.best
    if found.kind != "hb_domain":
        return []
    node_gpus = cluster.node.gpus
    used, held = best.used_nodes_inside, best.used_nodes_inside + best.spare_nodes_inside
    words = f"use {used * node_gpus} of the {held * node_gpus} GPUs held in each HB domain"
    words += f": {best.spare_nodes_inside} of {held} nodes are spares" if best.spare_nodes_inside else ", no node spare"
    ways = list(dict.fromkeys(row.spare_nodes_inside for row in found.rows))
    if len(ways) == 1:
        return [words]
    other = ways[1] if ways[0] == best.spare_nodes_inside else ways[0]
    at_best = max(row.per_held for row in found.rows if row.spare_nodes_inside == other)
    return [
        f"{words} ({percent(best.per_held)} of the ideal for each GPU held; with {other or 'none'}: {percent(at_best)})"
    ]


def _spares(found: Goodput, *, shrinks: bool) -> str:
    """Return how many spare units pay for themselves, and what the next one would bring."""
    one, many = _UNITS[found.kind]
    best, count = found.best, found.best.spares
    series = [row for row in found.rows if row.spare_nodes_inside == best.spare_nodes_inside]
    after = next((row for row in series if row.spares == count + 1), None)
    policy = "training goes on with fewer replicas meanwhile" if shrinks else "the job waits meanwhile"
    if not count and found.optimum is not best:
        return f"no {one} is held: goodput {percent(best.goodput)}"
    if not count:
        if after is None:
            return f"no {one} was looked at: goodput {percent(best.goodput)} without"
        return (
            f"no {one} pays for itself: the first would bring {percent(after.gain)} and hold {_more(after, best)} more "
            f"GPUs ({policy})"
        )
    first = series[0]
    words = (
        f"{count} {one if count == 1 else many} {'brings' if count == 1 else 'bring'} "
        f"{percent(best.goodput - first.goodput)} (goodput {first.goodput:.1%} → {best.goodput:.1%})"
    )
    if after is None:
        return words
    more = f"bring {percent(after.gain)} and hold {_more(after, best)} more GPUs"
    return f"{words}; the {ordinal(after.spares)} would {more}"


def _optimum(found: Goodput) -> str:
    """Return which number of spares uses GPUs best, where another one is held."""
    one, many = _UNITS[found.kind]
    row = found.optimum
    inside = f" with {row.spare_nodes_inside} spare nodes in each" if found.kind == "hb_domain" else ""
    return (
        f"{row.spares or 'no'} {one if row.spares < 2 else many}{inside} would give most for each GPU held: "
        f"{row.per_held:.1%} instead of {found.best.per_held:.1%}"
    )


def _more(after: SpareRow, best: SpareRow) -> str:
    """Return how many more GPUs a row holds than another."""
    return percent(after.held_gpus / best.held_gpus - 1.0)


def _lever(name: str, found: Goodput) -> str:
    """Return a lever in words that fit this job."""
    if not name.startswith("the other way"):
        return name
    return "synchronous checkpoints" if found.saving.asynchronous else "asynchronous checkpoints"
