"""Builds rail-optimised fabrics of a given shape for the lab, tests and benchmarks."""

from __future__ import annotations

from collections.abc import Sequence

from opsk.errors import InputError
from opsk.fabric.dumps.render import render_ibsim_net
from opsk.fabric.fabric import Cable, Fabric, Hca, Switch
from opsk.fabric.link_speed import link_bytes_per_s

MAX_PORTS = 254
"""InfiniBand port numbers are one byte; 255 is reserved (IBA 3.5.2)."""

_SWITCH_GUID = 0x0002_0000_0000_0000
_HCA_GUID = 0x0010_0000_0000_0000
_WIDTH = 4


def rail_optimized_net(
    *,
    nodes: int = 16,
    hcas: int = 8,
    leaves: int = 8,
    spines: int = 4,
    cables_per_pair: int = 1,
    names: Sequence[str] | None = None,
    speed: str = "HDR",
) -> str:
    """Return the ibsim ``.net`` text of the two-tier fabric that ``rail_optimized_fabric`` describes.

    ibsim 0.10 holds at most 2,048 nodes, 256 switches and 36 x 256 + 2 x 2,048 ports unless told otherwise (options
    ``-N``, ``-S``, ``-P``).
    """
    return render_ibsim_net(
        rail_optimized_fabric(
            nodes=nodes,
            hcas=hcas,
            leaves=leaves,
            spines=spines,
            cables_per_pair=cables_per_pair,
            names=names,
            speed=speed,
        )
    )


def rail_optimized_fabric(
    *,
    nodes: int = 16,
    hcas: int = 8,
    leaves: int = 8,
    spines: int = 4,
    cables_per_pair: int = 1,
    pods: int = 1,
    cores_per_spine: int = 0,
    names: Sequence[str] | None = None,
    speed: str = "NDR",
) -> Fabric:
    """Build a rail-optimised fabric: HCA *k* of every node of a unit is cabled to leaf *k* of that unit.

    Parameters
    ----------
    nodes, hcas
        Nodes in all, and HCAs of each; node *i* is ``names[i]`` (``n0``, ``n1``, ...), its HCA *k* is ``mlx5_k``.
    leaves
        Leaves in all (``leaf0``, ...). With fewer than ``hcas`` several HCAs of a node share a leaf; with a multiple
        of it there are ``leaves / hcas`` scalable units, filled with nodes one after the other.
    spines
        Spines of each pod (``spine0``, ...); every leaf has ``cables_per_pair`` cables to every spine of its pod.
    pods, cores_per_spine
        With more than one pod, spine *j* of every pod is cabled to the same ``cores_per_spine`` cores: three tiers.

    Raises
    ------
    InputError
        When the numbers do not fit together, or a switch would need more than ``MAX_PORTS`` ports.
    """
    _check(nodes=nodes, hcas=hcas, leaves=leaves, spines=spines, pods=pods, names=names)
    build = _Builder(speed)
    leaf_ids = [build.switch(f"leaf{index}") for index in range(leaves)]
    leaves_per_unit = min(leaves, hcas)
    units = leaves // leaves_per_unit
    nodes_per_unit = -(-nodes // units)
    host_names = names or [f"n{index}" for index in range(nodes)]
    for index in range(nodes):
        first = index // nodes_per_unit * leaves_per_unit
        for hca in range(hcas):
            leaf = leaf_ids[first + hca * leaves_per_unit // hcas]
            build.cable(leaf, build.hca(host_names[index], f"mlx5_{hca}"))
    spine_ids = [[build.switch(f"spine{pod * spines + index}") for index in range(spines)] for pod in range(pods)]
    for index, leaf in enumerate(leaf_ids):
        for spine in spine_ids[index * pods // leaves]:
            for _ in range(cables_per_pair):
                build.cable(leaf, spine)
    if pods > 1:
        for index in range(spines):
            cores = [build.switch(f"core{index * cores_per_spine + core}") for core in range(cores_per_spine)]
            for core in cores:
                for pod in range(pods):
                    build.cable(spine_ids[pod][index], core)
    return build.fabric()


def _check(*, nodes: int, hcas: int, leaves: int, spines: int, pods: int, names: Sequence[str] | None) -> None:
    """Refuse numbers that describe no fabric, all reasons at once."""
    wrong = [
        f"{word} is {value}, must be {minimum} or more"
        for word, value, minimum in (
            ("nodes", nodes, 1), ("hcas", hcas, 1), ("leaves", leaves, 1), ("spines", spines, 0), ("pods", pods, 1),
        )
        if value < minimum
    ]  # fmt: skip
    if not wrong and leaves % hcas and hcas % leaves:
        wrong.append(f"{leaves} leaves neither divide nor are a multiple of {hcas} HCAs a node")
    if names is not None and (len(names) < nodes or len(set(names[:nodes])) < nodes):
        wrong.append(f"{nodes} nodes need as many different names, got {len(set(names))}")
    if wrong:
        raise InputError("no such fabric: " + "; ".join(wrong), hint="for example nodes=16 hcas=8 leaves=8 spines=4")


class _Builder:
    """Collects switches, HCAs and cables, and assigns ports in the order requested."""

    def __init__(self, speed: str) -> None:
        self._speed = speed
        self._bytes_per_s = link_bytes_per_s(_WIDTH, speed)
        self._switch_names: dict[str, str] = {}
        self._hcas: dict[str, Hca] = {}
        self._cables: list[Cable] = []
        self._used: dict[str, int] = {}

    def switch(self, name: str) -> str:
        guid = f"{_SWITCH_GUID + len(self._switch_names):016x}"
        self._switch_names[guid] = name
        return guid

    def hca(self, node: str, device: str) -> str:
        # A multi-port HCA owns a block of guids: keep them apart as real ones are.
        guid = f"{_HCA_GUID + len(self._hcas) * 0x10:016x}"
        self._hcas[guid] = Hca(guid=guid, description=f"{node} {device}", node=node, device=device)
        return guid

    def cable(self, upper: str, lower: str) -> None:
        ends = sorted((guid, self._next_port(guid)) for guid in (upper, lower))
        (a_guid, a_port), (b_guid, b_port) = ends
        self._cables.append(
            Cable(
                a_guid=a_guid,
                a_port=a_port,
                b_guid=b_guid,
                b_port=b_port,
                width=_WIDTH,
                speed=self._speed,
                bytes_per_s=self._bytes_per_s,
            )
        )

    def _next_port(self, guid: str) -> int:
        self._used[guid] = self._used.get(guid, 0) + 1
        return self._used[guid]

    def fabric(self) -> Fabric:
        crowded = [name for guid, name in self._switch_names.items() if self._used.get(guid, 0) > MAX_PORTS]
        if crowded:
            raise InputError(
                f"no such fabric: {len(crowded)} switches would need more than {MAX_PORTS} ports ({crowded[0]}, ...)",
                hint="take more leaves, or more pods",
            )
        switches = {
            guid: Switch(guid=guid, description=name, ports=max(40, self._used.get(guid, 0)))
            for guid, name in self._switch_names.items()
        }
        return Fabric(switches=switches, hcas=self._hcas, cables=tuple(self._cables), source="design")
