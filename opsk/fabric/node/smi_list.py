"""Parses ``nvidia-smi nvlink -s`` (status of every link) and ``nvidia-smi -L``.

A link is active when its line ends with a rate: ``<inactive>``, ``(Not supported)`` and whatever a future driver prints
are not. Rates are in GB/s, one way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from opsk.fabric.node.node_topology import Gpu, NodeTopology
from opsk.fabric.node.smi_query import parse_uuid
from opsk.units import GB

_GPU = re.compile(r"^[ \t>|]*GPU ([0-9]{1,4}): ?(.*?)[ \t]*\(UUID: ([^)\s]*)\)?[ \t\r]*$")
_GPU_LINE = re.compile(_GPU.pattern, re.MULTILINE)
_LINK = re.compile(r"^[ \t>|]*Link ([0-9]{1,3}):[ \t]*(.*?)[ \t\r]*$")
_RATE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) GB/s")
_ALL_INACTIVE = re.compile(r"all links are inactive", re.IGNORECASE)


@dataclass(slots=True, kw_only=True)
class _Links:
    """The links of one GPU: their rates [GB/s], 0 for an inactive one; ``none`` when all are reported inactive."""

    gpu: Gpu
    line: int
    rates: dict[int, float] = field(default_factory=dict)
    none: bool = False


def holds_list(text: str) -> bool:
    """Return whether a text holds such lines."""
    return _GPU_LINE.search(text) is not None


def read_smi_list(text: str, *, source: str) -> NodeTopology | None:
    """Return the GPUs that a text lists, with their links where it reports them; ``None`` when it lists none."""
    by_index: dict[int, _Links] = {}
    problems: list[str] = []
    current: _Links | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if match := _GPU.match(line):
            current = by_index.setdefault(
                int(match[1]),
                _Links(
                    gpu=Gpu(index=int(match[1]), model=match[2].strip() or None, uuid=parse_uuid(match[3])), line=number
                ),
            )
        elif current is not None and (match := _LINK.match(line)):
            rate = _RATE.match(match[2])
            current.rates.setdefault(int(match[1]), float(rate[1]) if rate else 0.0)
        elif current is not None and _ALL_INACTIVE.search(line):
            current.none = True
        elif line.strip() and not line[0].isspace():
            current = None
    if not by_index:
        return None
    gpus = tuple(_gpu(entry) for _, entry in sorted(by_index.items()))
    max_links = max((gpu.nvlinks or 0 for gpu in gpus), default=0)
    problems += [
        f"{source}:{by_index[gpu.index].line}: GPU {gpu.index} has {gpu.nvlinks} active NVLinks, "
        f"others have {max_links}"
        for gpu in gpus
        if gpu.nvlinks is not None and gpu.nvlinks < max_links
    ]
    links = sum(len(entry.rates) for entry in by_index.values())
    return NodeTopology(
        gpus=gpus,
        source=source,
        dialect="smi_nvlink" if links else "smi_list",
        contents={"gpus": len(gpus), "links": links},
        problems=tuple(problems),
    )


def _gpu(entry: _Links) -> Gpu:
    """Return a GPU with what its links carry together."""
    if not entry.rates and not entry.none:
        return entry.gpu
    active = [rate for rate in entry.rates.values() if rate > 0]
    return Gpu(
        index=entry.gpu.index,
        uuid=entry.gpu.uuid,
        model=entry.gpu.model,
        nvlinks=len(active),
        nvlink_bytes_per_s=float(round(sum(active) * GB)),
    )
