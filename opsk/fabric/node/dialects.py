"""Detects the format of a file that describes a node, and reads it; a file may hold several formats."""

from __future__ import annotations

import re

from opsk.errors import InputError
from opsk.fabric.node import pci
from opsk.fabric.node.infiniband_tree import holds_ttar, read_infiniband_tree, read_ttar
from opsk.fabric.node.lstopo_xml import read_lstopo_xml
from opsk.fabric.node.nccl_xml import read_nccl_xml
from opsk.fabric.node.node_topology import Gpu, Nic, NodeTopology, merge_nodes
from opsk.fabric.node.nvidia_smi import holds_list, holds_query, read_smi_list, read_smi_query, read_smi_query_xml
from opsk.fabric.node.topo_matrix import holds_matrix, read_topo_matrix
from opsk.fabric.node.xml_tree import root_tag

_LINE = re.compile(
    r"^((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) [^\[\n]*\[([0-9a-f]{4})\]: (.*?) "
    r"\[([0-9a-f]{4}):[0-9a-f]{4}\]",
    re.MULTILINE,
)


def holds_lspci(text: str) -> bool:
    """Return whether a text holds such lines."""
    return _LINE.search(text) is not None


def read_lspci(text: str, *, source: str) -> NodeTopology | None:
    """Return GPUs, counted in the order of their addresses, and NICs; ``None`` when nothing is listed at all."""
    entries = sorted(
        {(pci.parse_bus_id(match[1]) or "", match[2], match[3], match[4]) for match in _LINE.finditer(text)}
    )
    if not entries:
        return None
    gpus = [(address, name) for address, kind, name, vendor in entries if pci.is_gpu(kind, vendor)]
    nics = [(address, kind, name) for address, kind, name, _ in entries if pci.is_nic(kind)]
    return NodeTopology(
        gpus=tuple(Gpu(index=index, pci=address, model=name) for index, (address, name) in enumerate(gpus)),
        nics=tuple(
            Nic(name=address, pci=address, link_layer=pci.get_link_layer(kind), description=name)
            for address, kind, name in nics
        ),
        source=source,
        dialect="lspci",
        contents={"functions": len(entries)},
    )


_XML = {
    "system": read_nccl_xml,
    "graphs": read_nccl_xml,
    "topology": read_lstopo_xml,
    "nvidia_smi_log": read_smi_query_xml,
}
_TEXT = (read_smi_query, read_smi_list, read_topo_matrix, read_lspci)
"""In the order of precedence for a GPU."""


def holds_node(text: str) -> bool:
    """Return whether a text, or the beginning of one, is of a dialect that describes a node."""
    if holds_ttar(text) or root_tag(text) is not None:
        return True
    return any(holds(text) for holds in (holds_query, holds_list, holds_matrix, holds_lspci))


def read_node(text: str, *, source: str) -> NodeTopology:
    """Return the node that a text in any dialect describes.

    ``nvidia-smi topo -m``, ``topo -p2p``, ``-q``, ``-q -x``, ``-L``, ``nvlink -s``, ``lspci -nn``; NCCL's and RCCL's
    topology XML; lstopo XML; a ttar archive of ``class/infiniband``; a file that holds several of these one after the
    other.

    Raises
    ------
    InputError
        When none of them is in it.
    """
    if holds_ttar(text):
        return read_infiniband_tree(read_ttar(text), source=source)
    tag = root_tag(text)
    topologies = [topology for read in _TEXT if (topology := read(text, source=source)) is not None]
    if tag is not None:
        topologies.append(_XML[tag](text, source=source))
    if not topologies:
        raise InputError(
            f"{source}: no description of a node in it",
            hint="give the output of nvidia-smi topo -m or -q, NCCL's topology file, or lstopo --of xml",
        )
    return merge_nodes(topologies)
