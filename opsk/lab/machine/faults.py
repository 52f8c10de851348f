"""Breaks and repairs a GPU, an HCA, a leaf switch or an NVLink domain of a lab.

A fault is written where the node's exporter reads: the state of the NVML stand-in, sysfs and the kernel log. It shows
in the next scrape. Only nodes with an exporter have devices that can break; Slurm and the simulated subnet are not
informed, as with a real fault.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from opsk.errors import InputError, LabError
from opsk.hardware.xids import xid
from opsk.lab.folder import LabFolder
from opsk.lab.machine.clock import change, list_machine_folders
from opsk.lab.machine.gpus import make_h100
from opsk.lab.machine.machine import LOST_BY_XID, DeviceFault, MachineFolder, SimulatedNode, XidReport, load_machine
from opsk.lab.machine.sysfs import pci_address
from opsk.lab.machine.work import find_work
from opsk.telemetry.kernel_log import boot_unix_s

_DOMAIN_XID = 74
_MAX_XIDS = 64
_MAX_XID = 9999
_INDEX = re.compile(r"[0-9]{1,3}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFault:
    """A fault, and the node that has it."""

    node: str
    fault: DeviceFault


def list_machines(lab: LabFolder) -> tuple[MachineFolder, ...]:
    """Return the nodes with devices; none where the lab is down or has no exporters."""
    top = lab.nodes
    return list_machine_folders(top) if top.is_dir() else ()


def list_faults(lab: LabFolder) -> tuple[NodeFault, ...]:
    """Return all that is broken."""
    return tuple(
        NodeFault(node=folder.name, fault=fault)
        for folder in list_machines(lab)
        for fault in load_machine(folder).faults
    )


def break_gpu(lab: LabFolder, node: str, index: int, code: int = LOST_BY_XID) -> tuple[NodeFault, ...]:
    """Report an XID of a GPU through the driver, with its consequences; 79: the GPU is lost.

    Raises
    ------
    InputError
        There is no such node, GPU or XID.
    """
    folder = _find_node(lab, node)
    gpus = load_machine(folder).gpus
    if not 0 <= index < gpus:
        raise InputError(f"{node} has no GPU {index}", hint=f"its GPUs are 0 to {gpus - 1}")
    if not 1 <= code <= _MAX_XID:
        raise InputError(f"{code} is no XID", hint=f"XIDs are 1 to {_MAX_XID}")
    return _add_fault(lab, (folder,), DeviceFault(kind="gpu", what=str(index), xid=code), xids=((index, code),))


def break_nic(lab: LabFolder, node: str, device: str) -> tuple[NodeFault, ...]:
    """Take an HCA's link away; ``device`` is its name or its number.

    Raises
    ------
    InputError
        There is no such node or HCA.
    """
    folder = _find_node(lab, node)
    name = _find_device(load_machine(folder), device)
    return _add_fault(lab, (folder,), DeviceFault(kind="nic", what=name))


def break_leaf(lab: LabFolder, leaf: str) -> tuple[NodeFault, ...]:
    """Take the links to a leaf switch away, by its name or its GUID.

    Raises
    ------
    InputError
        No node with an exporter is cabled to such a leaf.
    """
    name, folders = _find_leaf(lab, leaf)
    return _add_fault(lab, folders, DeviceFault(kind="leaf", what=name))


def break_domain(lab: LabFolder, node: str) -> tuple[NodeFault, ...]:
    """Break the NVLink domain of a node: no link is up, and each GPU reports XID 74.

    Raises
    ------
    InputError
        There is no such node.
    """
    folder = _find_node(lab, node)
    gpus = range(load_machine(folder).gpus)
    return _add_fault(
        lab, (folder,), DeviceFault(kind="domain", what=node), xids=tuple((gpu, _DOMAIN_XID) for gpu in gpus)
    )


def repair(lab: LabFolder, kind: str | None = None, *what: str) -> tuple[NodeFault, ...]:
    """Repair faults and return them: all, all of a kind, or one, with the arguments that broke it.

    Raises
    ------
    InputError
        Nothing of the kind is broken.
    """
    is_selected = _build_selector(lab, kind, what)
    broken = [node_fault for node_fault in list_faults(lab) if is_selected(node_fault)]
    if not broken and kind is not None:
        raise InputError(f"not broken: {' '.join((kind, *what))}", hint="opsk lab status lists what is")
    folders = [folder for folder in list_machines(lab) if folder.name in {node_fault.node for node_fault in broken}]

    def without(machine: SimulatedNode) -> SimulatedNode:
        left = [
            node_fault
            for node_fault in machine.faults
            if not is_selected(NodeFault(node=machine.node, fault=node_fault))
        ]
        return replace(machine, faults=tuple(left))

    _edit_machines(lab, folders, without)
    return tuple(broken)


def _build_selector(lab: LabFolder, kind: str | None, what: tuple[str, ...]) -> Callable[[NodeFault], bool]:
    """Return the function that selects the faults to repair."""
    if kind is None or not what:
        return lambda node_fault: kind in (None, node_fault.fault.kind)
    if kind == "leaf":
        name = _find_leaf(lab, what[0])[0]
        return lambda node_fault: (node_fault.fault.kind, node_fault.fault.what) == ("leaf", name)
    folder = _find_node(lab, what[0])
    if kind == "domain" or len(what) == 1:
        return lambda node_fault: (node_fault.fault.kind, node_fault.node) == (kind, folder.name)
    part = (
        _find_device(load_machine(folder), what[1])
        if kind == "nic"
        else str(int(what[1]))
        if what[1].isdecimal()
        else ""
    )
    return lambda node_fault: (
        (node_fault.fault.kind, node_fault.node, node_fault.fault.what) == (kind, folder.name, part)
    )


def _add_fault(
    lab: LabFolder, folders: Iterable[MachineFolder], fault: DeviceFault, *, xids: tuple[tuple[int, int], ...] = ()
) -> tuple[NodeFault, ...]:
    folders = tuple(folders)

    def break_gpu(machine: SimulatedNode) -> SimulatedNode:
        last = machine.reported_xids[-1].number if machine.reported_xids else 0
        reports = [XidReport(number=last + index, gpu=gpu, xid=code) for index, (gpu, code) in enumerate(xids, 1)]
        known = machine.faults if fault in machine.faults else (*machine.faults, fault)
        changed = replace(machine, faults=known, reported_xids=(*machine.reported_xids, *reports)[-_MAX_XIDS:])
        went_down = [changed.is_down(hca) and not machine.is_down(hca) for hca in machine.hcas]
        return replace(changed, downs=tuple(old + new for old, new in zip(machine.downs, went_down, strict=True)))

    for folder in folders:
        before = load_machine(folder)
        after = replace(before, faults=(*before.faults, fault))
        gone = [index for index, hca in enumerate(before.hcas) if after.is_down(hca) and not before.is_down(hca)]
        lines = [line for gpu, code in xids for line in _format_xid_lines(gpu, code)]
        _append_kernel_log(
            folder, [*lines, *(f"mlx5_core {pci_address(index)} ib{index}: Link down" for index in gone)]
        )
    _edit_machines(lab, folders, break_gpu)
    return tuple(NodeFault(node=folder.name, fault=fault) for folder in folders)


def _edit_machines(
    lab: LabFolder, folders: Iterable[MachineFolder], edit: Callable[[SimulatedNode], SimulatedNode]
) -> None:
    folders = tuple(folders)
    work = find_work(folders, lab.slurm_conf, time.time())
    for folder in folders:
        change(folder, work[folder.name], edit)


def _format_xid_lines(gpu: int, code: int) -> tuple[str, ...]:
    """Return the messages of NVIDIA's driver on an XID."""
    function = str(make_h100(gpu).keys["pci.bus_id"]).removeprefix("0000").lower()
    device = function.removesuffix(".0")
    if code == LOST_BY_XID:
        gone = "GPU has fallen off the bus."
        return (f"NVRM: Xid (PCI:{device}): {code}, {gone}", f"NVRM: GPU {function}: {gone}")
    return (f"NVRM: Xid (PCI:{device}): {code}, {xid(code).meaning or 'unknown'}",)


def _append_kernel_log(folder: MachineFolder, lines: Sequence[str]) -> None:
    """Add lines to the node's kernel log, in the form of /dev/kmsg."""
    since_boot_us = int((time.time() - boot_unix_s()) * 1e6)
    number = len(folder.kernel_log.read_bytes().splitlines())
    with folder.kernel_log.open("a", encoding="ascii") as log:
        for index, line in enumerate(lines):
            words = line.encode("ascii", "replace").decode("ascii")
            log.write(f"3,{number + index},{since_boot_us + index},-;{words}\n")


def _find_node(lab: LabFolder, name: str) -> MachineFolder:
    known = list_machines(lab)
    if not known:
        raise LabError("no node of this lab has devices that can break", hint="opsk lab up (with exporters) makes some")
    for folder in known:
        if folder.name == name:
            return folder
    names = ", ".join(folder.name for folder in known)
    raise InputError(
        f"{name}: only nodes with an exporter have devices: {names}", hint="more of them: opsk lab up --exporters N"
    )


def _find_device(machine: SimulatedNode, given: str) -> str:
    names = [hca.device for hca in machine.hcas]
    name = f"mlx5_{int(given)}" if _INDEX.fullmatch(given) else given
    if name not in names:
        raise InputError(f"{machine.node} has no HCA {given}", hint=f"it has {', '.join(names)}")
    return name


def _find_leaf(lab: LabFolder, given: str) -> tuple[str, tuple[MachineFolder, ...]]:
    """Return a leaf's name, and the nodes that are cabled to it."""
    folders_of_leaf: dict[str, list[MachineFolder]] = {}
    for folder in list_machines(lab):
        for hca in load_machine(folder).hcas:
            if folder not in folders_of_leaf.setdefault(hca.leaf, []):
                folders_of_leaf[hca.leaf].append(folder)
            if given.lower().removeprefix("0x").zfill(16) == hca.switch.zfill(16):
                given = hca.leaf
    if given not in folders_of_leaf:
        known = ", ".join(sorted(name for name in folders_of_leaf if name)) or "none"
        raise InputError(f"no node with an exporter is cabled to a leaf {given}", hint=f"leaves: {known}")
    return given, tuple(folders_of_leaf[given])
