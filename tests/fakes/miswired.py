"""A fabric with one of each cabling fault, as operators meet them; ``examples/miswired.ibnetdiscover`` is this one."""

from __future__ import annotations

from dataclasses import replace

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.fabric import Cable, Fabric, Fault, Hca
from opsk.fabric.link_speed import link_bytes_per_s

RAILS = 4


def clean() -> Fabric:
    """Two units of eight nodes, four rails, four spines, two cables from each leaf to each spine."""
    return rail_optimized_fabric(nodes=16, hcas=RAILS, leaves=8, spines=4, cables_per_pair=2)


def miswired() -> Fabric:
    """The same with faults.

    n5 has mlx5_2 and mlx5_3 the wrong way round, n11 no mlx5_1, n3 a slow mlx5_0; leaf6 lacks both cables to spine2 and
    one to spine3; a cable of leaf1 to spine0 runs slowly; the host ufm hangs on spine3.
    """
    fabric = clean()
    guid_of = {switch.description: guid for guid, switch in fabric.switches.items()}
    guid_of |= {hca.description: guid for guid, hca in fabric.hcas.items()}
    gone = (
        _between(fabric, guid_of["leaf6"], guid_of["spine2"])
        + _between(fabric, guid_of["leaf6"], guid_of["spine3"])[:1]
    )
    gone += _between(fabric, guid_of["n11 mlx5_1"], guid_of["leaf5"])
    slow = _between(fabric, guid_of["n3 mlx5_0"], guid_of["leaf0"])
    slow += _between(fabric, guid_of["leaf1"], guid_of["spine0"])[:1]
    swap = {guid_of["n5 mlx5_2"]: guid_of["n5 mlx5_3"], guid_of["n5 mlx5_3"]: guid_of["n5 mlx5_2"]}
    cables = [
        replace(cable, a_guid=swap.get(cable.a_guid, cable.a_guid), b_guid=swap.get(cable.b_guid, cable.b_guid))
        for cable in fabric.cables
        if cable not in gone
    ]
    cables = [
        replace(cable, speed="HDR", bytes_per_s=link_bytes_per_s(4, "HDR")) if cable in slow else cable
        for cable in cables
    ]
    ufm = Hca(guid="0020000000000000", description="ufm mlx5_0", node="ufm", device="mlx5_0")
    low, high = sorted(((ufm.guid, 1), (guid_of["spine3"], 40)))
    cables.append(
        Cable(
            a_guid=low[0], a_port=low[1], b_guid=high[0], b_port=high[1], width=4, speed="NDR",
            bytes_per_s=link_bytes_per_s(4, "NDR"),
        )
    )  # fmt: skip
    hcas = {guid: hca for guid, hca in fabric.hcas.items() if hca.description != "n11 mlx5_1"} | {ufm.guid: ufm}
    return replace(fabric, hcas=hcas, cables=tuple(cables))


def _between(fabric: Fabric, one: str, other: str) -> list[Cable]:
    return [cable for cable in fabric.cables if {cable.a_guid, cable.b_guid} == {one, other}]


def findings(fabric: Fabric) -> tuple[Fault, ...]:
    """What is to be found in ``miswired``, with texts of its own: golden pictures must not change with wording."""
    guid_of = {switch.description: guid for guid, switch in fabric.switches.items()}
    guid_of |= {hca.description: guid for guid, hca in fabric.hcas.items()}

    def ends(one: str, other: str) -> tuple[tuple[str, int, str, int], ...]:
        return tuple((c.a_guid, c.a_port, c.b_guid, c.b_port) for c in _between(fabric, guid_of[one], guid_of[other]))

    return (
        Fault(
            kind="swapped_hcas", where="n5", evidence="mlx5_2 is on leaf3 and mlx5_3 on leaf2", nodes=("n5",),
            cost="2 of 4 HCAs change rail", devices=(guid_of["n5 mlx5_2"], guid_of["n5 mlx5_3"]),
        ),
        Fault(kind="missing_rail", where="n11", evidence="no HCA on rail 1", cost="75% left", nodes=("n11",)),
        Fault(
            kind="slow_link", where="n3", evidence="n3 mlx5_0 runs at HDR", nodes=("n3",),
            devices=(guid_of["n3 mlx5_0"],), cables=ends("n3 mlx5_0", "leaf0"),
        ),
        Fault(
            kind="slow_link", where="leaf1", evidence="leaf1 to spine0 runs at HDR", cables=ends("leaf1", "spine0")[:1],
            switches=(guid_of["leaf1"], guid_of["spine0"]),
        ),
        Fault(
            kind="leaf_short_of_uplinks", where="leaf6", evidence="5 uplinks, its like have 8", cost="38% less",
            switches=(guid_of["leaf6"], guid_of["spine2"], guid_of["spine3"]),
        ),
        Fault(
            kind="host_off_tier", where="ufm on spine3", evidence="a host on a spine", nodes=("ufm",),
            switches=(guid_of["spine3"],), devices=("0020000000000000",),
        ),
    )  # fmt: skip


def some_loads(fabric: Fabric) -> dict[tuple[str, str], float]:
    """Utilisation of links such as a job might cause: one uplink over what it carries, others by a fixed pattern."""
    guid_of = {switch.description: guid for guid, switch in fabric.switches.items()}
    guid_of |= {hca.description: guid for guid, hca in fabric.hcas.items()}
    loads = {
        (guid_of[f"leaf{leaf}"], guid_of[f"spine{spine}"]): 0.1 * leaf + 0.05 * spine
        for leaf in range(8)
        for spine in range(4)
    }
    loads[guid_of["leaf6"], guid_of["spine3"]] = 1.37
    return loads | {(guid_of[f"n{node} mlx5_0"], guid_of["leaf0"]): 0.3 for node in range(8)}
