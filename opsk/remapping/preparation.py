"""From an option to what is written down before anything is done: steps of the caller, what is left, the world."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opsk.errors import InputError
from opsk.job_key import JobKey
from opsk.planning.remap.preview import hosts_of
from opsk.planning.remap.terms import Terms
from opsk.planning.remap.values import Answer, Option, Way
from opsk.remapping.actions import Before, Look, Step, nodes_in
from opsk.remapping.decision import Decision, Launched, decision_file, launched_file, read_launched
from opsk.remapping.journal import PlannedRemap, new_id
from opsk.remapping.running import caller_name, for_whom, is_mine
from opsk.remapping.world import World, world_of
from opsk.slurm.commands.remap_commands import Command, Where, Who
from opsk.slurm.records import JobRecord, NodeRecord

_DRAIN = "nodename"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """A launcher of the job's owner that runs in the job: where it is spoken to, and what it said."""

    owner: int
    files: Mapping[str, Path]
    said: Launched


def chosen_option(answer: Answer, chosen: str) -> Option:
    """Return option number N, or the first of a kind.

    Raises
    ------
    InputError
        There is none; what there is is told.
    """
    if chosen.isdecimal() and chosen.isascii() and 1 <= int(chosen) <= len(answer.options):
        return answer.options[int(chosen) - 1]
    for option in answer.options:
        if option.kind.value == chosen:
            return option
    if answer.nothing_to_do:
        raise InputError(f"nothing to apply: {answer.nothing_to_do}", hint="leave --apply out")
    kinds = ", ".join(f"{number} {option.kind}" for number, option in enumerate(answer.options, start=1))
    why = "; ".join(refusal.why for refusal in answer.refused if refusal.kind.value == chosen)
    raise InputError(f"there is no option {chosen[:40]!r}" + (f": {why}" if why else ""), hint=f"there are {kinds}")


def launcher_of(job: JobRecord | None, cluster: str) -> Launcher | None:
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
    said = read_launched(launched_file(folder, key), owner=owner)
    if said is None:  # it may be one that opsk 0.1 started, which says of no cluster
        key = JobKey(job=job.label)
        said = read_launched(launched_file(folder, key), owner=owner)
        if said is None or not _runs_on(job, said.host):
            return None
    if said.job != job.label or said.cluster not in ("", cluster):
        return None
    files = {"decision": decision_file(folder, key), "launched": launched_file(folder, key)}
    return Launcher(owner=owner, files=files, said=said)


def _runs_on(job: JobRecord, host: str) -> bool:
    """Tell whether a host is a node of a job: a job of another cluster with this number runs on others."""
    return host.partition(".")[0] in {node.partition(".")[0] for node in job.nodes}


def _is_plain(label: str) -> bool:
    return all(sign.isdecimal() or sign in "_+" for sign in label)


def world_for(option: Option, job: JobRecord | None, nodes: Mapping[str, NodeRecord]) -> World:
    """Return the world that an option rests on."""
    return world_of(job, nodes, used=option.nodes, failed=_failed(option))


def begin(
    option: Option,
    terms: Terms,
    *,
    failed: tuple[str, ...],
    look: Look,
    rights: tuple[Who, ...],
    at_s: float,
    launcher: Launcher | None = None,
    world: World | None = None,
    cluster: str = "",
) -> PlannedRemap:
    """Return what is to be done.

    Parameters
    ----------
    look
        The world when the plan was made.
    launcher
        Takes the new map where the option is a new step inside the job; else that is left to the job itself.
    world
        What the plan rests on, where that was noted before; else as it is in ``look``.
    cluster
        Whose job it is; empty where nobody tells it.
    """
    job, dead = look.job, _failed(option)
    name = new_id(terms.job, at_s)
    is_spoken_to = launcher is not None and launcher.owner == os.geteuid()
    decision = _decision(option, terms, name, cluster) if is_spoken_to else None
    steps: list[Step] = []
    left: list[tuple[str, str]] = []
    for command in option.commands:
        if decision is not None and command.where is Where.IN_JOB:
            steps.append(_hand_over(len(steps), decision))
        elif is_mine(command, rights):
            steps.append(_step(len(steps), command))
        else:
            left.append((command.text, for_whom(command)))
    return PlannedRemap(
        id=name,
        at_s=at_s,
        by=caller_name(),
        host=socket.gethostname(),
        job=terms.job,
        failed=failed,
        kind=option.kind.value,
        title=option.title,
        steps=tuple(steps),
        left=tuple(left),
        before=Before(
            restarts=(job.restarts or 0) if job is not None else 0,
            required=job.required_nodes if job is not None else (),
            excluded=job.excluded_nodes if job is not None else (),
            drained=tuple(node for node in dead if look.is_drained(node)),
            failed=dead,
        ),
        world=world or world_for(option, job, look.nodes),
        rank_file=str(Path(terms.rank_file).absolute()) if option.rank_file else "",
        ranks=option.rank_file,
        decision=decision,
        cluster=cluster,
    )


def _failed(option: Option) -> tuple[str, ...]:
    """Return the nodes that the option keeps the job away from: those that it drains or excludes."""
    found = [
        name for command in option.commands for key in (_DRAIN, "excnodelist") for name in nodes_in(command.argv, key)
    ]
    return tuple(dict.fromkeys(found))


def _step(number: int, command: Command) -> Step:
    return Step(number=number, argv=command.argv, text=command.text, when=command.when)


def _decision(option: Option, terms: Terms, name: str, cluster: str) -> Decision | None:
    """Return the map for the launcher; ``None`` where it cannot bring the option about."""
    if not is_for_launcher(option):
        return None
    return Decision(id=name, job=terms.job, hosts=hosts_of(option), gpu_order=option.gpu_order, cluster=cluster)


def is_for_launcher(option: Option) -> bool:
    """Return whether a launcher brings an option about: a new step inside the job, whose command stays as it is.

    Where the plan changes, so must the flags of the training program, which only its owner can change.
    """
    return option.way in {Way.RELAUNCH, Way.RESIZE} and not option.changes


def _hand_over(number: int, decision: Decision) -> Step:
    where = f"{len(decision.hosts)} ranks on {', '.join(decision.nodes[:8])}"
    return Step(number=number, argv=("opsk-decide", decision.id), text=f"the launcher in the job starts {where}")
