"""A Slurm that answers the exporter's questions with what a test made by hand, or fails as it wants."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from opsk.slurm.commands.controller_text import Controller, CycleStatistics, Reservation, SchedulerStatistics
from opsk.slurm.commands.job_text import QueuedJobs
from opsk.slurm.commands.node_text import NodeLoad

T = TypeVar("T")
NOW_UNIX_S = 1_800_000_000.0


@dataclass
class FixedSlurm:
    """Answers, by question; one that is an exception is raised. ``asked`` counts the questions."""

    jobs: tuple[QueuedJobs, ...] | Exception = ()
    nodes: tuple[NodeLoad, ...] | Exception = ()
    told: SchedulerStatistics | Exception = field(default_factory=SchedulerStatistics)
    reserved: tuple[Reservation, ...] | Exception = ()
    known: tuple[Controller, ...] | Exception = (Controller(role="primary", host="head1", is_up=True),)
    configured: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def queue(self) -> tuple[QueuedJobs, ...]:
        return self._answer("queue", self.jobs)

    def loads(self) -> tuple[NodeLoad, ...]:
        return self._answer("loads", self.nodes)

    def statistics(self) -> SchedulerStatistics:
        return self._answer("statistics", self.told)

    def reservations(self) -> tuple[Reservation, ...]:
        return self._answer("reservations", self.reserved)

    def controllers(self) -> tuple[Controller, ...]:
        return self._answer("controllers", self.known)

    def config(self) -> dict[str, str]:
        return self._answer("config", self.configured)

    def _answer(self, question: str, answer: T | Exception) -> T:
        self.asked.append(question)
        if isinstance(answer, Exception):
            raise answer
        return answer


def busy_cluster() -> FixedSlurm:
    """Two partitions that share a node, MIG instances, a drained node; jobs that run, wait and were advised."""
    waits = QueuedJobs(
        tasks=1, state="PENDING", user="ann", partitions=("big", "small"), gpus=16, reason="Resources",
        eligible_unix_s=int(NOW_UNIX_S) - 600, admin_comment="opsk:v1 verdict=tight fit=0.6",
    )  # fmt: skip
    runs = QueuedJobs(
        id=4711, label="4711", tasks=1, state="RUNNING", user="bob", partitions=("big",), gpus=8,
        admin_comment="opsk:v1 verdict=fits mem_bytes=7e10 capacity_bytes=8e10 step_s=2.5 tokens_per_s_per_gpu=900 "
        "tflops=400 mfu=0.4",
    )  # fmt: skip
    cycles = CycleStatistics(
        last_s=0.1, mean_s=0.05, longest_s=2.0, cycles=40, depth=30, queue=50, last_unix_s=int(NOW_UNIX_S) - 20
    )
    return FixedSlurm(
        jobs=(waits, runs),
        nodes=(
            node("a1", "ALLOCATED", "big", gpus={"h100": 8}, used={"h100": 8}),
            node("a2", "IDLE", "big", "small", gpus={"h100": 8}, used={"h100": 0}),
            node("m1", "IDLE+DRAIN", "small", gpus={"1g.10gb": 14}, used={"1g.10gb": 0}, reason="xid 79"),
        ),
        told=SchedulerStatistics(
            since_unix_s=int(NOW_UNIX_S) - 3600, threads=3, agents=1, agent_threads=4, agent_queue=0, database_queue=2,
            jobs={"submitted": 9, "failed": 0}, jobs_now={"pending": 1, "running": 1}, main=cycles, backfill=cycles,
            backfilled=5, rpcs=100, rpc_s=0.5,
        ),
        reserved=(Reservation(is_active=True, is_maintenance=True, nodes=1),),
    )  # fmt: skip


def node(
    name: str,
    state: str,
    *partitions: str,
    gpus: dict[str, int] | None = None,
    used: dict[str, int] | None = None,
    cpus: int = 64,
    reason: str | None = None,
) -> NodeLoad:
    """A node whose CPUs are as busy as its state says."""
    words = tuple(state.split("+"))
    is_out = "DRAIN" in words or "DOWN" in words
    allocated = {"ALLOCATED": cpus, "MIXED": cpus // 2}.get(words[0], 0)
    free = cpus - allocated
    return NodeLoad(
        name=name,
        words=words,
        partitions=dict.fromkeys(partitions, True),
        gpus=gpus or {},
        gpus_used=used or {},
        cpus_allocated=allocated,
        cpus_idle=0 if is_out else free,
        cpus_other=free if is_out else 0,
        reason=reason,
    )
