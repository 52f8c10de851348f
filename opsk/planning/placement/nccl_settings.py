"""Derives the NCCL settings that the fabric justifies.

Only settings that follow from the cabling are suggested, each with its reason and source; the choice of algorithm and
protocol is left to NCCL, which measures what no topology shows. These are not set on purpose: ``NCCL_NET_GDR_LEVEL``
and ``NCCL_IB_SPLIT_DATA_ON_QPS`` (NCCL's own default fits), ``NCCL_IB_QPS_PER_CONNECTION`` (pays only where routes are
static and flows collide, which one run measures better), ``NCCL_SOCKET_IFNAME`` (no dump of the fabric shows it).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence

from opsk.fabric.fabric import Fabric
from opsk.fabric.rails import Rails
from opsk.frameworks.setting import Setting
from opsk.planning.placement.placement import Placement

_KERNEL_NAME = re.compile(r"(?:mlx\d+_\d+|ibp[0-9a-z]+|hfi1_\d+|rocep[0-9a-z]+)(?::\d+)?")
"""Names that the kernel gives to devices; NCCL does not know the ``HCA-1`` of a node description."""

_NCCL_GUIDE = "NCCL user guide, environment variables"


def nccl_settings(
    placement: Placement, rails: Rails, *, devices_known: bool = True, sharp: Collection[str] = ()
) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    """Return the NCCL settings that are certain, and why others are left out.

    Parameters
    ----------
    devices_known
        False when HCAs' names are not the site's own.
    sharp
        Guids of the switches with a SHARP aggregation node.
    """
    devices = [tuple(hca.device for hca in rails.attachments.get(node, ())) for node in placement.nodes]
    by_rail = [tuple(hca.rail for hca in rails.attachments.get(node, ())) for node in placement.nodes]
    if len(placement.nodes) < 2 or not any(devices):
        return (), ()
    env: list[Setting] = []
    notes: list[str] = []
    same_devices = len(set(devices)) == 1
    if not same_devices:
        notes.append(
            "NCCL_IB_HCA is left out: the nodes' HCAs do not have the same names" + _name_odd_nodes(placement, devices)
        )
    elif not all(_KERNEL_NAME.fullmatch(device) for device in devices[0]):
        shown = ", ".join(devices[0][:3])
        notes.append(f"NCCL_IB_HCA is left out: the fabric calls the HCAs {shown}, ..., not as the nodes' kernels do")
    elif devices_known:
        order = sorted(range(len(devices[0])), key=lambda index: (_rail_key(by_rail[0][index]), index))
        env.append(
            Setting(
                name="NCCL_IB_HCA",
                value="=" + ",".join(devices[0][index] for index in order),
                why="the HCAs on the compute fabric in rail order; others (storage) are not for NCCL",
                source=f"{_NCCL_GUIDE}: = asks for exact names",
            )
        )
    one_rail_each = len(by_rail[0]) > 1 and len(set(by_rail[0])) == len(by_rail[0]) and None not in by_rail[0]
    if one_rail_each and len(set(by_rail)) == 1:
        env.append(
            Setting(
                name="NCCL_CROSS_NIC",
                value="0",
                why="every HCA is on a rail of its own on every node: a ring that changes NIC changes rail",
                source=f"{_NCCL_GUIDE}: 0 keeps a ring on the same NIC, for networks with a switch per NIC (rails)",
            )
        )
    elif one_rail_each and same_devices:
        notes.append(
            "NCCL_CROSS_NIC is left alone: the same HCA is not on the same rail" + _name_odd_nodes(placement, by_rail)
        )
    return tuple(env), (*notes, *_build_sharp_note(placement, sharp))


def sharp_switches(fabric: Fabric) -> frozenset[str]:
    """Return the guids of the switches with a SHARP aggregation node: those can add up what passes through them."""
    ends = ((cable.a_guid, cable.b_guid) for cable in fabric.cables)
    pairs = [pair for near, far in ends for pair in ((near, far), (far, near))]
    return frozenset(
        switch
        for node, switch in pairs
        if switch in fabric.switches and node in fabric.hcas and fabric.hcas[node].sharp
    )


def _build_sharp_note(placement: Placement, sharp: Collection[str]) -> tuple[str, ...]:
    """Return a note where the switches could reduce; the cabling does not show whether they are configured to."""
    leaves = {rank.leaf for rank in placement.ranks}
    if None in leaves or not leaves <= set(sharp):
        return ()
    return (
        "every leaf of the job has a SHARP aggregation node: NCCL_COLLNET_ENABLE=1 may pay where the nodes have "
        "NVIDIA's NCCL SHARP plugin and the subnet a running aggregation manager; the cabling shows neither, so it is "
        "not set",
    )


def _rail_key(rail: int | None) -> int:
    """Sort HCAs without rail last."""
    return rail if rail is not None else 1 << 30


def _name_odd_nodes(placement: Placement, rows: Sequence[tuple[object, ...]]) -> str:
    """Name the nodes that differ from most."""
    usual = Counter(rows).most_common(1)[0][0]
    odd = [node for node, row in zip(placement.nodes, rows, strict=True) if row != usual]
    return f" ({', '.join(odd[:4])}{', ...' if len(odd) > 4 else ''})"
