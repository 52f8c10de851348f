"""A fabric with one of each cabling fault, as operators meet them; ``examples/miswired.ibnetdiscover`` is this one."""

from __future__ import annotations

from dataclasses import replace

from opsk.topology.design import rail_optimized_fabric
from opsk.topology.fabric import Cable, Fabric, Hca
from opsk.topology.link_speed import link_bytes_per_s

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
