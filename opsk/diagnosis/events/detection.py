"""Which failures are there, since when, and which are over? From what was seen now and what was known before.

Pure: the same look twice changes nothing, and the order of what was seen says nothing. An event begins as soon as its
sign has lasted as long as ``actions.toml`` asks, and ends when the sign has stayed away for ``settle_s``; one that
comes back within ``flap_s`` is the same event. Of a node that was not read nothing begins and nothing ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from opsk.diagnosis.events.actions import Hysteresis, actions
from opsk.diagnosis.events.larger import Fault, faults_of
from opsk.diagnosis.events.observations import JobSeen, Observations
from opsk.diagnosis.events.signs import Memory, in_order, remember, signs_of
from opsk.diagnosis.events.values import Event, Part, Severity

_SEVERITIES = (Severity.FATAL, Severity.DEGRADED, Severity.WATCH)
_MOST_TEXTS = 4
_MOST_SILENT_S = 86_400.0
"""A node that nobody hears of for so long is no longer waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of failures after a look: the state that the next look is given.

    Parameters
    ----------
    events
        By key; those too that are over, for ``forget_s``.
    waiting
        Faults that have not lasted long enough to be told: since when [s since 1970].
    well_since
        When the fault of an event was seen no more for the first time [s since 1970].
    """

    events: Mapping[str, Event] = field(default_factory=dict)
    waiting: Mapping[str, float] = field(default_factory=dict)
    well_since: Mapping[str, float] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)


NOTHING = Known()


def detect(
    seen: Observations,
    known: Known = NOTHING,
    hysteresis: Hysteresis | None = None,
    *,
    is_only_look: bool = False,
) -> Known:
    """Return what is known after a look; `told` lists its events.

    Parameters
    ----------
    hysteresis
        Instead of that of ``actions.toml``.
    is_only_look
        There will be no other one: what should last a while before it is told is told at once.
    """
    slack = hysteresis or actions().hysteresis
    seen = in_order(seen, known.memory)
    memory = remember(seen, known.memory, slack)
    faults = faults_of(signs_of(seen, memory, slack), seen, memory)
    read = {node.name for node in seen.nodes if node.is_read or node.is_down}
    events: dict[str, Event] = {}
    waiting: dict[str, float] = {}
    for key, fault in sorted(faults.items()):
        before = known.events.get(key)
        if before is not None and not _is_forgotten(before, seen.at_s, slack):
            events[key] = _again(before, fault, seen, slack)
            continue
        since = min(known.waiting.get(key, seen.at_s), seen.at_s)
        if is_only_look or seen.at_s - since >= fault.after_s:
            events[key] = _event(fault, seen, first_s=since, was_there=since <= memory.first_s)
        else:
            waiting[key] = since
    well: dict[str, float] = {}
    larger = _covered(faults.values())
    for key, before in known.events.items():
        if key in events or _is_forgotten(before, seen.at_s, slack):
            continue
        if _is_covered(before, larger):
            events[key] = replace(before, is_over=True)
        elif not before.is_over and not _can_tell(before, read) and seen.at_s - before.last_seen_s < _MOST_SILENT_S:
            events[key] = before
        else:
            events[key], well[key] = _well(before, known.well_since.get(key), seen.at_s, slack)
    return Known(events=events, waiting=waiting, well_since=well, memory=memory)


def events_of(seen: Observations, known: Known = NOTHING) -> tuple[Event, ...]:
    """Return the events of a look, the worst first; those that ended lately are last."""
    return told(detect(seen, known))


def told(known: Known) -> tuple[Event, ...]:
    """Return the events in the order in which people want them: open ones first, the worst first, the newest first."""
    rank = {severity: at for at, severity in enumerate(_SEVERITIES)}
    return tuple(
        sorted(
            known.events.values(),
            key=lambda event: (event.is_over, rank[event.severity], -event.first_seen_s, event.key),
        )
    )


def _event(fault: Fault, seen: Observations, *, first_s: float, was_there: bool = False) -> Event:
    """Return a new event."""
    return Event(
        key=fault.failed,
        failed=fault.failed,
        part=fault.part,
        severity=fault.worst.severity,
        first_seen_s=first_s,
        last_seen_s=seen.at_s,
        text=_text(fault),
        action=fault.worst.action,
        source=fault.worst.source,
        nodes=fault.nodes,
        jobs=_jobs(fault, seen.jobs),
        was_there=was_there,
    )


def _can_tell(event: Event, read: set[str]) -> bool:
    """Return whether all nodes of an event were read."""
    return read.issuperset(event.nodes)


def _again(before: Event, fault: Fault, seen: Observations, slack: Hysteresis) -> Event:
    """Return an event that is seen once more; one that was over for long is a new one, of a flapping part the old."""
    if before.is_over and seen.at_s - before.last_seen_s > slack.flap_s:
        return _event(fault, seen, first_s=seen.at_s)
    now = _event(fault, seen, first_s=before.first_seen_s, was_there=before.was_there)
    count = before.count + (seen.at_s > before.last_seen_s)
    jobs = now.jobs or (before.jobs if not before.is_over else ())
    return replace(now, count=count, last_seen_s=max(seen.at_s, before.last_seen_s), jobs=jobs)


def _well(before: Event, since: float | None, at_s: float, slack: Hysteresis) -> tuple[Event, float]:
    """Return an event whose sign is not seen, and since when it has not been."""
    first = min(since if since is not None else at_s, at_s)
    is_over = before.is_over or at_s - max(before.last_seen_s, min(first, at_s)) >= slack.settle_s
    return replace(before, is_over=is_over), first


def _is_forgotten(event: Event, at_s: float, slack: Hysteresis) -> bool:
    return event.is_over and at_s - event.last_seen_s > slack.forget_s


def _covered(faults: Iterable[Fault]) -> dict[Part, list[Fault]]:
    """Return the faults of larger things by kind."""
    found: dict[Part, list[Fault]] = {Part.LEAF: [], Part.HB_DOMAIN: [], Part.NODE: []}
    for fault in faults:
        if fault.part in found:
            found[fault.part].append(fault)
    return found


def _is_covered(event: Event, larger: Mapping[Part, list[Fault]]) -> bool:
    """Return whether an event is now part of a larger one, which was not complete when it was first seen."""
    kinds = {Part.GPU: (Part.HB_DOMAIN, Part.NODE), Part.NIC: (Part.LEAF, Part.NODE), Part.NODE: (Part.HB_DOMAIN,)}
    return any(
        set(event.nodes) <= set(fault.nodes)
        for kind in kinds.get(event.part, ())
        for fault in larger[kind]
        if fault.worst.is_gone
    )


def _text(fault: Fault) -> str:
    """Return all that was seen, the worst first."""
    texts = list(dict.fromkeys(sign.text for sign in fault.signs))
    more = f" (and {len(texts) - _MOST_TEXTS} more)" if len(texts) > _MOST_TEXTS else ""
    return "; ".join(texts[:_MOST_TEXTS]) + more


def _jobs(fault: Fault, jobs: Iterable[JobSeen]) -> tuple[int, ...]:
    """Return the jobs that use the part: of a GPU those that hold it, where that is known."""
    nodes = set(fault.nodes)
    found = [job for job in jobs if nodes.intersection(job.nodes)]
    if fault.part is Part.GPU:
        node, _, index = fault.failed.partition(":")[2].rpartition("/")
        found = [job for job in found if node not in job.gpus or int(index) in job.gpus[node]]
    return tuple(sorted(job.id for job in found))
