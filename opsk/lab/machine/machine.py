"""Defines a simulated node of the lab: its devices, its faults, and the folder with its files.

Nodes of a lab are processes of one machine without GPUs, HCAs and meters. A node with an exporter gets a folder of its
own: a sysfs tree, a state file of the NVML stand-in, a kernel log, a folder of jobs. ``machine.json`` in it holds what
these are derived from; a process that changes it holds the folder's lock.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from opsk.errors import LabError

LOST_BY_XID = 79
_LOCK = ".lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hca:
    """An HCA of a node: node GUID and LID as the subnet has them, and the leaf that its port is cabled to."""

    device: str
    guid: str = ""
    leaf: str = ""
    switch: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFault:
    """A fault of a device.

    Parameters
    ----------
    kind
        ``gpu``, ``nic``, ``leaf`` or ``domain``.
    what
        Index of the GPU, device of the HCA, name of the leaf, name of the node.
    xid
        XID that the driver reports of a GPU; 0 for all others.
    """

    kind: str
    what: str
    xid: int = 0

    @property
    def shown(self) -> str:
        """The fault as arguments of ``opsk lab break``, without the node."""
        return f"{self.kind} {self.what}" + (f" --xid {self.xid}" if self.xid else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class XidReport:
    """An XID that the driver reported: its number in the queue of events, the GPU's index, the code."""

    number: int
    gpu: int
    xid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedNode:
    """One node at one moment.

    Parameters
    ----------
    node, number
        Its name, and its place among the lab's nodes.
    at_unix_s
        When the counters were true [s since 1970].
    energy_j, power_w
        Of each GPU since the start of the lab, and now.
    link_bytes, link_bytes_per_s
        NVLink of each GPU, in each direction.
    port_bytes, port_bytes_per_s
        Of each HCA's port, in each direction.
    downs
        How often each port went down.
    processors_j, processors_w
        Of both sockets together.
    job_cpu_s
        By job: CPU time used.
    reported_xids
        XIDs, oldest first.
    """

    node: str
    number: int
    gpus: int
    hcas: tuple[Hca, ...]
    at_unix_s: float
    energy_j: tuple[float, ...]
    power_w: tuple[float, ...]
    link_bytes: tuple[float, ...]
    link_bytes_per_s: tuple[float, ...]
    port_bytes: tuple[float, ...]
    port_bytes_per_s: tuple[float, ...]
    downs: tuple[int, ...]
    processors_j: float = 0.0
    processors_w: float = 0.0
    job_cpu_s: dict[str, float] = field(default_factory=dict)
    faults: tuple[DeviceFault, ...] = ()
    reported_xids: tuple[XidReport, ...] = ()

    def is_down(self, hca: Hca) -> bool:
        """Return whether an HCA's port has no link."""
        return any(
            (fault.kind, fault.what) in (("nic", hca.device), ("leaf", hca.leaf), ("leaf", hca.switch))
            for fault in self.faults
        )

    def list_xids(self, gpu: int) -> tuple[int, ...]:
        """Return the XIDs of a GPU's faults."""
        return tuple(fault.xid for fault in self.faults if (fault.kind, fault.what) == ("gpu", str(gpu)))

    @property
    def is_domain_broken(self) -> bool:
        """Whether the node's NVLink domain is broken."""
        return any(fault.kind == "domain" for fault in self.faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFolder:
    """The files of a node that its exporter reads."""

    root: Path

    @property
    def name(self) -> str:
        """Name of the node."""
        return self.root.name

    @property
    def sysfs(self) -> Path:
        """InfiniBand, powercap, hwmon, control groups."""
        return self.root / "sys"

    @property
    def jobs(self) -> Path:
        """Files of the prolog."""
        return self.root / "jobs"

    @property
    def kernel_log(self) -> Path:
        """Records as /dev/kmsg has them."""
        return self.root / "kmsg"

    @property
    def nvml_state(self) -> Path:
        """State of the NVML stand-in."""
        return self.root / "nvml.state"

    @property
    def settings(self) -> Path:
        """Value of ``OPSK_CONFIG`` for this node's exporter."""
        return self.root / "opsk.toml"

    @property
    def machine(self) -> Path:
        """The state from which all other files are derived."""
        return self.root / "machine.json"


_MACHINE = TypeAdapter(SimulatedNode)


def new_machine(node: str, number: int, *, gpus: int, hcas: tuple[Hca, ...], at_unix_s: float) -> SimulatedNode:
    """Return an idle node with all counters at zero."""
    idle_gpus, idle_ports = (0.0,) * gpus, (0.0,) * len(hcas)
    return SimulatedNode(
        node=node, number=number, gpus=gpus, hcas=hcas, at_unix_s=at_unix_s,
        energy_j=idle_gpus, power_w=idle_gpus, link_bytes=idle_gpus, link_bytes_per_s=idle_gpus,
        port_bytes=idle_ports, port_bytes_per_s=idle_ports, downs=(0,) * len(hcas),
    )  # fmt: skip


def load_machine(folder: MachineFolder) -> SimulatedNode:
    """Read the state of a node.

    Raises
    ------
    LabError
        It cannot be read.
    """
    try:
        return _MACHINE.validate_json(folder.machine.read_bytes())
    except OSError as error:
        raise LabError(f"{folder.machine}: {error.strerror}", hint="is the lab up?") from error
    except ValidationError as error:
        raise LabError(f"{folder.machine}: no node of a lab", hint="opsk lab down, then up again") from error


def save_machine(folder: MachineFolder, machine: SimulatedNode) -> None:
    """Write the state of a node."""
    replace_file(folder.machine, json.dumps(asdict(machine), default=_to_list))


@contextmanager
def lock_folder(folder: MachineFolder) -> Iterator[None]:
    """Lock the node against other changes."""
    with (folder.root / _LOCK).open("ab") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def replace_file(path: Path, text: str) -> None:
    """Replace a file in one step: readers see the old content or the new one, never a part."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def _to_list(value: Any) -> Any:
    return list(value)
