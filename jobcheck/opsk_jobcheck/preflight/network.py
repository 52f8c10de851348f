"""Checks variables of NCCL and CUDA that turn off what the nodes have.

Source: "Environment Variables" of NCCL's user guide; ``CUDA_LAUNCH_BLOCKING`` in CUDA's programming guide.
"""

from __future__ import annotations

import re

from opsk_jobcheck.preflight.facts import JobFacts, PreflightFinding, report

_RDMA = re.compile(r"(qdr|fdr|edr|hdr|ndr|xdr|roce)")
"""NICs of the catalogue that NCCL's own InfiniBand transport uses: InfiniBand and RoCE."""
_HCA = re.compile(r"=?mlx5_\d+(:\d+)?")
_UNSET = "remove the line"


def check_peer_to_peer(facts: JobFacts) -> PreflightFinding | None:
    """Return that ``NCCL_P2P_DISABLE`` turns off the links between the GPUs of a node."""
    entry = facts.find_variable("NCCL_P2P_DISABLE")
    node, gpus = facts.node, facts.workload.plan.gpus_per_node or 0
    if entry is None or entry.value != "1" or node is None or gpus < 2:
        return None
    if node.hb_domain_gpus < 2 or not node.gpu.hb_bytes_per_s:
        return None
    what = f"{entry.text} turns off NVLink between the {gpus} GPUs of a node: their traffic goes through host memory"
    return report(entry, what, _UNSET)


def check_infiniband(facts: JobFacts) -> PreflightFinding | None:
    """Return that a variable sends the traffic between nodes over TCP although they have RDMA."""
    disabled, transport = facts.find_variable("NCCL_IB_DISABLE"), facts.find_variable("NCCL_NET")
    entry = disabled if disabled is not None and disabled.value == "1" else None
    if transport is not None and str(transport.value).lower() == "socket":
        entry = transport
    if entry is None or facts.nodes < 2 or facts.node is None or not _RDMA.match(facts.node.nic.name):
        return None
    nic = facts.node.nic.name.upper()
    what = f"{entry.text} sends the traffic between {facts.nodes} nodes over TCP, although they have {nic}"
    return report(entry, what, _UNSET)


def check_interface(facts: JobFacts) -> PreflightFinding | None:
    """Return that processes on several nodes are to talk over the loopback interface."""
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        entry = facts.find_variable(name)
        if entry is not None and facts.nodes > 1 and str(entry.value).removeprefix("=") == "lo":
            what = f"{entry.text} on {facts.nodes} nodes: the loopback interface reaches no other node"
            return report(entry, what, f"name the interface between the nodes, or {_UNSET}")
    return None


def check_adapters(facts: JobFacts) -> PreflightFinding | None:
    """Return that ``NCCL_IB_HCA`` names fewer adapters than the nodes have."""
    entry, node = facts.find_variable("NCCL_IB_HCA"), facts.node
    if entry is None or node is None or facts.nodes < 2 or facts.workload.plan.gpus_per_node != node.gpus:
        return None
    names = str(entry.value).split(",")
    if not all(map(_HCA.fullmatch, names)) or 2 * len(set(names)) > node.nics:
        return None
    what = f"{entry.text} names {len(set(names))} of the {node.nics} adapters of a node"
    return report(entry, what, f"name all that are on the compute fabric, or {_UNSET}: NCCL finds them")


def check_shared_memory(facts: JobFacts) -> PreflightFinding | None:
    """Return that both ways between the GPUs of a node are turned off."""
    shared, peer = facts.find_variable("NCCL_SHM_DISABLE"), facts.find_variable("NCCL_P2P_DISABLE")
    if shared is None or peer is None or (shared.value, peer.value) != ("1", "1"):
        return None
    if (facts.workload.plan.gpus_per_node or 0) < 2:
        return None
    what = f"{shared.text} and {peer.text}: GPUs of one node exchange everything over the network"
    return report(shared, what, f"{_UNSET}, at most one is needed")


def check_blocking_launches(facts: JobFacts) -> PreflightFinding | None:
    """Return that the CPU waits for every kernel."""
    entry = facts.find_variable("CUDA_LAUNCH_BLOCKING")
    if entry is None or entry.value != "1":
        return None
    return report(entry, f"{entry.text} makes the CPU wait for every kernel: it is for debugging, and slow", _UNSET)
