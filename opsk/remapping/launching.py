"""How is a step started on a rank map, by ``srun`` alone or with ``torchrun`` on each node? Words, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opsk.errors import InputError
from opsk.job_key import JobKey
from opsk.planner.order import slurm_order
from opsk.remapping.decision import Decision, Seat
from opsk.slurm.records import JobRecord
from opsk.slurm.remap_commands import STALE

_FIRST_PORT, _PORTS = 15000, 15000
"""Below the ports that Linux hands out by itself (32768 and up)."""
_TASK = """
case ";$OPSK_GPU_ORDER" in
*";$SLURMD_NODENAME="*)
    gpus=${OPSK_GPU_ORDER#*"$SLURMD_NODENAME="}
    export CUDA_VISIBLE_DEVICES="${gpus%%;*}" ;;
esac
if [ "$OPSK_PER_NODE" = 1 ]; then
    export NODE_RANK="$SLURM_PROCID" PET_NODE_RANK="$SLURM_PROCID"
else
    export RANK="$SLURM_PROCID" LOCAL_RANK="$SLURM_LOCALID" WORLD_SIZE="$SLURM_NTASKS"
fi
exec "$@"
"""
"""Runs in each task: what depends on the task can only be said there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStart:
    """A step as it is started: ``hosts`` is the text of the host file, one line a task."""

    words: tuple[str, ...]
    environment: Mapping[str, str]
    hosts: str


def first_map(job: JobRecord, *, nodes: int | None, each: int) -> Decision:
    """Return the map that a job begins with: its first nodes in Slurm's order, filled one after the other.

    Parameters
    ----------
    nodes
        How many are used; the others are spares. ``None``: all.
    each
        Ranks on each node.

    Raises
    ------
    InputError
        It has not so many.
    """
    held = slurm_order(job.nodes)
    used = held[: nodes if nodes is not None else len(held)]
    if not used or (nodes is not None and len(used) < nodes):
        raise InputError(
            f"job {job.label} has {len(held)} nodes, wanted are {nodes}", hint="ask for fewer with --nodes"
        )
    return Decision(id="", job=job.label, hosts=tuple(node for node in used for _ in range(each)))


def seats_of(decision: Decision, job: JobRecord) -> tuple[Seat, ...]:
    """Return node and GPU of each rank: the GPUs of a node in turn, as the decision orders them."""
    order = {node: [int(gpu) for gpu in gpus.split(",")] for node, gpus in decision.gpu_order}
    local: dict[str, int] = {}
    seats = []
    for rank, node in enumerate(decision.hosts):
        at = local[node] = local.get(node, -1) + 1
        gpus: Sequence[int] = order.get(node) or job.gpu_indices.get(node, ())
        seats.append(Seat(rank=rank, node=node, gpu=gpus[at] if at < len(gpus) else at))
    return tuple(seats)


def why_not(decision: Decision, job: JobRecord, *, per_node: bool, cluster: str = "") -> str:
    """Return why a map cannot be started in a job of a cluster; empty where it can."""
    strange = sorted(set(decision.nodes) - set(job.nodes))
    is_of_another = "" not in (decision.cluster, cluster) and decision.cluster != cluster
    if decision.job != job.label or is_of_another:
        return f"it is meant for {JobKey(cluster=decision.cluster, job=decision.job)}"
    if strange:
        return f"the job does not hold {', '.join(strange[:4])}"
    if per_node and list(decision.hosts) != _node_by_node(decision):
        return "torchrun numbers ranks node by node, with as many on each, and this map does not"
    return ""


def _node_by_node(decision: Decision) -> list[str]:
    each = len(decision.hosts) // len(decision.nodes)
    return [node for node in decision.nodes for _ in range(each)]


def step_start(
    decision: Decision, command: Sequence[str], environ: Mapping[str, str], *, name: str, per_node: bool,
    options: Sequence[str] = (), host_file: str,
) -> StepStart:  # fmt: skip
    """Return how a step is started on a map.

    Parameters
    ----------
    name
        Of the step, by which it is found again.
    per_node
        One task a node, for torchrun, which reads ``PET_...``; else one a rank.
    options
        Further ones for srun.
    host_file
        Where ``hosts`` will be.
    """
    nodes = decision.nodes
    tasks = nodes if per_node else decision.hosts
    each = len(decision.hosts) // len(nodes)
    master = environ.get("MASTER_PORT") or str(_FIRST_PORT + int("".join(filter(str.isdecimal, decision.job))) % _PORTS)
    told = {
        "SLURM_HOSTFILE": host_file,
        "MASTER_ADDR": nodes[0],
        "MASTER_PORT": master,
        "NNODES": str(len(nodes)),
        "OPSK_PER_NODE": "1" if per_node else "0",
        "OPSK_GPU_ORDER": "".join(f"{node}={gpus};" for node, gpus in decision.gpu_order),
    }
    if per_node:
        told |= {
            "PET_NNODES": str(len(nodes)),
            "PET_NPROC_PER_NODE": str(each),
            "PET_MASTER_ADDR": nodes[0],
            "PET_MASTER_PORT": master,
            "PET_RDZV_ENDPOINT": f"{nodes[0]}:{master}",
        }
    words = (
        "srun", "--no-kill", "--kill-on-bad-exit=1", f"--job-name={name}", f"--ntasks={len(tasks)}",
        "--distribution=arbitrary", *options, "bash", "-c", _TASK, "opsk", *command,
    )  # fmt: skip
    kept = {key: value for key, value in environ.items() if key not in STALE}
    return StepStart(words=words, environment=kept | told, hosts="".join(f"{node}\n" for node in tasks))
