"""Which of several commands trains, where a test decides that? What they do not agree on cannot be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from opsk_jobcheck.readers.findings import Findings
from opsk_jobcheck.readers.reading import Match, Reader, Reading, best_match
from opsk_jobcheck.readers.shell.values import Invocation

MAX_OTHERS = 8
"""Other commands that are read for this."""
_GROUPS = ("model.", "plan.")


def doubt_what_differs(
    chosen: Match, readers: Sequence[Reader], invocations: Sequence[Invocation], reading: Reading
) -> None:
    """Take back what another command that may train says otherwise, where the one that was read may not run.

    Parameters
    ----------
    chosen
        The command that was read into ``reading``.
    invocations
        The commands of the script that may train.
    """
    if chosen.invocation.certain:
        return
    others = [entry for entry in invocations if entry is not chosen.invocation][:MAX_OTHERS]
    for found in filter(None, (best_match(readers, [entry]) for entry in others)):
        reader, match = found
        apart = replace(reading, findings=Findings(reading.findings.file, places=reading.findings.places), wanted=[])
        reader.read(match, apart)
        _take_back(apart.findings, reading.findings)


def _take_back(other: Findings, findings: Findings) -> None:
    """Take back the values that another command has otherwise."""
    for field, value in other.values.items():
        if field.startswith(_GROUPS) and field in findings.values and findings.values[field] != value:
            entry = other.evidence.get(field)
            said = f", another has {entry.text[:80]}" if entry is not None else ""
            at = findings.evidence[field].line if field in findings.evidence else 0
            findings.cannot_tell(field, f"it depends on which command runs{said}", at)
