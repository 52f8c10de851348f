"""Prepares the remap of an option: the caller's steps, what is left to others, and the preconditions."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opsk.errors import InputError
from opsk.job_key import JobKey
from opsk.planning.remap.placement_view import list_hosts
from opsk.planning.remap.values import Answer, Option, Terms, Way
from opsk.remapping.cluster_state import ClusterState, InitialState, Preconditions, Step, build_preconditions
from opsk.remapping.commands import find_caller_name, format_executor, is_allowed
from opsk.remapping.decision import Decision, LauncherReport, decision_file, launcher_report_file, read_launcher_report
from opsk.remapping.journal import PlannedRemap, new_id
from opsk.slurm.commands.remap_commands import Action, ActionKind, Command, Where, Who
from opsk.slurm.records import JobRecord, NodeRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningLauncher:
    """The launcher of the job's owner in a running job: its files, and its last report."""

    owner: int
    files: Mapping[str, Path]
    status: LauncherReport


def find_option(answer: Answer, chosen: str) -> Option:
    """Return option number N, or the first of a kind.

    Raises
    ------
    InputError
        There is none; the message lists the options.
    """
    if chosen.isdecimal() and chosen.isascii() and 1 <= int(chosen) <= len(answer.options):
        return answer.options[int(chosen) - 1]
    for option in answer.options:
        if option.kind.value == chosen:
            return option
    if answer.nothing_to_do:
        raise InputError(f"nothing to apply: {answer.nothing_to_do}", hint="leave out --apply")
    kinds = ", ".join(f"{number} {option.kind}" for number, option in enumerate(answer.options, start=1))
    why = "; ".join(refusal.why for refusal in answer.refused if refusal.kind.value == chosen)
    raise InputError(f"there is no option {chosen[:40]!r}" + (f": {why}" if why else ""), hint=f"options: {kinds}")


def find_launcher(job: JobRecord | None, cluster: str) -> RunningLauncher | None:
    """Return the launcher of a running job of a cluster, where it has one and the caller is its owner."""
    if job is None or not job.is_active or not job.work_dir:
        return None
    try:
        owner = pwd.getpwnam(job.user).pw_uid
    except KeyError:
        return None
    if not _is_plain(job.label):
        return None
    folder, key = Path(job.work_dir), JobKey(cluster=cluster, job=job.label)
    status = read_launcher_report(launcher_report_file(folder, key), owner=owner)
    if status is None:  # it may be one that opsk 0.1 started, which names no cluster
        key = JobKey(job=job.label)
        status = read_launcher_report(launcher_report_file(folder, key), owner=owner)
        if status is None or not _runs_on(job, status.host):
            return None
    if status.job != job.label or status.cluster not in ("", cluster):
        return None
    files = {"decision": decision_file(folder, key), "launched": launcher_report_file(folder, key)}
    return RunningLauncher(owner=owner, files=files, status=status)


def _runs_on(job: JobRecord, host: str) -> bool:
    """Return whether a host is a node of a job: a job of another cluster with this number runs on others."""
    return host.partition(".")[0] in {node.partition(".")[0] for node in job.nodes}


def _is_plain(label: str) -> bool:
    return all(sign.isdecimal() or sign in "_+" for sign in label)


def build_option_preconditions(option: Option, job: JobRecord | None, nodes: Mapping[str, NodeRecord]) -> Preconditions:
    """Return what an option depends on, as it is now."""
    return build_preconditions(job, nodes, used=option.nodes, failed=_find_failed_nodes(option))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanBasis:
    """What a plan was made from: the failures, the cluster's state, and its name, empty where it is unknown."""

    failed: tuple[str, ...]
    state: ClusterState
    cluster: str = ""


def prepare_remap(
    option: Option,
    terms: Terms,
    basis: PlanBasis,
    *,
    rights: tuple[Who, ...],
    at_s: float,
    launcher: RunningLauncher | None = None,
) -> PlannedRemap:
    """Return the remap to execute.

    Parameters
    ----------
    launcher
        Takes the new map where the option is a new step inside the job; else that is left to the job itself.
    """
    state, cluster = basis.state, basis.cluster
    job, failed_nodes = state.job, _find_failed_nodes(option)
    name = new_id(terms.job, at_s)
    is_spoken_to = launcher is not None and launcher.owner == os.geteuid()
    decision = _build_decision(option, terms, name, cluster) if is_spoken_to else None
    steps: list[Step] = []
    left: list[tuple[str, str]] = []
    for command in option.commands:
        if decision is not None and command.where is Where.IN_JOB:
            steps.append(_build_hand_over_step(len(steps), decision))
        elif is_allowed(command, rights):
            steps.append(_build_step(len(steps), command))
        else:
            left.append((command.text, format_executor(command)))
    return PlannedRemap(
        id=name,
        at_s=at_s,
        by=find_caller_name(),
        host=socket.gethostname(),
        job=terms.job,
        failed=basis.failed,
        kind=option.kind.value,
        title=option.title,
        steps=tuple(steps),
        left=tuple(left),
        before=InitialState(
            restarts=(job.restarts or 0) if job is not None else 0,
            required=job.required_nodes if job is not None else (),
            excluded=job.excluded_nodes if job is not None else (),
            drained=tuple(node for node in failed_nodes if state.is_drained(node)),
            failed=failed_nodes,
        ),
        world=build_option_preconditions(option, job, state.nodes),
        rank_file=str(Path(terms.rank_file).absolute()) if option.rank_file else "",
        ranks=option.rank_file,
        decision=decision,
        cluster=cluster,
    )


def _find_failed_nodes(option: Option) -> tuple[str, ...]:
    """Return the nodes that the option removes from the job: those that it drains or excludes."""
    nodes = [
        name
        for action in (command.action for command in option.commands)
        for name in (*(action.nodes if action.kind is ActionKind.DRAIN else ()), *action.excluded)
    ]
    return tuple(dict.fromkeys(nodes))


def _build_step(number: int, command: Command) -> Step:
    return Step(number=number, argv=command.argv, text=command.text, when=command.when, action=command.action)


def _build_decision(option: Option, terms: Terms, name: str, cluster: str) -> Decision | None:
    """Return the map for the launcher; ``None`` where it cannot bring the option about."""
    if not is_for_launcher(option):
        return None
    return Decision(id=name, job=terms.job, hosts=list_hosts(option), gpu_order=option.gpu_order, cluster=cluster)


def is_for_launcher(option: Option) -> bool:
    """Return whether a launcher executes an option: a new step inside the job, with an unchanged command.

    Where the plan changes, so must the flags of the training program, which only its owner can change.
    """
    return option.way in {Way.RELAUNCH, Way.RESIZE} and not option.changes


def _build_hand_over_step(number: int, decision: Decision) -> Step:
    where = f"{len(decision.hosts)} ranks on {', '.join(decision.nodes[:8])}"
    return Step(
        number=number, argv=("opsk-decide", decision.id), text=f"the launcher in the job starts {where}",
        action=Action(kind=ActionKind.DECIDE, nodes=decision.nodes),
    )  # fmt: skip
