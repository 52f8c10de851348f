"""Which GPUs and NICs does ``lspci -nn`` list? No paths: a list says nothing of the tree."""

from __future__ import annotations

import re

from opsk.topology.node import pci
from opsk.topology.node.node_topology import Gpu, Nic, NodeTopology

_LINE = re.compile(
    r"^((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) [^\[\n]*\[([0-9a-f]{4})\]: (.*?) "
    r"\[([0-9a-f]{4}):[0-9a-f]{4}\]",
    re.MULTILINE,
)


def holds_lspci(text: str) -> bool:
    """Say whether a text holds such lines."""
    return _LINE.search(text) is not None


def read_lspci(text: str, *, source: str) -> NodeTopology | None:
    """Return GPUs, counted in the order of their addresses, and NICs; ``None`` when nothing is listed at all."""
    entries = sorted({(pci.bus_id(match[1]) or "", match[2], match[3], match[4]) for match in _LINE.finditer(text)})
    if not entries:
        return None
    gpus = [(address, name) for address, kind, name, vendor in entries if pci.is_gpu(kind, vendor)]
    nics = [(address, kind, name) for address, kind, name, _ in entries if pci.is_nic(kind)]
    return NodeTopology(
        gpus=tuple(Gpu(index=index, pci=address, model=name) for index, (address, name) in enumerate(gpus)),
        nics=tuple(
            Nic(name=address, pci=address, link_layer=pci.link_layer_of(kind), description=name)
            for address, kind, name in nics
        ),
        source=source,
        dialect="lspci",
        contents={"functions": len(entries)},
    )
