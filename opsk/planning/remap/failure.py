"""What is gone after a failure: which GPUs, which nodes, which HCAs, and to which HCA does a GPU fall back?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from opsk.planning.placement.seating import seating_of
from opsk.planning.remap.situation import Mask, Situation
from opsk.planning.routing.hca_seats import Index, Ports
from opsk.planning.routing.hca_traffic import Seating


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What failed, in names; several failures at once are one of these.

    Parameters
    ----------
    said
        What was said to have failed (``gpu:n3/5``), for messages.
    gpus, nodes
        GPUs by node and index; whole nodes, whose hosts are down as well.
    hcas
        HCAs that carry nothing any more, by guid and leaf: the adapter, its cable, or the leaf itself failed.
    domains
        HB domains that failed as a whole; their nodes are among ``nodes`` or their GPUs among ``gpus``.
    drain
        Nodes that should get no job until they are repaired; a leaf's nodes are not, they are sound themselves.
    links
        The two ends of links that are gone, as people call them.
    remarks
        What else to know: why something is no loss, what was taken to be so.
    """

    said: tuple[str, ...]
    gpus: frozenset[tuple[str, int]] = frozenset()
    nodes: frozenset[str] = frozenset()
    hcas: frozenset[tuple[str, str]] = frozenset()
    domains: frozenset[str] = frozenset()
    drain: frozenset[str] = frozenset()
    links: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wreck:
    """A failure on the nodes of a situation.

    Parameters
    ----------
    dead
        GPUs that cannot be used, shape (nodes, GPUs): failed, on a failed node, or without any HCA left where they had
        one.
    dead_nodes
        Nodes whose host is down.
    ports
        The ports that GPUs use now: those whose HCA is gone fall back to the nearest that is left on their node.
    """

    failure: Failure
    dead: Mask
    dead_nodes: Mask
    ports: Ports
    lost_ports: Mask

    def hit(self, situation: Situation) -> Index:
        """Return the ranks whose GPU is dead."""
        seating = situation.seating
        return np.flatnonzero(self.dead[seating.node[0], seating.gpu[0]])

    def fallen_back(self, situation: Situation) -> Index:
        """Return the ranks that live and use another HCA than before."""
        seating = situation.seating
        node, gpu = seating.node[0], seating.gpu[0]
        return np.flatnonzero((self.ports.port[node, gpu] != seating.port[0]) & ~self.dead[node, gpu])

    def seated(self, situation: Situation, node: Index, gpu: Index) -> Seating:
        """Return seats with the ports that GPUs use now."""
        return seating_of(node, gpu, self.ports, situation.job.domains)


def wreck(situation: Situation, failure: Failure) -> Wreck:
    """Return what a failure leaves of the nodes."""
    ports, nodes = situation.job.ports, situation.job.nodes
    place = {node: at for at, node in enumerate(nodes)}
    dead_nodes = np.array([node in failure.nodes for node in nodes], dtype=np.bool_)
    dead = np.zeros(ports.port.shape, dtype=np.bool_)
    dead[dead_nodes] = True
    for node, gpu in failure.gpus:
        if node in place and gpu < situation.node_gpus:
            dead[place[node], gpu] = True
    lost = np.array([hca is not None and (hca.guid, hca.leaf) in failure.hcas for hca in ports.hcas], dtype=np.bool_)
    port = ports.port
    if lost.any():
        port = port.copy()
        for at in np.flatnonzero(lost[port].any(axis=1)).tolist():
            port[at] = fall_back(port[at], lost, ports.nowhere)
        dead |= (port == ports.nowhere) & (ports.port != ports.nowhere)
    return Wreck(failure=failure, dead=dead, dead_nodes=dead_nodes, ports=replace(ports, port=port), lost_ports=lost)


def fall_back(row: Index, lost: Mask, nowhere: int) -> Index:
    """Return the port of each GPU of a node: its own, or else the nearest that is left, the lower of two.

    Ports are counted in the order in which GPUs use them; with none left it is ``nowhere``.
    """
    order: Sequence[int] = list(dict.fromkeys(row.tolist()))
    left = [at for at, port in enumerate(order) if not lost[port]]
    if not left:
        return np.where(lost[row], nowhere, row)
    found = {port: order[min(left, key=lambda have: (abs(have - at), have))] for at, port in enumerate(order)}
    return np.array([port if not lost[port] else found[port] for port in row.tolist()], dtype=np.int64)
