"""When was the last checkpoint written? By the lines that the training framework prints of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opsk.errors import InputError
from opsk.postmortem.values import Origin, Role, Sign
from opsk.telemetry.progress.records import EventKind
from opsk.telemetry.progress.runs import read_log
from opsk.units import MIB

MOST_BYTES = 32 * MIB
"""Larger logs are not read line by line for this."""
_MOST_LOGS = 4


def checkpoint_signs(paths: Sequence[Path]) -> tuple[Sign, ...]:
    """Return the last checkpoint that each of the first logs tells of."""
    found = []
    for path in paths[:_MOST_LOGS]:
        try:
            if path.stat().st_size > MOST_BYTES:
                continue
            log = read_log(path)
        except (OSError, InputError):
            continue
        events = [event for event in log.events if event.kind is EventKind.CHECKPOINT]
        if not events:
            continue
        last = events[-1]
        at = next((each.at_unix_s for each in log.records if each.iteration == last.iteration), None)
        found.append(Sign(
            signature="checkpoint.saved", role=Role.PROGRESS, origin=Origin.JOB_LOG, time_s=at, order=last.line,
            source=str(path), line=last.line, text=f"checkpoint after iteration {last.iteration}",
            fields={"iteration": str(last.iteration)} if last.iteration is not None else {}, count=len(events),
        ))  # fmt: skip
    return tuple(found)
