"""Defines the size of a lab: nodes, their GPUs and HCAs, leaves and spines, and the names of the nodes."""

from __future__ import annotations

from dataclasses import dataclass, fields

from opsk.errors import InputError
from opsk.fabric.design import MAX_PORTS
from opsk.hostlist import fold

MAX_SIZES = {"nodes": 512, "gpus": 16, "hcas": 16, "leaves": 64, "spines": 64}
"""Every node is a real slurmd on this machine, and ibsim's default limits are 256 switches and 2,048 HCAs."""
MAX_HCAS_IN_ALL = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class LabShape:
    """The size of a lab's cluster and of its rail-optimised fabric.

    Raises
    ------
    InputError
        Lists every number that is out of range.
    """

    nodes: int = 16
    gpus: int = 8
    hcas: int = 8
    leaves: int = 8
    spines: int = 4

    def __post_init__(self) -> None:
        wrong = [
            f"{item.name} is {getattr(self, item.name)}, must be 1 to {MAX_SIZES[item.name]}"
            for item in fields(self)
            if not 1 <= getattr(self, item.name) <= MAX_SIZES[item.name]
        ]
        if self.nodes * self.hcas > MAX_HCAS_IN_ALL:
            wrong.append(f"{self.nodes} nodes with {self.hcas} HCAs are more than ibsim's {MAX_HCAS_IN_ALL} HCAs")
        if not wrong and self.leaves % self.hcas and self.hcas % self.leaves:
            wrong.append(f"{self.leaves} leaves neither divide nor are a multiple of {self.hcas} HCAs a node")
        if not wrong and self.leaf_downlinks + self.spines > MAX_PORTS:
            wrong.append(f"a leaf would need more than {MAX_PORTS} ports: take more leaves")
        if wrong:
            raise InputError("no such lab: " + "; ".join(wrong), hint="the default is 16 nodes, 8 GPUs, 8 HCAs")

    @property
    def names(self) -> tuple[str, ...]:
        """Node names in order: ``n0``, ``n1``, ..."""
        return tuple(f"n{index}" for index in range(self.nodes))

    @property
    def host_list(self) -> str:
        """All node names as Slurm writes them: ``n[0-15]``."""
        return fold(self.names)

    @property
    def units(self) -> int:
        """Scalable units: groups of nodes that share one leaf a rail."""
        return max(self.leaves // self.hcas, 1)

    @property
    def leaf_downlinks(self) -> int:
        """Cables from a full leaf to nodes."""
        nodes_per_unit = -(-self.nodes // self.units)
        return nodes_per_unit * max(self.hcas // self.leaves, 1)

    @property
    def cables_per_pair(self) -> int:
        """Cables from each leaf to each spine: as many as give full bisection, or as the switches have ports for."""
        of_leaf = (MAX_PORTS - self.leaf_downlinks) // self.spines
        return min(-(-self.leaf_downlinks // self.spines), of_leaf, MAX_PORTS // self.leaves)

    @property
    def oversubscription(self) -> float:
        """Downlink over uplink bandwidth of a full leaf; 1.0 is full bisection."""
        return max(self.leaf_downlinks / (self.cables_per_pair * self.spines), 1.0)

    @property
    def summary(self) -> str:
        """One line for people."""
        return (
            f"{self.nodes} nodes × {self.gpus} GPUs × {self.hcas} HCAs, rail-optimised: "
            f"{self.leaves} leaves, {self.spines} spines"
        )
