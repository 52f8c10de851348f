"""Defines a failure and its impact, and parses names of failed parts such as ``gpu:n3/5`` or ``cable:0002c903/17``."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

import numpy as np

from opsk.errors import InputError
from opsk.fabric.cabling import shorten_name
from opsk.fabric.fabric import Cable, Fabric
from opsk.fabric.hb_domains import HbDomain
from opsk.fabric.leaves.leaf import Attachment
from opsk.fabric.node.node_topology import NodeTopology
from opsk.fabric.rails import Rails
from opsk.planning.placement.rank_placement import build_rank_placement
from opsk.planning.remap.situation import Mask, Situation
from opsk.planning.routing.hca_ports import Index, Ports
from opsk.planning.routing.traffic import RankPlacement

FORMS = (
    "gpu:NODE/INDEX", "gpu:UUID", "nic:NODE/DEV", "cable:GUID/PORT", "leaf:NAME", "leaf:GUID", "node:NAME", "hb:ID",
)  # fmt: skip
_MAX_SUGGESTIONS = 3
_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-f-]{8,}", re.IGNORECASE)
_GUID = re.compile(r"(?:0x|S-|H-)?([0-9a-f]{6,16})", re.IGNORECASE)
_PART = re.compile(r".+/gpu([0-9,-]+)")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownParts:
    """The known components in which names are looked up.

    ``nodes`` are names that the job or Slurm knows beyond those of the fabric; ``node_gpus`` is how many GPUs a node
    has that has no file of its own; ``topologies`` are the topologies that nodes report.
    """

    fabric: Fabric
    rails: Rails
    domains: Sequence[HbDomain]
    nodes: Collection[str]
    node_gpus: int
    topologies: Mapping[str, NodeTopology] = field(default_factory=dict)

    def known_nodes(self) -> list[str]:
        """Return all node names."""
        return list(dict.fromkeys([*self.nodes, *self.rails.host_roles, *self.rails.attachments, *self.topologies]))


def parse_failures(words: Iterable[str], machine: KnownParts) -> Failure:
    """Parse the names of failed components.

    Raises
    ------
    InputError
        A word has no known form, or names nothing that exists; the error lists similar names.
    """
    failures = [_parse_one(word.strip(), machine) for word in words]
    return Failure(
        reported=tuple(dict.fromkeys(text for part in failures for text in part.reported)),
        gpus=frozenset().union(*(part.gpus for part in failures)),
        nodes=frozenset().union(*(part.nodes for part in failures)),
        hcas=frozenset().union(*(part.hcas for part in failures)),
        domains=frozenset().union(*(part.domains for part in failures)),
        drain=frozenset().union(*(part.drain for part in failures)),
        links=tuple(link for part in failures for link in part.links),
        remarks=tuple(remark for part in failures for remark in part.remarks),
    )


def _parse_one(word: str, machine: KnownParts) -> Failure:
    kind, sign, name = word.partition(":")
    reader = _READERS.get(kind.lower())
    if reader is None or not sign or not name:
        raise InputError(f"--failed {word!r} is of no known form", hint="one of " + ", ".join(FORMS))
    return reader(name, word, machine)


def _parse_gpu(name: str, word: str, machine: KnownParts) -> Failure:
    if _UUID.fullmatch(name):
        return _find_gpu_by_uuid(name, word, machine)
    node, sign, index = name.rpartition("/")
    if not sign or not index.isdecimal() or not index.isascii():
        raise InputError(f"{word}: a GPU is gpu:NODE/INDEX or gpu:UUID", hint="for example gpu:n3/5")
    node = _resolve_node(node, word, machine)
    gpus = _list_gpu_indices(node, machine)
    if int(index) not in gpus:
        raise InputError(
            f"{word}: {node} has GPUs {_format_span(gpus)}", hint="GPUs are counted from 0, as nvidia-smi does"
        )
    return Failure(
        reported=(f"gpu:{node}/{int(index)}",), gpus=frozenset({(node, int(index))}), drain=frozenset({node})
    )


def _find_gpu_by_uuid(name: str, word: str, machine: KnownParts) -> Failure:
    uuids = {
        gpu.uuid.lower(): (node, gpu.index)
        for node, topology in machine.topologies.items()
        for gpu in topology.gpus
        if gpu.uuid
    }
    if name.lower() in uuids:
        node, index = uuids[name.lower()]
        return Failure(reported=(f"gpu:{node}/{index}",), gpus=frozenset({(node, index)}), drain=frozenset({node}))
    if not uuids:
        raise InputError(
            f"{word}: no node file tells UUIDs", hint="give --node-file NODE=FILE (nvidia-smi -q), or gpu:NODE/INDEX"
        )
    raise _build_unknown_error(word, "GPU", name.lower(), uuids)


def _parse_nic(name: str, word: str, machine: KnownParts) -> Failure:
    node, sign, device = name.rpartition("/")
    if not sign or not device:
        raise InputError(f"{word}: a NIC is nic:NODE/DEV", hint="for example nic:n3/mlx5_2")
    node = _resolve_node(node, word, machine)
    attachments = machine.rails.attachments.get(node, ())
    lost = [entry for entry in attachments if entry.device == device] or _find_by_node_name(node, device, machine)
    if lost:
        return _build_hca_failure(lost, f"nic:{node}/{device}", machine)
    topology = machine.topologies.get(node)
    device_names = (
        {nic.name for nic in topology.nics} | {nic.device or "" for nic in topology.nics} if topology else set()
    )
    if device in device_names:
        return Failure(
            reported=(f"nic:{node}/{device}",),
            drain=frozenset({node}),
            remarks=(f"{device} of {node} is not on the compute fabric: the job's messages do not use it",),
        )
    raise _build_unknown_error(
        word, f"NIC of {node}", device, [*(entry.device for entry in attachments), *filter(None, device_names)]
    )


def _find_by_node_name(node: str, device: str, machine: KnownParts) -> list[Attachment]:
    """Return the HCA of this name in the node's own file, where the fabric has another name for it."""
    topology = machine.topologies.get(node)
    guids = {
        nic.guid
        for nic in (topology.nics if topology else ())
        if nic.guid and device in {nic.name, nic.device, nic.label}
    }
    return [entry for entry in machine.rails.attachments.get(node, ()) if _strip_guid(entry.guid) in guids]


def _parse_cable(name: str, word: str, machine: KnownParts) -> Failure:
    guid, sign, port = name.rpartition("/")
    match = _GUID.fullmatch(guid)
    if not sign or match is None or not port.isdecimal() or not port.isascii():
        raise InputError(f"{word}: a cable is cable:GUID/PORT, of either end", hint="opsk fabric --json has guids")
    full = _pad_guid(match[1], [*machine.fabric.switches, *machine.fabric.hcas])
    ends = {(cable.a_guid, cable.a_port): cable for cable in machine.fabric.cables}
    ends |= {(cable.b_guid, cable.b_port): cable for cable in machine.fabric.cables}
    cable = ends.get((full, int(port)))
    if cable is None:
        ports = sorted(known_port for end, known_port in ends if end == full)
        if not ports:
            raise _build_unknown_error(word, "guid", full, [*machine.fabric.switches, *machine.fabric.hcas])
        raise InputError(
            f"{word}: no cable in port {port}; cabled are {_format_span(ports)}", hint="see opsk fabric --json"
        )
    return _build_cable_failure(cable, f"cable:{full}/{int(port)}", machine)


def _build_cable_failure(cable: Cable, reported: str, machine: KnownParts) -> Failure:
    """Return the loss of a cable: that of an HCA, or of traffic between switches that other cables take over."""
    hcas = machine.fabric.hcas
    guid, leaf = (cable.a_guid, cable.b_guid) if cable.a_guid in hcas else (cable.b_guid, cable.a_guid)
    if guid not in hcas:
        names = tuple(_name_switch(end, machine) for end in (cable.a_guid, cable.b_guid))
        return Failure(
            reported=(reported,),
            links=((names[0], names[1]),),
            remarks=(f"it joins {names[0]} and {names[1]}: no rank loses its HCA, other cables take its traffic",),
        )
    node = hcas[guid].node
    lost = [
        entry
        for entry in machine.rails.attachments.get(node or "", ())
        if _strip_guid(entry.guid) == guid and entry.leaf == leaf
    ]
    if lost:
        return _build_hca_failure(lost, reported, machine)
    where = hcas[guid].description or guid
    return Failure(
        reported=(reported,),
        drain=frozenset({node}) if node in machine.rails.host_roles and node is not None else frozenset(),
        remarks=(f"it is the cable of {where}, which is not on the compute fabric",),
    )


def _parse_leaf(name: str, word: str, machine: KnownParts) -> Failure:
    switches = machine.fabric.switches
    match = _GUID.fullmatch(name)
    guid = _pad_guid(match[1], switches) if match else ""
    guids = [guid] if guid in switches else []
    if not guids:
        guids = [
            guid for guid, switch in switches.items() if name in {switch.description, shorten_name(switch.description)}
        ]
    if len(guids) > 1:
        raise InputError(
            f"{word}: {len(guids)} switches have that name", hint="name its guid: " + ", ".join(sorted(guids)[:4])
        )
    if not guids:
        names = [shorten_name(switch.description) for switch in switches.values()]
        raise _build_unknown_error(word, "switch", name, [*names, *switches])
    guid = guids[0]
    reported = f"leaf:{_name_switch(guid, machine)}"
    lost = [entry for row in machine.rails.attachments.values() for entry in row if entry.leaf == guid]
    if not lost:
        remark = (
            f"{_name_switch(guid, machine)} has no HCA of a compute node: no rank loses its HCA, traffic goes around it"
        )
        return Failure(reported=(reported,), remarks=(remark,))
    return _build_hca_failure(lost, reported, machine, drains=False)


def _parse_node(name: str, word: str, machine: KnownParts) -> Failure:
    node = _resolve_node(name, word, machine)
    return Failure(reported=(f"node:{node}",), nodes=frozenset({node}), drain=frozenset({node}))


def _parse_hb_domain(name: str, word: str, machine: KnownParts) -> Failure:
    domains = {domain.name: domain for domain in machine.domains}
    domain = domains.get(name)
    if domain is None:
        mine = [entry.name for entry in machine.domains if name in entry.nodes]
        if mine:
            raise InputError(f"{word}: {name} is a node of HB domain {mine[0]}", hint=f"name hb:{mine[0]}")
        raise _build_unknown_error(word, "HB domain", name, domains)
    part = _PART.fullmatch(domain.name) if len(domain.nodes) == 1 and domain.name != domain.nodes[0] else None
    gpus = {
        (node, gpu)
        for node in domain.nodes
        for gpu in (_parse_indices(part[1]) if part else _list_gpu_indices(node, machine))
    }
    return Failure(
        reported=(f"hb:{domain.name}",),
        gpus=frozenset(gpus),
        domains=frozenset({domain.name}),
        drain=frozenset(domain.nodes),
    )


_READERS: Mapping[str, Callable[[str, str, KnownParts], Failure]] = {
    "gpu": _parse_gpu,
    "nic": _parse_nic,
    "cable": _parse_cable,
    "leaf": _parse_leaf,
    "node": _parse_node,
    "hb": _parse_hb_domain,
}


def _build_hca_failure(
    lost: Sequence[Attachment], reported: str, machine: KnownParts, *, drains: bool = True
) -> Failure:
    """Return the loss of some HCAs."""
    return Failure(
        reported=(reported,),
        hcas=frozenset((entry.guid, entry.leaf) for entry in lost),
        drain=frozenset(entry.node for entry in lost) if drains else frozenset(),
        links=tuple((f"{entry.node} {entry.device}", _name_switch(entry.leaf, machine)) for entry in lost),
    )


def _resolve_node(name: str, word: str, machine: KnownParts) -> str:
    """Return a node's name as the job or the fabric knows it; a first label is enough where it is clear."""
    known = machine.known_nodes()
    if name in set(known):
        return name
    short = name.split(".")[0].lower()
    matches = [node for node in known if node.split(".")[0].lower() == short]
    if len(matches) == 1 and short:
        return matches[0]
    raise _build_unknown_error(word, "node", name, known)


def _build_unknown_error(word: str, what: str, name: str, known: Iterable[str]) -> InputError:
    near = get_close_matches(name, list(dict.fromkeys(known)), n=_MAX_SUGGESTIONS, cutoff=0.5)
    return InputError(
        f"{word}: no such {what} is known", hint="did you mean " + " or ".join(near) if near else "see opsk fabric"
    )


def _list_gpu_indices(node: str, machine: KnownParts) -> list[int]:
    topology = machine.topologies.get(node)
    if topology is not None and topology.gpus:
        return [gpu.index for gpu in topology.gpus]
    return list(range(machine.node_gpus))


def _name_switch(guid: str, machine: KnownParts) -> str:
    switch = machine.fabric.switches.get(guid)
    return (shorten_name(switch.description) or guid) if switch is not None else guid


def _pad_guid(guid: str, known: Collection[str]) -> str:
    """Return a guid in the fabric's form, with or without leading zeros."""
    lower = guid.lower()
    return lower if lower in known else lower.zfill(16)


def _strip_guid(guid: str) -> str:
    return guid.split("/")[0].lower()


def _parse_indices(text: str) -> list[int]:
    """Return the numbers of ``0-3`` or ``0,2``."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def _format_span(numbers: Sequence[int]) -> str:
    if len(numbers) > 1 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers)) or "none"
