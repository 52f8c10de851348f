"""What does the text of ``sinfo -N`` say of how much of each node is in use, and why it is not?

One record a node and partition, joined to one record a node; GPUs by type, because a node may have several kinds.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from opsk.slurm.fields import gpus_by_type, optional
from opsk.slurm.job_text import rows

LOAD_COLUMNS = ("NodeList", "StateComplete", "Partition", "Available", "Gres", "GresUsed", "CPUsState", "Reason")
"""Fields of ``sinfo -N -O`` that every supported release knows."""

_CPUS = re.compile(r"(\d+)/(\d+)/(\d+)/(\d+)")
_WORD = re.compile(r"[A-Z_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLoad:
    """One node.

    Parameters
    ----------
    words
        Base state and flags in upper case (``MIXED``, ``DRAIN``).
    partitions
        Partition to whether it is up.
    gpus, gpus_used
        Configured and allocated by GRES type; the type is empty where the site names none.
    cpus_allocated, cpus_idle, cpus_other
        Logical CPUs; other ones are of nodes that take no job.
    reason
        Why it is drained or down.
    """

    name: str
    words: tuple[str, ...]
    partitions: Mapping[str, bool] = field(default_factory=dict)
    gpus: Mapping[str, int] = field(default_factory=dict)
    gpus_used: Mapping[str, int] = field(default_factory=dict)
    cpus_allocated: int = 0
    cpus_idle: int = 0
    cpus_other: int = 0
    reason: str | None = None


def parse_loads(text: str, columns: Sequence[str], separator: str) -> tuple[NodeLoad, ...]:
    """Return the nodes of ``sinfo -h -N -O`` in which ``separator`` ends every column.

    Raises
    ------
    SlurmError
        The output ends within a record.
    """
    nodes: dict[str, NodeLoad] = {}
    for row in rows(text, columns, separator):
        node = _load(row)
        known = nodes.get(node.name)
        nodes[node.name] = (
            node if known is None else dataclasses.replace(known, partitions={**known.partitions, **node.partitions})
        )
    return tuple(nodes.values())


def _load(row: Mapping[str, str]) -> NodeLoad:
    """Return one node in one partition."""
    cpus = _CPUS.fullmatch(row["CPUsState"].strip())
    allocated, idle, other = (int(cpus.group(n)) for n in (1, 2, 3)) if cpus else (0, 0, 0)
    partition = optional(row["Partition"])
    return NodeLoad(
        name=row["NodeList"].strip(),
        words=tuple(_WORD.findall(row["StateComplete"].upper())),
        partitions={partition.removesuffix("*"): row["Available"].strip() == "up"} if partition else {},
        gpus=gpus_by_type(row["Gres"]),
        gpus_used=gpus_by_type(row["GresUsed"]),
        cpus_allocated=allocated,
        cpus_idle=idle,
        cpus_other=other,
        reason=optional(row["Reason"]),
    )
