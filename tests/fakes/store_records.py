"""One record of each kind with every field filled, and texts that databases do not like."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.snapshot import serialise_snapshot
from opsk.store.records.advice import AdviceGiven
from opsk.store.records.clusters import ClusterSeen
from opsk.store.records.failures import FailureSeen
from opsk.store.records.jobs import JobSeen
from opsk.store.records.measurements import Measured
from opsk.store.records.remaps import RemapMoved, RemapProposed, RemapStep
from opsk.store.records.reports import Report
from opsk.store.records.snapshots import SnapshotSeen
from opsk.store.records.use import JobSubmitted, JobUsed
from opsk.store.writing import Record

NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
HASH = "5e" * 32

HOSTILE = (
    "'; DROP TABLE jobs; --",
    'Robert"); --',
    "a\x00b",
    "\udcff\ud800",
    "\U0001f680 \U00020000",  # four bytes of UTF-8: what MariaDB's "utf8" does not hold
    "\u202egnp.exe\u202c",
    "%s %(job)s {} \\",
    "\x1b[31m\r\n\t",
    "e\u0301 vs \u00e9",
    "x" * 5000,
)
"""What users, logs and dumps may say."""


def later(**amount: float) -> datetime:
    """A time after noon."""
    return NOON + timedelta(**amount)


def job(number: str = "4711", **more: object) -> JobSeen:
    """A job that was submitted at noon."""
    fields = {"cluster": "titan", "job": number, "submitted_at": NOON, "at": NOON, **more}
    return JobSeen(**fields)  # type: ignore[arg-type]


def interval(number: int = 0, **more: object) -> Measured:
    """A minute of job 4711."""
    fields = {
        "cluster": "titan", "job": "4711", "source": "log:megatron", "from_at": later(minutes=number),
        "until_at": later(minutes=number + 1), "steps": 6, "step_s": 10.0, **more,
    }  # fmt: skip
    return Measured(**fields)  # type: ignore[arg-type]


def failure(**more: object) -> FailureSeen:
    """An XID of a GPU."""
    fields = {
        "cluster": "titan", "at": NOON, "failure": "xid", "what": "gpu:n5/3", "source": "kernel_log", "node": "n5",
        "code": "79", **more,
    }  # fmt: skip
    return FailureSeen(**fields)  # type: ignore[arg-type]


def proposed(name: str = "r1", **more: object) -> RemapProposed:
    """A spare node instead of a GPU."""
    fields = {
        "cluster": "titan", "remap": name, "at": NOON, "by": "root", "job": "4711", "failed": "gpu:n5/3",
        "option": "spare_node", "document": {"moves": [[40, "n5", "n9"]]}, **more,
    }  # fmt: skip
    return RemapProposed(**fields)  # type: ignore[arg-type]


def moved(state: str, minutes: float, name: str = "r1", by: str = "root") -> RemapMoved:
    """A move of that remap."""
    return RemapMoved(cluster="titan", remap=name, at=later(minutes=minutes), state=state, by=by)  # type: ignore[arg-type]


def one_of_each() -> list[Record]:
    """Every kind, in an order in which they can be written."""
    fabric = serialise_snapshot(rail_optimized_fabric(nodes=4, hcas=2, leaves=2, spines=2)).decode()
    return [
        ClusterSeen(cluster="titan", at=later(days=1), since=NOON, slurm_version="25.11.1", nodes=512, gpus=4096),
        SnapshotSeen(cluster="titan", at=later(hours=3), since=NOON, source="ib.txt", content=fabric),
        JobSeen(
            cluster="titan", job="4711_3", submitted_at=NOON, at=later(hours=2), sluid="s123", user="ada",
            account="physics", partition="gpu", qos="normal", name="llama", state="COMPLETED", exit_code="0:0",
            started_at=later(hours=1), ended_at=later(hours=2), node_list="n[1-8]", nodes=8, gpus=64,
            script_hash=HASH, fabric_hash=HASH, framework="megatron-lm", model="llama3-70b", verdict="fits",
            predicted_step_s=18.4, predicted_tokens_per_s_per_gpu=890.5, predicted_tflops_per_gpu=429.0,
            predicted_mfu=0.43, predicted_memory_bytes=8.1e10, plan={"tp": 4, "pp": 2}, prediction={"a": [1, None]},
        ),
        AdviceGiven(
            cluster="titan", at=NOON, uid=1000, user="ada", script_hash=HASH, job="4711", verdict="oom",
            action="advise", shown=False, document={"verdict": "oom"},
        ),
        Measured(
            cluster="titan", job="4711_3", source="log:megatron", from_at=NOON, until_at=later(minutes=1), steps=6,
            first_iteration=100, last_iteration=105, step_s=9.75, tokens_per_s=1e5, tokens_per_s_per_gpu=1562.5,
            tflops_per_gpu=401.25, mfu=0.4, memory_peak_bytes=79_000_000_000, loss=-0.25,
        ),
        failure(job="4711", action="reset", text="GPU has fallen off the bus", cleared_at=later(hours=1), document=[]),
        proposed(title="n9 instead of n5", world=HASH),
        moved("approved", 1), moved("applying", 2),
        RemapStep(
            cluster="titan", remap="r1", number=1, state="started", at=later(minutes=2),
            command="scontrol requeue 4711", said="",
        ),
        moved("applied", 3),
        JobSubmitted(
            cluster="titan", at=NOON, uid=1000, name="fold", script_key=HASH, command_key=HASH, command="foldit",
            settings={"GPUs": "8", "--batch": "4"}, gpus=8,
        ),
        JobUsed(
            cluster="titan", job="4711_3", submitted_at=NOON, at=later(hours=2), uid=1000, user="ada",
            account="physics", script_key=HASH, command_key=HASH, command="foldit", settings={"--batch": "4"},
            gpu_type="h100", gpus=8, nodes=1, started_at=NOON, ended_at=later(hours=2), time_limit_s=86400.0,
            state="COMPLETED", observed_s=7190.0, capacity_bytes=8.5e10, memory_peak_bytes=6.1e10,
            memory_peaks={"n1/0": 61_000_000_000}, activity=0.22, idle_gpus=0, power_w=410.5,
            host_memory_peak_bytes=2.5e10,
        ),
        Report(
            cluster="titan", job="4711", at=NOON, report="postmortem", form="md", title="4711 died",
            root_cause="gpu_hardware", content="# It fell off the bus\n",
        ),
    ]  # fmt: skip
