"""Defines a failure and its impact: the GPUs, nodes and HCAs that are lost, and the HCAs that GPUs fall back to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from opsk.planning.placement.rank_placement import build_rank_placement
from opsk.planning.remap.situation import Mask, Situation
from opsk.planning.routing.hca_ports import Index, Ports
from opsk.planning.routing.hca_traffic import RankPlacement


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The failed components by name; several failures at once are one of these.

    Parameters
    ----------
    reported
        The failed components as reported (``gpu:n3/5``), for messages.
    gpus, nodes
        GPUs by node and index; whole nodes, whose hosts are down as well.
    hcas
        HCAs that carry no traffic any more, by guid and leaf: the adapter, its cable, or the leaf itself failed.
    domains
        HB domains that failed as a whole; their nodes are among ``nodes`` or their GPUs among ``gpus``.
    drain
        Nodes that should get no job until they are repaired; not those of a failed leaf, which are healthy themselves.
    links
        The two ends of lost links, by display name.
    remarks
        Further remarks: why a failure is no loss, and what was assumed.
    """

    reported: tuple[str, ...]
    gpus: frozenset[tuple[str, int]] = frozenset()
    nodes: frozenset[str] = frozenset()
    hcas: frozenset[tuple[str, str]] = frozenset()
    domains: frozenset[str] = frozenset()
    drain: frozenset[str] = frozenset()
    links: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureImpact:
    """The impact of a failure on the nodes of a situation.

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

    def find_affected(self, situation: Situation) -> Index:
        """Return the ranks whose GPU is dead."""
        rank_placement = situation.rank_placement
        return np.flatnonzero(self.dead[rank_placement.node[0], rank_placement.gpu[0]])

    def find_fallen_back(self, situation: Situation) -> Index:
        """Return the ranks that still run and use another HCA than before."""
        rank_placement = situation.rank_placement
        node, gpu = rank_placement.node[0], rank_placement.gpu[0]
        return np.flatnonzero((self.ports.port[node, gpu] != rank_placement.port[0]) & ~self.dead[node, gpu])

    def place_ranks(self, situation: Situation, node: Index, gpu: Index) -> RankPlacement:
        """Return the placement with the ports that GPUs use after the failure."""
        return build_rank_placement(node, gpu, self.ports, situation.job.domains)


def assess_impact(situation: Situation, failure: Failure) -> FailureImpact:
    """Return the impact of a failure on the nodes."""
    ports, nodes = situation.job.ports, situation.job.nodes
    node_index = {node: index for index, node in enumerate(nodes)}
    dead_nodes = np.array([node in failure.nodes for node in nodes], dtype=np.bool_)
    dead = np.zeros(ports.port.shape, dtype=np.bool_)
    dead[dead_nodes] = True
    for node, gpu in failure.gpus:
        if node in node_index and gpu < situation.node_gpus:
            dead[node_index[node], gpu] = True
    lost = np.array([hca is not None and (hca.guid, hca.leaf) in failure.hcas for hca in ports.hcas], dtype=np.bool_)
    port = ports.port
    if lost.any():
        port = port.copy()
        for index in np.flatnonzero(lost[port].any(axis=1)).tolist():
            port[index] = fall_back(port[index], lost, ports.nowhere)
        dead |= (port == ports.nowhere) & (ports.port != ports.nowhere)
    return FailureImpact(
        failure=failure, dead=dead, dead_nodes=dead_nodes, ports=replace(ports, port=port), lost_ports=lost
    )


def fall_back(row: Index, lost: Mask, nowhere: int) -> Index:
    """Return the port of each GPU of a node: its own, or else the nearest remaining one, the lower of two.

    Ports are counted in the order in which GPUs use them; with none left it is ``nowhere``.
    """
    order: Sequence[int] = list(dict.fromkeys(row.tolist()))
    left = [index for index, port in enumerate(order) if not lost[port]]
    if not left:
        return np.where(lost[row], nowhere, row)
    nearest = {port: order[min(left, key=lambda have: (abs(have - index), have))] for index, port in enumerate(order)}
    return np.array([port if not lost[port] else nearest[port] for port in row.tolist()], dtype=np.int64)
