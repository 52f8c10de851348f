"""Does each rule tell what follows from what begins? Signs are made here; texts are read elsewhere."""

from __future__ import annotations

import pytest

from opsk.postmortem.reasoning import explain
from opsk.postmortem.reasoning.filtering import classify_exception
from opsk.postmortem.values import (
    Evidence,
    FailureClass,
    Finding,
    JobFacts,
    Origin,
    Place,
    RankProgress,
    Report,
    Role,
)

RANKS = tuple(
    RankProgress(rank=rank, node=f"n{rank // 4}", pci=f"0000:{0x10 + rank % 4:02x}:00", source=f"{rank}.log")
    for rank in range(8)
)


def timeout(rank: int, seq: int = 7, at: float = 700.0) -> Finding:
    fields = {"seq": str(seq), "op": "ALLREDUCE", "ran_ms": "600000"}
    return Finding(
        signature="torch.watchdog_timeout", role=Role.CASCADE, origin=Origin.JOB_LOG, time_s=at,
        failure=FailureClass.COLLECTIVE_HANG, place=Place(rank=rank), fields=fields, source=f"{rank}.log",
    )  # fmt: skip


def xid(code: int, at: float, failure: FailureClass, kind: str, pci: str = "0000:11:00", node: str = "n0") -> Finding:
    fields = {"code": str(code), "pci": pci, "class": kind}
    return Finding(
        signature="kernel.xid", role=Role.ROOT, origin=Origin.KERNEL, failure=failure, time_s=at, fields=fields,
        place=Place(node=node, pci=pci), source="kernel",
    )  # fmt: skip


def said(signature: str, failure: FailureClass, rank: int, at: float | None, **more: object) -> Finding:
    return Finding(
        signature=signature, role=Role.ROOT, origin=Origin.JOB_LOG, failure=failure, time_s=at,
        place=Place(rank=rank), source=f"{rank}.log", **more,  # type: ignore[arg-type]
    )  # fmt: skip


def report(
    *findings: Finding, ranks: tuple[RankProgress, ...] = RANKS, job: JobFacts | None = None, kernel: bool = True
) -> Report:
    gathered = {"kernel_log": "2 logs"} if kernel else {}
    return explain(Evidence(findings=findings, ranks=ranks, job=job, gathered=gathered))


def test_the_rank_that_does_not_wait_is_the_place_of_a_hang() -> None:
    root = report(*(timeout(rank) for rank in range(8) if rank != 5)).root
    assert root is not None
    assert (root.failure, root.where.rank, root.where.node) == (FailureClass.COLLECTIVE_HANG, 5, "n1")


def test_the_rank_that_waits_in_an_earlier_collective_is_behind() -> None:
    root = report(*(timeout(rank, seq=6 if rank == 2 else 7) for rank in range(8))).root
    assert root is not None
    assert root.where.rank == 2


def test_no_hang_is_named_where_the_culprit_has_no_log_and_others_have() -> None:
    findings = [timeout(rank) for rank in range(8) if rank != 5]
    job = JobFacts(state="FAILED", tasks=8, nodes=("n0", "n1"))
    with_log = report(*findings, job=job).root
    without = report(*findings, ranks=tuple(each for each in RANKS if each.rank != 5), job=job)
    assert with_log is not None
    assert with_log.confidence > 0.9
    assert without.root is None
    assert [each.failure for each in without.alternatives] == ["collective_hang"]


def test_a_hang_is_less_sure_without_kernel_logs() -> None:
    findings = [timeout(rank) for rank in range(8) if rank != 5]
    with_logs, without = report(*findings).root, report(*findings, kernel=False).root
    assert with_logs is not None
    assert without is not None
    assert without.confidence < with_logs.confidence


def test_a_dead_gpu_explains_the_hang_and_has_the_rank_that_runs_on_it() -> None:
    dead = xid(79, 100.0, FailureClass.GPU_HARDWARE, "reboot")
    root = report(dead, *(timeout(rank) for rank in range(8) if rank != 1)).root
    assert root is not None
    assert (root.failure, root.where.rank, root.where.node) == (FailureClass.GPU_HARDWARE, 1, "n0")


def test_a_program_s_fault_comes_before_the_channel_that_it_left_behind() -> None:
    root = report(
        xid(13, 100.0, FailureClass.SOFTWARE, "app"), xid(109, 105.0, FailureClass.GPU_HARDWARE, "reset")
    ).root
    assert root is not None
    assert root.failure is FailureClass.SOFTWARE


def test_hardware_comes_before_the_error_of_cuda_that_it_causes() -> None:
    error = said("cuda.illegal_access", FailureClass.SOFTWARE, 1, 99.0)
    root = report(error, xid(95, 100.0, FailureClass.GPU_HARDWARE, "drain")).root
    assert root is not None
    assert root.failure is FailureClass.GPU_HARDWARE


def test_the_kernel_s_word_on_another_job_s_time_does_not_count() -> None:
    job = JobFacts(state="FAILED", start_s=10_000.0, end_s=11_000.0, nodes=("n0", "n1"), tasks=8)
    assert report(xid(79, 100.0, FailureClass.GPU_HARDWARE, "reboot"), job=job).root is None


def test_training_that_went_on_was_not_ended_by_what_came_before() -> None:
    ranks = (
        RankProgress(rank=0, source="0.log", last_iteration=9, first_progress_s=90.0, last_progress_s=5000.0),
        *RANKS[1:],
    )
    early = said("storage.io_error", FailureClass.STORAGE, 3, 100.0)
    late = said("torch.cuda_oom", FailureClass.GPU_MEMORY, 4, 5001.0)
    root = report(early, late, ranks=ranks).root
    assert root is not None
    assert root.failure is FailureClass.GPU_MEMORY


def test_what_half_of_the_ranks_say_at_once_is_of_the_job() -> None:
    root = report(*(said("torch.cuda_oom", FailureClass.GPU_MEMORY, rank, 100.0 + rank / 10) for rank in range(8))).root
    assert root is not None
    assert (root.failure, root.where.rank, root.where.node) == (FailureClass.GPU_MEMORY, None, "")


@pytest.mark.parametrize("state", ["TIMEOUT", "CANCELLED"])
def test_who_ends_a_job_that_hangs_reacts(state: str) -> None:
    job = JobFacts(state=state, start_s=0.0, end_s=4000.0, nodes=("n0", "n1"), tasks=8)
    root = report(*(timeout(rank) for rank in range(8) if rank != 5), job=job).root
    assert root is not None
    assert root.failure is FailureClass.COLLECTIVE_HANG


@pytest.mark.parametrize(
    ("kind", "message", "failure"),
    [
        ("KeyError", "'x'", FailureClass.SOFTWARE),
        ("OSError", "[Errno 122] Disk quota exceeded", FailureClass.STORAGE),
        ("FloatingPointError", "bad", FailureClass.NUMERIC),
        ("RuntimeError", "CUDA ran out of memory: out of device memory", FailureClass.GPU_MEMORY),
        ("FileNotFoundError", "no such file", FailureClass.CONFIG),
        ("KeyboardInterrupt", "", FailureClass.CANCELLED),
    ],
)
def test_exceptions_are_classed_by_their_words(kind: str, message: str, failure: FailureClass) -> None:
    fields = {"type": kind, "message": message}
    finding = said("python.exception", FailureClass.SOFTWARE, 1, 1.0, fields=fields, text=f"{kind}: {message}")
    found = classify_exception(finding, has_progress=True)
    assert (found.role, found.failure) == (Role.ROOT, failure)


def test_what_connections_raise_is_a_cascade() -> None:
    fields = {"type": "RuntimeError", "message": "Connection closed by peer"}
    finding = said("python.exception", FailureClass.SOFTWARE, 1, 1.0, fields=fields)
    assert classify_exception(finding, has_progress=True).role is Role.CASCADE


def test_the_timeline_begins_with_the_root() -> None:
    survived = Finding(
        signature="rendezvous.store_lost", role=Role.CASCADE, origin=Origin.JOB_LOG, time_s=100.0,
        failure=FailureClass.RENDEZVOUS, place=Place(rank=1), source="1.log",
    )  # fmt: skip
    root = said("torch.cuda_oom", FailureClass.GPU_MEMORY, 3, 700.0)
    explained = explain(Evidence(findings=(survived, root, timeout(1, at=1300.0)), ranks=RANKS))
    moments = [moment.finding.signature for moment in explained.timeline if moment.finding is not None]
    assert moments == ["torch.cuda_oom", "torch.watchdog_timeout"]
