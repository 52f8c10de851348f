"""Runs a job's step from its batch script, and starts it again on a new rank map when there is one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from opsk.errors import InputError, OpskError, SlurmError
from opsk.job_key import JobKey
from opsk.planning.placement.node_order import slurm_order
from opsk.remapping.commands import Run, run_command
from opsk.remapping.decision import (
    Decision,
    LauncherReport,
    RankSlot,
    decision_file,
    launcher_report_file,
    read_decision,
    write_document,
)
from opsk.remapping.execution import Cluster
from opsk.slurm.commands.remap_commands import STALE
from opsk.slurm.records import JobRecord

_FIRST_PORT, _PORTS = 15000, 15000
"""Below the ports that Linux hands out by itself (32768 and up)."""
_POLL_S = 0.5
_MAX_STARTS = 64
_RESERVED_OPTIONS = frozenset(
    {
        "-m", "--distribution", "-n", "--ntasks", "-N", "--nodes", "-w", "--nodelist", "-J", "--job-name", "-x",
        "--exclude",
    }
)  # fmt: skip
"""Options of srun that would place tasks: the rank map does that."""
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
"""Runs in each task: what depends on the task can only be set there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStart:
    """A step as it is started: ``hosts`` is the text of the host file, one line a task."""

    words: tuple[str, ...]
    environment: Mapping[str, str]
    hosts: str


def build_first_map(job: JobRecord, *, nodes: int | None, ranks_per_node: int) -> Decision:
    """Return the map that a job begins with: its first nodes in Slurm's order, filled one after the other.

    Parameters
    ----------
    nodes
        How many are used; the others are spares. ``None``: all.
    ranks_per_node
        Ranks on each node.

    Raises
    ------
    InputError
        It has fewer nodes.
    """
    allocated = slurm_order(job.nodes)
    used = allocated[: nodes if nodes is not None else len(allocated)]
    if not used or (nodes is not None and len(used) < nodes):
        raise InputError(
            f"job {job.label} has {len(allocated)} nodes, fewer than --nodes {nodes}", hint="give a smaller --nodes"
        )
    return Decision(id="", job=job.label, hosts=tuple(node for node in used for _ in range(ranks_per_node)))


def build_rank_slots(decision: Decision, job: JobRecord) -> tuple[RankSlot, ...]:
    """Return node and GPU of each rank: the GPUs of a node in turn, as the decision orders them."""
    order = {node: [int(gpu) for gpu in gpus.split(",")] for node, gpus in decision.gpu_order}
    last_local_ranks: dict[str, int] = {}
    slots = []
    for rank, node in enumerate(decision.hosts):
        local_rank = last_local_ranks[node] = last_local_ranks.get(node, -1) + 1
        gpus: Sequence[int] = order.get(node) or job.gpu_indices.get(node, ())
        slots.append(RankSlot(rank=rank, node=node, gpu=gpus[local_rank] if local_rank < len(gpus) else local_rank))
    return tuple(slots)


def find_refusal(decision: Decision, job: JobRecord, *, per_node: bool, cluster: str = "") -> str:
    """Return why a map cannot be started in a job of a cluster; empty where it can."""
    strange = sorted(set(decision.nodes) - set(job.nodes))
    is_of_another = "" not in (decision.cluster, cluster) and decision.cluster != cluster
    if decision.job != job.label or is_of_another:
        return f"it is for {JobKey(cluster=decision.cluster, job=decision.job)}"
    if strange:
        return f"the job does not hold {', '.join(strange[:4])}"
    if per_node and list(decision.hosts) != _order_by_node(decision):
        return "torchrun needs ranks numbered node by node, the same number on each node"
    return ""


def _order_by_node(decision: Decision) -> list[str]:
    ranks_per_node = len(decision.hosts) // len(decision.nodes)
    return [node for node in decision.nodes for _ in range(ranks_per_node)]


def build_step_start(
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
    ranks_per_node = len(decision.hosts) // len(nodes)
    master = environ.get("MASTER_PORT") or str(_FIRST_PORT + int("".join(filter(str.isdecimal, decision.job))) % _PORTS)
    variables = {
        "SLURM_HOSTFILE": host_file,
        "MASTER_ADDR": nodes[0],
        "MASTER_PORT": master,
        "NNODES": str(len(nodes)),
        "OPSK_PER_NODE": "1" if per_node else "0",
        "OPSK_GPU_ORDER": "".join(f"{node}={gpus};" for node, gpus in decision.gpu_order),
    }
    if per_node:
        variables |= {
            "PET_NNODES": str(len(nodes)),
            "PET_NPROC_PER_NODE": str(ranks_per_node),
            "PET_MASTER_ADDR": nodes[0],
            "PET_MASTER_PORT": master,
            "PET_RDZV_ENDPOINT": f"{nodes[0]}:{master}",
        }
    words = (
        "srun", "--no-kill", "--kill-on-bad-exit=1", f"--job-name={name}", f"--ntasks={len(tasks)}",
        "--distribution=arbitrary", *options, "bash", "-c", _TASK, "opsk", *command,
    )  # fmt: skip
    inherited = {key: value for key, value in environ.items() if key not in STALE}
    return StepStart(words=words, environment=inherited | variables, hosts="".join(f"{node}\n" for node in tasks))


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherStep:
    """The step to run, and its options.

    Parameters
    ----------
    nodes, ranks_per_node
        Nodes that are used at first, and ranks on each.
    per_node
        One task a node (torchrun), else one a rank.
    wait_s
        How long to wait for a new map after a step that failed [s].
    grace_s
        How long a step may take to end when a new map has come [s].
    cluster
        Cluster of the job; empty where it is unknown.
    """

    job: str
    command: tuple[str, ...]
    nodes: int | None
    ranks_per_node: int
    per_node: bool
    wait_s: float
    grace_s: float
    options: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    cluster: str = ""

    @property
    def key(self) -> JobKey:
        """Cluster and number of the job."""
        return JobKey(cluster=self.cluster, job=self.job)


@contextmanager
def _open_memory_file() -> Iterator[int]:
    """Open a file without a name: a launcher that Slurm kills leaves nothing in /tmp."""
    descriptor = os.memfd_create("opsk-launch-hosts")
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class Launcher:
    """Runs one step after the other until one succeeds, or fails and no new map comes."""

    def __init__(
        self, launch: LauncherStep, cluster: Cluster, report: Callable[[str], None], *, run: Run = run_command
    ) -> None:
        self._launch = launch
        self._cluster = cluster
        self._report = report
        self._run = run
        self._refused: dict[str, str] = {}
        self._starts = 0
        job = cluster.job(launch.job)
        if not job.is_active or not job.work_dir:
            raise InputError(f"job {launch.job} is not running", hint="call opsk launch in the job's batch script")
        self._folder = Path(job.work_dir)

    def run(self) -> int:
        """Return the exit status of the last step."""
        job = self._cluster.job(self._launch.job)
        decision = build_first_map(job, nodes=self._launch.nodes, ranks_per_node=self._launch.ranks_per_node)
        earlier = self._read_decision()  # one that an earlier start of a requeued job has left is of no use
        seen = earlier.id if earlier is not None else ""
        while True:
            status, new = self._run_step(decision, job, seen)
            if new is None:
                return status
            decision, seen = new, new.id
            job = self._cluster.job(self._launch.job)

    def _run_step(self, decision: Decision, job: JobRecord, seen: str) -> tuple[int, Decision | None]:
        """Run one step; return its status, and the map to go on with if there is one."""
        self._starts += 1
        name = f"opsk-launch-{self._starts}"
        with _open_memory_file() as hosts:
            start = build_step_start(
                decision, self._launch.command, self._launch.environ, name=name, per_node=self._launch.per_node,
                options=self._launch.options, host_file=f"/proc/self/fd/{hosts}",
            )  # fmt: skip
            os.write(hosts, start.hosts.encode())
            self._report(f"{len(decision.hosts)} ranks on {', '.join(decision.nodes)}, MASTER_ADDR={decision.nodes[0]}")
            step = subprocess.Popen(start.words, env=dict(start.environment), pass_fds=(hosts,))
            self._write_report(decision, job)
            try:
                new = self._watch(step, decision, job, seen)
            except BaseException:
                self._end_step(step, name)
                raise
            if new is not None:
                self._end_step(step, name)
            status = step.wait()
        if new is None and status and self._starts < _MAX_STARTS:
            new = self._wait_for(seen, status)
        return (128 - status if status < 0 else status), new

    def _watch(self, step: subprocess.Popen[bytes], decision: Decision, job: JobRecord, seen: str) -> Decision | None:
        """Return a new map as soon as there is one; ``None`` when the step has ended before."""
        while step.poll() is None:
            new = self._find_acceptable(seen)
            if new is not None:
                return new
            if self._refused:
                self._write_report(decision, job)
            time.sleep(_POLL_S)
        return None

    def _wait_for(self, seen: str, status: int) -> Decision | None:
        """Wait for a new map after a step that failed: the remap may still be in preparation."""
        end = time.monotonic() + self._launch.wait_s
        self._report(f"the step ended with status {status}; waiting {self._launch.wait_s:.0f} s for a new map")
        while time.monotonic() < end:
            new = self._find_acceptable(seen)
            if new is not None:
                return new
            time.sleep(_POLL_S)
        return None

    def _find_acceptable(self, seen: str) -> Decision | None:
        """Return a new map that can be started; a refusal is reported once."""
        new = self._read_decision()
        if new is None or new.id == seen or new.id in self._refused:
            return None
        try:
            job = self._cluster.job(self._launch.job)
            why = find_refusal(new, job, per_node=self._launch.per_node, cluster=self._launch.cluster)
        except SlurmError:
            return None  # queried again at the next poll
        if why:
            self._refused[new.id] = why
            self._report(f"the map of {new.id} is refused: {why}")
            return None
        return new

    def _read_decision(self) -> Decision | None:
        try:
            return read_decision(decision_file(self._folder, self._launch.key), owner=os.geteuid())
        except InputError as error:
            self._report(error.message)
            return None

    def _write_report(self, decision: Decision, job: JobRecord) -> None:
        """Report what runs now; a job goes on where the report cannot be written."""
        document = LauncherReport(
            job=self._launch.job, host=socket.gethostname(), pid=os.getpid(), decision=decision.id,
            starts=self._starts, ranks=build_rank_slots(decision, job), refused=dict(self._refused),
            cluster=self._launch.cluster,
        )  # fmt: skip
        try:
            write_document(launcher_report_file(self._folder, self._launch.key), document)
        except OpskError as error:
            self._report(error.message)

    def _end_step(self, step: subprocess.Popen[bytes], name: str) -> None:
        """End a step: politely, then by Slurm, then for good."""
        for attempt in ("ask", "cancel", "kill"):
            if step.poll() is not None:
                return
            if attempt == "ask":
                step.send_signal(signal.SIGTERM)
            elif attempt == "cancel":
                self._cancel(name)
            else:
                step.kill()
            try:
                step.wait(self._launch.grace_s)
            except subprocess.TimeoutExpired:
                continue
        step.wait()

    def _cancel(self, name: str) -> None:
        words = ("squeue", "--steps", "-h", f"--jobs={self._launch.job}", "-o", "%i %j")
        status, output = self._run(words)
        for line in output.splitlines() if status == 0 else ():
            number, _, called = line.strip().partition(" ")
            if called == name:
                self._run(("scancel", number))


def count_tasks_per_node(environ: Mapping[str, str], job: JobRecord) -> int:
    """Return how many ranks a node gets: one for each GPU by default.

    Raises
    ------
    InputError
        It cannot be determined.
    """
    if job.gpus_per_node:
        return job.gpus_per_node
    value = environ.get("SLURM_GPUS_ON_NODE") or environ.get("SLURM_NTASKS_PER_NODE") or ""
    if not value.isdecimal() or not int(value):
        raise InputError("the number of ranks per node is unknown", hint="give --tasks-per-node")
    return int(value)


def validate_srun_options(words: Sequence[str]) -> tuple[str, ...]:
    """Return options for srun as single arguments.

    Raises
    ------
    InputError
        One would place the tasks itself.
    """
    wrong = [word for word in words if word.split("=")[0] in _RESERVED_OPTIONS or not word.startswith("-")]
    if wrong:
        raise InputError(
            f"--srun {wrong[0][:60]!r}: the rank map decides where tasks run", hint="leave out this option"
        )
    return tuple(words)
