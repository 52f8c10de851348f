"""Compares the cluster with its state when the plan was made: what an option depends on, and what has changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from opsk.slurm.records import JobRecord, NodeRecord

_MAX_REPORTED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Preconditions:
    """What an option depends on.

    Parameters
    ----------
    job
        Its state, restarts and nodes, by these keys; empty where no job was read.
    nodes
        As text: whether the job's own nodes are usable, and the whole state and GPUs in use of others. Nodes
        that failed are left out: draining them changes nothing.
    """

    job: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, str] = field(default_factory=dict)

    @property
    def hash(self) -> str:
        """Sixteen hex digits that are the same as long as the world is."""
        text = json.dumps([dict(self.job), dict(self.nodes)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def build_preconditions(
    job: JobRecord | None, nodes: Mapping[str, NodeRecord], *, used: Iterable[str] = (), failed: Iterable[str] = ()
) -> Preconditions:
    """Return the world as far as an option rests on it.

    Parameters
    ----------
    used
        Nodes that the job then uses.
    failed
        Nodes of the failure.
    """
    if job is None:
        return Preconditions()
    job_nodes, excluded = set(job.nodes), set(failed)
    names = sorted({*used, *job_nodes} - excluded)
    return Preconditions(
        job={"state": job.state, "restarts": str(job.restarts or 0), "nodes": ",".join(job.nodes)},
        nodes={name: _format_node(nodes[name], is_own=name in job_nodes) for name in names if name in nodes},
    )


def _format_node(node: NodeRecord, *, is_own: bool) -> str:
    if is_own:
        return "usable" if node.is_usable else "+".join([node.state, *sorted(node.state_flags)])
    used = f", {node.gpus_used} GPUs in use" if node.gpus_used else ""
    return "+".join([node.state, *sorted(node.state_flags)]) + used


def list_changes(before: Preconditions, now: Preconditions) -> tuple[str, ...]:
    """Return what is different, as text; empty where the job was not read."""
    changes = [
        f"the job's {name} was {before.job[name] or 'none'}, is {now.job.get(name) or 'none'}"
        for name in before.job
        if before.job[name] != now.job.get(name)
    ]
    changes += [
        f"{name} was {before.nodes[name]}, is {now.nodes.get(name, 'not known to Slurm')}"
        for name in before.nodes
        if before.nodes[name] != now.nodes.get(name) and (name in now.nodes or now.nodes)
    ]
    more = f"and {len(changes) - _MAX_REPORTED} more"
    return tuple(changes[:_MAX_REPORTED]) + ((more,) if len(changes) > _MAX_REPORTED else ())
