"""Is the world still as it was when the plan was made? What an option rests on, and in words what is different now."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from opsk.slurm.records import JobRecord, NodeRecord

_MOST_TOLD = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What an option rests on.

    Parameters
    ----------
    job
        Its state, restarts and nodes, by those words; empty where no job was looked at.
    nodes
        In words: of the job's own nodes whether they can be used, of others their whole state and GPUs in use. Nodes
        that failed are left out: that somebody drains them changes nothing.
    """

    job: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, str] = field(default_factory=dict)

    @property
    def hash(self) -> str:
        """Sixteen hex digits that are the same as long as the world is."""
        text = json.dumps([dict(self.job), dict(self.nodes)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def world_of(
    job: JobRecord | None, nodes: Mapping[str, NodeRecord], *, used: Iterable[str] = (), failed: Iterable[str] = ()
) -> World:
    """Return the world as far as an option rests on it.

    Parameters
    ----------
    used
        Nodes that the job then uses.
    failed
        Nodes of the failure.
    """
    if job is None:
        return World()
    own, out = set(job.nodes), set(failed)
    names = sorted({*used, *own} - out)
    return World(
        job={"state": job.state, "restarts": str(job.restarts or 0), "nodes": ",".join(job.nodes)},
        nodes={name: _words(nodes[name], is_own=name in own) for name in names if name in nodes},
    )


def _words(node: NodeRecord, *, is_own: bool) -> str:
    if is_own:
        return "usable" if node.is_usable else "+".join([node.state, *sorted(node.state_flags)])
    used = f", {node.gpus_used} GPUs in use" if node.gpus_used else ""
    return "+".join([node.state, *sorted(node.state_flags)]) + used


def changes(before: World, now: World) -> tuple[str, ...]:
    """Return in words what is different; nothing where the job was not looked at."""
    found = [
        f"the job's {name} was {before.job[name] or 'none'}, is {now.job.get(name) or 'none'}"
        for name in before.job
        if before.job[name] != now.job.get(name)
    ]
    found += [
        f"{name} was {before.nodes[name]}, is {now.nodes.get(name, 'not known to Slurm')}"
        for name in before.nodes
        if before.nodes[name] != now.nodes.get(name) and (name in now.nodes or now.nodes)
    ]
    more = f"and {len(found) - _MOST_TOLD} more"
    return tuple(found[:_MOST_TOLD]) + ((more,) if len(found) > _MOST_TOLD else ())
