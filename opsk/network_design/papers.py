"""Compares the statements of papers and talks on networks with the values computed here.

Each paper is a table in ``statements``: what it states, where, and the quantity that is computed for it. There are the
rail-only paper, and the talks of TITAN and NTT. Quantities that need predicted steps are in
`opsk.network_design.paper_steps`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from opsk.costmodel.collectives import networks
from opsk.costmodel.network_cost import NetworkParts, clos_network, network_cost_usd, network_power_w, rail_only_network
from opsk.units import gbit_per_s

PAPERS = ("rail-only", "titan", "ntt")
"""Papers and talks that have a table of statements."""
_PRICES: Mapping[str, Callable[[NetworkParts], float]] = {"cost": network_cost_usd, "power": network_power_w}
_COLLECTIVES: Mapping[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        networks.ring_transfers,
        networks.streamed_transfers,
        networks.tree_aggregators,
        networks.transfer_time_s,
        networks.full_tree_bandwidth,
        networks.partial_bandwidth,
        networks.ring_all_reduce_cost,
        networks.tree_all_reduce_cost,
        networks.switch_all_reduce_cost,
    )
}
"""Closed forms that a statement may name."""
_NOTHING = 0.005
"""Savings below this share are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One statement of a paper, and the computed value.

    Parameters
    ----------
    section
        Section of the paper: ``table II``.
    what
        Description of the statement.
    stated, computed
        The two numbers, in ``unit`` (``ratio``, ``USD``, ``W``, ``switches``); ``stated`` is ``None`` where the paper
        states nothing and the number accompanies others.
    agrees
        Whether they are the same; ``None`` where nothing is stated.
    by
        Criterion of agreement: ``digits`` as they are printed, ``near`` (within some points of a hundred), or the
        ``sign`` of a trend.
    why
        Cause of the difference, or basis of the number.
    """

    section: str
    what: str
    stated: float | None
    computed: float
    unit: str = "ratio"
    agrees: bool | None = None
    by: str = "digits"
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """A computed quantity.

    Parameters
    ----------
    detail
        Further values, for the text that says on what the number rests.
    agrees
        Whether the statement holds, where that is more than a comparison of two numbers.
    """

    value: float
    detail: Mapping[str, Any] = field(default_factory=dict)
    agrees: bool | None = None


Quantity = Callable[[Mapping[str, Any]], Computed]
"""Computes a quantity from the keys of a statement."""


def load_paper(name: str) -> dict[str, Any]:
    """Return the table of one paper."""
    return tomllib.loads(files("opsk.network_design").joinpath("statements", f"{name}.toml").read_text("utf-8"))


def compare_statements(
    paper: Mapping[str, Any], quantities: Mapping[str, Quantity] | None = None
) -> tuple[Compared, ...]:
    """Compare the statements of a paper with computed values.

    Parameters
    ----------
    quantities
        Quantities that rest on predicted steps; statements that need others than these and the closed forms are left
        out.
    """
    known = {**QUANTITIES, **(quantities or {})}
    stated = (entry for statement in paper["statements"] for entry in _expand(statement))
    return tuple(_compare(entry, known[entry["quantity"]](entry)) for entry in stated if entry["quantity"] in known)


def format_verdict(paper: Mapping[str, Any], compared: Collection[Compared]) -> list[str]:
    """Return the sentences on which statements of a paper are confirmed."""
    comparable = [entry for entry in compared if entry.agrees is not None]
    counts = {"agree": sum(bool(entry.agrees) for entry in comparable), "comparable": len(comparable)}
    return [line["text"].format(**counts, **_summarise(line, compared)) for line in paper.get("verdict", ())]


def _summarise(line: Mapping[str, Any], compared: Iterable[Compared]) -> dict[str, Any]:
    """Return the values of the statements that a sentence of the verdict is about."""
    about = [entry for entry in compared if entry.section == line.get("section") and entry.what.endswith(line["what"])]
    if not about:
        return {}
    return {
        "computed": about[-1].computed,
        "stated": about[-1].stated,
        "zeros": sum(abs(entry.computed) < _NOTHING for entry in about),
        "maximum": max(entry.computed for entry in about),
    }


def _expand(statement: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield one statement for each of its rows."""
    common = {key: value for key, value in statement.items() if key not in ("columns", "rows")}
    for row in statement.get("rows", [[]]):
        yield common | dict(zip(statement.get("columns", ()), row, strict=True))


def _compare(entry: Mapping[str, Any], computed: Computed) -> Compared:
    """Compare one statement with the computed quantity."""
    over = entry.get("stated_over")
    stated = over[0] / over[1] if over else entry.get("stated")
    return Compared(
        section=entry["section"],
        what=entry["what"].format_map(entry),
        stated=stated,
        computed=computed.value,
        unit=entry.get("unit", "ratio"),
        agrees=computed.agrees if stated is None or computed.agrees is not None else _agrees(entry, stated, computed),
        by=entry.get("by", "digits"),
        why=entry.get("why", "").format_map({**entry, **computed.detail}),
    )


def _agrees(entry: Mapping[str, Any], stated: float, computed: Computed) -> bool:
    """Return whether two numbers are the same by the criterion of a statement."""
    value = computed.value / entry.get("printed_over", 1.0)
    if "relative" in entry:
        return bool(abs(value / stated - 1) < entry["relative"])
    if "within" in entry:
        return bool(abs(value - stated) < entry["within"])
    if "digits" in entry:
        return bool(round(value, entry["digits"]) == stated)
    if entry.get("printed"):  # whole points of a hundred, cut or rounded
        return bool(int(value * 100 + 1e-9) <= round(stated * 100) <= round(value * 100))
    return bool(value * stated > 0 if entry.get("by") == "sign" else value == stated)


def _build_networks(gpus: int, radix: int, hb_domain: int) -> tuple[NetworkParts, NetworkParts]:
    """Return the Clos and the rail-only network of so many GPUs, one NIC a GPU."""
    clos = clos_network(endpoints=gpus, radix=radix)
    return clos, rail_only_network(endpoints=gpus, rails=hb_domain, radix=radix)


def _network_saving(entry: Mapping[str, Any]) -> Computed:
    """Compute what rail-only saves against a Clos, as a share."""
    clos, rails = _build_networks(entry["gpus"], entry["radix"], entry["hb_domain"])
    price = _PRICES[entry["of"]]
    counts = (
        f"{clos.switches:,} to {rails.switches:,} switches, {clos.transceivers:,} to {rails.transceivers:,} "
        f"transceivers, {clos.tiers} to {rails.tiers} tiers"
    )
    return Computed(value=1 - price(rails) / price(clos), detail={"counts": counts})


def _extreme_saving(entry: Mapping[str, Any]) -> Computed:
    """Compute the least or the most that rail-only saves on several networks [USD or W]."""
    price = _PRICES[entry["of"]]
    both = [_build_networks(gpus, radix, entry["hb_domain"]) for gpus in entry["gpus"] for radix in entry["radix"]]
    value = (min if entry["extreme"] == "least" else max)(price(clos) - price(rails) for clos, rails in both)
    return Computed(value=value, detail={"millions": value / 1e6})


def _switch_share(entry: Mapping[str, Any]) -> Computed:
    """Compute the switches of a rail-only network over those of a Clos."""
    clos, rails = _build_networks(entry["gpus"], entry["radix"], entry["hb_domain"])
    return Computed(value=rails.switches / clos.switches)


def _clos_total(entry: Mapping[str, Any]) -> Computed:
    """Compute cost or power of a Clos [USD or W]."""
    return Computed(value=_PRICES[entry["of"]](clos_network(endpoints=entry["gpus"], radix=entry["radix"])))


def _rates(entry: Mapping[str, Any]) -> dict[str, float]:
    return {"hb_bytes_per_s": gbit_per_s(entry["hb_gbit"]), "nic_bytes_per_s": gbit_per_s(entry["nic_gbit"])}


def _all_to_all_slowdown(entry: Mapping[str, Any]) -> Computed:
    """Compute by how much forwarding slows an all-to-all: equation 3 over equation 2."""
    grid = {"inside": float(entry["inside"]), "across": float(entry["across"]), **_rates(entry)}
    slow_s, fast_s = networks.rail_only_all_to_all_s(1.0, **grid), networks.rail_optimized_all_to_all_s(1.0, **grid)
    return Computed(value=slow_s / fast_s - 1)


def _moved_share(entry: Mapping[str, Any]) -> Computed:
    """Compute the share of an all-reduce that NICs, or HB domains, move: equation 1."""
    nic, domain = networks.all_gather_shares(inside=entry["inside"], across=entry["across"])
    return Computed(value=(nic if entry["over"] == "the NICs" else domain) / (nic + domain))


def _fewest_aggregators(entry: Mapping[str, Any]) -> Computed:
    """Compute how many aggregators are needed until they give more bandwidth than rings."""
    bandwidth, workers, interfaces = _COLLECTIVES[entry["function"]], entry["workers"], entry["interfaces"]
    links = {"workers": workers, "interfaces": interfaces, "aggregator_interfaces": interfaces}
    rings = bandwidth(aggregators=0, **links)
    return Computed(value=next(n for n in range(1, workers) if bandwidth(aggregators=n, **links) > rings))


def _array_lengths(entry: Mapping[str, Any]) -> Computed:
    """Compute how many array lengths each worker sends in an all-reduce."""
    steps, share = _COLLECTIVES[entry["function"]](entry["workers"])
    return Computed(value=share, detail={"steps": f"{steps:.0f} step{'' if steps == 1 else 's'}"})


def _server_gain(entry: Mapping[str, Any]) -> Computed:
    """Compute how much faster an all-reduce is with reduction servers than as a ring."""
    rates = {"worker_bytes_per_s": 1.0, "server_bytes_per_s": 1.0}
    shared_s, alone_s = (
        networks.server_all_reduce_s(1.0, workers=entry["workers"], servers=servers, **rates)
        for servers in (entry["servers"], 0)
    )
    return Computed(value=alone_s / shared_s)


QUANTITIES: Mapping[str, Quantity] = {
    "network_saving": _network_saving,
    "extreme_saving": _extreme_saving,
    "switch_share": _switch_share,
    "clos_total": _clos_total,
    "forwarding_slowdown": lambda entry: Computed(value=networks.forwarding_slowdown(**_rates(entry))),
    "all_to_all_slowdown": _all_to_all_slowdown,
    "moved_share": _moved_share,
    "collective": lambda entry: Computed(value=_COLLECTIVES[entry["function"]](**entry["arguments"])),
    "fewest_aggregators": _fewest_aggregators,
    "array_lengths": _array_lengths,
    "server_gain": _server_gain,
}
"""Quantities that closed forms give."""
