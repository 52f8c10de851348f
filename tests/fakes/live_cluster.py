"""A small cluster whose Slurm answers what a test wants: sixteen nodes in four units, two cables up from each leaf."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from opsk.errors import InputError, SlurmError
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.rails import find_rails
from opsk.hardware.catalog import cluster
from opsk.planning.interference.links import build_links
from opsk.planning.routing.fabric_routes import build_routes
from opsk.slurm.records import JobRecord, NodeRecord, PartitionRecord
from opsk.workload.advice_record import AdviceRecord, Verdict
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.workers.watcher import Round

NODES = 16
UNIT = 4


def small_adviser(*, spines: int = 2) -> Adviser:
    """Return the adviser of the cluster, its links numbered."""
    fabric = rail_optimized_fabric(nodes=NODES, hcas=8, leaves=8 * NODES // UNIT, spines=spines)
    rails = find_rails(fabric)
    routes = build_routes(fabric, rails)
    return Adviser(
        cluster=cluster("superpod-h100"),
        rails=rails,
        routes=routes,
        fabric=fabric,
        fabric_links=build_links(fabric, rails, routes),
    )


def training_job(number: int, nodes: Sequence[str], *, step_s: float = 0.2, **facts: object) -> JobRecord:
    """Return a running job of TP8 and DP over its nodes, whose advice says how long its step is."""
    record = AdviceRecord(
        verdict=Verdict.FITS,
        step_s=step_s,
        tokens_per_s_per_gpu=8000.0,
        tflops=400.0,
        tp=8,
        pp=1,
        dp=max(len(nodes), 1),
    )
    given = {
        "id": number,
        "label": str(number),
        "user": "somebody",
        "name": "train",
        "state": "RUNNING",
        "nodes": tuple(nodes),
        "gpus": 8 * len(nodes),
        "gpus_per_node": 8,
        "admin_comment": record.render(),
    }
    return JobRecord(**{**given, **facts})  # type: ignore[arg-type]


def node_records(jobs: Sequence[JobRecord] = (), **flags: tuple[str, ...]) -> tuple[NodeRecord, ...]:
    """Return all nodes, those of the jobs allocated; ``n3=("DRAIN",)`` puts words after a node's state."""
    held = {node for job in jobs for node in job.nodes}
    return tuple(
        NodeRecord(
            name=name,
            state="ALLOCATED" if name in held else "IDLE",
            state_flags=flags.get(name, ()),
            partitions=("gpu",),
            gpus=8,
            gpus_used=8 if name in held else 0,
            gpu_type="h100",
            cpus=64,
            cpus_used=64 if name in held else 0,
        )
        for name in (f"n{number}" for number in range(NODES))
    )


def round_of(*jobs: JobRecord, **flags: tuple[str, ...]) -> Round:
    """Return what one round of questions finds with these jobs."""
    return Round(nodes=node_records(jobs, **flags), jobs=jobs)


class CountingSlurm:
    """Answers with ``found``, and notes every question; plans are in the records only, as with real ``squeue``."""

    def __init__(self, *jobs: JobRecord) -> None:
        self.found: tuple[JobRecord, ...] = jobs
        self.asked: list[str] = []
        self.is_down = False

    def jobs(self, *, details: bool = False, finished: bool = False) -> tuple[JobRecord, ...]:
        """Return the jobs, with their plans where details are asked for."""
        self._ask("jobs with details" if details else "jobs")
        return self.found if details else tuple(_bare(job) for job in self.found)

    def job(self, job_id: str) -> JobRecord:
        """Return one job with its plan."""
        self._ask(f"job {job_id}")
        for job in self.found:
            if job.label == job_id:
                return job
        raise InputError(f"Slurm knows no job {job_id}")

    def nodes(self) -> tuple[NodeRecord, ...]:
        """Return all nodes."""
        self._ask("nodes")
        return node_records([job for job in self.found if job.is_active])

    def release(self) -> tuple[int, int]:
        """Return a release."""
        return (22, 5)

    def config(self) -> dict[str, str]:
        """Return what the topology of the cluster is called."""
        return {"TopologyPlugin": "topology/tree"}

    def partitions(self) -> tuple[PartitionRecord, ...]:
        """Return the partition of all nodes, which is the default one, and a larger one."""
        self._ask("partitions")
        return (PartitionRecord(name="gpu", is_default=True), PartitionRecord(name="big", min_nodes=4))

    def _ask(self, what: str) -> None:
        """Note a question."""
        self.asked.append(what)
        if self.is_down:
            raise SlurmError("squeue did not answer within 10 s")


def _bare(job: JobRecord) -> JobRecord:
    """Return what ``squeue`` says of a job."""
    return replace(job, admin_comment=None, gpu_indices={})
