"""How does a launcher bring ranks to their places, and which settings does the fabric justify?

Only what is certain is suggested, each with its reason and source; NCCL's choice of algorithm and protocol is left to
NCCL, which measures what no topology tells.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from opsk.planner.order import unit_of_nodes
from opsk.planner.placement import Placement
from opsk.topology.rails import Rails

_KERNEL_NAME = re.compile(r"(?:mlx\d+_\d+|ibp[0-9a-z]+|hfi1_\d+|rocep[0-9a-z]+)(?::\d+)?")
"""Names that the kernel gives to devices; ``HCA-1`` of a node description is none that NCCL would know."""

_NCCL_GUIDE = "NCCL user guide, environment variables"
_SWITCHES_WAIT = "5:00"
"""Slurm's default for SchedulerParameters=max_switch_wait is 300 s, and a longer wait than that limit is cut to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One suggested setting: ``name`` and ``value``, ``why``, and the ``source`` that says what it does."""

    name: str
    value: str
    why: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to hand to launchers.

    Parameters
    ----------
    rank_file
        One host per rank and line, for ``SLURM_HOSTFILE`` and ``srun --distribution=arbitrary`` of a **step**; not
        needed where `Placement.needs_rank_file` is false. On the allocation itself 26.05 may refuse it (block, ring).
    gpu_order
        ``CUDA_VISIBLE_DEVICES`` by node, where local ranks do not take the GPUs in their own order.
    nccl_env, slurm_flags
        Settings of the job's environment, and flags for ``sbatch``.
    notes
        What to mind, and what was left out and why.
    """

    rank_file: str
    gpu_order: Mapping[str, str] = field(default_factory=dict)
    nccl_env: tuple[Setting, ...] = ()
    slurm_flags: tuple[Setting, ...] = ()
    notes: tuple[str, ...] = ()


def launch_of(placement: Placement, rails: Rails, *, devices_known: bool = True) -> Launch:
    """Return what a launcher needs for this placement; without ``devices_known`` HCAs' names are not the site's own."""
    env, notes = _nccl(placement, rails)
    if not devices_known:
        env = tuple(setting for setting in env if setting.name != "NCCL_IB_HCA")
    if placement.needs_rank_file:
        notes = (_RANK_FILE_NOTE, *notes)
    if placement.gpu_order:
        notes = (*notes, _GPU_ORDER_NOTE)
    return Launch(
        rank_file="".join(f"{rank.node}\n" for rank in placement.ranks),
        gpu_order={node: ",".join(map(str, gpus)) for node, gpus in placement.gpu_order.items()},
        nccl_env=env,
        slurm_flags=_slurm_flags(placement, rails),
        notes=notes,
    )


_RANK_FILE_NOTE = (
    "use the rank file for a step inside the job: SLURM_HOSTFILE=FILE srun --distribution=arbitrary, one task a GPU; "
    "it sets SLURM_PROCID and SLURM_LOCALID, not SLURM_NODEID: take the rank from SLURM_PROCID, and MASTER_ADDR from "
    "the file's first line"
)
_GPU_ORDER_NOTE = (
    "on the nodes in gpu_order HCAs are cabled otherwise: there local rank i takes the i-th GPU of the list, by "
    "CUDA_VISIBLE_DEVICES of a task that sees all GPUs of its node"
)


def _nccl(placement: Placement, rails: Rails) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    """Return the NCCL settings that are certain, and why others are left out."""
    devices = [tuple(hca.device for hca in rails.attachments.get(node, ())) for node in placement.nodes]
    by_rail = [tuple(hca.rail for hca in rails.attachments.get(node, ())) for node in placement.nodes]
    if len(placement.nodes) < 2 or not any(devices):
        return (), ()
    env: list[Setting] = []
    notes: list[str] = []
    same_devices = len(set(devices)) == 1
    if not same_devices:
        notes.append("NCCL_IB_HCA is left out: the nodes' HCAs do not have the same names" + _odd(placement, devices))
    elif not all(_KERNEL_NAME.fullmatch(device) for device in devices[0]):
        shown = ", ".join(devices[0][:3])
        notes.append(f"NCCL_IB_HCA is left out: the fabric calls the HCAs {shown}, ..., not as the nodes' kernels do")
    else:
        order = sorted(range(len(devices[0])), key=lambda index: (_rail_key(by_rail[0][index]), index))
        env.append(
            Setting(
                name="NCCL_IB_HCA",
                value="=" + ",".join(devices[0][index] for index in order),
                why="the HCAs on the compute fabric in rail order; others (storage) are not for NCCL",
                source=f"{_NCCL_GUIDE}: = asks for exact names",
            )
        )
    one_rail_each = len(by_rail[0]) > 1 and len(set(by_rail[0])) == len(by_rail[0]) and None not in by_rail[0]
    if one_rail_each and len(set(by_rail)) == 1:
        env.append(
            Setting(
                name="NCCL_CROSS_NIC",
                value="0",
                why="every HCA is on a rail of its own on every node: a ring that changes NIC changes rail",
                source=f"{_NCCL_GUIDE}: 0 keeps a ring on the same NIC, for networks with a switch per NIC (rails)",
            )
        )
    elif one_rail_each and same_devices:
        notes.append("NCCL_CROSS_NIC is left alone: the same HCA is not on the same rail" + _odd(placement, by_rail))
    return tuple(env), tuple(notes)


def _rail_key(rail: int | None) -> int:
    """Sort HCAs without rail last."""
    return rail if rail is not None else 1 << 30


def _odd(placement: Placement, rows: Sequence[tuple[object, ...]]) -> str:
    """Name the nodes that differ from most."""
    usual = Counter(rows).most_common(1)[0][0]
    odd = [node for node, row in zip(placement.nodes, rows, strict=True) if row != usual]
    return f" ({', '.join(odd[:4])}{', ...' if len(odd) > 4 else ''})"


def _slurm_flags(placement: Placement, rails: Rails) -> tuple[Setting, ...]:
    """Return ``--switches`` where the job fits under the leaves of one unit and the fabric has several."""
    if len(placement.nodes) < 2:
        return ()
    sizes = Counter(unit_of_nodes(rails, tuple(rails.attachments)).values())
    if len(sizes) < 2 or max(sizes.values()) < len(placement.nodes):
        return ()
    group = max(sizes.values())
    return (
        Setting(
            name="--switches",
            value=f"1@{_SWITCHES_WAIT}",
            why=f"{len(placement.nodes)} nodes fit under one leaf group of {group}; waits 5 minutes at most",
            source="sbatch(1) --switches; needs topology/tree with one switch a leaf group (opsk fabric --write tree)",
        ),
    )
