"""Builds the candidates for the first failure: signs of one failure, or of one failure on all ranks, are joined."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from opsk.postmortem.reasoning.actions import find_meaning
from opsk.postmortem.reasoning.places import (
    RankPlacement,
    classify_end,
    complete_place,
    find_first_end,
    is_same_gpu,
    merge_places,
    rank_identity,
    was_aborted,
)
from opsk.postmortem.values import Divergence, Evidence, FailureClass, Finding, Origin, Place, Role

ENDS_JOB = frozenset((FailureClass.TIME_LIMIT, FailureClass.PREEMPTED, FailureClass.CANCELLED))
"""Ends that Slurm or a user brings about: they have no place."""
JOB_WIDE = frozenset((*ENDS_JOB, FailureClass.CONFIG, FailureClass.RENDEZVOUS))
"""Classes whose findings belong together wherever they were printed."""
PROCESS_ENDS = ("process.fatal_python", "process.segfault")
"""Findings on how a process ended: they may not name the process, and follow from what it printed before."""
_NUMBERS = re.compile(r"[\d.]+")
_NEAR_S = 300.0
_TOGETHER_S = 5.0
"""Ranks that print the same within this time report on the job, not on themselves [s]."""
_MANY = 0.5
"""Share of the ranks from which on the same text does not identify a place."""
_FEW_OF_STORAGE = 2
"""Ranks that fail on files at one moment share the file system, not a fault of their own."""
_ONE_CAUSE = frozenset((FailureClass.GPU_MEMORY, FailureClass.SOFTWARE, FailureClass.CONFIG, FailureClass.NUMERIC))
"""What several ranks say of these at one moment, in the same words, is one cause."""
_MAX_RANKS = 256
_OF_A_PROCESS = (FailureClass.HOST_MEMORY,)
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
_UNTOLD = ("shell.child_ended", "process.killed", "ray.worker_lost")
"""A shell, or Ray, says that a process ended, and not which: any other sign explains more."""
_SIGTERM = "launcher.sigterm"
_ASKED = re.compile(r"SignalException: Process \d+ got signal: ?15|15 death signal|Main process received SIGTERM")
"""torchrun's agent, torch.distributed.launch and DeepSpeed's launcher say so of themselves, not of their processes."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A failure that may have been the first.

    Parameters
    ----------
    base
        Probability of its best finding alone [ratio].
    first_s
        Time of its first finding, in the reference clock.
    what
        What it is, a sentence without the place.
    source
        ``slurm`` when Slurm's record states it, ``hang`` when only waiting ranks do, ``end`` when only the end of a
        process does, else ``findings``.
    """

    failure: FailureClass
    place: Place
    findings: tuple[Finding, ...]
    base: float
    first_s: float | None
    what: str
    source: str = "findings"


def sort_key(finding: Finding) -> tuple[float, int]:
    """Return the key that orders findings: time where there is one, else the place in the log."""
    return (finding.time_s if finding.time_s is not None else float("inf"), finding.order)


def find_first_s(findings: Sequence[Finding]) -> float | None:
    """Return the time of the first of some findings."""
    return min((finding.time_s for finding in findings if finding.time_s is not None), default=None)


def join_candidates(
    candidates: Sequence[Candidate], world: int, victim: Place, per_node: int | None = None
) -> list[Candidate]:
    """Return candidates of which no two are the same failure."""
    by_class: dict[FailureClass, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        by_class[candidate.failure].append(candidate)
    return [
        each for failure, similar in by_class.items() for each in _join_class(failure, similar, world, victim, per_node)
    ]


def _join_class(
    failure: FailureClass, similar: list[Candidate], world: int, victim: Place, per_node: int | None
) -> list[Candidate]:
    """Join the candidates of one class."""
    similar = _join_spread(_fold(similar), world, per_node)
    if failure is FailureClass.NVLINK:
        similar = _join_gpus(similar)
    is_end = all(finding.signature in PROCESS_ENDS for each in similar for finding in each.findings)
    if (failure in _OF_A_PROCESS or is_end) and len(similar) == 1 and victim.rank is not None:
        only = similar[0]
        if only.place.rank is None and only.place.node in ("", victim.node):
            return [replace(only, place=merge_places([only.place, victim]))]
    return similar


def _fold(similar: list[Candidate]) -> list[Candidate]:
    """Merge candidates with less detailed places into those with more, nearest in time first."""
    exact = sorted(similar, key=lambda each: (-_detail(each.place), each.first_s or float("inf")))
    folded: list[Candidate] = []
    for candidate in exact:
        fits = [index for index, other in enumerate(folded) if _are_same(candidate, other)]
        if len({_place_key(folded[index].place) for index in fits}) == 1:
            index = min(fits, key=lambda each: _gap_s(folded[each], candidate))
            folded[index] = _merge(folded[index], candidate)
        else:
            folded.append(candidate)
    return folded


def _detail(place: Place) -> int:
    """Return how much is known of a place."""
    return 4 * (bool(rank_identity(place)) or bool(place.pci)) + 2 * bool(place.node) + bool(place.hca)


def _place_key(place: Place) -> tuple[object, ...]:
    """Return the key that distinguishes two places."""
    return place.node, *rank_identity(place)


def _are_same(less: Candidate, more: Candidate) -> bool:
    """Return whether two candidates of a class can be one failure: places agree, and times are near."""
    if less.failure not in ENDS_JOB and _gap_s(less, more) > _NEAR_S and "slurm" not in (less.source, more.source):
        return False
    for name in ("node", "rank"):
        first_value, second_value = getattr(less.place, name), getattr(more.place, name)
        if first_value not in ("", None) and second_value not in ("", None) and first_value != second_value:
            return False
    numbers = {each.place.local_rank for each in (less, more) if each.place.rank is None} - {None}
    if len(numbers) > 1:
        return False
    return not (less.place.pci and more.place.pci) or is_same_gpu(less.place.pci, more.place.pci)


def _gap_s(first: Candidate, second: Candidate) -> float:
    """Return how far two candidates lie apart [s]; 0 where that is not known."""
    if first.first_s is None or second.first_s is None:
        return 0.0
    return abs(first.first_s - second.first_s)


def _merge(left: Candidate, right: Candidate) -> Candidate:
    """Return two candidates as one."""
    findings = tuple(sorted((*left.findings, *right.findings), key=sort_key))
    best = left if left.base >= right.base else right
    starts = [each.first_s for each in (left, right) if each.first_s is not None and each.source != "slurm"]
    first = min(
        starts, default=find_first_s(findings) if find_first_s(findings) is not None else left.first_s or right.first_s
    )
    what = next((each.what for each in (left, right) if each.source == "slurm" and left.failure in ENDS_JOB), best.what)
    source = "slurm" if "slurm" in (left.source, right.source) else left.source
    return Candidate(
        failure=left.failure, place=merge_places([left.place, right.place]), findings=findings,
        base=max(left.base, right.base), first_s=first, what=what, source=source,
    )  # fmt: skip


def _join_spread(candidates: list[Candidate], world: int, per_node: int | None) -> list[Candidate]:
    """Join equal failures of many ranks at one time: they belong to the job, or to the one that printed first."""
    by_kind: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        by_kind[_similarity_key(candidate)].append(candidate)
    joined: list[Candidate] = []
    for similar in by_kind.values():
        if len(similar) < 2 or similar[0].failure in JOB_WIDE:
            joined += similar
            continue
        joined += _join_ranks(similar, world, per_node)
    return joined


def _join_gpus(candidates: list[Candidate]) -> list[Candidate]:
    """Join NVLink faults of several GPUs of one node at one time: one end of a link cannot tell its own fault."""
    by_node: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        by_node[candidate.place.node].append(candidate)
    joined: list[Candidate] = []
    for node, those in by_node.items():
        timed = sorted(each.first_s for each in those if each.first_s is not None)
        gpus = {each.place.pci for each in those} - {""}
        if len(gpus) < 2 or len(gpus) < len(those) or (timed and timed[-1] - timed[0] > _TOGETHER_S):
            joined += those
            continue
        first = min(those, key=lambda each: each.first_s if each.first_s is not None else float("inf"))
        findings = tuple(sorted((finding for each in those for finding in each.findings), key=sort_key))
        base, what = max(each.base for each in those), f"{first.what} (on {len(gpus)} GPUs)"
        joined.append(replace(first, place=Place(node=node), findings=findings, base=base, what=what))
    return joined


def _similarity_key(candidate: Candidate) -> str:
    """Return the key that candidates of several ranks share when they print the same."""
    first = candidate.findings[0] if candidate.findings else None
    if first is None:
        return ""
    return f"{first.signature} {first.fields.get('type', '')} {_NUMBERS.sub('', first.fields.get('message', ''))[:40]}"


def _join_ranks(similar: list[Candidate], world: int, per_node: int | None) -> list[Candidate]:
    """Return one candidate for the same failure on several ranks, where it is the same moment; else all."""
    ranks = {rank_identity(each.place) for each in similar} - {()}
    nodes = {each.place.node for each in similar}
    timed = sorted(each.first_s for each in similar if each.first_s is not None)
    is_simultaneous = not timed or timed[-1] - timed[0] <= _TOGETHER_S
    is_single_node = len(nodes) == 1 and "" not in nodes
    enough = len(ranks) >= max(2, _MANY * (per_node or world if is_single_node else world))
    if similar[0].failure is FailureClass.STORAGE:
        enough = len(ranks) >= _FEW_OF_STORAGE
        is_single_node = is_single_node and len(ranks) >= _MANY * (per_node or world)
    is_of_few = False
    if similar[0].failure in _ONE_CAUSE:
        numbered = max([world, *(each.place.rank + 1 for each in similar if each.place.rank is not None)])
        is_of_few = len(ranks) < _MANY * numbered
        enough = len(ranks) >= 2
    if not (is_simultaneous and enough):
        return similar
    first = min(similar, key=lambda each: each.first_s if each.first_s is not None else float("inf"))
    numbers = sorted({each.place.rank for each in similar if each.place.rank is not None})
    is_part = len(ranks) < world or bool(numbers and numbers[-1] >= len(numbers))
    place = Place(node=nodes.pop()) if is_single_node and is_part else Place()
    if is_of_few:  # the first of them is named, too
        place = replace(first.place, gpu_index=None, pci="") if first.place.rank is not None else place
    return [
        replace(
            first,
            place=replace(place, ranks=tuple(numbers[:_MAX_RANKS])),
            findings=tuple(finding for each in similar for finding in each.findings),
            base=max(each.base for each in similar),
            what=f"{first.what} (on {len(ranks)} ranks)",
        )
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Probability to have been the root when nothing else speaks [ratio], by signature, Xid class, Slurm's state."""

    signature: Mapping[str, float]
    xid_class: Mapping[str, float]
    slurm_state: Mapping[str, float]
    other: Mapping[str, float]
    hangs: Mapping[str, float]
    end: Mapping[str, float]

    def of(self, finding: Finding) -> float:
        """Return the weight of one finding."""
        if finding.signature == "kernel.xid":
            return self.xid_class.get(finding.fields.get("class", ""), self.other["default"])
        if finding.signature == "slurm.cancelled" and finding.fields.get("level") == "STEP":
            return self.other["step_cancelled"]
        return self.signature.get(finding.signature, self.other["default"])


@cache
def load_weights() -> Weights:
    """Return the table."""
    text = (files("opsk.postmortem.reasoning") / "weights.toml").read_text("utf-8")
    tables = tomllib.loads(text)
    return Weights(
        **{name: tables[name] for name in ("signature", "xid_class", "slurm_state", "other", "hangs", "end")}
    )


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
    candidates += _build_end_candidates(findings, divergence, placement, candidates)
    candidates += _build_asked_to_end(findings, candidates)
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


def _is_explained(findings: Sequence[Finding]) -> bool:
    """Return whether Ray itself says why one of its processes ended."""
    return any(each.signature in _RAY_EXPLAINS for each in findings)


def _build_asked_to_end(findings: Sequence[Finding], others: Sequence[Candidate]) -> list[Candidate]:
    """Return SIGTERM from outside as a candidate, where a launcher got it and nothing at all had failed."""
    if others or any(load_weights().hangs.get(each.signature) or each.signature in _REPORTS for each in findings):
        return []
    asked = tuple(each for each in findings if each.signature == _SIGTERM and _ASKED.search(each.text))
    if not asked:
        return []
    return [
        Candidate(
            failure=FailureClass.CANCELLED, place=Place(), findings=asked[:1], base=load_weights().end["asked"],
            first_s=asked[0].time_s, source="end",
            what="the launcher was asked to end (SIGTERM) and nothing had failed: cancelled, preempted or out of time",
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
