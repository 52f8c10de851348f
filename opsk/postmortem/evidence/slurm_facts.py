"""Converts Slurm's record of a job into facts and into signs that no program can forge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from opsk.errors import InputError, SlurmError
from opsk.postmortem.values import FailureClass, Finding, JobFacts, Origin, Place, Role
from opsk.slurm.client import SlurmClient
from opsk.slurm.commands.accounting import AccountedRun, AccountingClient, NodeReason, find_last_ended
from opsk.slurm.records import JobRecord

OUT_OF_MEMORY_SIGNAL = 125
BEFORE_S, AFTER_S = 300.0, 3600.0
"""Reasons set on a node within this time before the job's start or after its end belong to the job [s]."""
_BY_OPSK = "opsk:"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmRecord:
    """Slurm's record of a job.

    Parameters
    ----------
    number, uid
        Slurm's own number of the job (a task of an array has one), and its user's number.
    work_dir, std_out, std_err
        Where its output goes, as the user wrote it.
    gathered, unreadable
        As in `Evidence`.
    """

    facts: JobFacts
    number: str = ""
    findings: tuple[Finding, ...] = ()
    uid: int | None = None
    work_dir: str = ""
    std_out: str = ""
    std_err: str = ""
    gathered: Mapping[str, str] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()


def fetch_slurm_record(
    job_id: str, accounting: AccountingClient, client: SlurmClient | None, *, is_number: bool = False
) -> SlurmRecord:
    """Query the accounting; where there is none, slurmctld, which remembers a job for some minutes.

    Raises
    ------
    InputError
        There is no such job.
    SlurmError
        Neither answers.
    """
    try:
        run = find_last_ended(accounting.runs(job_id, is_number=is_number))
    except SlurmError as error:
        if client is None:
            raise
        return _convert_job(client.job(job_id), accounting, why=error.message)
    except InputError as unknown:
        if client is None:
            raise
        # A job that has just ended may not have reached the accounting yet.
        try:
            remembered = client.job(job_id)
        except (InputError, SlurmError):
            raise unknown from None
        return _convert_job(remembered, accounting, why="the job is not in it yet")
    if run is None:
        raise InputError(f"Slurm's accounting knows no job {job_id}")
    unreadable: list[str] = []
    known = None
    if client is not None and not run.std_out:
        try:
            known = client.job(job_id)
        except (InputError, SlurmError):
            unreadable.append("Slurm's accounting of this release does not keep where the job wrote its output")
    return _convert_run(run, accounting, known, unreadable)


def _convert_run(
    run: AccountedRun, accounting: AccountingClient, remembered: JobRecord | None, unreadable: list[str]
) -> SlurmRecord:
    """Convert a run of the accounting."""
    reasons, gathered = _fetch_reasons(accounting, run.nodes, unreadable)
    facts = JobFacts(
        job_id=run.label, number=str(run.id), user=run.user, uid=run.uid, name=run.name, state=run.state,
        reason=run.reason, exit_code=run.exit_code, exit_signal=run.exit_signal,
        derived_exit_code=run.derived_exit_code, cancelled_by=run.cancelled_by,
        nodes=run.nodes, tasks=_count_ranks(run, remembered), start_s=run.start_s, end_s=run.end_s,
        time_limit_s=run.time_limit_s, submit_s=run.submit_s, restarts=run.restarts, partition=run.partition,
        account=run.account, cluster=run.cluster,
        admin_comment=run.admin_comment or (remembered and remembered.admin_comment) or "",
        node_reasons={each.node: each.reason for each in reasons},
    )  # fmt: skip
    return SlurmRecord(
        facts=facts, number=str(run.id), uid=run.uid,
        findings=(
            *_find_step_failures(run), *_find_failed_node(run), *find_node_reasons(reasons, run.start_s, run.end_s),
        ),
        work_dir=run.work_dir or (remembered and remembered.work_dir) or "",
        std_out=run.std_out or (remembered and remembered.std_out) or "",
        std_err=run.std_err or (remembered and remembered.std_err) or "",
        gathered={"sacct": f"1 run, {len(run.steps)} steps", **gathered}, unreadable=tuple(unreadable),
    )  # fmt: skip


def _convert_job(job: JobRecord, accounting: AccountingClient, *, why: str) -> SlurmRecord:
    """Convert slurmctld's record of a job."""
    unreadable = [f"Slurm's accounting: {why}; slurmctld was asked instead, which knows no steps"]
    reasons, gathered = _fetch_reasons(accounting, job.nodes, unreadable)
    times = (job.start_time, job.end_time, job.submit_time)
    start, end, submit = (None if at is None else at.timestamp() for at in times)
    facts = JobFacts(
        job_id=job.label, number=str(job.id), user=job.user, name=job.name, state=job.state, reason=job.reason or "",
        exit_code=job.exit_code, exit_signal=job.exit_signal, nodes=job.nodes, tasks=job.tasks, start_s=start,
        end_s=None if job.is_active else end, time_limit_s=job.time_limit_s, submit_s=submit,
        restarts=job.restarts or 0, partition=job.partition, account=job.account or "",
        admin_comment=job.admin_comment or "", node_reasons={each.node: each.reason for each in reasons},
    )  # fmt: skip
    return SlurmRecord(
        facts=facts, number=str(job.id), findings=find_node_reasons(reasons, start, end), work_dir=job.work_dir or "",
        std_out=job.std_out or "", std_err=job.std_err or "", unreadable=tuple(unreadable),
        gathered={"scontrol": "the job as slurmctld remembers it", **gathered},
    )  # fmt: skip


def _fetch_reasons(
    accounting: AccountingClient, nodes: Sequence[str], unreadable: list[str]
) -> tuple[tuple[NodeReason, ...], dict[str, str]]:
    """Fetch the reasons of nodes; a missing answer is recorded as unreadable, not raised."""
    try:
        reasons = accounting.node_reasons(nodes)
    except SlurmError as error:
        unreadable.append(f"reasons of nodes: {error.message}")
        return (), {}
    return reasons, {"node_reasons": f"{len(nodes)} nodes, {len(reasons)} set aside"}


def _count_ranks(run: AccountedRun, remembered: JobRecord | None) -> int | None:
    """Return how many ranks there were: the tasks of the largest step; GPUs where that is a launcher on each node."""
    step_tasks = [step.tasks for step in run.steps if step.tasks and step.id.isdecimal()]
    tasks = max([*step_tasks, run.tasks or 0, (remembered and remembered.tasks) or 0])
    if tasks <= len(run.nodes) and run.gpus > tasks:
        return run.gpus
    return tasks or None


def _find_step_failures(run: AccountedRun) -> tuple[Finding, ...]:
    """Return the steps that ran out of memory: under control groups only the step's state shows it."""
    findings = []
    for number, step in enumerate(run.steps):
        if step.state == "OUT_OF_MEMORY" or step.exit_signal == OUT_OF_MEMORY_SIGNAL:
            node = step.nodes[0] if len(step.nodes) == 1 else ""
            findings.append(Finding(
                signature="slurm.step_out_of_memory", role=Role.ROOT, origin=Origin.SLURM,
                failure=FailureClass.HOST_MEMORY, place=Place(node=node), time_s=step.end_s, order=number,
                source="sacct", text=f"step {run.label}.{step.id} {step.state}", fields={"step": step.id},
            ))  # fmt: skip
    return tuple(findings)


def _find_failed_node(run: AccountedRun) -> tuple[Finding, ...]:
    """Return that Slurm gave up on a node."""
    if not run.failed_node or "," in run.failed_node or "[" in run.failed_node:
        return ()
    return (Finding(
        signature="slurm.failed_node", role=Role.ROOT, origin=Origin.SLURM, failure=FailureClass.NODE,
        place=Place(node=run.failed_node), time_s=run.end_s, source="sacct", text=f"FailedNode={run.failed_node}",
    ),)  # fmt: skip


def find_node_reasons(reasons: Sequence[NodeReason], start_s: float | None, end_s: float | None) -> tuple[Finding, ...]:
    """Return the reasons that were given around the time of the job; others are facts of another day."""
    findings = []
    for number, reason in enumerate(reasons):
        if reason.at_s is None or reason.reason.startswith(_BY_OPSK):
            continue
        first, last = (start_s or 0.0) - BEFORE_S, (end_s or reason.at_s) + AFTER_S
        if first <= reason.at_s <= last:
            is_silent = "not responding" in reason.reason.lower() or "unexpectedly rebooted" in reason.reason.lower()
            findings.append(Finding(
                signature="slurm.node_reason", role=Role.ROOT if is_silent else Role.CONFIRMATION, origin=Origin.SLURM,
                failure=FailureClass.NODE, place=Place(node=reason.node), time_s=reason.at_s, order=number,
                source="sinfo", text=f"{reason.node} {reason.state}: {reason.reason}"[:400],
                fields={"reason": reason.reason},
            ))  # fmt: skip
    return tuple(findings)
