"""Assigns faults to the nodes, ports, switches and cables of a view."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from opsk.fabric.fabric import Fault

Loads = Mapping[tuple[str, str], float]
"""Directed pair of guids (two switches, an HCA and its leaf) to utilisation of its cables together; 1 is all of it."""

STEPS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Upper ends of the steps of the scale; what is above the last is more than the cables carry."""


def max_load(loads: Loads | None, pairs: Iterable[tuple[str, str]]) -> float | None:
    """Return the highest load of directed pairs, ``None`` when none of them is known; never negative."""
    if not loads:
        return None
    known = [load for pair in pairs if (load := loads.get(pair)) is not None and not math.isnan(load)]
    return max(0.0, *known) if known else None


def scale_step(load: float) -> int:
    """Return the step of the scale: 0 idle, 1 to 4 by quarters, 5 more than the cables carry."""
    return sum(load > end for end in STEPS)


def format_percent(load: float) -> str:
    """Format a load as percent; never 100% for another value."""
    if load > 9.995:
        return "> 999%"
    text = f"{load:.0%}"
    if text == "100%" and load != 1:
        return "> 100%" if load > 1 else "> 99%"
    return "< 1%" if text == "0%" and load > 0 else text


_Key = TypeVar("_Key")

ON_WRONG_LEAF = frozenset({"swapped_hcas", "misplaced_hca"})
SLOW = frozenset({"slow_link", "narrow_link"})
_OF_THE_FIRST = frozenset({
    "leaf_short_of_uplinks", "spine_short_of_cables", "spine_short_of_uplinks", "uneven_uplinks", "thin_leaf",
    "host_off_tier", "loop_cable",
})  # fmt: skip
"""Faults of one switch, which they name first; the others name the cables that it lacks."""
_OF_ALL = frozenset({"isolated_part", "no_cable", "switch_only_named"})
_WORDS = {
    "leaf_short_of_uplinks": "short of uplinks",
    "spine_short_of_cables": "short of cables",
    "spine_short_of_uplinks": "short of uplinks",
    "thin_leaf": "few HCAs",
    "host_off_tier": "hosts on a spine",
    "loop_cable": "loop",
    "isolated_part": "isolated",
    "two_cables_on_one_hca": "two cables",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Faults by where they are: node name, HCA guid, switch guid, ordered pair of guids of a cable's ends."""

    nodes: Mapping[str, tuple[Fault, ...]]
    devices: Mapping[str, tuple[Fault, ...]]
    switches: Mapping[str, tuple[Fault, ...]]
    cables: Mapping[tuple[str, str], tuple[Fault, ...]]


def build_marks(faults: Iterable[Fault]) -> Marks:
    """Return where faults belong; one that concerns several things is marked on each."""
    nodes: defaultdict[str, list[Fault]] = defaultdict(list)
    devices: defaultdict[str, list[Fault]] = defaultdict(list)
    switches: defaultdict[str, list[Fault]] = defaultdict(list)
    cables: defaultdict[tuple[str, str], list[Fault]] = defaultdict(list)
    for fault in faults:
        for guid in fault.devices:
            devices[guid].append(fault)
        if len(fault.nodes) == 1 and fault.kind not in _OF_THE_FIRST | _OF_ALL:
            nodes[fault.nodes[0]].append(fault)
        for guid in fault.switches if fault.kind in _OF_ALL else fault.switches[:1]:
            if fault.kind in _OF_THE_FIRST | _OF_ALL:
                switches[guid].append(fault)
        for a_guid, _, b_guid, _ in fault.cables:
            low, high = sorted((a_guid, b_guid))
            cables[low, high].append(fault)
    return Marks(nodes=_freeze(nodes), devices=_freeze(devices), switches=_freeze(switches), cables=_freeze(cables))


def describe_fault(fault: Fault) -> str:
    """Return a fault in two or three words."""
    return _WORDS.get(fault.kind, fault.kind.replace("_", " "))


def _freeze(faults_by_key: Mapping[_Key, list[Fault]]) -> dict[_Key, tuple[Fault, ...]]:
    return {key: tuple(faults) for key, faults in faults_by_key.items()}
