"""Parses the output of ``sinfo -N``, and merges its records, one per node and partition, into one record per node."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from opsk.slurm.commands.fields import (
    parse_count,
    parse_duration_s,
    parse_gpu_indices,
    parse_gpus,
    parse_gpus_by_type,
    parse_optional,
)
from opsk.slurm.commands.job_text import parse_rows
from opsk.slurm.records import NodeRecord, PartitionRecord
from opsk.units import MIB

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
    for row in parse_rows(text, columns, separator):
        node = _parse_load(row)
        known = nodes.get(node.name)
        nodes[node.name] = (
            node if known is None else dataclasses.replace(known, partitions={**known.partitions, **node.partitions})
        )
    return tuple(nodes.values())


def _parse_load(row: Mapping[str, str]) -> NodeLoad:
    """Return one node in one partition."""
    cpus = _CPUS.fullmatch(row["CPUsState"].strip())
    allocated, idle, other = (int(cpus.group(n)) for n in (1, 2, 3)) if cpus else (0, 0, 0)
    partition = parse_optional(row["Partition"])
    return NodeLoad(
        name=row["NodeList"].strip(),
        words=tuple(_WORD.findall(row["StateComplete"].upper())),
        partitions={partition.removesuffix("*"): row["Available"].strip() == "up"} if partition else {},
        gpus=parse_gpus_by_type(row["Gres"]),
        gpus_used=parse_gpus_by_type(row["GresUsed"]),
        cpus_allocated=allocated,
        cpus_idle=idle,
        cpus_other=other,
        reason=parse_optional(row["Reason"]),
    )


_FIELD = re.compile(
    r"(?<!\S)(PartitionName|Default|MinNodes|MaxNodes|DefaultTime|MaxTime|DefMemPerNode|DefMemPerCPU|JobDefaults)=(\S*)"
)
_PER_GPU = re.compile(r"(?:^|,)DefMemPerGPU=([0-9]{1,12})(?=,|$)")


def parse_partitions(text: str) -> tuple[PartitionRecord, ...]:
    """Return the partitions in this text; a line that names none is none (``No partitions in the system``)."""
    partitions = []
    for line in text.splitlines():
        fields = dict(_FIELD.findall(line))
        if fields.get("PartitionName"):
            memory_bytes, each = _parse_default_memory(fields)
            max_time_s = parse_duration_s(fields.get("MaxTime", ""))
            partitions.append(
                PartitionRecord(
                    name=fields["PartitionName"],
                    is_default=fields.get("Default") == "YES",
                    min_nodes=max(parse_count(fields.get("MinNodes", "")) or 1, 1),
                    max_nodes=parse_count(fields.get("MaxNodes", "")),
                    default_time_s=parse_duration_s(fields.get("DefaultTime", "")) or max_time_s,
                    max_time_s=max_time_s,
                    default_memory_bytes=memory_bytes,
                    default_memory_each=each,
                )
            )
    return tuple(partitions)


def _parse_default_memory(fields: Mapping[str, str]) -> tuple[int | None, str]:
    """Return the memory of a job that requests none [bytes], and for what each; 0 and ``UNLIMITED`` are none.

    Slurm takes one of them in a partition, in MiB: slurm.conf(5).
    """
    per_gpu = _PER_GPU.search(fields.get("JobDefaults", ""))
    rows = (
        ("gpu", per_gpu[1] if per_gpu else ""),
        ("cpu", fields.get("DefMemPerCPU", "")),
        ("node", fields.get("DefMemPerNode", "")),
    )
    for each, text in rows:
        if size := parse_count(text):
            return size * MIB, each
    return None, "node"


NODE_COLUMNS = (
    "NodeList",
    "StateComplete",
    "Partition",
    "Features",
    "Gres",
    "GresUsed",
    "CPUsState",
    "Memory",
    "NodeAddr",
    "Port",
    "Version",
    "Reason",
    "Comment",
)
"""Fields of ``sinfo -N -O`` that every supported release knows."""


def parse_nodes(text: str, columns: Sequence[str], separator: str) -> tuple[NodeRecord, ...]:
    """Return the nodes of ``sinfo -h -N -O`` in which ``separator`` ends every column.

    Raises
    ------
    SlurmError
        The output ends within a record.
    """
    nodes: dict[str, NodeRecord] = {}
    for row in parse_rows(text, columns, separator):
        node = parse_node(row)
        known = nodes.get(node.name)
        nodes[node.name] = (
            node if known is None else dataclasses.replace(known, partitions=known.partitions + node.partitions)
        )
    return tuple(nodes.values())


def parse_node(row: Mapping[str, str]) -> NodeRecord:
    """Return one node in one partition; columns that were not requested are "not reported"."""
    state, *flags = re.split(r"\+", row.get("StateComplete", "").strip().upper())
    gpus, gpu_type = parse_gpus(row.get("Gres", ""))
    used = row.get("GresUsed", "")
    cpus = _CPUS.fullmatch(row.get("CPUsState", "").strip())
    partition = parse_optional(row.get("Partition", ""))
    features = parse_optional(row.get("Features", ""))
    return NodeRecord(
        name=row["NodeList"].strip(),
        state=state,
        state_flags=tuple(flags),
        partitions=(partition.removesuffix("*"),) if partition else (),
        features=tuple(features.split(",")) if features else (),
        gpus=gpus,
        gpus_used=parse_gpus(used)[0],
        gpu_type=gpu_type,
        gpu_indices_used=parse_gpu_indices(used),
        cpus=int(cpus.group(4)) if cpus else 0,
        cpus_used=int(cpus.group(1)) if cpus else 0,
        memory_bytes=(parse_count(row.get("Memory", "")) or 0) * MIB,
        address=parse_optional(row.get("NodeAddr", "")),
        port=parse_count(row.get("Port", "")),
        release=parse_optional(row.get("Version", "")),
        reason=parse_optional(row.get("Reason", "")),
        comment=parse_optional(row.get("Comment", "")),
    )
