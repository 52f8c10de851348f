"""Stores the size and the state of a lab between two commands, in one JSON file that is replaced as a whole."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from opsk.errors import InputError, LabError
from opsk.fabric.design import MAX_PORTS
from opsk.hostlist import fold
from opsk.lab.folder import LabFolder, choose_folder
from opsk.lab.processes import Process

MAX_SIZES = {"nodes": 512, "gpus": 16, "hcas": 16, "leaves": 64, "spines": 64}
"""Every node is a real slurmd on this machine, and ibsim's default limits are 256 switches and 2,048 HCAs."""
MAX_HCAS_IN_ALL = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class LabShape:
    """The size of a lab's cluster and of its rail-optimised fabric.

    Raises
    ------
    InputError
        Lists every number that is out of range.
    """

    nodes: int = 16
    gpus: int = 8
    hcas: int = 8
    leaves: int = 8
    spines: int = 4

    def __post_init__(self) -> None:
        wrong = [
            f"{item.name} is {getattr(self, item.name)}, must be 1 to {MAX_SIZES[item.name]}"
            for item in fields(self)
            if not 1 <= getattr(self, item.name) <= MAX_SIZES[item.name]
        ]
        if self.nodes * self.hcas > MAX_HCAS_IN_ALL:
            wrong.append(f"{self.nodes} nodes with {self.hcas} HCAs: ibsim simulates at most {MAX_HCAS_IN_ALL} HCAs")
        if not wrong and self.leaves % self.hcas and self.hcas % self.leaves:
            wrong.append(f"{self.leaves} leaves are neither a divisor nor a multiple of the {self.hcas} HCAs of a node")
        if not wrong and self.leaf_downlinks + self.spines > MAX_PORTS:
            wrong.append(f"a leaf would need more than {MAX_PORTS} ports: use more leaves")
        if wrong:
            raise InputError(
                "this lab is not possible: " + "; ".join(wrong), hint="the default is 16 nodes, 8 GPUs, 8 HCAs"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Node names in order: ``n0``, ``n1``, ..."""
        return tuple(f"n{index}" for index in range(self.nodes))

    @property
    def host_list(self) -> str:
        """All node names as Slurm writes them: ``n[0-15]``."""
        return fold(self.names)

    @property
    def units(self) -> int:
        """Scalable units: groups of nodes that share one leaf a rail."""
        return max(self.leaves // self.hcas, 1)

    @property
    def leaf_downlinks(self) -> int:
        """Cables from a full leaf to nodes."""
        nodes_per_unit = -(-self.nodes // self.units)
        return nodes_per_unit * max(self.hcas // self.leaves, 1)

    @property
    def cables_per_pair(self) -> int:
        """Cables from each leaf to each spine: as many as give full bisection, or as the switches have ports for."""
        of_leaf = (MAX_PORTS - self.leaf_downlinks) // self.spines
        return min(-(-self.leaf_downlinks // self.spines), of_leaf, MAX_PORTS // self.leaves)

    @property
    def oversubscription(self) -> float:
        """Downlink over uplink bandwidth of a full leaf; 1.0 is full bisection."""
        return max(self.leaf_downlinks / (self.cables_per_pair * self.spines), 1.0)

    @property
    def summary(self) -> str:
        """One line for people."""
        return (
            f"{self.nodes} nodes × {self.gpus} GPUs × {self.hcas} HCAs, rail-optimised: "
            f"{self.leaves} leaves, {self.spines} spines"
        )


class LabState(Enum):
    """The state after the last command, or during it when it died."""

    STARTING = "starting"
    UP = "up"
    STOPPING = "stopping"
    DOWN = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """One process that the lab started, and its log; ``process`` is ``None`` until it is known."""

    name: str
    log: Path
    process: Process | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabRecord:
    """One lab: its folder, size, ports and processes.

    Parameters
    ----------
    id
        Eight hexadecimal digits; names the cluster, the ibsim socket and the short link.
    first_port
        slurmctld listens here, slurmdbd on the next one, and one slurmd on each of the following.
    boot
        Boot in which the processes were started; in another one none of them exists.
    parts
        What front ends added, e.g. ``advisor``.
    exporters
        How many nodes, the first ones, have an exporter; each listens on a port after those of the slurmd.
    prometheus
        Whether a Prometheus runs; it listens after the exporters.
    notes
        What parts left out, and why.
    up_s
        How long the start took [s]; ``None`` while it is not finished.
    """

    id: str
    path: Path
    base: Path
    shape: LabShape
    state: LabState
    user: str
    boot: str
    started: datetime
    slurm: tuple[int, int] = (0, 0)
    first_port: int = 0
    parts: tuple[str, ...] = ()
    exporters: int = 0
    prometheus: bool = False
    notes: tuple[str, ...] = ()
    up_s: float | None = None
    daemons: tuple[Daemon, ...] = field(default=())

    @property
    def folder(self) -> LabFolder:
        """The folder of this lab."""
        return LabFolder(path=self.path, base=self.base)

    @property
    def cluster(self) -> str:
        """``ClusterName`` of slurm.conf: each lab counts its jobs from 1, and files are named by cluster and job."""
        return f"lab-{self.id}"

    @property
    def slurmctld_port(self) -> int:
        """TCP port of slurmctld."""
        return self.first_port

    @property
    def slurmdbd_port(self) -> int:
        """TCP port of slurmdbd."""
        return self.first_port + 1

    @property
    def slurmd_ports(self) -> tuple[int, int]:
        """First and last TCP port of the slurmd."""
        return self.first_port + 2, self.first_port + 1 + self.shape.nodes

    @property
    def exporter_ports(self) -> dict[str, int]:
        """TCP port of loopback by node, of the nodes that have an exporter."""
        first = self.slurmd_ports[1] + 1
        return {node: first + at for at, node in enumerate(self.shape.names[: self.exporters])}

    @property
    def prometheus_port(self) -> int:
        """TCP port of Prometheus; 0 where none runs."""
        return self.slurmd_ports[1] + 1 + len(self.exporter_ports) if self.prometheus else 0

    @property
    def port_count(self) -> int:
        """How many neighbouring TCP ports the lab needs."""
        return 2 + self.shape.nodes + len(self.exporter_ports) + int(self.prometheus)

    @property
    def ibsim_socket(self) -> str:
        """Name of the abstract Unix sockets of ibsim (``IBSIM_SOCKNAME``)."""
        return f"opsk-lab-{self.id}"

    def save(self) -> None:
        """Replace the record on disk in one step."""
        target = self.folder.record
        draft = target.with_name(target.name + ".new")
        draft.write_text(json.dumps(asdict(self), default=_json_value, indent=1) + "\n", encoding="utf-8")
        draft.chmod(0o644)
        draft.replace(target)


_RECORD = TypeAdapter(LabRecord)


def new_record(path: Path, *, shape: LabShape, user: str, boot: str) -> LabRecord:
    """Return the record of a lab that is about to start in ``path``."""
    lab_id = secrets.token_hex(4)
    folder = choose_folder(path, lab_id=lab_id)
    return LabRecord(
        id=lab_id,
        path=path,
        base=folder.base,
        shape=shape,
        state=LabState.STARTING,
        user=user,
        boot=boot,
        started=datetime.now(UTC),
    )


def read_record(path: Path) -> LabRecord | None:
    """Return the record of the lab in ``path``; ``None`` when there never was one.

    Raises
    ------
    LabError
        When there is a file, but no record in it, or the record of a lab in another folder.
    """
    file = path / "lab.json"
    try:
        text = file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LabError(f"{file}: {error.strerror}", hint="choose the folder of your lab with --dir") from error
    except UnicodeDecodeError as error:
        raise LabError(
            f"{file}: not a text file", hint="stop its processes with opsk lab down, then remove the folder"
        ) from error
    try:
        record = _RECORD.validate_json(text)
    except ValidationError as error:
        raise LabError(
            f"{file}: no record of a lab ({error.error_count()} fields are wrong)",
            hint="stop its processes with opsk lab down, then remove the folder",
        ) from error
    if record.path != path:
        raise LabError(f"{file} is the record of the lab in {record.path}", hint="was this folder moved or copied?")
    return record


def _json_value(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    return os.fspath(value)
