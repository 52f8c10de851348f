"""What does ``scontrol --oneliner show partition`` say of partitions? One line each.

Source: ``slurm_sprint_partition_info`` in ``src/api/partition_info.c``; the same words from 22.05 to 26.05.
"""

from __future__ import annotations

import re

from opsk.slurm.fields import count
from opsk.slurm.records import PartitionRecord

_FIELD = re.compile(r"(?<!\S)(PartitionName|Default|MinNodes)=(\S*)")


def parse_partitions(text: str) -> tuple[PartitionRecord, ...]:
    """Return the partitions in this text; a line that names none is none (``No partitions in the system``)."""
    found = []
    for line in text.splitlines():
        fields = dict(_FIELD.findall(line))
        if fields.get("PartitionName"):
            found.append(
                PartitionRecord(
                    name=fields["PartitionName"],
                    is_default=fields.get("Default") == "YES",
                    min_nodes=max(count(fields.get("MinNodes", "")) or 1, 1),
                )
            )
    return tuple(found)
