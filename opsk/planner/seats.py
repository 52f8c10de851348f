"""Which HCA, leaf and rail serves each GPU of each node, by what is really cabled?

GPU *i* of a node with *g* GPUs and HCAs at *h* positions uses the HCA at position ``i * h // g``: the order of devices
follows PCIe on every node type of the catalogue. A node's own lack of an HCA does not shift the others: positions are
those that most nodes of the job have, and a GPU whose HCA is missing uses the nearest one, as NCCL does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from opsk.topology.hosts import device_slot
from opsk.topology.leaf import Attachment
from opsk.topology.rails import Rails

Index = npt.NDArray[np.int64]
NOWHERE = -1
"""Rail of an HCA that follows none, and leaf of a GPU without HCA."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The HCAs of the job's nodes, and which of them each GPU uses.

    ``port`` has shape (nodes, GPUs) and indexes ``leaf`` and ``rail``: one entry for each pair of a leaf and a rail on
    it, so that two GPUs with the same entry are on the same leaf and rail. The last entry stands for "no HCA known".
    ``leaf`` indexes ``leaves``, guids. ``attached`` has the HCA of each node and GPU.
    """

    port: Index
    leaf: Index
    rail: Index
    leaves: tuple[str, ...]
    attached: tuple[tuple[Attachment | None, ...], ...]

    @property
    def bytes_per_s(self) -> float:
        """Data rate of the fastest HCA, one way [bytes/s]; 0 when no HCA is known."""
        return max((hca.bytes_per_s for row in self.attached for hca in row if hca is not None), default=0.0)


def ports_of(rails: Rails, nodes: Sequence[str], node_gpus: int, affinity: Mapping[int, int] | None = None) -> Ports:
    """Look up the HCA of every GPU.

    Parameters
    ----------
    node_gpus
        GPUs that a node has (not only those that the job uses).
    affinity
        GPU index to HCA position, where it is known from the node's own topology.
    """
    usual = _usual_slots(rails, nodes)
    near = [
        affinity[gpu] if affinity and gpu in affinity else gpu * len(usual) // node_gpus for gpu in range(node_gpus)
    ]
    attached = tuple(_row(rails.attachments.get(node, ()), usual, near) for node in nodes)
    leaves = tuple(sorted({hca.leaf for row in attached for hca in row if hca is not None}))
    leaf_index = {guid: index for index, guid in enumerate(leaves)}
    seen: dict[tuple[int, int], int] = {}
    port = np.full((len(nodes), node_gpus), NOWHERE, dtype=np.int64)
    for number, row in enumerate(attached):
        for gpu, hca in enumerate(row):
            if hca is not None:
                key = (leaf_index[hca.leaf], NOWHERE if hca.rail is None else hca.rail)
                port[number, gpu] = seen.setdefault(key, len(seen))
    port[port == NOWHERE] = len(seen)
    pairs = [*seen, (NOWHERE, NOWHERE)]
    return Ports(
        port=port,
        leaf=np.array([leaf for leaf, _ in pairs], dtype=np.int64),
        rail=np.array([rail for _, rail in pairs], dtype=np.int64),
        leaves=leaves,
        attached=attached,
    )


def _usual_slots(rails: Rails, nodes: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Return the places of the HCAs that most of the nodes have; where nodes are few, the fuller list wins ties."""
    votes = Counter(_slots(rails.attachments[node]) for node in nodes if node in rails.attachments)
    return max(votes, key=lambda slots: (votes[slots], len(slots), slots), default=())


def _slots(attachments: Sequence[Attachment]) -> tuple[tuple[int, ...], ...]:
    """Return the place of each HCA."""
    return _slots_of(tuple(entry.device for entry in attachments))


@lru_cache(maxsize=1024)
def _slots_of(devices: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the place of each device; places that repeat or cannot be told are numbered in order."""
    slots = tuple(device_slot(device) for device in devices)
    if len(set(slots)) < len(slots):
        return tuple((index,) for index in range(len(devices)))
    return slots


def _row(
    attachments: Sequence[Attachment], usual: tuple[tuple[int, ...], ...], near: Sequence[int]
) -> tuple[Attachment | None, ...]:
    """Return the HCA of each GPU of one node."""
    if not attachments:
        return (None,) * len(near)
    slots = _slots(attachments)
    if set(slots) <= set(usual):
        place = {slot: index for index, slot in enumerate(usual)}
        at = {place[slot]: entry for slot, entry in zip(slots, attachments, strict=True)}
    else:
        at = {index * max(len(usual), 1) // len(slots): entry for index, entry in reversed([*enumerate(attachments)])}
    return tuple(at[want] if want in at else at[_nearest(at, want)] for want in near)


def _nearest(positions: Collection[int], want: int) -> int:
    """Return the position nearest to a missing one, the lower of two."""
    return min(positions, key=lambda have: (abs(have - want), have))
