"""Which failures can have come first? Signs of one class at one place and time are one candidate."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from opsk.postmortem.reasoning.candidate import ENDS_JOB, JOB_WIDE, Candidate, first_of, order_of
from opsk.postmortem.reasoning.joining import joined_candidates
from opsk.postmortem.reasoning.meanings import meaning
from opsk.postmortem.reasoning.places import Seating, completed, identity, joined
from opsk.postmortem.reasoning.victims import first_end, how_ended, was_aborted
from opsk.postmortem.values import Divergence, Evidence, FailureClass, Origin, Place, Role, Sign


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Probability to have been the root when nothing else speaks [ratio], by signature, Xid class, Slurm's state."""

    signature: Mapping[str, float]
    xid_class: Mapping[str, float]
    slurm_state: Mapping[str, float]
    other: Mapping[str, float]
    hangs: Mapping[str, float]
    end: Mapping[str, float]

    def of(self, sign: Sign) -> float:
        """Return that of one sign."""
        if sign.signature == "kernel.xid":
            return self.xid_class.get(sign.fields.get("class", ""), self.other["default"])
        if sign.signature == "slurm.cancelled" and sign.fields.get("level") == "STEP":
            return self.other["step_cancelled"]
        return self.signature.get(sign.signature, self.other["default"])


@cache
def weights() -> Weights:
    """Return the table."""
    text = (files("opsk.postmortem.reasoning") / "weights.toml").read_text("utf-8")
    tables = tomllib.loads(text)
    return Weights(
        **{name: tables[name] for name in ("signature", "xid_class", "slurm_state", "other", "hangs", "end")}
    )


_APART_S = 300.0
"""Signs of one kind and place so long apart are two failures [s]."""
_PORT_TAKEN = "rendezvous.address_in_use"
_WITNESSES = (Origin.KERNEL, Origin.GPU, Origin.FABRIC, Origin.CGROUP, Origin.SLURM)
"""Their words stand above those of programs."""
_NAME_OTHERS = ("torch.monitored_barrier", "jax.heartbeats_stopped")
"""They name the rank that did not come."""
_NODE_LOST = ("slurm.node_not_responding", "slurm.node_lost")


def candidates_of(
    signs: Sequence[Sign], evidence: Evidence, divergence: Divergence | None, seating: Seating, victim: Place
) -> list[Candidate]:
    """Return all candidates, in no order.

    Parameters
    ----------
    victim
        The process that launchers say ended first.
    """
    progress_s = max((r.last_progress_s for r in evidence.ranks if r.last_progress_s is not None), default=None)
    groups: dict[tuple[FailureClass, str], list[Sign]] = defaultdict(list)
    for sign in signs:
        if sign.role is Role.ROOT and sign.failure is not None:
            groups[sign.failure, _locus(sign, seating)].append(sign)
    found = [
        _candidate(failure, part, seating)
        for (failure, _), group in groups.items()
        for part in _split(failure, group, progress_s)
    ]
    found += _of_slurm(evidence, signs)
    found += _of_end(signs, divergence, seating, found)
    world = len({identity(each) for each in evidence.ranks} - {()}) or 1
    found = joined_candidates(found, world, victim, seating.per_node)
    found = [_of_node(each, signs, divergence, seating) for each in found]
    hang = _hang(signs, divergence, seating)
    return [*found, *([hang] if hang is not None else [])]


def _locus(sign: Sign, seating: Seating) -> str:
    """Return what two signs of one class must share to be one failure."""
    if sign.failure in JOB_WIDE:
        return ""
    place = completed(sign.place, seating)
    if sign.failure in (FailureClass.NODE, FailureClass.HOST_MEMORY, FailureClass.FABRIC):
        return place.node or (f"rank {place.rank}" if place.rank is not None else "")
    if place.rank is not None:
        return f"rank {place.rank}"
    if place.local_rank is not None and not place.pci:
        return f"{place.node} {place.node_rank} local rank {place.local_rank}"
    return f"{place.node} {place.pci}".strip()


def _split(failure: FailureClass, group: Sequence[Sign], progress_s: float | None) -> list[list[Sign]]:
    """Split signs where a long time lies between them; those without a time go with the last.

    Left apart: what was printed before training last went on.
    """
    timed = sorted((sign for sign in group if sign.time_s is not None), key=order_of)
    untimed = [sign for sign in group if sign.time_s is None]
    parts: list[list[Sign]] = []
    for sign in timed:
        before = parts[-1][-1] if parts else None
        last = (before.last_time_s or before.time_s or 0.0) if before is not None else 0.0
        if before is not None and (sign.time_s or 0.0) - last <= _APART_S:
            parts[-1].append(sign)
        else:
            parts.append([sign])
    if not parts or failure not in ENDS_JOB:
        early = [s for s in untimed if s.latest_s is not None and progress_s is not None and s.latest_s < progress_s]
        late = [sign for sign in untimed if sign not in early]
        return [part for part in (*parts[:-1], [*(parts[-1] if parts else []), *late], early) if part]
    parts[-1] += untimed
    return parts


def _candidate(failure: FailureClass, group: Sequence[Sign], seating: Seating) -> Candidate:
    """Return the candidate of signs that belong together."""
    ordered = sorted(group, key=order_of)
    best = max(ordered, key=weights().of)
    clearest = max(ordered, key=lambda sign: (sign.origin in _WITNESSES, weights().of(sign)))
    places = [completed(sign.place, seating) for sign in ordered]
    place = joined(places)
    if failure in ENDS_JOB or (failure in JOB_WIDE and len({each.rank for each in places}) > 1):
        place = Place()
    if failure is FailureClass.RENDEZVOUS:
        place = next((at for sign, at in zip(ordered, places, strict=True) if sign.signature == _PORT_TAKEN), place)
    if failure is FailureClass.FABRIC:
        place = replace(place, rank=None, pci="", gpu_index=None)
    return Candidate(
        failure=failure, place=place, signs=tuple(ordered), base=weights().of(best), first_s=first_of(ordered),
        what=meaning(clearest),
    )  # fmt: skip


def _of_node(candidate: Candidate, signs: Sequence[Sign], divergence: Divergence | None, seating: Seating) -> Candidate:
    """Return the loss of a node with the node that srun names, or from which all ranks are silent."""
    if candidate.failure is not FailureClass.NODE or candidate.place.node:
        return candidate
    nodes = {sign.place.node for sign in signs if sign.signature in _NODE_LOST} - {""}
    if not nodes and divergence is not None:
        nodes = {seating.node.get(rank, "") for rank in divergence.never_arrived}
    return replace(candidate, place=Place(node=nodes.pop())) if len(nodes) == 1 else candidate


def _of_end(
    signs: Sequence[Sign], divergence: Divergence | None, seating: Seating, found: Sequence[Candidate]
) -> list[Candidate]:
    """Return the end of the first process as a candidate, where it said nothing itself and was not waiting."""
    end = first_end(signs, seating)
    if end is None or not (how := how_ended(end[0])):
        return []
    sign, place = end
    if how == "crash" and was_aborted(sign) and any(weights().hangs.get(each.signature) for each in signs):
        return []  # watchdogs of collectives end their processes so
    waited = divergence is not None and place.rank in divergence.waiting
    spoke = any(
        s.place.rank == place.rank and (s.role is Role.ROOT or s.failure is FailureClass.COLLECTIVE_HANG) for s in signs
    )
    if waited or spoke or any(each.place.rank == place.rank for each in found):
        return []
    failure = FailureClass.HOST_MEMORY if how == "kill" else FailureClass.SOFTWARE
    said = (
        "was killed, by whom is not said: most often memory ran out" if how == "kill" else "ended badly without a word"
    )
    return [
        Candidate(
            failure=failure, place=place, signs=(sign,), base=weights().end[how], first_s=sign.time_s,
            what=f"the first process that ended {said}", source="end",
        )
    ]  # fmt: skip


def _hang(signs: Iterable[Sign], divergence: Divergence | None, seating: Seating) -> Candidate | None:
    """Return the hang that waiting ranks tell of."""
    told = tuple(sorted((s for s in signs if s.failure is FailureClass.COLLECTIVE_HANG), key=order_of))
    hung = [sign for sign in told if weights().hangs.get(sign.signature)]
    if not hung:
        return None
    culprits = (divergence.behind or divergence.never_arrived) if divergence is not None else ()
    named = {
        int(s.fields["peer_rank"])
        for s in told
        if s.signature in _NAME_OTHERS and s.fields.get("peer_rank", "").isdecimal()
    }
    culprits = tuple(sorted(named)) or culprits
    place = _place_of(culprits, seating)
    waiting = len(divergence.waiting) if divergence is not None else 0
    at = f" in {divergence.op} number {divergence.seq}" if divergence is not None and divergence.seq is not None else ""
    what = (
        f"{waiting} rank{'' if waiting == 1 else 's'} waited{at} for one that did not come"
        if waiting
        else meaning(hung[0])
    )
    base = max(weights().hangs[sign.signature] for sign in hung)
    return Candidate(
        failure=FailureClass.COLLECTIVE_HANG, place=place, signs=told[:16], base=base, first_s=first_of(hung),
        what=what, source="hang",
    )  # fmt: skip


def _place_of(culprits: Sequence[int], seating: Seating) -> Place:
    """Return where ranks are that did not come; of many, the node that all are on."""
    if not culprits:
        return Place()
    places = [completed(Place(rank=rank), seating) for rank in culprits]
    if len(places) == 1:
        return places[0]
    nodes = {each.node for each in places}
    return Place(node=nodes.pop()) if len(nodes) == 1 else Place()


_STATES = {
    "TIMEOUT": (FailureClass.TIME_LIMIT, "the job's time was up"),
    "DEADLINE": (FailureClass.TIME_LIMIT, "the job's deadline had come"),
    "PREEMPTED": (FailureClass.PREEMPTED, "a job of higher priority took the nodes"),
    "NODE_FAIL": (FailureClass.NODE, "a node of the job stopped answering"),
    "BOOT_FAIL": (FailureClass.NODE, "a node of the job did not come up"),
    "OUT_OF_MEMORY": (FailureClass.HOST_MEMORY, "a process was ended because the job's memory limit was reached"),
    "CANCELLED": (FailureClass.CANCELLED, "the job was cancelled"),
}


def _of_slurm(evidence: Evidence, signs: Sequence[Sign]) -> list[Candidate]:
    """Return what Slurm's own record says."""
    job = evidence.job
    state = job.state.split()[0].rstrip("+") if job is not None and job.state else ""
    if job is None or state not in _STATES:
        return []
    failure, what = _STATES[state]
    own = tuple(sign for sign in signs if sign.failure is failure and sign.role is Role.CONFIRMATION)
    nodes = {sign.place.node for sign in own if sign.signature in _NODE_LOST} - {""} or set(job.node_reasons)
    place = Place(node=nodes.pop()) if failure is FailureClass.NODE and len(nodes) == 1 else Place()
    by = f" by user {job.cancelled_by}" if failure is FailureClass.CANCELLED and job.cancelled_by is not None else ""
    first = first_of(own)
    return [
        Candidate(
            failure=failure, place=place, signs=own, base=weights().slurm_state[state],
            first_s=first if first is not None else job.end_s, what=what + by, source="slurm",
        )
    ]  # fmt: skip
