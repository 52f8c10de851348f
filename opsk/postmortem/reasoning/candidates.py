"""Builds the candidates for the first failure, from findings, Slurm's record, ends of processes and hangs."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from opsk.postmortem.reasoning.actions import find_meaning
from opsk.postmortem.reasoning.candidate import ENDS_JOB, JOB_WIDE, Candidate, find_first_s, sort_key
from opsk.postmortem.reasoning.ends import classify_end, find_first_end, was_aborted
from opsk.postmortem.reasoning.joining import join_candidates
from opsk.postmortem.reasoning.places import RankPlacement, complete_place, merge_places, rank_identity
from opsk.postmortem.reasoning.steps import LastSteps
from opsk.postmortem.reasoning.weights import load_weights
from opsk.postmortem.values import Divergence, Evidence, FailureClass, Finding, Origin, Place, RankProgress, Role

_APART_S = 300.0
"""Findings of one kind and place this far apart are two failures [s]."""
_PORT_IN_USE = "rendezvous.address_in_use"
_WITNESSES = (Origin.KERNEL, Origin.GPU, Origin.FABRIC, Origin.CGROUP, Origin.SLURM)
"""These origins take precedence over programs."""
_NAME_OTHERS = ("torch.monitored_barrier", "jax.heartbeats_stopped")
"""They name the rank that did not come."""
_ENDS = {
    "kill": (FailureClass.HOST_MEMORY, "was killed, by whom is not said: most often memory ran out"),
    "lost": (FailureClass.HOST_MEMORY, "left no word: of the causes that Ray lists, memory that ran out is the first"),
    "usage": (FailureClass.CONFIG, "ended with status 2, as programs do that get a wrong argument or find no script"),
    "bus": (FailureClass.HOST_MEMORY, "used memory that could not be given (SIGBUS): most often /dev/shm is full"),
}
_UNTOLD = ("shell.child_ended", "process.killed", "ray.worker_lost", "batch.ended", "program.exit_status")
"""A shell, or Ray, says that a process ended, and not which: any other sign explains more."""
_SIGTERM = "launcher.sigterm"
_ASKED = re.compile(
    r"SignalException: Process \d+ got signal: ?(?:[123]|15)\b|(?:[123]|15) death signal|Main process received SIGTERM"
)
"""torchrun's agent, torch.distributed.launch and DeepSpeed's launcher say so of themselves, not of their processes."""
_ASKED_LAST = re.compile(
    r"\*\*\* SIGTERM received at time=|\*\*\* SIG(?:TERM|INT) \(@0x|forrtl: error \(78\): process killed"
    r"|(?:[Rr]eceived|[Cc]aught) signal:? (?:15\b|SIGTERM)|[Cc]aught SIGTERM|: line \d{1,6}: +\d{1,10} Terminated "
)
"""Ray's driver, Intel's Fortran and bash say so of a program, whose last words these are unless another goes on."""
_REPORTS = ("slurm.task_killed", "launcher.first_failure", "launcher.root_rank", "slurm.step_aborted")
"""After these a launcher is ended because one of its kind has failed."""
_RAY_EXPLAINS = ("ray.actor_ended", "ray.worker_raised")
"""Ray says that an actor died unexpectedly, and in the next line that it was asked to, or raised an exception."""
_NODE_LOST = ("slurm.node_not_responding", "slurm.node_lost")
_STATES = {
    "TIMEOUT": (FailureClass.TIME_LIMIT, "the job's time was up"),
    "DEADLINE": (FailureClass.TIME_LIMIT, "the job's deadline had come"),
    "PREEMPTED": (FailureClass.PREEMPTED, "a job of higher priority took the nodes"),
    "NODE_FAIL": (FailureClass.NODE, "a node of the job stopped answering"),
    "BOOT_FAIL": (FailureClass.NODE, "a node of the job did not come up"),
    "OUT_OF_MEMORY": (FailureClass.HOST_MEMORY, "a process was ended because the job's memory limit was reached"),
    "CANCELLED": (FailureClass.CANCELLED, "the job was cancelled"),
}


def build_candidates(
    findings: Sequence[Finding],
    evidence: Evidence,
    divergence: Divergence | None,
    placement: RankPlacement,
    victim: Place,
) -> list[Candidate]:
    """Return all candidates, in no order.

    Parameters
    ----------
    victim
        The process that ended first according to launchers.
    """
    progress_s = max((r.last_progress_s for r in evidence.ranks if r.last_progress_s is not None), default=None)
    groups: dict[tuple[FailureClass, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        if finding.role is Role.ROOT and finding.failure is not None:
            groups[finding.failure, _find_locus(finding, placement)].append(finding)
    candidates = [
        _build_candidate(failure, part, placement)
        for (failure, _), group in groups.items()
        for part in _split(failure, group, progress_s)
    ]
    candidates += _build_slurm_candidates(evidence, findings)
    steps = LastSteps.of(evidence)
    others = [each for each in candidates if not _was_survived(each, steps)]
    last = [each for each in findings if not steps.follow_in_log(each)]
    candidates += _build_end_candidates(last, divergence, placement, others)
    candidates += _build_asked_to_end(findings, candidates, evidence.ranks)
    world = len({rank_identity(each) for each in evidence.ranks} - {()}) or 1
    candidates = join_candidates(candidates, world, victim, placement.per_node)
    candidates = [_place_node_loss(each, findings, divergence, placement) for each in candidates]
    hang = _build_hang(findings, divergence, placement)
    return [*candidates, *([hang] if hang is not None else [])]


def _find_locus(finding: Finding, placement: RankPlacement) -> str:
    """Return the key that findings of one class share when they are one failure."""
    if finding.failure in JOB_WIDE:
        return ""
    place = complete_place(finding.place, placement)
    if finding.failure in (FailureClass.NODE, FailureClass.HOST_MEMORY, FailureClass.FABRIC):
        return place.node or (f"rank {place.rank}" if place.rank is not None else "")
    if place.rank is not None:
        return f"rank {place.rank}"
    if place.local_rank is not None and not place.pci:
        return f"{place.node} {place.node_rank} local rank {place.local_rank}"
    return f"{place.node} {place.pci}".strip()


def _split(failure: FailureClass, group: Sequence[Finding], progress_s: float | None) -> list[list[Finding]]:
    """Split findings where a long time lies between them; those without a time join the last group.

    Kept separate: what was printed before training last made progress.
    """
    timed = sorted((finding for finding in group if finding.time_s is not None), key=sort_key)
    untimed = [finding for finding in group if finding.time_s is None]
    parts: list[list[Finding]] = []
    for finding in timed:
        before = parts[-1][-1] if parts else None
        last = (before.last_time_s or before.time_s or 0.0) if before is not None else 0.0
        if before is not None and (finding.time_s or 0.0) - last <= _APART_S:
            parts[-1].append(finding)
        else:
            parts.append([finding])
    if not parts or failure not in ENDS_JOB:
        early = [s for s in untimed if s.latest_s is not None and progress_s is not None and s.latest_s < progress_s]
        late = [finding for finding in untimed if finding not in early]
        return [part for part in (*parts[:-1], [*(parts[-1] if parts else []), *late], early) if part]
    parts[-1] += untimed
    return parts


def _build_candidate(failure: FailureClass, group: Sequence[Finding], placement: RankPlacement) -> Candidate:
    """Return the candidate of findings that belong together."""
    ordered = sorted(group, key=sort_key)
    best = max(ordered, key=load_weights().of)
    clearest = max(ordered, key=lambda finding: (finding.origin in _WITNESSES, load_weights().of(finding)))
    places = [complete_place(finding.place, placement) for finding in ordered]
    place = merge_places(places)
    if failure in ENDS_JOB or (failure in JOB_WIDE and len({each.rank for each in places}) > 1):
        place = Place()
    if failure is FailureClass.RENDEZVOUS:
        place = next(
            (location for finding, location in zip(ordered, places, strict=True) if finding.signature == _PORT_IN_USE),
            place,
        )
    if failure is FailureClass.FABRIC:
        place = replace(place, rank=None, pci="", gpu_index=None)
    return Candidate(
        failure=failure, place=place, findings=tuple(ordered), base=load_weights().of(best),
        first_s=find_first_s(ordered), what=find_meaning(clearest),
    )  # fmt: skip


def _place_node_loss(
    candidate: Candidate, findings: Sequence[Finding], divergence: Divergence | None, placement: RankPlacement
) -> Candidate:
    """Return the loss of a node with the node that srun names, or from which all ranks are silent."""
    if candidate.failure is not FailureClass.NODE or candidate.place.node:
        return candidate
    nodes = {finding.place.node for finding in findings if finding.signature in _NODE_LOST} - {""}
    if not nodes and divergence is not None:
        nodes = {placement.node.get(rank, "") for rank in divergence.never_arrived}
    return replace(candidate, place=Place(node=nodes.pop())) if len(nodes) == 1 else candidate


def _build_end_candidates(
    findings: Sequence[Finding], divergence: Divergence | None, placement: RankPlacement, others: Sequence[Candidate]
) -> list[Candidate]:
    """Return the end of the first process as a candidate, where it printed no reason and was not waiting."""
    end = find_first_end(findings, placement)
    if end is None or not (how := classify_end(end[0])):
        return []
    finding, place = end
    if how == "crash" and was_aborted(finding) and any(load_weights().hangs.get(each.signature) for each in findings):
        return []  # watchdogs of collectives end their processes so
    if finding.signature in _UNTOLD and (others or (how == "lost" and _is_explained(findings))):
        return []
    waited = divergence is not None and place.rank in divergence.waiting
    spoke = any(
        s.place.rank == place.rank and (s.role is Role.ROOT or s.failure is FailureClass.COLLECTIVE_HANG)
        for s in findings
    )
    if waited or spoke or any(each.place.rank == place.rank for each in others):
        return []
    failure, description = _ENDS.get(how, (FailureClass.SOFTWARE, "ended badly without a word"))
    return [
        Candidate(
            failure=failure, place=place, findings=(finding,), base=load_weights().end[how], first_s=finding.time_s,
            what=f"the first process that ended {description}", source="end",
        )
    ]  # fmt: skip


def _was_survived(candidate: Candidate, steps: LastSteps) -> bool:
    """Return whether training went on after all that speaks for a candidate, further down in the log."""
    findings = candidate.findings if candidate.source == "findings" else ()
    return bool(findings) and all(steps.follow_in_log(each) for each in findings)


def _is_explained(findings: Sequence[Finding]) -> bool:
    """Return whether Ray itself says why one of its processes ended."""
    return any(each.signature in _RAY_EXPLAINS for each in findings)


def _build_asked_to_end(
    findings: Sequence[Finding], others: Sequence[Candidate], ranks: Sequence[RankProgress]
) -> list[Candidate]:
    """Return SIGTERM from outside as a candidate, where a launcher or program got it and nothing at all had failed."""
    if others or any(load_weights().hangs.get(each.signature) or each.signature in _REPORTS for each in findings):
        return []
    goes_on = {each.source: each.ordinary_order for each in ranks if each.ordinary_order is not None}
    asked = tuple(
        each
        for each in findings
        if each.signature == _SIGTERM
        and each.role is not Role.ADVICE
        and (
            _ASKED.search(each.text)
            or (_ASKED_LAST.search(each.text) and max(each.order, each.last_order) > goes_on.get(each.source, -1))
        )
    )
    if not asked:
        return []
    who = "launcher" if _ASKED.search(asked[0].text) else "program"
    return [
        Candidate(
            failure=FailureClass.CANCELLED, place=Place(), findings=asked[:1], base=load_weights().end["asked"],
            first_s=asked[0].time_s, source="end",
            what=f"the {who} was asked to end (SIGTERM) and nothing had failed: cancelled, preempted or out of time",
        )
    ]  # fmt: skip


def _build_hang(
    findings: Iterable[Finding], divergence: Divergence | None, placement: RankPlacement
) -> Candidate | None:
    """Return the hang that waiting ranks report."""
    hang_findings = tuple(sorted((s for s in findings if s.failure is FailureClass.COLLECTIVE_HANG), key=sort_key))
    hung = [finding for finding in hang_findings if load_weights().hangs.get(finding.signature)]
    if not hung:
        return None
    culprits = (divergence.behind or divergence.never_arrived) if divergence is not None else ()
    named = {
        int(s.fields["peer_rank"])
        for s in hang_findings
        if s.signature in _NAME_OTHERS and s.fields.get("peer_rank", "").isdecimal()
    }
    culprits = tuple(sorted(named)) or culprits
    place = _find_common_place(culprits, placement)
    waiting = len(divergence.waiting) if divergence is not None else 0
    position = (
        f" in {divergence.op} number {divergence.seq}" if divergence is not None and divergence.seq is not None else ""
    )
    what = (
        f"{waiting} rank{'' if waiting == 1 else 's'} waited{position} for one that did not come"
        if waiting
        else find_meaning(hung[0])
    )
    base = max(load_weights().hangs[finding.signature] for finding in hung)
    return Candidate(
        failure=FailureClass.COLLECTIVE_HANG, place=place, findings=hang_findings[:16], base=base,
        first_s=find_first_s(hung), what=what, source="hang",
    )  # fmt: skip


def _find_common_place(culprits: Sequence[int], placement: RankPlacement) -> Place:
    """Return where ranks are that did not come; of many, the node that all are on."""
    if not culprits:
        return Place()
    places = [complete_place(Place(rank=rank), placement) for rank in culprits]
    if len(places) == 1:
        return places[0]
    nodes = {each.node for each in places}
    return Place(node=nodes.pop()) if len(nodes) == 1 else Place()


def _build_slurm_candidates(evidence: Evidence, findings: Sequence[Finding]) -> list[Candidate]:
    """Return the candidates from Slurm's record."""
    job = evidence.job
    state = job.state.split()[0].rstrip("+") if job is not None and job.state else ""
    if job is None or state not in _STATES:
        return []
    failure, what = _STATES[state]
    confirmations = tuple(
        finding for finding in findings if finding.failure is failure and finding.role is Role.CONFIRMATION
    )
    nodes = {finding.place.node for finding in confirmations if finding.signature in _NODE_LOST} - {""} or set(
        job.node_reasons
    )
    place = Place(node=nodes.pop()) if failure is FailureClass.NODE and len(nodes) == 1 else Place()
    by = f" by user {job.cancelled_by}" if failure is FailureClass.CANCELLED and job.cancelled_by is not None else ""
    first = find_first_s(confirmations)
    return [
        Candidate(
            failure=failure, place=place, findings=confirmations, base=load_weights().slurm_state[state],
            first_s=first if first is not None else job.end_s, what=what + by, source="slurm",
        )
    ]  # fmt: skip
