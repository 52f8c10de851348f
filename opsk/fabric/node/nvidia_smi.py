"""Parses the output of ``nvidia-smi -q`` (text, and XML by ``-x``), ``nvidia-smi nvlink -s`` and ``nvidia-smi -L``.

GPUs are in the order of their index, which the text of ``-q`` does not print. A report of some GPUs only (``-i 3``) is
recognised by the number of attached ones; its indices are then unknown, so they are counted from 0, and a problem is
reported. A link is active when its line ends with a rate: ``<inactive>``, ``(Not supported)`` and whatever a future
driver prints are not. Rates of links are in GB/s, one way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from opsk.fabric.node import pci
from opsk.fabric.node.node_topology import Gpu, NodeTopology
from opsk.fabric.node.xml_tree import Element, read_xml
from opsk.units import GB

_UUID = re.compile(r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
_ABSENT = frozenset({"", "n/a", "not supported", "not available", "none", "unknown error", "invalid"})
_ADDRESS_LINE = re.compile(
    r"^[ \t>|]*GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{1,2}:[0-9A-Fa-f]{1,2}\.[0-7])[ \t\r]*$", re.MULTILINE
)
_TITLE = "NVSMI LOG"
_ZERO_UUID = re.compile(r"(?:GPU-)?[0-]+")
_GPU = re.compile(r"^[ \t>|]*GPU ([0-9]{1,4}): ?(.*?)[ \t]*\(UUID: ([^)\s]*)\)?[ \t\r]*$")
_GPU_LINE = re.compile(_GPU.pattern, re.MULTILINE)
_LINK = re.compile(r"^[ \t>|]*Link ([0-9]{1,3}):[ \t]*(.*?)[ \t\r]*$")
_RATE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) GB/s")
_ALL_INACTIVE = re.compile(r"all links are inactive", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricState:
    """The section ``Fabric`` of ``nvidia-smi -q``, verbatim; ``None`` for values that it lacks."""

    state: str | None = None
    status: str | None = None
    clique: str | None = None
    cluster: str | None = None

    @property
    def domain(self) -> str | None:
        """Return ``ClusterUUID.CliqueId``; ``None`` without either, with a UUID of zeros, or while not registered.

        A node without NVLink to other nodes reports a UUID of zeros.
        """
        cluster, clique = (self.cluster or "").strip(), (self.clique or "").strip()
        if not _UUID.fullmatch(cluster) or not clique.isdecimal() or not int(cluster.replace("-", ""), 16):
            return None
        if self.state and self.state.strip().lower() not in _ABSENT | {"completed"}:
            return None
        return f"{cluster.lower()}.{int(clique)}"

    @property
    def problem(self) -> str | None:
        """Return what is wrong with the registration; ``None`` when nothing is, or the GPU has no fabric."""
        state, status = (self.state or "").strip(), (self.status or "").strip()
        if state.lower() in _ABSENT:
            return None
        if state.lower() != "completed":
            return f"fabric registration is {state}: it is in no NVLink domain now"
        if status.lower() not in _ABSENT | {"success"}:
            return f"fabric registration ended with {status}"
        return None


@dataclass(slots=True, kw_only=True)
class _GpuBlock:
    """The values of one GPU's block, by section and key."""

    bus: str
    line: int
    values: dict[tuple[str, str], str] = field(default_factory=dict)

    def get(self, section: str, *keys: str) -> str | None:
        """Return the first of several spellings of one key."""
        return next((self.values[section, key] for key in keys if (section, key) in self.values), None)


def holds_query(text: str) -> bool:
    """Return whether a text holds such a report."""
    return _ADDRESS_LINE.search(text) is not None


def read_smi_query(text: str, *, source: str) -> NodeTopology | None:
    """Return the GPUs of the first report of a text; ``None`` when there is none."""
    blocks, attached = _split_blocks(text)
    if not blocks:
        return None
    problems: list[str] = []
    gpus: list[Gpu] = []
    for index, block in enumerate(blocks):
        fabric = FabricState(
            state=block.get("fabric", "state"),
            status=block.get("fabric", "status"),
            clique=block.get("fabric", "cliqueid"),
            cluster=block.get("fabric", "clusteruuid"),
        )
        gpu = _build_gpu(
            index, block.bus, block.get("", "product name"), block.get("", "gpu uuid"),
            block.get("mig mode", "current"), fabric,
        )  # fmt: skip
        gpus.append(gpu)
        if fabric.problem:
            problems.append(f"{source}:{block.line}: GPU {gpu.index} ({block.bus}): {fabric.problem}")
    return _build_topology(gpus, attached, problems, source, "smi_query")


def read_smi_query_xml(text: str, *, source: str) -> NodeTopology:
    """Return the GPUs of an ``nvidia_smi_log``.

    Raises
    ------
    InputError
        When there is no such element, or the file declares entities.
    """
    root, problems = read_xml(text, source=source)
    gpus: list[Gpu] = []
    for index, element in enumerate(entry for entry in root.children if entry.tag == "gpu"):
        address = element.get("id") or element.text_at("pci", "pcibusid") or ""
        fabric = _fabric(element)
        gpu = _build_gpu(
            index, address, element.text_at("productname"), element.text_at("uuid"),
            element.text_at("migmode", "currentmig"), fabric,
        )  # fmt: skip
        gpus.append(gpu)
        if fabric.problem:
            problems.append(f"{source}:{element.line}: GPU {index} ({address}): {fabric.problem}")
    return _build_topology(gpus, _count(root.text_at("attachedgpus")), problems, source, "smi_query_xml")


def _fabric(element: Element) -> FabricState:
    return FabricState(
        state=element.text_at("fabric", "state"),
        status=element.text_at("fabric", "status"),
        clique=element.text_at("fabric", "cliqueid"),
        cluster=element.text_at("fabric", "clusteruuid"),
    )


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,6}", text) else None


def _split_blocks(text: str) -> tuple[list[_GpuBlock], int | None]:
    """Return the blocks of the first report, one a GPU, and the number of attached GPUs that it reports."""
    lines = _first_report(text)
    blocks: list[_GpuBlock] = []
    seen: set[str] = set()
    attached: int | None = None
    section = ""
    for number, line in lines:
        match = _ADDRESS_LINE.match(line)
        if match:
            if match[1] in seen:
                break  # a second report of the same GPUs, later in time
            seen.add(match[1])
            blocks.append(_GpuBlock(bus=match[1], line=number))
            section = ""
            continue
        if line[:1] == "#" and blocks:
            break  # the next section of a captured file
        key, colon, value = line.partition(" : ")
        name = key.strip(" \t>|").lower()
        if not colon:
            section = name.rstrip(": \t") or section
        elif not blocks:
            attached = _count(value.strip()) if name == "attached gpus" else attached
        else:
            # Keys of a GPU itself are recognised by their name: the text may have lost its indentation.
            is_gpu_key = name in {"product name", "gpu uuid"}
            blocks[-1].values.setdefault(("" if is_gpu_key else section, name), value.strip())
    return blocks, attached


def _first_report(text: str) -> Iterator[tuple[int, str]]:
    """Return the numbered lines from the title, or the first GPU, to the end or the next title."""
    lines = text.splitlines()
    titles = [number for number, line in enumerate(lines) if _TITLE in line]
    start = titles[0] if titles else 0
    stop = titles[1] if len(titles) > 1 else len(lines)
    return ((number + 1, lines[number]) for number in range(start, stop))


def _build_gpu(
    index: int, address: str, model: str | None, uuid: str | None, mig: str | None, fabric: FabricState
) -> Gpu:
    return Gpu(
        index=index,
        uuid=parse_uuid(uuid),
        pci=pci.parse_bus_id(address),
        model=model if model and model.upper() != "N/A" else None,
        mig={"enabled": True, "disabled": False}.get((mig or "").lower()),
        fabric_domain=fabric.domain,
    )


def parse_uuid(text: str | None) -> str | None:
    """Return a GPU's UUID; ``None`` for none, and for one of zeros, which means that it was masked."""
    uuid = (text or "").strip()
    return None if not uuid.startswith("GPU-") or _ZERO_UUID.fullmatch(uuid) else uuid


def _build_topology(
    gpus: Iterable[Gpu], attached: int | None, problems: list[str], source: str, dialect: str
) -> NodeTopology:
    described = tuple(gpus)
    if attached is not None and attached != len(described):
        problems.append(
            f"{source}: {attached} GPUs are attached, {len(described)} are described: cut, or a report of some only; "
            f"indices are counted from 0"
        )
    return NodeTopology(
        gpus=described,
        source=source,
        dialect=dialect,
        contents={"gpus": len(described), "attached_gpus": attached},
        problems=tuple(problems),
    )


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
