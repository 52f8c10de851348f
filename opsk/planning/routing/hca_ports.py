"""Maps each GPU of each node to its HCA, leaf and rail, as cabled.

GPU *i* of a node with *g* GPUs and HCAs at *h* positions uses the HCA at position ``i * h // g``: the order of devices
follows PCIe on every node type of the catalogue. A missing HCA does not shift the others: the positions are those that
most nodes of the job have, and a GPU whose HCA is missing uses the nearest one, as NCCL does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from opsk.fabric.hosts.ports import device_slot
from opsk.fabric.leaves.leaf import Attachment
from opsk.fabric.rails import Rails

Index = npt.NDArray[np.int64]
Rates = npt.NDArray[np.float64]
NOWHERE = -1
"""Rail of an HCA without rail, and leaf of a GPU without HCA."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The HCAs of the job's nodes, and which of them each GPU uses.

    ``port`` has shape (nodes, GPUs) and indexes ``leaf``, ``rail``, ``bytes_per_s`` and ``hcas``, which have one entry
    for each HCA that a GPU uses and a last one that stands for "no HCA known". ``leaf`` indexes ``leaves``, guids.
    """

    port: Index
    leaf: Index
    rail: Index
    bytes_per_s: Rates
    leaves: tuple[str, ...]
    hcas: tuple[Attachment | None, ...]

    @property
    def nowhere(self) -> int:
        """Return the port of a GPU without HCA."""
        return len(self.hcas) - 1

    def find_attachment(self, node: int, gpu: int) -> Attachment | None:
        """Return the HCA that a GPU uses."""
        return self.hcas[int(self.port[node, gpu])]


def build_ports(
    rails: Rails,
    nodes: Sequence[str],
    node_gpus: int,
    affinity: Mapping[str, Mapping[int, str]] | None = None,
) -> Ports:
    """Look up the HCA of every GPU.

    Parameters
    ----------
    node_gpus
        GPUs of a node (not only those that the job uses).
    affinity
        Node to GPU index to HCA guid, where it is known from the node's own topology.
    """
    usual = _find_usual_slots(rails, nodes)
    known_affinity = affinity or {}
    spread = [gpu * len(usual) // node_gpus for gpu in range(node_gpus)]
    leaf_index: dict[str, int] = {}
    hcas: list[Attachment | None] = []
    port = np.empty((len(nodes), node_gpus), dtype=np.int64)
    none: list[tuple[int, int]] = []
    for number, node in enumerate(nodes):
        seen: dict[tuple[str, str], int] = {}
        row = _assign_hcas(rails.attachments.get(node, ()), usual, spread)
        for gpu, hca in enumerate(
            _apply_affinity(row, rails.attachments[node], known_affinity[node]) if node in known_affinity else row
        ):
            if hca is None:
                none.append((number, gpu))
                continue
            key = (hca.guid, hca.device)
            if key not in seen:
                seen[key] = len(hcas)
                hcas.append(hca)
                leaf_index.setdefault(hca.leaf, len(leaf_index))
            port[number, gpu] = seen[key]
    for number, gpu in none:
        port[number, gpu] = len(hcas)
    known = [hca for hca in hcas if hca is not None]
    return Ports(
        port=port,
        leaf=np.array([*(leaf_index[hca.leaf] for hca in known), NOWHERE], dtype=np.int64),
        rail=np.array([*(NOWHERE if hca.rail is None else hca.rail for hca in known), NOWHERE], dtype=np.int64),
        bytes_per_s=np.array([*(hca.bytes_per_s for hca in known), 0.0]),
        leaves=tuple(leaf_index),
        hcas=(*known, None),
    )


def _apply_affinity(
    row: Sequence[Attachment | None], attachments: Sequence[Attachment], affinity: Mapping[int, str]
) -> Sequence[Attachment | None]:
    """Return the HCA of each GPU of one node, that of the known affinity where it is on the fabric."""
    by_guid = {entry.guid: entry for entry in reversed(attachments)}
    return [by_guid.get(affinity.get(gpu, ""), hca) for gpu, hca in enumerate(row)]


def _find_usual_slots(rails: Rails, nodes: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Return the HCA slots that most of the nodes have; the fuller list wins ties."""
    votes = Counter(_list_slots(rails.attachments[node]) for node in nodes if node in rails.attachments)
    return max(votes, key=lambda slots: (votes[slots], len(slots), slots), default=())


def _list_slots(attachments: Sequence[Attachment]) -> tuple[tuple[int, ...], ...]:
    """Return the slot of each HCA."""
    return _parse_slots(tuple(entry.device for entry in attachments))


@lru_cache(maxsize=1024)
def _parse_slots(devices: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the slot of each device; slots that repeat or cannot be parsed are numbered in order."""
    slots = tuple(device_slot(device) for device in devices)
    if len(set(slots)) < len(slots):
        return tuple((index,) for index in range(len(devices)))
    return slots


def _assign_hcas(
    attachments: Sequence[Attachment], usual: tuple[tuple[int, ...], ...], near: Sequence[int]
) -> tuple[Attachment | None, ...]:
    """Return the HCA of each GPU of one node."""
    if not attachments:
        return (None,) * len(near)
    slots = _list_slots(attachments)
    if set(slots) <= set(usual):
        place = {slot: index for index, slot in enumerate(usual)}
        hca_at = {place[slot]: entry for slot, entry in zip(slots, attachments, strict=True)}
    else:
        hca_at = {
            index * max(len(usual), 1) // len(slots): entry for index, entry in reversed([*enumerate(attachments)])
        }
    return tuple(
        hca_at[required_slot] if required_slot in hca_at else hca_at[_find_nearest(hca_at, required_slot)]
        for required_slot in near
    )


def _find_nearest(positions: Collection[int], target: int) -> int:
    """Return the position nearest to a missing one, the lower of two."""
    return min(positions, key=lambda position: (abs(position - target), position))
