"""Compares the table, equations and remarks of the rail-only paper on parts and cost with the values computed here.

Wang et al., "How to build low-cost networks for large language models" (arXiv 2307.12169, v5). Figures 8 to 10 are in
`opsk.network_design.figures`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from opsk.costmodel.collectives.networks import (
    all_gather_shares,
    forwarding_slowdown,
    rail_only_all_to_all_s,
    rail_optimized_all_to_all_s,
)
from opsk.costmodel.network_cost import NetworkParts, clos_network, network_cost_usd, network_power_w, rail_only_network
from opsk.units import gbit_per_s

HEADLINE_DOMAIN, SERVER_DOMAIN = 256, 8
"""GPUs of an HB domain: of a DGX GH200, which the savings of table II need, and of a DGX server."""
TABLE_2 = (
    (32_768, 64, 38, 37),
    (32_768, 128, 77, 75),
    (32_768, 256, 62, 60),
    (65_536, 64, 38, 37),
    (65_536, 128, 38, 37),
    (65_536, 256, 77, 75),
)
"""GPUs, switch radix, and the savings of cost and power that table II prints [%]."""
_SERVERS = (("DGX A100", 2400.0, 200.0, 0.082), ("DGX H100", 3600.0, 400.0, 0.112))
"""HB and NIC rate [Gbit/s, one direction] and the slow-down of an all-to-all that the paper prints."""
_GRIDS = ((8, 16), (8, 128), (256, 16), (256, 128))


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One statement of the paper, and the computed value.

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
        Criterion of agreement: ``digits`` as they are printed, ``near`` (within five points of a hundred), or the
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


def compare_paper() -> tuple[Compared, ...]:
    """Compare all statements but those on the figures."""
    return (*table_2(HEADLINE_DOMAIN), *table_2(SERVER_DOMAIN), *_remarks(), *all_to_all(), *_shares())


def table_2(hb_domain: int) -> Iterator[Compared]:
    """Yield the savings of all six rows with an HB domain of so many GPUs.

    With 256 they are the paper's. With the 8 GPUs of a server some networks save nothing: the rails are then as large
    as they can be without a spine of their own only where 8 switches are enough.
    """
    headline = hb_domain == HEADLINE_DOMAIN
    for gpus, radix, cost, power in TABLE_2:
        state_of_the_art, rail_only = _networks(gpus, radix, hb_domain)
        counts = (
            f"{state_of_the_art.switches:,} to {rail_only.switches:,} switches, {state_of_the_art.transceivers:,} to "
            f"{rail_only.transceivers:,} transceivers, {state_of_the_art.tiers} to {rail_only.tiers} tiers"
        )
        for word, stated, price in (("cost", cost, network_cost_usd), ("power", power, network_power_w)):
            saved = 1 - price(rail_only) / price(state_of_the_art)
            yield Compared(
                section=f"table II, K = {hb_domain}",
                what=f"{gpus:,} GPUs, radix {radix}: {word} saved",
                stated=stated / 100 if headline else None,
                computed=saved,
                agrees=int(saved * 100 + 1e-9) <= stated <= round(saved * 100) if headline else None,
                why=counts,
            )


def _networks(gpus: int, radix: int, hb_domain: int) -> tuple[NetworkParts, NetworkParts]:
    """Return the Clos and the rail-only network of a row, one NIC a GPU."""
    return (
        clos_network(endpoints=gpus, radix=radix),
        rail_only_network(endpoints=gpus, rails=hb_domain, radix=radix),
    )


def _remarks() -> Iterator[Compared]:
    """Yield the text's statements on cost, power and switches."""
    saved = [
        (network_cost_usd(clos) - network_cost_usd(rails), network_power_w(clos) - network_power_w(rails))
        for gpus, radix, _, _ in TABLE_2
        for clos, rails in [_networks(gpus, radix, HEADLINE_DOMAIN)]
    ]
    large = saved[3:]
    for word, stated, computed in (("least", 117e6, min(usd for usd, _ in large)),
                                   ("most", 234e6, max(usd for usd, _ in large))):  # fmt: skip
        yield Compared(
            section="section V.E",
            what=f"{word} cost saved",
            stated=stated,
            computed=computed,
            unit="USD",
            agrees=abs(computed / stated - 1) < 0.005,
            why="of 65,536 GPUs; 32,768 save half of it",
        )
    for word, stated, computed in (("least", 1.7e6, min(w for _, w in saved)),
                                   ("most", 6.9e6, max(w for _, w in saved))):  # fmt: skip
        yield Compared(
            section="section V.E",
            what=f"{word} power saved",
            stated=stated,
            computed=computed,
            unit="W",
            agrees=abs(computed / 1.024 / stated - 1) < 0.02,
            why=f"{computed / 1e6:.2f} MW; the paper's number comes out when kW are divided by 1,024",
        )
    clos, rails = _networks(32_768, 64, HEADLINE_DOMAIN)
    yield Compared(
        section="section V.E",
        what="switches that rail-only needs at radix 64",
        stated=0.75,
        computed=rails.switches / clos.switches,
        agrees=False,
        why="the text says three quarters; its own table's 38 % need three fifths",
    )
    whole = clos_network(endpoints=30_000, radix=64)
    yield Compared(
        section="introduction",
        what="30,000 GPUs in a full-bisection Clos",
        stated=200e6,
        computed=network_cost_usd(whole),
        unit="USD",
        agrees=False,
        why="equation 4 gives no 200 M USD at any radix of the table; its sum leaves out cables",
    )
    yield Compared(
        section="introduction",
        what="30,000 GPUs in a full-bisection Clos",
        stated=4.6e6,
        computed=network_power_w(whole),
        unit="W",
        agrees=abs(network_power_w(whole) / 4.6e6 - 1) < 0.1,
        why="32,768 GPUs take 4.72 MW, which divided by 1.024 is 4.6",
    )


def all_to_all() -> Iterator[Compared]:
    """Yield the slow-down of an all-to-all by forwarding: the paper's ratio, and equations 3 over 2."""
    for name, hb, nic, stated in _SERVERS:
        rates = {"hb_bytes_per_s": gbit_per_s(hb), "nic_bytes_per_s": gbit_per_s(nic)}
        yield Compared(
            section="section IV.B",
            what=f"{name}: all-to-all is slower by",
            stated=stated,
            computed=forwarding_slowdown(**rates),
            agrees=abs(forwarding_slowdown(**rates) - stated) < 0.002,
            why=f"C_nic/C_hb = {nic:g}/{hb:g}; the paper prints {stated:.1%}",
        )
        for inside, across in _GRIDS:
            grid = {"inside": float(inside), "across": float(across), **rates}
            yield Compared(
                section="section IV.B",
                what=f"{name}: equation 3 over equation 2, {inside} x {across} GPUs",
                stated=None,
                computed=rail_only_all_to_all_s(1.0, **grid) / rail_optimized_all_to_all_s(1.0, **grid) - 1,
                why="exact, without y (x - 1) = x (y - 1)",
            )


def _shares() -> Iterator[Compared]:
    """Yield the example of equation 1."""
    nic, domain = all_gather_shares(inside=32, across=2)
    for word, stated, part in (("the HB domain", 0.98, domain), ("the NICs", 0.02, nic)):
        share = part / (nic + domain)
        yield Compared(
            section="section III.B",
            what=f"all-reduce of 64 ranks, 32 in each of 2 domains: moved over {word}",
            stated=stated,
            computed=share,
            agrees=round(share, 2) == stated,
            why="equation 1",
        )
