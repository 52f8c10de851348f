"""Recognises and reads files that describe nodes.

A file is recognised by its content: ``nvidia-smi``, NCCL, lstopo, a copy of ``/sys/class/infiniband`` as a folder, tar
or ttar archive. Its node is the name before the first dot (``n07.topo-m``), or what precedes ``=`` (``n07=topo.txt``).
"""

from __future__ import annotations

import io
import re
import tarfile
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from opsk.app.inputs.fabric_files import GZIP, MAX_BYTES, STDIN, read_dumps, read_text, unpack
from opsk.errors import InputError
from opsk.fabric.fabric import Fabric, Fault
from opsk.fabric.hosts.ports import natural_key
from opsk.fabric.node.affinity import Affinity, assign_nics, compute_nic_affinity
from opsk.fabric.node.dialects import holds_node, read_node
from opsk.fabric.node.infiniband_tree import DEVICE_FILES, PORT_FILES, read_infiniband_tree
from opsk.fabric.node.node_topology import NodeTopology, merge_nodes
from opsk.fabric.rails import Rails
from opsk.units import MIB

_HEAD_BYTES = MIB
"""Bytes that are read to recognise a file; captured files begin with long help texts."""

_TAR_MAGIC = slice(257, 262)
_MAX_VALUE_BYTES = 4096
_MAX_MEMBERS = 1_000_000
_GENERIC_FOLDERS = frozenset({"infiniband", "class", "sys"})
_NAMED = re.compile(r"([A-Za-z0-9][\w.-]{0,252})=(.+)", re.DOTALL)


def read_files(paths: Sequence[Path]) -> tuple[Fabric, dict[str, NodeTopology]]:
    """Return the fabric of the dumps among the files, empty when there are none, and the nodes of the others.

    Raises
    ------
    InputError
        When nothing can be read.
    """
    node_paths: list[Path] = []
    dumps: list[Path] = []
    for path in paths:
        (node_paths if is_node_file(path) else dumps).append(path)
    fabric = Fabric(switches={}, hcas={}, cables=(), source=", ".join(map(str, node_paths)))
    nodes: dict[str, NodeTopology] = {}
    errors: list[InputError] = []
    if node_paths:
        try:
            nodes = dict(read_node_files(node_paths))
        except InputError as error:
            errors.append(error)
    if dumps:
        try:
            fabric = read_dumps(dumps)
        except InputError as error:
            errors.append(error)
    if errors and not nodes and not fabric.switches:
        raise InputError("; ".join(error.message for error in errors), hint=errors[0].hint)
    faults = tuple(
        Fault(kind="unreadable_file", where=error.message.split(":")[0], evidence=error.message, cost="left out")
        for error in errors
    )
    return replace(fabric, faults=(*fabric.faults, *faults)), nodes


def read_node_files(paths: Iterable[Path]) -> Mapping[str, NodeTopology]:
    """Return the node that each file, or several files together, describe, by host name in natural order.

    A file that cannot be read is a problem of its node.

    Raises
    ------
    InputError
        When none can be read; the message names all.
    """
    topologies: defaultdict[str, list[NodeTopology]] = defaultdict(list)
    errors: list[InputError] = []
    for path in paths:
        host, file = _split_host(path)
        try:
            topologies[host].append(_read_node(file))
        except InputError as error:
            errors.append(error)
            topologies[host].append(NodeTopology(source=str(file), problems=(error.message,)))
    if errors and len(errors) == sum(map(len, topologies.values())):
        raise InputError("; ".join(error.message for error in errors), hint=errors[0].hint)
    return {host: merge_nodes(topologies[host]) for host in sorted(topologies, key=natural_key)}


def is_node_file(path: Path) -> bool:
    """Return whether a file describes a node; ``HOST=FILE`` always does."""
    if path == STDIN:
        return False
    if not path.exists():
        return _NAMED.fullmatch(str(path)) is not None
    if path.is_dir():
        return True
    head = _read_head(path)
    return head[_TAR_MAGIC] == b"ustar" or holds_node(_decode_head(head))


def build_nodes_document(nodes: Mapping[str, NodeTopology], rails: Rails) -> list[dict[str, Any]]:
    """Return the JSON document of each node."""
    return [_build_node_document(name, topology, rails) for name, topology in nodes.items()]


def match_fabric_names(nodes: Mapping[str, NodeTopology], rails: Rails) -> dict[str, NodeTopology]:
    """Return the nodes under the names that the fabric has for them, where it has one with the same first label."""
    short: defaultdict[str, list[str]] = defaultdict(list)
    for name in rails.host_roles:
        short[name.split(".")[0].lower()].append(name)
    renamed: dict[str, NodeTopology] = {}
    for name, topology in nodes.items():
        known = short[name.split(".")[0].lower()]
        renamed[known[0] if name not in rails.host_roles and len(known) == 1 else name] = topology
    return renamed


def compute_affinity(name: str, topology: NodeTopology, rails: Rails) -> Affinity:
    """Return the GPU affinity of a node: to its HCAs on the fabric, else to likely ones."""
    attachments = rails.attachments.get(name, ())
    if attachments and topology.nics:
        return compute_nic_affinity(topology, attachments)
    nics = assign_nics(topology)
    problems = (f"{name}: not on the compute fabric of the dumps",) if rails.leaves and not attachments else ()
    return Affinity(
        nics=nics, paths={gpu: topology.nic_paths[gpu, nic] for gpu, nic in nics.items()}, problems=problems
    )


def _build_node_document(name: str, topology: NodeTopology, rails: Rails) -> dict[str, Any]:
    affinity = compute_affinity(name, topology, rails)
    nearest = {gpu.index: topology.nearest_nics(gpu.index) for gpu in topology.gpus}
    return {
        "node": name,
        "source": topology.source,
        "dialect": topology.dialect,
        "gpus": topology.gpus,
        "nics": topology.nics,
        "affinity": affinity.nics,
        "affinity_paths": affinity.paths,
        "hca_positions": affinity.positions,
        "hca_guids": affinity.guids,
        "nearest_nics": {gpu: {"path": near[0], "nics": near[1]} for gpu, near in nearest.items() if near},
        "gpu_paths": {f"{first}-{second}": str(path) for (first, second), path in topology.gpu_paths.items()},
        "fabric_domain": topology.fabric_domain,
        "contents": topology.contents,
        "problems": [*topology.problems, *affinity.problems],
    }


def _split_host(path: Path) -> tuple[str, Path]:
    """Return the host of a file, and the file."""
    match = _NAMED.fullmatch(str(path))
    if match is not None and not path.exists():
        return match[1], Path(match[2])
    folder = path.resolve()
    while path.is_dir() and folder.name in _GENERIC_FOLDERS:
        folder = folder.parent
    name = folder.name if path.is_dir() else path.name
    return re.split("[.=]", name)[0] or name, path


def _read_node(path: Path) -> NodeTopology:
    """Return the node that one file or folder describes.

    Raises
    ------
    InputError
        When it cannot be read, or describes no node.
    """
    if path.is_dir():
        return read_infiniband_tree(_read_folder(path), source=str(path))
    if not path.exists():
        raise InputError(f"{path}: no such file", hint="give a file that describes a node")
    head = _read_head(path)
    if head[_TAR_MAGIC] == b"ustar":
        files, problem = _read_tar(path)
        topology = read_infiniband_tree(files, source=str(path))
        return merge_nodes([topology, NodeTopology(source=str(path), problems=(problem,))]) if problem else topology
    return read_node(read_text(path), source=str(path))


def _read_head(path: Path) -> bytes:
    """Return the beginning of a file, unpacked; nothing when it cannot be read."""
    try:
        with path.open("rb") as file:
            content = file.read(_HEAD_BYTES)
        if content.startswith(GZIP):
            return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(content, _HEAD_BYTES)
    except (OSError, zlib.error):
        return b""
    return content


def _decode_head(head: bytes) -> str:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return head.decode("utf-16", "replace")
    return head.decode("utf-8", "replace")


def _read_tar(path: Path) -> tuple[dict[str, str], str | None]:
    """Return the sysfs files of a tar archive, and the problem that ended reading early.

    Nothing is unpacked to disk.

    Raises
    ------
    InputError
        It unpacks to more than any archive does.
    """
    files: dict[str, str] = {}
    try:
        content = path.read_bytes() if path.stat().st_size <= MAX_BYTES else b""
        # Unpacked first, with a limit: tarfile would read names of any length into memory.
        content = unpack(content, path) if content.startswith(GZIP) else content
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for number, member in enumerate(archive):
                if number > _MAX_MEMBERS:
                    return files, f"{path}: more than {_MAX_MEMBERS} files, the rest is ignored"
                if member.isfile() and member.name.rsplit("/", 1)[-1] in PORT_FILES | DEVICE_FILES:
                    data = archive.extractfile(member)
                    if data is not None:
                        files[member.name] = data.read(_MAX_VALUE_BYTES).decode("utf-8", "replace")
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        return files, f"{path}: damaged or truncated archive ({error}), the rest is ignored"
    return files, None


def _read_folder(folder: Path) -> dict[str, str]:
    """Return the files that are read of a sysfs tree, whose devices are links to folders elsewhere in it."""
    files: dict[str, str] = {}
    for root in (folder, folder / "infiniband", folder / "class/infiniband", folder / "sys/class/infiniband"):
        for device in _list_entries(root):
            ports = device / "ports"
            if not ports.is_dir():
                continue
            required = [ports / port.name / name for port in _list_entries(ports) for name in sorted(PORT_FILES)]
            required += [device / name for name in sorted(DEVICE_FILES)]
            required += [device / "device" / name for name in ("numa_node", "uevent")]
            for file in required:
                text = _read_value(file)
                if text is not None:
                    files[str(file.relative_to(folder))] = text
    return files


def _list_entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _read_value(file: Path) -> str | None:
    try:
        with file.open("rb") as stream:
            return stream.read(_MAX_VALUE_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
