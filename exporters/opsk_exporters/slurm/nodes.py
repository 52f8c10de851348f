"""Exports Slurm's nodes, CPUs and GPUs by state, for each partition and the whole cluster.

GPUs are counted as Slurm counts them: an entry of GRES ``gpu`` is one, a MIG instance as well. A node of several
partitions counts in each of them; series of the cluster count it once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from opsk.slurm.commands.node_text import NodeLoad
from opsk_exporters.core.exposition import Families
from opsk_exporters.slurm.states import (
    DRAIN_REASONS,
    NODE_STATES,
    classify_drain_reason,
    classify_free_gpus,
    classify_node_state,
    is_mig,
)

GPU_STATES = ("allocated", "idle", "drained", "down")
CPU_STATES = ("allocated", "idle", "other")
MAX_TYPES = 64
_OUT = frozenset({"down", "failing", "draining", "drained", "not_responding"})


@dataclass(slots=True)
class _Tally:
    """Nodes, CPUs and GPUs of one partition, or of all."""

    is_up: bool = False
    nodes: Counter[str] = field(default_factory=Counter)
    cpus: Counter[str] = field(default_factory=Counter)
    gpus: Counter[str] = field(default_factory=Counter)
    mig: Counter[str] = field(default_factory=Counter)

    def add(self, node: NodeLoad, state: str, gpus: dict[str, Counter[str]]) -> None:
        """Count a node."""
        self.nodes[state] += 1
        self.cpus["allocated"] += node.cpus_allocated
        self.cpus["idle"] += node.cpus_idle
        self.cpus["other"] += node.cpus_other
        for kind, tally in gpus.items():
            self.gpus.update(tally)
            if is_mig(kind):
                self.mig.update(tally)


def list_partitions(nodes: Sequence[NodeLoad]) -> tuple[str, ...]:
    """Return the partitions that have nodes, by name."""
    return tuple(sorted({partition for node in nodes for partition in node.partitions}))


def add_nodes(families: Families, nodes: Sequence[NodeLoad]) -> None:
    """Add the series of the nodes."""
    cluster, by_partition = _Tally(), {name: _Tally() for name in list_partitions(nodes)}
    types: dict[str, Counter[str]] = {}
    reasons: Counter[str] = Counter()
    for node in nodes:
        state = classify_node_state(node.words, is_busy=node.cpus_allocated > 0 or any(node.gpus_used.values()))
        gpus = _count_gpus(node, state)
        cluster.add(node, state, gpus)
        for partition, is_up in node.partitions.items():
            by_partition[partition].add(node, state, gpus)
            by_partition[partition].is_up |= is_up
        for kind, counted in gpus.items():
            types.setdefault(kind, Counter()).update(counted)
        if state in _OUT:
            reasons[classify_drain_reason(node.reason)] += 1
    for partition, tally in by_partition.items():
        _add_partition(families, partition, tally)
    _add_cluster(families, cluster, types, reasons)


def _count_gpus(node: NodeLoad, state: str) -> dict[str, Counter[str]]:
    """Return the GPUs of a node by type and by what they are.

    Slurm may count a type's GPUs as used without naming the type (``gpu:2`` of ``gpu:a100:4``): those are the node's
    only type, or are taken from its types in the order in which Slurm lists them.
    """
    unnamed = node.gpus_used.get("", 0) + sum(
        number for kind, number in node.gpus_used.items() if kind and kind not in node.gpus
    )
    free = classify_free_gpus(state, node.words)
    by_type = {}
    for kind, configured in node.gpus.items():
        used = node.gpus_used.get(kind, 0) if kind else 0
        more = min(max(configured - used, 0), unnamed)
        unnamed -= more
        used = min(used + more, configured)
        by_type[kind] = Counter({"allocated": used, free: configured - used})
    return by_type


def _add_states(
    families: Families, name: str, text: str, counts: Counter[str], states: Sequence[str], **labels: str
) -> None:
    """Add how many are in each state."""
    for state in states:
        families.gauge(name, text, counts[state], state=state, **labels)


def _add_partition(families: Families, partition: str, tally: _Tally) -> None:
    """Add one partition."""
    families.gauge(
        "opsk_slurm_partition_up",
        "1 for a partition in which jobs may start, 0 for one that is down, draining or inactive.",
        float(tally.is_up),
        partition=partition,
    )
    _add_states(
        families,
        "opsk_slurm_nodes",
        "Nodes by state, one state per node; a node of several partitions counts in each of them.",
        tally.nodes,
        NODE_STATES,
        partition=partition,
    )
    _add_states(
        families,
        "opsk_slurm_cpus",
        "Logical CPUs: allocated, idle, or of nodes that take no job; of a node of several partitions in each.",
        tally.cpus,
        CPU_STATES,
        partition=partition,
    )
    if tally.gpus:
        _add_states(
            families,
            "opsk_slurm_gpus",
            "GPUs (MIG instances as well): allocated to jobs, free, or on nodes that take no job; "
            "of a node of several partitions in each.",
            tally.gpus,
            GPU_STATES,
            partition=partition,
        )
    if tally.mig:
        _add_states(
            families,
            "opsk_slurm_mig_gpus",
            "Of opsk_slurm_gpus those that are MIG instances, by the name of their type.",
            tally.mig,
            GPU_STATES,
            partition=partition,
        )


def _add_cluster(families: Families, tally: _Tally, types: dict[str, Counter[str]], reasons: Counter[str]) -> None:
    """Add the whole cluster, every node once."""
    _add_states(
        families,
        "opsk_slurm_cluster_nodes",
        "Nodes by state, each counted once.",
        tally.nodes,
        NODE_STATES,
    )
    _add_states(
        families,
        "opsk_slurm_cluster_cpus",
        "Logical CPUs, each once: allocated, idle, or of nodes that take no job.",
        tally.cpus,
        CPU_STATES,
    )
    _add_states(
        families,
        "opsk_slurm_cluster_gpus",
        "GPUs (MIG instances as well), each counted once: allocated to jobs, free, or on nodes that take no job.",
        tally.gpus,
        GPU_STATES,
    )
    for kind in sorted(types)[:MAX_TYPES]:
        for state in GPU_STATES:
            families.gauge(
                "opsk_slurm_cluster_type_gpus",
                "GPUs of opsk_slurm_cluster_gpus by their GRES type; the empty one is of nodes that name none.",
                types[kind][state],
                type=kind,
                state=state,
            )
    for reason in DRAIN_REASONS:
        families.gauge(
            "opsk_slurm_unavailable_nodes",
            "Nodes that are drained, draining, down, failing or silent, by words in the reason that was given: a hint.",
            reasons[reason],
            reason=reason,
        )
