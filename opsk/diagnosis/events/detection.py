"""Tracks failures from one round of observations to the next: which exist, since when, and which are over.

Pure: the same observations twice change nothing, and their order does not matter. An event begins as soon as its sign
has lasted as long as ``actions.toml`` requires, and ends when the sign has stayed away for ``settle_s``; one that comes
back within ``flap_s`` is the same event. On a node that was not read nothing begins and nothing ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from opsk.diagnosis.events.actions import Hysteresis, actions
from opsk.diagnosis.events.findings import Memory, assign_indices, find_findings, update_memory
from opsk.diagnosis.events.merging import PartFault, merge_faults
from opsk.diagnosis.events.observations import Event, FailedPart, JobSeen, Observations, Severity

_SEVERITIES = (Severity.FATAL, Severity.DEGRADED, Severity.WATCH)
_MAX_TEXTS = 4
_MAX_SILENT_S = 86_400.0
"""A node that is silent for longer than this is no longer waited for [s]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The state of failures after a round of observations, which the next round needs.

    Parameters
    ----------
    events
        By key; those too that are over, for ``forget_s``.
    waiting
        Faults that have not lasted long enough to be reported: since when [s since 1970].
    healthy_since
        When the fault of an event was seen no more for the first time [s since 1970].
    """

    events: Mapping[str, Event] = field(default_factory=dict)
    waiting: Mapping[str, float] = field(default_factory=dict)
    healthy_since: Mapping[str, float] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)


NOTHING = Known()


def detect(
    observed: Observations,
    known: Known = NOTHING,
    hysteresis: Hysteresis | None = None,
    *,
    is_single_round: bool = False,
) -> Known:
    """Return the state after a round of observations; `sort_events` lists its events.

    Parameters
    ----------
    hysteresis
        Instead of that of ``actions.toml``.
    is_single_round
        There is no other round: events are reported at once, without waiting for them to last.
    """
    hysteresis_used = hysteresis or actions().hysteresis
    observed = assign_indices(observed, known.memory)
    memory = update_memory(observed, known.memory, hysteresis_used)
    faults = merge_faults(find_findings(observed, memory, hysteresis_used), observed, memory)
    read = {node.name for node in observed.nodes if node.is_read or node.is_down}
    events: dict[str, Event] = {}
    waiting: dict[str, float] = {}
    for key, fault in sorted(faults.items()):
        before = known.events.get(key)
        if before is not None and not _is_forgotten(before, observed.at_s, hysteresis_used):
            events[key] = _update_event(before, fault, observed, hysteresis_used)
            continue
        since = min(known.waiting.get(key, observed.at_s), observed.at_s)
        if is_single_round or observed.at_s - since >= fault.after_s:
            events[key] = _build_event(fault, observed, first_s=since, was_there=since <= memory.first_s)
        else:
            waiting[key] = since
    healthy: dict[str, float] = {}
    larger_faults = _group_larger_faults(faults.values())
    for key, before in known.events.items():
        if key in events or _is_forgotten(before, observed.at_s, hysteresis_used):
            continue
        if _is_covered(before, larger_faults):
            events[key] = replace(before, is_over=True)
        elif (
            not before.is_over
            and not _were_nodes_read(before, read)
            and observed.at_s - before.last_seen_s < _MAX_SILENT_S
        ):
            events[key] = before
        else:
            events[key], healthy[key] = _age_event(before, known.healthy_since.get(key), observed.at_s, hysteresis_used)
    return Known(events=events, waiting=waiting, healthy_since=healthy, memory=memory)


def sort_events(known: Known) -> tuple[Event, ...]:
    """Return the events in order of interest: open ones first, the worst first, the newest first."""
    rank = {severity: at for at, severity in enumerate(_SEVERITIES)}
    return tuple(
        sorted(
            known.events.values(),
            key=lambda event: (event.is_over, rank[event.severity], -event.first_seen_s, event.key),
        )
    )


def _build_event(fault: PartFault, seen: Observations, *, first_s: float, was_there: bool = False) -> Event:
    """Return a new event."""
    return Event(
        key=fault.failed,
        failed=fault.failed,
        part=fault.part,
        severity=fault.worst.severity,
        first_seen_s=first_s,
        last_seen_s=seen.at_s,
        text=_format_text(fault),
        action=fault.worst.action,
        source=fault.worst.source,
        nodes=fault.nodes,
        jobs=_find_jobs(fault, seen.jobs),
        was_there=was_there,
    )


def _were_nodes_read(event: Event, read: set[str]) -> bool:
    """Return whether all nodes of an event were read."""
    return read.issuperset(event.nodes)


def _update_event(before: Event, fault: PartFault, seen: Observations, slack: Hysteresis) -> Event:
    """Return an event that is seen once more; one that was over for long is a new one, of a flapping part the old."""
    if before.is_over and seen.at_s - before.last_seen_s > slack.flap_s:
        return _build_event(fault, seen, first_s=seen.at_s)
    now = _build_event(fault, seen, first_s=before.first_seen_s, was_there=before.was_there)
    count = before.count + (seen.at_s > before.last_seen_s)
    jobs = now.jobs or (before.jobs if not before.is_over else ())
    return replace(now, count=count, last_seen_s=max(seen.at_s, before.last_seen_s), jobs=jobs)


def _age_event(before: Event, since: float | None, at_s: float, slack: Hysteresis) -> tuple[Event, float]:
    """Return an event whose sign is not seen, and since when it has not been."""
    first = min(since if since is not None else at_s, at_s)
    is_over = before.is_over or at_s - max(before.last_seen_s, min(first, at_s)) >= slack.settle_s
    return replace(before, is_over=is_over), first


def _is_forgotten(event: Event, at_s: float, slack: Hysteresis) -> bool:
    return event.is_over and at_s - event.last_seen_s > slack.forget_s


def _group_larger_faults(faults: Iterable[PartFault]) -> dict[FailedPart, list[PartFault]]:
    """Return the faults of larger things by kind."""
    groups: dict[FailedPart, list[PartFault]] = {FailedPart.LEAF: [], FailedPart.HB_DOMAIN: [], FailedPart.NODE: []}
    for fault in faults:
        if fault.part in groups:
            groups[fault.part].append(fault)
    return groups


def _is_covered(event: Event, larger: Mapping[FailedPart, list[PartFault]]) -> bool:
    """Return whether an event is now part of a larger one, which was not complete when it was first seen."""
    kinds = {
        FailedPart.GPU: (FailedPart.HB_DOMAIN, FailedPart.NODE),
        FailedPart.NIC: (FailedPart.LEAF, FailedPart.NODE),
        FailedPart.NODE: (FailedPart.HB_DOMAIN,),
    }
    return any(
        set(event.nodes) <= set(fault.nodes)
        for kind in kinds.get(event.part, ())
        for fault in larger[kind]
        if fault.worst.is_gone
    )


def _format_text(fault: PartFault) -> str:
    """Return all that was seen, the worst first."""
    texts = list(dict.fromkeys(finding.text for finding in fault.findings))
    more = f" (and {len(texts) - _MAX_TEXTS} more)" if len(texts) > _MAX_TEXTS else ""
    return "; ".join(texts[:_MAX_TEXTS]) + more


def _find_jobs(fault: PartFault, jobs: Iterable[JobSeen]) -> tuple[int, ...]:
    """Return the jobs that use the part: of a GPU those that hold it, where that is known."""
    nodes = set(fault.nodes)
    affected = [job for job in jobs if nodes.intersection(job.nodes)]
    if fault.part is FailedPart.GPU:
        node, _, index = fault.failed.partition(":")[2].rpartition("/")
        affected = [job for job in affected if node not in job.gpus or int(index) in job.gpus[node]]
    return tuple(sorted(job.id for job in affected))
