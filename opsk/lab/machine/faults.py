"""How is a GPU, an HCA, a leaf switch or an NVLink domain of a lab broken, and repaired?

What is broken is written where the node's exporter reads: the state of the NVML stand-in, sysfs and the kernel log. It
shows in the next scrape. Only nodes with an exporter have devices that can break; Slurm and the simulated subnet are
told nothing, as with a real fault.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from opsk.errors import InputError, LabError
from opsk.hardware.xids import xid
from opsk.lab.folder import LabFolder
from opsk.lab.machine.clock import change, machine_folders
from opsk.lab.machine.machine import LOST_BY_XID, Fault, Machine, MachineFolder, XidTold, load_machine
from opsk.lab.machine.nvml_gpus import h100
from opsk.lab.machine.sysfs import pci_address
from opsk.lab.machine.work import find_work
from opsk.telemetry.kernel_log import boot_unix_s

_DOMAIN_XID = 74
_MOST_TOLD = 64
_LARGEST_XID = 9999
_INDEX = re.compile(r"[0-9]{1,3}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFault:
    """A fault, and the node that has it."""

    node: str
    fault: Fault


def machines_of(lab: LabFolder) -> tuple[MachineFolder, ...]:
    """Return the nodes with devices; none where the lab is down or has no exporters."""
    top = lab.nodes
    return machine_folders(top) if top.is_dir() else ()


def faults_of(lab: LabFolder) -> tuple[NodeFault, ...]:
    """Return all that is broken."""
    return tuple(
        NodeFault(node=folder.name, fault=fault) for folder in machines_of(lab) for fault in load_machine(folder).faults
    )


def break_gpu(lab: LabFolder, node: str, index: int, code: int = LOST_BY_XID) -> tuple[NodeFault, ...]:
    """Let the driver tell of an XID of a GPU, with what comes with it; 79: the GPU is lost.

    Raises
    ------
    InputError
        There is no such node, GPU or XID.
    """
    folder = _node(lab, node)
    gpus = load_machine(folder).gpus
    if not 0 <= index < gpus:
        raise InputError(f"{node} has no GPU {index}", hint=f"its GPUs are 0 to {gpus - 1}")
    if not 1 <= code <= _LARGEST_XID:
        raise InputError(f"XID {code} is none", hint=f"XIDs are 1 to {_LARGEST_XID}")
    return _break(lab, (folder,), Fault(kind="gpu", what=str(index), xid=code), xids=((index, code),))


def break_nic(lab: LabFolder, node: str, device: str) -> tuple[NodeFault, ...]:
    """Take an HCA's link away; ``device`` is its name or its number.

    Raises
    ------
    InputError
        There is no such node or HCA.
    """
    folder = _node(lab, node)
    name = _device(load_machine(folder), device)
    return _break(lab, (folder,), Fault(kind="nic", what=name))


def break_leaf(lab: LabFolder, leaf: str) -> tuple[NodeFault, ...]:
    """Take the links to a leaf switch away, by its name or its GUID.

    Raises
    ------
    InputError
        No node with an exporter is cabled to such a leaf.
    """
    name, folders = _leaf(lab, leaf)
    return _break(lab, folders, Fault(kind="leaf", what=name))


def break_domain(lab: LabFolder, node: str) -> tuple[NodeFault, ...]:
    """Break the NVLink domain of a node: no link is up, and each GPU tells of XID 74.

    Raises
    ------
    InputError
        There is no such node.
    """
    folder = _node(lab, node)
    gpus = range(load_machine(folder).gpus)
    return _break(lab, (folder,), Fault(kind="domain", what=node), xids=tuple((gpu, _DOMAIN_XID) for gpu in gpus))


def repair(lab: LabFolder, kind: str | None = None, *what: str) -> tuple[NodeFault, ...]:
    """Repair what was broken and return it: all of it, all of a kind, or one thing in the words that broke it.

    Raises
    ------
    InputError
        Nothing of the kind is broken.
    """
    wanted = _wanted(lab, kind, what)
    broken = [each for each in faults_of(lab) if wanted(each)]
    if not broken and kind is not None:
        raise InputError(f"not broken: {' '.join((kind, *what))}", hint="opsk lab status says what is")
    folders = [folder for folder in machines_of(lab) if folder.name in {each.node for each in broken}]

    def without(machine: Machine) -> Machine:
        left = [each for each in machine.faults if not wanted(NodeFault(node=machine.node, fault=each))]
        return replace(machine, faults=tuple(left))

    _change(lab, folders, without)
    return tuple(broken)


def _wanted(lab: LabFolder, kind: str | None, what: tuple[str, ...]) -> Callable[[NodeFault], bool]:
    """Return what says whether a fault is meant."""
    if kind is None or not what:
        return lambda each: kind in (None, each.fault.kind)
    if kind == "leaf":
        name = _leaf(lab, what[0])[0]
        return lambda each: (each.fault.kind, each.fault.what) == ("leaf", name)
    folder = _node(lab, what[0])
    if kind == "domain" or len(what) == 1:
        return lambda each: (each.fault.kind, each.node) == (kind, folder.name)
    one = _device(load_machine(folder), what[1]) if kind == "nic" else str(int(what[1])) if what[1].isdecimal() else ""
    return lambda each: (each.fault.kind, each.node, each.fault.what) == (kind, folder.name, one)


def _break(
    lab: LabFolder, folders: Iterable[MachineFolder], fault: Fault, *, xids: tuple[tuple[int, int], ...] = ()
) -> tuple[NodeFault, ...]:
    folders = tuple(folders)

    def broken(machine: Machine) -> Machine:
        last = machine.told[-1].number if machine.told else 0
        told = [XidTold(number=last + at, gpu=gpu, xid=code) for at, (gpu, code) in enumerate(xids, 1)]
        known = machine.faults if fault in machine.faults else (*machine.faults, fault)
        changed = replace(machine, faults=known, told=(*machine.told, *told)[-_MOST_TOLD:])
        went_down = [changed.is_down(hca) and not machine.is_down(hca) for hca in machine.hcas]
        return replace(changed, downs=tuple(old + new for old, new in zip(machine.downs, went_down, strict=True)))

    for folder in folders:
        before = load_machine(folder)
        after = replace(before, faults=(*before.faults, fault))
        gone = [at for at, hca in enumerate(before.hcas) if after.is_down(hca) and not before.is_down(hca)]
        said = [line for gpu, code in xids for line in _xid_lines(gpu, code)]
        _tell_kernel(folder, [*said, *(f"mlx5_core {pci_address(at)} ib{at}: Link down" for at in gone)])
    _change(lab, folders, broken)
    return tuple(NodeFault(node=folder.name, fault=fault) for folder in folders)


def _change(lab: LabFolder, folders: Iterable[MachineFolder], edit: Callable[[Machine], Machine]) -> None:
    folders = tuple(folders)
    work = find_work(folders, lab.slurm_conf, time.time())
    for folder in folders:
        change(folder, work[folder.name], edit)


def _xid_lines(gpu: int, code: int) -> tuple[str, ...]:
    """Return what NVIDIA's driver says of an XID."""
    function = str(h100(gpu).keys["pci.bus_id"]).removeprefix("0000").lower()
    device = function.removesuffix(".0")
    if code == LOST_BY_XID:
        gone = "GPU has fallen off the bus."
        return (f"NVRM: Xid (PCI:{device}): {code}, {gone}", f"NVRM: GPU {function}: {gone}")
    return (f"NVRM: Xid (PCI:{device}): {code}, {xid(code).meaning or 'unknown'}",)


def _tell_kernel(folder: MachineFolder, lines: Sequence[str]) -> None:
    """Add lines to the node's kernel log, in the form of /dev/kmsg."""
    since_boot_us = int((time.time() - boot_unix_s()) * 1e6)
    number = len(folder.kernel_log.read_bytes().splitlines())
    with folder.kernel_log.open("a", encoding="ascii") as log:
        for at, line in enumerate(lines):
            words = line.encode("ascii", "replace").decode("ascii")
            log.write(f"3,{number + at},{since_boot_us + at},-;{words}\n")


def _node(lab: LabFolder, name: str) -> MachineFolder:
    known = machines_of(lab)
    if not known:
        raise LabError("no node of this lab has devices that can break", hint="opsk lab up (with exporters) makes some")
    for folder in known:
        if folder.name == name:
            return folder
    names = ", ".join(folder.name for folder in known)
    raise InputError(
        f"{name}: only nodes with an exporter have devices: {names}", hint="more of them: opsk lab up --exporters N"
    )


def _device(machine: Machine, said: str) -> str:
    names = [hca.device for hca in machine.hcas]
    name = f"mlx5_{int(said)}" if _INDEX.fullmatch(said) else said
    if name not in names:
        raise InputError(f"{machine.node} has no HCA {said}", hint=f"it has {', '.join(names)}")
    return name


def _leaf(lab: LabFolder, said: str) -> tuple[str, tuple[MachineFolder, ...]]:
    """Return a leaf's name, and the nodes that are cabled to it."""
    at: dict[str, list[MachineFolder]] = {}
    for folder in machines_of(lab):
        for hca in load_machine(folder).hcas:
            if folder not in at.setdefault(hca.leaf, []):
                at[hca.leaf].append(folder)
            if said.lower().removeprefix("0x").zfill(16) == hca.switch.zfill(16):
                said = hca.leaf
    if said not in at:
        known = ", ".join(sorted(name for name in at if name)) or "none"
        raise InputError(f"no node with an exporter is cabled to a leaf {said}", hint=f"leaves: {known}")
    return said, tuple(at[said])
