"""Computes the cost and the power of a compute network: switches and transceivers of Clos and rail-only networks.

Full bisection, or leaves with fewer uplinks than downlinks. Storage and management networks, cables, optical switches
and spare parts are not included.
"Endpoints" are NIC ports on the compute fabric: one a GPU, or fewer where GPUs share NICs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from opsk.errors import InputError

_MAX_TIERS = 5
"""Larger fat trees are not built."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkParts:
    """The parts of one network.

    Parameters
    ----------
    endpoints
        NIC ports that it connects.
    radix
        Ports of one switch.
    tiers
        Switch tiers between an endpoint and the top.
    switches, transceivers
        Their number; a link has a transceiver at each end, the NIC's end included.
    """

    endpoints: int
    radix: int
    tiers: int
    switches: int
    transceivers: int

    @property
    def switch_ports(self) -> int:
        """Ports of all switches, used or not."""
        return self.switches * self.radix


@dataclass(frozen=True, slots=True, kw_only=True)
class PartPrices:
    """Price and power of the parts of a 400 Gbit/s network.

    Source of the values: rail-only paper (arXiv 2307.12169), section V.E and its sources: 199 USD and 9 W a
    transceiver, 694 USD and 18 W a switch port. Prices age; a site gives its own.
    """

    usd_per_switch_port: float = 694.0
    usd_per_transceiver: float = 199.0
    w_per_switch_port: float = 18.0
    w_per_transceiver: float = 9.0


def clos_tiers(*, endpoints: int, radix: int) -> int:
    """Return the least number of tiers of a full-bisection Clos: one switch, else 2 (r/2)^T >= endpoints.

    Raises
    ------
    InputError
        A size is not positive, the radix is odd, or no tree of such switches is large enough.
    """
    _validate(endpoints=endpoints, radix=radix)
    for tiers in range(1, _MAX_TIERS + 1):
        if 2 * (radix // 2) ** tiers >= endpoints:
            return tiers
    raise InputError(
        f"{endpoints} endpoints need more than {_MAX_TIERS} tiers of switches with {radix} ports",
        hint="take switches with more ports",
    )


def clos_network(*, endpoints: int, radix: int) -> NetworkParts:
    """Return the parts of a minimal full-bisection Clos (a fat tree, rail-optimised or not).

    n endpoints on T tiers of switches with r ports: 2 n / r switches in each tier but the top one, n / r there, rounded
    up tier by tier, and T n links. 32,768 endpoints on 64 ports: 3 tiers, 2,560 switches, 196,608 transceivers.

    Raises
    ------
    InputError
        As `clos_tiers` does.

    Notes
    -----
    Source: derived. The rail-only paper names a "minimal-tier Clos" and prints the savings alone (table II); this rule
    reproduces its six rows, in cost and in power.
    """
    tiers = clos_tiers(endpoints=endpoints, radix=radix)
    switches = (tiers - 1) * math.ceil(2 * endpoints / radix) + math.ceil(endpoints / radix)
    return NetworkParts(
        endpoints=endpoints, radix=radix, tiers=tiers, switches=switches, transceivers=2 * tiers * endpoints
    )


def oversubscribed_network(*, endpoints: int, radix: int, oversubscription: float) -> NetworkParts:
    """Return the parts of a fat tree whose leaves have ``oversubscription`` times as much bandwidth down as up.

    A leaf of r ports has u = floor(r/(1 + s)) uplinks and d = min(floor(s u), r - u) ports for NICs. Its k-th uplink
    goes to plane k: a full-bisection Clos of its own that joins the L = ceil(n/d) leaves, m = u L uplinks in all. A
    plane of t tiers (2(r/2)^t >= L) needs 2/r switches an uplink in each tier but the top one, 1/r there; links are n +
    t m. 4,096 endpoints on 64 ports at 2:1: 98 leaves with 21 uplinks, 2,058 of them, 98 + 65 + 33 switches. With s = 1
    these are the counts of `clos_network`. Where one switch joins all, nothing is oversubscribed.

    Raises
    ------
    InputError
        As `clos_tiers` does, or a leaf would have no uplink, or the ratio is below 1.
    """
    _validate(endpoints=endpoints, radix=radix)
    max_ratio = radix - 1
    if not 1 <= oversubscription <= max_ratio:
        raise InputError(
            f"oversubscription {oversubscription:g} cannot be built of switches with {radix} ports",
            hint=f"1 (full bisection) up to {max_ratio}, which leaves a leaf one uplink",
        )
    if oversubscription == 1 or endpoints <= radix:
        return clos_network(endpoints=endpoints, radix=radix)
    up = int(radix / (1 + oversubscription))
    down = min(int(oversubscription * up), radix - up)
    leaves = math.ceil(endpoints / down)
    uplinks = leaves * up
    tiers = clos_tiers(endpoints=leaves, radix=radix)
    above = (tiers - 1) * math.ceil(2 * uplinks / radix) + math.ceil(uplinks / radix)
    return NetworkParts(
        endpoints=endpoints,
        radix=radix,
        tiers=tiers + 1,
        switches=leaves + above,
        transceivers=2 * (endpoints + tiers * uplinks),
    )


def rail_only_network(*, endpoints: int, rails: int, radix: int) -> NetworkParts:
    """Return the parts of a rail-only network: a Clos of its own for each rail, and nothing between rails.

    Rails that are smaller than half a switch share switches. ``rails`` is the number of NIC ports of one HB domain; the
    paper's headline savings need 256 (an NVLink domain of 256 GPUs with a NIC each), with the 8 of a DGX server some of
    its rows save nothing.

    Raises
    ------
    InputError
        As `clos_tiers` does, or the rails are not all of one size.
    """
    _validate(endpoints=endpoints, radix=radix, rails=rails)
    if endpoints % rails:
        raise InputError(
            f"{endpoints} endpoints do not spread evenly over {rails} rails", hint="rails are the NICs of an HB domain"
        )
    rail = clos_network(endpoints=endpoints // rails, radix=radix)
    rails_per_switch = max(radix // rail.endpoints, 1)
    return NetworkParts(
        endpoints=endpoints,
        radix=radix,
        tiers=rail.tiers,
        switches=math.ceil(rails * rail.switches / rails_per_switch),
        transceivers=rails * rail.transceivers,
    )


def network_cost_usd(parts: NetworkParts, prices: PartPrices | None = None) -> float:
    """Return the cost of switches and transceivers [USD]. Source: rail-only paper, equation 4."""
    prices = prices or PartPrices()
    return prices.usd_per_switch_port * parts.switch_ports + prices.usd_per_transceiver * parts.transceivers


def network_power_w(parts: NetworkParts, prices: PartPrices | None = None) -> float:
    """Return the maximum power of switches and transceivers [W]. Source: rail-only paper, equation 5."""
    prices = prices or PartPrices()
    return prices.w_per_switch_port * parts.switch_ports + prices.w_per_transceiver * parts.transceivers


def _validate(*, endpoints: int, radix: int, rails: int = 1) -> None:
    """Validate the sizes; the error lists all that is wrong."""
    wrong = [
        f"{name} is {value}, must be at least 1"
        for name, value in (("endpoints", endpoints), ("rails", rails))
        if value < 1
    ]
    if radix < 4 or radix % 2:
        wrong.append(f"radix is {radix}, must be even and at least 4")
    if wrong:
        raise InputError("; ".join(wrong), hint="give the ports of one switch and the NIC ports to join")
