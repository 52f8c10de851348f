"""Defines one network design, its wiring, sizes and rates, and lists those of a sweep; checks that all can be built.

A point has everything that determines the parts to buy and the input of the cost model. The HB domain may be larger
than a node (racks of NVLink) or smaller (a part of one); rails are the NIC ports of one HB domain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product
from typing import Any

from opsk.costmodel.network_cost import NetworkParts, clos_network, oversubscribed_network, rail_only_network
from opsk.errors import InputError
from opsk.hardware.spec import ClusterSpec, NicSpec, NodeSpec
from opsk.network_design.techniques import Technique
from opsk.units import as_gbit_per_s, gbit_per_s

OVERSUBSCRIPTION = "oversubscription"
"""The swept value that makes another network of a fat tree, and none of the others."""
MAX_GPUS = 1 << 22
"""Four million GPUs; a larger number is a typing error."""
MIN_RADIX, MAX_RADIX = 4, 1 << 12
"""With fewer ports there is no tree; a larger number is a typing error."""
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


class Wiring(StrEnum):
    """How NICs are joined."""

    RAIL_ONLY = "rail-only"
    """A Clos for each rail, and nothing between rails."""
    RAIL_OPTIMIZED = "rail-optimized"
    """A full-bisection Clos whose leaves hold one rail each."""
    FAT_TREE = "fat-tree"
    """A Clos whose leaves hold whole nodes; it may be oversubscribed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One network under one cluster.

    Parameters
    ----------
    wiring, oversubscription
        How NICs are joined; downlink over uplink bandwidth of a leaf, 1.0 is full bisection.
    gpus, gpus_per_node, hb_domain
        GPUs in all, of a node, and of one HB domain.
    radix
        Ports of a switch.
    nics
        NIC ports of a node on the compute fabric.
    nic_bytes_per_s, hb_bytes_per_s
        Rate of one NIC port, and of one GPU inside its HB domain, one direction [bytes/s].
    global_batch
        Sequences of a step; 0 where no step is requested.
    """

    wiring: Wiring
    gpus: int
    hb_domain: int
    gpus_per_node: int
    nics: int
    radix: int
    nic_bytes_per_s: float
    hb_bytes_per_s: float
    oversubscription: float = 1.0
    global_batch: int = 0

    @property
    def name(self) -> str:
        """Name of the network: ``fat-tree:2``."""
        ratio = "" if self.oversubscription == 1 else f":{self.oversubscription:g}"
        return f"{self.wiring}{ratio}"

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.gpus // self.gpus_per_node

    @property
    def endpoints(self) -> int:
        """NIC ports on the fabric."""
        return self.nodes * self.nics

    @property
    def rails(self) -> int:
        """NIC ports of an HB domain."""
        return max(self.hb_domain * self.nics // self.gpus_per_node, 1)


def build_parts(point: Point) -> NetworkParts:
    """Return the switches and transceivers of a point's network.

    Raises
    ------
    InputError
        No network can be built of such switches.
    """
    if point.wiring is Wiring.RAIL_ONLY:
        return rail_only_network(endpoints=point.endpoints, rails=point.rails, radix=point.radix)
    if point.oversubscription == 1:
        return clos_network(endpoints=point.endpoints, radix=point.radix)
    return oversubscribed_network(endpoints=point.endpoints, radix=point.radix, oversubscription=point.oversubscription)


def build_cluster(point: Point, node: NodeSpec, *, in_network_reduction: bool = False) -> ClusterSpec:
    """Return the cluster that a point is, with the GPUs of ``node``.

    An oversubscribed tree gives every NIC its share of the uplinks: all that leaves a node is taken to cross them.
    Where one switch joins all there are no uplinks.
    """
    gpu = replace(node.gpu, hb_bytes_per_s=point.hb_bytes_per_s)
    nic = NicSpec(name=f"{as_gbit_per_s(point.nic_bytes_per_s):g}G", bytes_per_s=point.nic_bytes_per_s)
    changed_node = replace(
        node, gpu=gpu, gpus=point.gpus_per_node, nic=nic, nics=point.nics, hb_domain_gpus=point.hb_domain
    )
    crosses = point.endpoints > point.radix
    return ClusterSpec(
        name=point.name,
        node=changed_node,
        nodes=point.nodes,
        fabric=str(point.wiring),
        oversubscription=point.oversubscription if crosses else 1.0,
        in_network_reduction=in_network_reduction,
    )


def check(point: Point) -> None:
    """Raise for a point that cannot be built; the error lists all problems and the nearest valid values.

    Raises
    ------
    InputError
        Sizes do not fit together.
    """
    problems = list(_problems(point))
    if problems:
        wrong, nearest = zip(*problems, strict=True)
        raise InputError(f"{point.name}: {'; '.join(wrong)}", hint="; ".join(dict.fromkeys(filter(None, nearest))))


def _problems(point: Point) -> Iterator[tuple[str, str]]:
    """Yield the problems of the numbers, each with the nearest valid value."""
    sizes = {"gpus": point.gpus, "hb-domain": point.hb_domain, "gpus-per-node": point.gpus_per_node, "nics": point.nics}
    small = [f"{name} is {size}" for name, size in sizes.items() if not 1 <= size <= MAX_GPUS]
    if small:
        yield f"{', '.join(small)}", f"sizes are from 1 to {MAX_GPUS:,}"
    if not MIN_RADIX <= point.radix <= MAX_RADIX or point.radix % 2:
        yield f"switches with {point.radix} ports", f"an even --radix from {MIN_RADIX} to {MAX_RADIX:,}: 64"
    rates = {"nic-gbps": point.nic_bytes_per_s, "hb-gbps": point.hb_bytes_per_s}
    slow = [name for name, rate in rates.items() if not 0 < rate < float("inf")]
    if slow:
        yield f"no rate: {', '.join(slow)}", "rates are in Gbit/s, one direction, above 0"
    if not small:
        yield from _misfits(point)
    yield from _ratios(point)


def _misfits(point: Point) -> Iterator[tuple[str, str]]:
    """Yield sizes that do not divide each other."""
    node, domain = point.gpus_per_node, point.hb_domain
    if point.gpus % node:
        yield f"{point.gpus} GPUs are no whole nodes of {node}", nearest_multiples("--gpus", point.gpus, node)
    elif domain > point.gpus:
        yield f"an HB domain of {domain} GPUs, of {point.gpus} in all", f"--hb-domain {point.gpus} joins all GPUs"
    elif domain % node and node % domain:
        fits = _nearest_divisor(node, domain) if domain < node else round(domain / node) * node
        yield f"an HB domain of {domain} GPUs is no whole number, or part, of nodes of {node}", f"--hb-domain {fits}"
    elif point.gpus % domain:
        yield (
            f"{point.gpus} GPUs are no whole HB domains of {domain}",
            f"{nearest_multiples('--gpus', point.gpus, max(domain, node))}, or --hb-domain {_nearest_domain(point)}",
        )
    elif point.wiring is Wiring.RAIL_ONLY and domain * point.nics % node:
        least = -(-node // point.nics)
        yield (
            f"an HB domain of {domain} GPUs has {domain * point.nics}/{node} of a NIC: no rail",
            f"--hb-domain {least} or more, or --nics {node}",
        )


def _ratios(point: Point) -> Iterator[tuple[str, str]]:
    """Yield impossible oversubscription."""
    ratio, most = point.oversubscription, max(point.radix - 1, 1)
    if point.wiring is not Wiring.FAT_TREE and ratio != 1:
        yield f"{point.wiring} with oversubscription {ratio:g}", f"fat-tree:{ratio:g}"
    elif not 1 <= ratio <= most:
        yield f"oversubscription {ratio:g}", f"from 1 (full bisection) to {most}"


def _nearest_domain(point: Point) -> int:
    """Return the HB domain nearest to the requested one that divides all GPUs: whole nodes, or an even part of one."""
    node = point.gpus_per_node
    domains = [size for size in range(1, node) if node % size == 0]
    domains += [size * node for size in range(1, point.nodes + 1) if point.nodes % size == 0]
    return min(domains, key=lambda size: (abs(size - point.hb_domain), size))


def nearest_multiples(flag: str, size: int, step: int) -> str:
    """Return the flag with the multiples of ``step`` below and above a size."""
    below, above = size // step * step, -(-size // step) * step
    return f"{flag} {below} or {above}" if below else f"{flag} {above}"


def _nearest_divisor(size: int, target: int) -> int:
    """Return the divisor of ``size`` that is nearest to ``target``."""
    return min((part for part in range(1, size + 1) if size % part == 0), key=lambda part: abs(part - target))


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
        raise InputError(f"--sweep {text[:80]!r} is not KEY=V1,V2", hint=f"KEY is one of {', '.join(KEYS)}")
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
                yield SweptRow(point=point, technique=technique, sweep=_format_swept(values, point) | ratio_sweep)


def _sizes(values: Mapping[str, float]) -> dict[str, Any]:
    """Return fields of a point for swept values."""
    return {
        _FIELDS[key]: gbit_per_s(value) if key in _RATES else int(value)
        for key, value in values.items()
        if value != float("inf")
    }


def _format_swept(values: Mapping[str, float], point: Point) -> dict[str, float]:
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
