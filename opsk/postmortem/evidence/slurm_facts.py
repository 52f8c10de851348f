"""What does Slurm's record of a job tell a post-mortem? Facts, and signs that no program can forge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from opsk.errors import InputError, SlurmError
from opsk.postmortem.values import FailureClass, JobFacts, Origin, Place, Role, Sign
from opsk.slurm.client import SlurmClient
from opsk.slurm.commands.accounting import AccountedRun, AccountingClient, NodeReason, last_ended
from opsk.slurm.records import JobRecord

OUT_OF_MEMORY_SIGNAL = 125
BEFORE_S, AFTER_S = 300.0, 3600.0
"""A reason that was given to a node so long before the job's start or after its end has to do with the job."""
_BY_OPSK = "opsk:"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmRecord:
    """What Slurm says.

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
    signs: tuple[Sign, ...] = ()
    uid: int | None = None
    work_dir: str = ""
    std_out: str = ""
    std_err: str = ""
    gathered: Mapping[str, str] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()


def slurm_record(
    job_id: str, accounting: AccountingClient, client: SlurmClient | None, *, is_number: bool = False
) -> SlurmRecord:
    """Ask accounting; where there is none, slurmctld, which remembers a job for some minutes.

    Raises
    ------
    InputError
        There is no such job.
    SlurmError
        Nobody answers.
    """
    try:
        run = last_ended(accounting.runs(job_id, is_number=is_number))
    except SlurmError as error:
        if client is None:
            raise
        return _of_controller(client.job(job_id), accounting, why=error.message)
    except InputError as unknown:
        if client is None:
            raise
        # A job that has just ended may not have reached the accounting yet.
        try:
            remembered = client.job(job_id)
        except (InputError, SlurmError):
            raise unknown from None
        return _of_controller(remembered, accounting, why="the job is not in it yet")
    if run is None:
        raise InputError(f"Slurm's accounting knows no job {job_id}")
    unreadable: list[str] = []
    known = None
    if client is not None and not run.std_out:
        try:
            known = client.job(job_id)
        except (InputError, SlurmError):
            unreadable.append("Slurm's accounting of this release does not keep where the job wrote its output")
    return _of_run(run, accounting, known, unreadable)


def _of_run(
    run: AccountedRun, accounting: AccountingClient, remembered: JobRecord | None, unreadable: list[str]
) -> SlurmRecord:
    """Return what a run of the accounting tells."""
    reasons, gathered = _reasons(accounting, run.nodes, unreadable)
    facts = JobFacts(
        job_id=run.label, number=str(run.id), user=run.user, uid=run.uid, name=run.name, state=run.state,
        reason=run.reason, exit_code=run.exit_code, exit_signal=run.exit_signal,
        derived_exit_code=run.derived_exit_code, cancelled_by=run.cancelled_by,
        nodes=run.nodes, tasks=_tasks(run, remembered), start_s=run.start_s, end_s=run.end_s,
        time_limit_s=run.time_limit_s, submit_s=run.submit_s, restarts=run.restarts, partition=run.partition,
        account=run.account, cluster=run.cluster,
        admin_comment=run.admin_comment or (remembered and remembered.admin_comment) or "",
        node_reasons={each.node: each.reason for each in reasons},
    )  # fmt: skip
    return SlurmRecord(
        facts=facts, number=str(run.id), uid=run.uid,
        signs=(*_step_signs(run), *_failed_node(run), *reason_signs(reasons, run.start_s, run.end_s)),
        work_dir=run.work_dir or (remembered and remembered.work_dir) or "",
        std_out=run.std_out or (remembered and remembered.std_out) or "",
        std_err=run.std_err or (remembered and remembered.std_err) or "",
        gathered={"sacct": f"1 run, {len(run.steps)} steps", **gathered}, unreadable=tuple(unreadable),
    )  # fmt: skip


def _of_controller(job: JobRecord, accounting: AccountingClient, *, why: str) -> SlurmRecord:
    """Return what slurmctld still remembers."""
    unreadable = [f"Slurm's accounting: {why}; slurmctld was asked instead, which knows no steps"]
    reasons, gathered = _reasons(accounting, job.nodes, unreadable)
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
        facts=facts, number=str(job.id), signs=reason_signs(reasons, start, end), work_dir=job.work_dir or "",
        std_out=job.std_out or "", std_err=job.std_err or "", unreadable=tuple(unreadable),
        gathered={"scontrol": "the job as slurmctld remembers it", **gathered},
    )  # fmt: skip


def _reasons(
    accounting: AccountingClient, nodes: Sequence[str], unreadable: list[str]
) -> tuple[tuple[NodeReason, ...], dict[str, str]]:
    """Ask for the reasons of nodes; that nobody answers is told, and no error."""
    try:
        found = accounting.node_reasons(nodes)
    except SlurmError as error:
        unreadable.append(f"reasons of nodes: {error.message}")
        return (), {}
    return found, {"node_reasons": f"{len(nodes)} nodes, {len(found)} set aside"}


def _tasks(run: AccountedRun, remembered: JobRecord | None) -> int | None:
    """Return how many ranks there were: the tasks of the largest step; GPUs where that is a launcher on each node."""
    told = [step.tasks for step in run.steps if step.tasks and step.id.isdecimal()]
    tasks = max([*told, run.tasks or 0, (remembered and remembered.tasks) or 0])
    if tasks <= len(run.nodes) and run.gpus > tasks:
        return run.gpus
    return tasks or None


def _step_signs(run: AccountedRun) -> tuple[Sign, ...]:
    """Return what the ends of steps tell: under control groups only the step says that memory ran out."""
    signs = []
    for number, step in enumerate(run.steps):
        if step.state == "OUT_OF_MEMORY" or step.exit_signal == OUT_OF_MEMORY_SIGNAL:
            node = step.nodes[0] if len(step.nodes) == 1 else ""
            signs.append(Sign(
                signature="slurm.step_out_of_memory", role=Role.ROOT, origin=Origin.SLURM,
                failure=FailureClass.HOST_MEMORY, place=Place(node=node), time_s=step.end_s, order=number,
                source="sacct", text=f"step {run.label}.{step.id} {step.state}", fields={"step": step.id},
            ))  # fmt: skip
    return tuple(signs)


def _failed_node(run: AccountedRun) -> tuple[Sign, ...]:
    """Return that Slurm gave up on a node."""
    if not run.failed_node or "," in run.failed_node or "[" in run.failed_node:
        return ()
    return (Sign(
        signature="slurm.failed_node", role=Role.ROOT, origin=Origin.SLURM, failure=FailureClass.NODE,
        place=Place(node=run.failed_node), time_s=run.end_s, source="sacct", text=f"FailedNode={run.failed_node}",
    ),)  # fmt: skip


def reason_signs(reasons: Sequence[NodeReason], start_s: float | None, end_s: float | None) -> tuple[Sign, ...]:
    """Return the reasons that were given around the time of the job; others are facts of another day."""
    signs = []
    for number, each in enumerate(reasons):
        if each.at_s is None or each.reason.startswith(_BY_OPSK):
            continue
        first, last = (start_s or 0.0) - BEFORE_S, (end_s or each.at_s) + AFTER_S
        if first <= each.at_s <= last:
            is_silent = "not responding" in each.reason.lower() or "unexpectedly rebooted" in each.reason.lower()
            signs.append(Sign(
                signature="slurm.node_reason", role=Role.ROOT if is_silent else Role.CONFIRMATION, origin=Origin.SLURM,
                failure=FailureClass.NODE, place=Place(node=each.node), time_s=each.at_s, order=number,
                source="sinfo", text=f"{each.node} {each.state}: {each.reason}"[:400], fields={"reason": each.reason},
            ))  # fmt: skip
    return tuple(signs)
