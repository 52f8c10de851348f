"""Which dialect does this file of a node speak? Reads any of them; a captured file with several is read whole."""

from __future__ import annotations

from opsk.errors import InputError
from opsk.topology.node.infiniband_tree import files_of_ttar, holds_ttar, read_infiniband_tree
from opsk.topology.node.lspci import holds_lspci, read_lspci
from opsk.topology.node.lstopo_xml import read_lstopo_xml
from opsk.topology.node.merge import merge
from opsk.topology.node.nccl_xml import read_nccl_xml
from opsk.topology.node.node_topology import NodeTopology
from opsk.topology.node.smi_list import holds_list, read_smi_list
from opsk.topology.node.smi_query import holds_query, read_smi_query, read_smi_query_xml
from opsk.topology.node.topo_matrix import holds_matrix, read_topo_matrix
from opsk.topology.node.xml_tree import root_tag

_XML = {
    "system": read_nccl_xml,
    "graphs": read_nccl_xml,
    "topology": read_lstopo_xml,
    "nvidia_smi_log": read_smi_query_xml,
}
_TEXT = (read_smi_query, read_smi_list, read_topo_matrix, read_lspci)
"""In the order in which what they say of a GPU counts."""


def holds_node(text: str) -> bool:
    """Say whether a text, or the beginning of one, is of a dialect that describes a node."""
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
        return read_infiniband_tree(files_of_ttar(text), source=source)
    tag = root_tag(text)
    found = [topology for read in _TEXT if (topology := read(text, source=source)) is not None]
    if tag is not None:
        found.append(_XML[tag](text, source=source))
    if not found:
        raise InputError(
            f"{source}: no description of a node in it",
            hint="give the output of nvidia-smi topo -m or -q, NCCL's topology file, or lstopo --of xml",
        )
    return merge(found)
