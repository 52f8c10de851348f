"""Counts the parts that a job is made of, and computes how often one of them stops it.

Parts are assumed to fail independently of each other and of their age (exponential times): the rates of all parts add
up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from opsk.costmodel.network_cost import clos_network
from opsk.hardware.failure_rates import TIMES, FailureRates
from opsk.hardware.spec import ClusterSpec
from opsk.workload.plan import Plan

RADIX = 64
"""Ports of one switch where a Clos must be estimated: NVIDIA QM9700, 64 of 400 Gbit/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobParts:
    """Counts of the parts that a job needs to run.

    Parameters
    ----------
    gpus, gpus_per_node, nodes
        GPUs of the job, those that it uses of each node, and its nodes.
    nics, links
        Ports on the compute fabric, and their cables; a job on one node needs none.
    leaves, upper_switches
        Leaves that its nodes hang on, and the switches above them that its traffic may pass.
    leaf_group_nodes, group_leaves
        Nodes that hang on the same leaf, or set of leaves (one a rail), and the leaves of such a set.
    domain_nodes
        Nodes that one HB domain joins; 1 where a domain is no more than a node.
    switches_from
        Source of the number of switches, as text.
    """

    gpus: int
    gpus_per_node: int
    nodes: int
    nics: int
    links: int
    leaves: int
    upper_switches: int
    leaf_group_nodes: int
    group_leaves: int
    domain_nodes: int
    switches_from: str

    @property
    def spans_domains(self) -> bool:
        """Whether an HB domain is more than one node."""
        return self.domain_nodes > 1


def count_parts(
    plan: Plan, cluster: ClusterSpec, *, nodes: int | None = None, gpus_per_node: int | None = None, radix: int = RADIX
) -> JobParts:
    """Return the parts that a plan's GPUs need on a cluster: whole nodes, their NICs, and switches."""
    used = gpus_per_node or (-(-plan.gpus // nodes) if nodes else min(cluster.node.gpus, plan.gpus))
    count = nodes or -(-plan.gpus // used)
    ports = count * cluster.node.nics if count > 1 else 0
    switches = _count_switches(cluster, count, radix) if count > 1 else _Switches(words="one node needs none")
    return JobParts(
        gpus=plan.gpus,
        gpus_per_node=used,
        nodes=count,
        nics=ports,
        links=ports,
        leaves=switches.leaves,
        upper_switches=switches.upper,
        leaf_group_nodes=switches.group_nodes,
        group_leaves=switches.group_leaves,
        domain_nodes=max(cluster.node.hb_domain_gpus // cluster.node.gpus, 1),
        switches_from=switches.words,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Switches:
    """The switches that a job needs, and how its nodes share leaves."""

    words: str
    leaves: int = 0
    upper: int = 0
    group_nodes: int = 1
    group_leaves: int = 0


def _count_switches(cluster: ClusterSpec, nodes: int, radix: int) -> _Switches:
    """Return the leaves of the job's nodes and the switches above them.

    Of the leaves that the cluster's entry counts the job needs those of its units, and all switches above unless it
    fits into one unit. Units that are not stated follow from the wiring: a leaf serves one rail of a unit's nodes, or
    all NICs of some nodes in a fat tree. Without counts: a full-bisection Clos for the job's own ports.
    """
    a_set = cluster.node.nics if cluster.fabric.startswith("rail") else 1
    if cluster.leaves:
        units = cluster.leaves / a_set
        unit = min(cluster.nodes_per_unit or max(math.ceil(cluster.nodes / units), 1), cluster.nodes)
        group_leaves = max(round(cluster.leaves / math.ceil(cluster.nodes / unit)), 1)
        groups = math.ceil(nodes / unit)
        above = (cluster.spines or 0) + (cluster.cores or 0)
        return _Switches(
            words=f"of {cluster.name}'s {cluster.leaves} leaves and what is above them",
            leaves=min(groups * group_leaves, cluster.leaves),
            upper=0 if groups == 1 else above,
            group_nodes=unit,
            group_leaves=group_leaves,
        )
    network = clos_network(endpoints=nodes * cluster.node.nics, radix=radix)
    leaves = network.switches if network.tiers == 1 else math.ceil(2 * network.endpoints / radix)
    unit = nodes if network.tiers == 1 else max(radix // 2 * a_set // cluster.node.nics, 1)
    return _Switches(
        words=f"a Clos of switches with {radix} ports, for the job's own ports",
        leaves=leaves,
        upper=network.switches - leaves,
        group_nodes=min(unit, nodes),
        group_leaves=min(a_set, leaves),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A cause of interruptions: the number of parts of a kind, and the mean time between failures of one [s]."""

    name: str
    count: int
    mtbf_s: float

    @property
    def per_s(self) -> float:
        """Interruptions of the job by this cause [1/s]."""
        return self.count / self.mtbf_s


def list_causes(parts: JobParts, rates: FailureRates, *, domains: int) -> tuple[Cause, ...]:
    """Return all causes that can interrupt the job; ``domains`` are the HB domains that it runs on."""
    return (
        Cause(name="gpu", count=parts.gpus, mtbf_s=rates.gpu_mtbf_s),
        Cause(name="host", count=parts.nodes, mtbf_s=rates.host_mtbf_s),
        Cause(name="nic", count=parts.nics, mtbf_s=rates.nic_mtbf_s),
        Cause(name="link", count=parts.links, mtbf_s=rates.link_mtbf_s),
        Cause(name="switch", count=parts.leaves + parts.upper_switches, mtbf_s=rates.switch_mtbf_s),
        Cause(name="hb_domain", count=domains if parts.spans_domains else 0, mtbf_s=rates.hb_domain_mtbf_s),
        Cause(name="software", count=parts.gpus, mtbf_s=rates.software_mtbf_s),
    )


def compute_job_mtbf_s(causes: Iterable[Cause]) -> float:
    """Return the mean time between interruptions of the whole job [s]; infinite where nothing fails."""
    per_s = sum(cause.per_s for cause in causes)
    return 1.0 / per_s if per_s else math.inf


def compute_node_mtbf_s(parts: JobParts, rates: FailureRates) -> float:
    """Return the mean time between failures of one node of the job that take it out of service [s].

    8 GPUs at 79,200 h, a host at 57,700 h, 8 NICs at 3.03 and 8 links at 0.624 million hours: 7,510 h.
    """
    ports = parts.nics / parts.nodes
    per_s = parts.gpus_per_node / rates.gpu_mtbf_s + 1.0 / rates.host_mtbf_s
    per_s += ports / rates.nic_mtbf_s + ports / rates.link_mtbf_s
    return 1.0 / per_s if per_s else math.inf


def scale_mtbf(rates: FailureRates, factor: float) -> FailureRates:
    """Return the rates with every mean time between failures ``factor`` times as long; repair times are unchanged."""
    times = {name: getattr(rates, name) * factor for name in TIMES if name.endswith("_mtbf_s")}
    return replace(rates, **times)
