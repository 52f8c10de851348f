"""Parses sweeps, and lists every network at every combination of the swept values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from opsk.errors import InputError
from opsk.network_design.point import Point, Wiring, check
from opsk.network_design.rows import OVERSUBSCRIPTION
from opsk.network_design.techniques import Technique
from opsk.units import gbit_per_s

_FIELDS = {
    "gpus": "gpus",
    "radix": "radix",
    "hb-domain": "hb_domain",
    "gpus-per-node": "gpus_per_node",
    "nics": "nics",
    "nic-gbps": "nic_bytes_per_s",
    "hb-gbps": "hb_bytes_per_s",
    "global-batch": "global_batch",
    OVERSUBSCRIPTION: "oversubscription",
}
KEYS = tuple(_FIELDS)
"""The keys that can be swept."""
_RATES = ("nic-gbps", "hb-gbps")
_RATIOS = (*_RATES, OVERSUBSCRIPTION)
ALL = "all"
"""A value of ``hb-domain``: one domain joins all GPUs."""
MAX_POINTS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptRow:
    """One requested row: a network, an option, and the swept values."""

    point: Point
    technique: Technique | None
    sweep: Mapping[str, float]


def parse_sweep(text: str) -> tuple[str, tuple[float, ...]]:
    """Return key and values of ``nics=1,2,4,8``; ``hb-domain=all`` is infinity.

    Raises
    ------
    InputError
        Lists the keys that can be swept, or the invalid value.
    """
    key, _, values = text.partition("=")
    key = key.strip().replace("_", "-")
    if key not in _FIELDS or not values.strip():
        raise InputError(f"--sweep {text[:80]!r} is no KEY=V1,V2", hint=f"KEY is one of {', '.join(KEYS)}")
    return key, tuple(dict.fromkeys(_value(key, entry.strip()) for entry in values.split(",")))


def _value(key: str, text: str) -> float:
    """Return one value of a sweep."""
    if key == "hb-domain" and text == ALL:
        return float("inf")
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < 1e12 or (key not in _RATIOS and value != int(value)):
        kind = "a positive number" if key in _RATIOS else "a positive whole number"
        raise InputError(f"--sweep {key}: {text[:40]!r} is not {kind}", hint=f"for example {key}=1,2,4,8")
    return value


def list_swept_rows(
    base: Point,
    networks: Sequence[tuple[Wiring, float]],
    techniques: Sequence[Technique],
    sweeps: Mapping[str, Sequence[float]],
) -> tuple[SweptRow, ...]:
    """Return every requested row, in the order of the values; all of them can be built.

    Each network comes without any option first, then with each. A sweep of oversubscription makes fat trees, whether
    or not there is one among the networks.

    Raises
    ------
    InputError
        Too many rows, or a network that cannot be built, with the nearest that can.
    """
    ratios = sweeps.get(OVERSUBSCRIPTION, ())
    others = {key: values for key, values in sweeps.items() if key != OVERSUBSCRIPTION}
    count = 1
    for values in others.values():
        count *= len(values)
    per_combination = (len(networks) + len(ratios)) * (1 + len(techniques))
    if count * per_combination > MAX_POINTS:
        raise InputError(
            f"{count * per_combination:,} rows are asked for, {MAX_POINTS:,} at most",
            hint="sweep fewer values, or fewer --network and --option",
        )
    rows = tuple(_yield_swept_rows(base, networks, techniques, others, ratios))
    for row in rows:
        check(row.point)
    return rows


def _yield_swept_rows(
    base: Point,
    networks: Sequence[tuple[Wiring, float]],
    techniques: Sequence[Technique],
    others: Mapping[str, Sequence[float]],
    ratios: Sequence[float],
) -> Iterator[SweptRow]:
    """Yield every row."""
    plain: list[tuple[Wiring, float, dict[str, float]]] = [
        (wiring, ratio, {}) for wiring, ratio in networks if not ratios or wiring is not Wiring.FAT_TREE
    ]
    swept = [(Wiring.FAT_TREE, ratio, {OVERSUBSCRIPTION: ratio}) for ratio in ratios]
    for combination in product(*others.values()):
        values = dict(zip(others, combination, strict=True))
        sized = replace(base, **_sizes(values))
        if values.get("hb-domain") == float("inf"):
            sized = replace(sized, hb_domain=sized.gpus)
        for wiring, ratio, ratio_sweep in [*plain, *swept]:
            point = replace(sized, wiring=wiring, oversubscription=ratio)
            for technique in (None, *techniques):
                yield SweptRow(point=point, technique=technique, sweep=_shown(values, point) | ratio_sweep)


def _sizes(values: Mapping[str, float]) -> dict[str, Any]:
    """Return fields of a point for swept values."""
    return {
        _FIELDS[key]: gbit_per_s(value) if key in _RATES else int(value)
        for key, value in values.items()
        if value != float("inf")
    }


def _shown(values: Mapping[str, float], point: Point) -> dict[str, float]:
    """Return the resolved swept values: ``all`` is a number of GPUs."""
    return {key: float(point.hb_domain) if key == "hb-domain" else value for key, value in values.items()}


def parse_network(text: str) -> tuple[Wiring, float]:
    """Return wiring and oversubscription of ``fat-tree:2``.

    Raises
    ------
    InputError
        Lists the wirings, or reports that this one cannot be oversubscribed.
    """
    name, _, ratio = text.strip().partition(":")
    try:
        wiring, value = Wiring(name.replace("optimised", "optimized")), float(ratio or 1)
    except ValueError:
        raise InputError(
            f"--network {text[:80]!r} is not known", hint=f"one of {', '.join(Wiring)}, or fat-tree:2, fat-tree:4"
        ) from None
    if wiring is not Wiring.FAT_TREE and value != 1:
        raise InputError(
            f"--network {text[:80]!r}: only a fat tree is oversubscribed here", hint=f"--network fat-tree:{value:g}"
        )
    return wiring, value
