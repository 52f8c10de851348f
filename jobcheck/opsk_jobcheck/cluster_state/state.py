"""Defines the live state of the cluster, and passes it between processes as files.

One process asks Slurm; the workers read the result from one memory-mapped file per state. A file is a JSON text
followed by arrays, which are mapped, not read, so all workers share one copy. A new state is a new file behind the link
``current``; the name of the file is its generation. Only the time of the last successful round changes in place. The
folder belongs to the advisor's user alone.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from opsk.app.interference.jobs import ActiveTraffic
from opsk.lru_cache import LruCache
from opsk.planning.interference.links import FabricLinks
from opsk.planning.interference.load import Load, LoadKind
from opsk.planning.interference.measured import StorageRates
from opsk.planning.interference.running_loads import RunningLoads
from opsk.planning.placement.step_model import StepModel
from opsk.planning.routing.traffic import AXES
from opsk.slurm.records import JobRecord, NodeRecord, PartitionRecord
from opsk.workload.completion import Assumption
from opsk_jobcheck.cluster_state.node_constraints import NodeConstraints, build_feature_test
from opsk_jobcheck.cluster_state.state_header import CLOCK_AT, CURRENT, HEAD, MAGIC, MAX_AGE_S, LiveHead
from opsk_jobcheck.submission.request import SlurmRequest

_HARMLESS_FLAGS = frozenset({"CLOUD", "DYNAMIC", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})
"""Flags of a node's state with which it still takes a job; others (DRAIN, RESERVED, PLANNED, ...) prevent that."""
_MAX_CACHED = 16
"""Number of queries for free nodes whose results are cached."""
_ALIGNED = 64
_SAMPLED = 4096
_ARRAYS = ("job", "link", "burst", "utilisation", "demand", "total", "present", "stretch_factor", "tightest")
_JOB_FIELDS = ("id", "label", "user", "name", "state")
_NODE_FIELDS = ("state", "state_flags", "partitions", "features", "gpus", "gpus_used", "gpu_type", "cpus", "cpus_used")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveState:
    """The cluster in Slurm's last answer.

    Parameters
    ----------
    nodes
        All nodes.
    running
        Number of jobs that hold nodes, as far as they are visible.
    hidden_nodes
        Nodes that are allocated and that no visible job holds (``PrivateData``).
    age_s
        Age of Slurm's answer [s].
    source
        The source, for display (``squeue and sinfo of Slurm 22.05``).
    topology
        Slurm's own topology: ``tree``, ``block``, ``flat``; ``None`` where it was not queried.
    default_partition
        The partition of jobs that name none; ``None`` where it was not queried, or there is none.
    min_nodes
        Nodes of a job that asks for no number, by partition; of those that are not here one.
    partitions
        What each partition gives its jobs by default and at most, by name; empty where it was not queried.
    wire
        The load of running jobs and storage on the links; ``None`` while it is being computed.
    around
        The total load of the links above each leaf, by guid [links].
    generation
        Changes whenever nodes or jobs do.
    recent_free
        Cached free nodes of recent queries, shared with later copies of the same state.
    """

    nodes: tuple[NodeRecord, ...]
    running: int = 0
    hidden_nodes: int = 0
    age_s: float = 0.0
    source: str = "Slurm"
    topology: str | None = None
    default_partition: str | None = None
    min_nodes: Mapping[str, int] = field(default_factory=dict)
    partitions: Mapping[str, PartitionRecord] = field(default_factory=dict)
    wire: ActiveTraffic | None = None
    around: Mapping[str, float] = field(default_factory=dict)
    generation: str = ""
    recent_free: LruCache[tuple[tuple[NodeRecord, ...], tuple[str, ...]]] = field(
        default_factory=lambda: LruCache(_MAX_CACHED), repr=False, compare=False
    )

    @property
    def is_fresh(self) -> bool:
        """False where it is too old to describe the present."""
        return self.age_s <= MAX_AGE_S

    def possible(
        self, constraints: NodeConstraints, *, gpus: int = 0, gpu_type: str | None = None
    ) -> tuple[NodeRecord, ...]:
        """Return the nodes that the job may get at some time.

        Parameters
        ----------
        gpus
            GPUs on each node that it needs; ignored where Slurm counts no GPUs at all.
        gpu_type
            As requested from Slurm; nodes whose GPUs have no type are not left out.
        """
        gpus = gpus if any(node.gpus for node in self.nodes) else 0
        has_features = build_feature_test(constraints.constraint) if constraints.constraint else None
        kind = gpu_type.lower() if gpu_type else None
        return tuple(
            node
            for node in self.nodes
            if node.is_usable
            and node.gpus >= gpus
            and (not kind or not node.gpu_type or node.gpu_type.lower() == kind)
            and (not constraints.partitions or not set(constraints.partitions).isdisjoint(node.partitions))
            and (has_features is None or has_features(node.features))
            and node.name not in constraints.exclude
        )

    def free(self, constraints: NodeConstraints, *, gpus: int = 0, gpu_type: str | None = None) -> tuple[str, ...]:
        """Return the nodes among them that can start the job at once."""

        def compute() -> tuple[tuple[NodeRecord, ...], tuple[str, ...]]:
            possible = self.possible(constraints, gpus=gpus, gpu_type=gpu_type)
            free = (node.name for node in possible if is_free(node, gpus, is_exclusive=constraints.is_exclusive))
            return self.nodes, tuple(free)

        return self.recent_free.get((id(self.nodes), constraints, gpus, gpu_type), compute)[1]

    def fill_min_nodes(self, request: SlurmRequest, default_partition: str | None = None) -> SlurmRequest:
        """Return a request without a number of nodes with the one of its partition (``MinNodes``).

        Parameters
        ----------
        default_partition
            The partition of jobs that name none, where the site configures it; it takes precedence over Slurm's.
        """
        if not request.is_left_to_partition:
            return request
        names = (request.partition or default_partition or self.default_partition or "").split(",")
        counts = {self.min_nodes.get(name, 1) for name in names}
        if counts == {1}:
            return request
        # the number of tasks was filled in for one node
        return replace(request, nodes=counts.pop() if len(counts) == 1 else None, ntasks=None)

    def fill_default_time(self, request: SlurmRequest, default_partition: str | None = None) -> SlurmRequest:
        """Return a request with the time limit that its partition gives a job without one (``DefaultTime``).

        Without it that is the partition's ``MaxTime``: slurm.conf(5). Of several partitions none is known.
        """
        name = request.partition or default_partition or self.default_partition or ""
        record = self.partitions.get(name)
        if record is None or record.default_time_s is None:
            return request
        text = f"DefaultTime of partition {name[:40]}"
        return replace(request, default_time_s=float(record.default_time_s), default_time_source=text)


def is_free(node: NodeRecord, gpus: int, *, is_exclusive: bool = False) -> bool:
    """Return whether a node can start a job that uses so many of its GPUs at once.

    A node that holds a job counts where enough GPUs, and at least the same share of the CPUs, are left.
    """
    if not node.is_usable or not _HARMLESS_FLAGS.issuperset(node.state_flags):
        return False
    if node.state == "IDLE":
        return True
    if node.state != "MIXED" or is_exclusive or not 0 < gpus <= node.gpus - node.gpus_used:
        return False
    return node.cpus_used * node.gpus <= node.cpus * (node.gpus - gpus)


def fingerprint(fabric_links: FabricLinks) -> str:
    """Return a digest that is equal for processes that number the links of a fabric in the same way."""
    digest = hashlib.sha256(fabric_links.rates.tobytes())
    digest.update("\n".join(f"{hca.guid} {hca.device}" for hca in fabric_links.hcas).encode())
    every = max(1, fabric_links.switch_links // _SAMPLED)
    digest.update(
        "\n".join(" ".join(fabric_links.ends(link)) for link in range(0, fabric_links.switch_links, every)).encode()
    )
    return digest.hexdigest()[:16]


class LiveWriter:
    """Writes successive states into a folder.

    Parameters
    ----------
    folder
        A folder of the advisor's own user, which the caller has made.
    fabric
        The `fingerprint` of the link numbers of the loads.
    """

    def __init__(self, folder: Path, fabric: str) -> None:
        self._folder = folder
        self._fabric = fabric
        self._number = 0
        self._current: Path | None = None
        self._written = b""

    def write(self, state: LiveState, *, queried_at_s: float) -> None:
        """Write a state where it is a new one; readers of the previous one keep it mapped as long as they need it."""
        content = _pack(state, self._fabric, queried_at_s)
        digest = hashlib.sha256(memoryview(content)[HEAD.size :]).digest()
        if digest == self._written:
            self.confirm(queried_at_s=queried_at_s)
            return
        self._number += 1
        path = self._folder / f"state-{os.getpid()}-{self._number}"
        path.write_bytes(content)
        link = self._folder / f"{CURRENT}.new"
        link.unlink(missing_ok=True)
        link.symlink_to(path.name)
        link.rename(self._folder / CURRENT)
        self._written = digest
        for old in self._folder.glob("state-*"):
            if old != path:
                old.unlink(missing_ok=True)
        self._current = path

    def confirm(self, *, queried_at_s: float) -> None:
        """Record that nothing has changed up to now."""
        if self._current is None:
            return
        with self._current.open("r+b") as file:
            file.seek(CLOCK_AT)
            file.write(struct.pack("<d", queried_at_s))


class LiveReader:
    """Reads the latest state of a folder, each state once.

    Parameters
    ----------
    clock
        The machine's monotonic clock, the same for all processes [s].
    fabric
        The `fingerprint` of the reader's own links; loads with other link numbers are not used.
    """

    def __init__(self, folder: Path, clock: Callable[[], float], fabric: str) -> None:
        self._head = LiveHead(folder, clock)
        self._fabric = fabric
        self._read: mmap.mmap | None = None
        self._state: LiveState | None = None

    def state(self) -> LiveState | None:
        """Return the present state with its age; ``None`` where there is none of this fabric."""
        name, mapped, age_s = self._head.generation(), self._head.map_file(), self._head.age_s()
        if mapped is None or age_s is None:
            return None
        if mapped is not self._read:
            self._state = _unpack(mapped, name, self._fabric)
            self._read = mapped
        return None if self._state is None else replace(self._state, age_s=age_s)


def _pack(state: LiveState, fabric: str, queried_at_s: float) -> bytes:
    """Return a state as the content of a file."""
    running = state.wire.running if state.wire is not None else None
    arrays = [getattr(running, name) for name in _ARRAYS] if running is not None else []
    blocks = [np.ascontiguousarray(array) for array in arrays]
    document = {
        "fabric": fabric,
        "running": state.running,
        "hidden_nodes": state.hidden_nodes,
        "source": state.source,
        "topology": state.topology,
        "default_partition": state.default_partition,
        "least_nodes": dict(state.min_nodes),
        "partitions": [asdict(part) for part in state.partitions.values()],
        "around": dict(state.around),
        "nodes": _pack_nodes(state.nodes),
        "wire": _pack_traffic(state.wire) if state.wire is not None else None,
        "arrays": [[block.dtype.str, list(block.shape)] for block in blocks],
    }
    text = json.dumps(document).encode("ascii")
    pieces = [HEAD.pack(MAGIC, queried_at_s, len(text)), text]
    size = HEAD.size + len(text)
    for block in blocks:
        pieces += [b"\0" * (-size % _ALIGNED), block.tobytes()]
        size += -size % _ALIGNED + block.nbytes
    return b"".join(pieces)


def _unpack(mapped: mmap.mmap, name: str, fabric: str) -> LiveState | None:
    """Return the state in a file; ``None`` where its link numbers differ."""
    length = int(HEAD.unpack_from(mapped)[2])
    document = json.loads(mapped[HEAD.size : HEAD.size + length])
    if fabric and document["fabric"] != fabric:
        return None
    offset_bytes = HEAD.size + length
    arrays: list[npt.NDArray[Any]] = []
    for kind, shape in document["arrays"]:
        offset_bytes += -offset_bytes % _ALIGNED
        count = int(np.prod(shape, dtype=np.int64))
        flat = (
            np.frombuffer(mapped, dtype=np.dtype(kind), count=count, offset=offset_bytes)
            if count
            else np.empty(0, kind)
        )
        arrays.append(flat.reshape(shape))
        offset_bytes += flat.nbytes
    return LiveState(
        nodes=_unpack_nodes(document["nodes"]),
        running=document["running"],
        hidden_nodes=document["hidden_nodes"],
        source=document["source"],
        topology=document["topology"],
        default_partition=document["default_partition"],
        min_nodes=document["least_nodes"],
        partitions={part["name"]: PartitionRecord(**part) for part in document["partitions"]},
        around=document["around"],
        wire=_unpack_traffic(document["wire"], arrays) if document["wire"] is not None else None,
        generation=name,
    )


def _pack_nodes(nodes: tuple[NodeRecord, ...]) -> list[list[Any]]:
    """Return nodes in groups that share all fields but the name."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    for node in nodes:
        groups.setdefault(tuple(getattr(node, name) for name in _NODE_FIELDS), []).append(node.name)
    return [[*values, names] for values, names in groups.items()]


def _unpack_nodes(groups: list[list[Any]]) -> tuple[NodeRecord, ...]:
    """Return the nodes of all groups."""
    nodes = []
    for *values, names in groups:
        shared_fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in zip(_NODE_FIELDS, values, strict=True)
        }
        nodes += [NodeRecord(name=name, **shared_fields) for name in names]
    return tuple(nodes)


def _pack_traffic(wire: ActiveTraffic) -> dict[str, Any]:
    """Return the traffic, without its arrays."""
    storage = wire.storage
    return {
        "loads": [_pack_load(load) for load in wire.running.loads],
        "jobs": [[*(getattr(job, name) for name in _JOB_FIELDS), job.nodes] for job in wire.jobs.values()],
        "known_as": dict(wire.known_as),
        "servers": list(wire.servers),
        "storage": [storage.read_bytes_per_s, storage.write_bytes_per_s] if storage is not None else None,
        "storage_from": wire.storage_from,
        "assumed": [[item.field, item.value, item.why] for item in wire.assumed],
    }


def _unpack_traffic(document: dict[str, Any], arrays: list[npt.NDArray[Any]]) -> ActiveTraffic:
    """Return the traffic."""
    jobs = [
        JobRecord(**dict(zip(_JOB_FIELDS, row[:-1], strict=True)), nodes=tuple(row[-1])) for row in document["jobs"]
    ]
    storage = document["storage"]
    return ActiveTraffic(
        running=RunningLoads(
            loads=tuple(_unpack_load(row) for row in document["loads"]),
            **dict(zip(_ARRAYS, arrays, strict=True)),
        ),
        jobs={job.label: job for job in jobs},
        known_as=document["known_as"],
        servers=tuple(document["servers"]),
        storage=StorageRates(read_bytes_per_s=storage[0], write_bytes_per_s=storage[1]) if storage else None,
        storage_from=document["storage_from"],
        assumed=tuple(Assumption(field=field, value=value, why=why) for field, value, why in document["assumed"]),
    )


def _pack_load(load: Load) -> list[Any]:
    """Return a load without its links, which are in the common arrays."""
    step = [_to_list(getattr(load.step, field.name)) for field in fields(StepModel)]
    return [load.name, load.kind.value, load.axis_s.tolist(), load.step_s, step, load.nodes]


def _unpack_load(row: list[Any]) -> Load:
    """Return a load without links of its own."""
    name, kind, axis_s, step_s, step, nodes = row
    values = {field.name: _to_array(value) for field, value in zip(fields(StepModel), step, strict=True)}
    return Load(
        name=name,
        kind=LoadKind(kind),
        links=np.empty(0, dtype=np.int64),
        burst=np.empty((len(AXES), 0)),
        axis_s=np.array(axis_s, dtype=np.float64),
        utilisation=np.empty(0),
        step=StepModel(**values),
        step_s=step_s,
        nodes=tuple(nodes),
    )


def _to_list(value: object) -> object:
    """Return an array as a list."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _to_array(value: Any) -> Any:
    """Return a list as an array."""
    return np.array(value, dtype=np.float64) if isinstance(value, list) else value
