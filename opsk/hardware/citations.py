"""Resolves the citations of a catalogue entry against its file's bibliography, field by field.

A citation is the key of a work, or ``key: remark`` where the number was derived, halved or needs a caveat.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsk.hardware.catalog_format import NOT_CITED, Entry


def cite(entry: Entry, bibliography: Mapping[str, str]) -> tuple[Entry, list[str]]:
    """Return ``entry`` with its citations resolved, and one line for each field without a valid one."""
    stated = {name for name in type(entry).model_fields if getattr(entry, name) is not None} - NOT_CITED
    faults = [f"sources.{name}: there is no such value here" for name in entry.sources if name not in stated]
    faults += [f"sources: nothing is cited for {name}" for name in sorted(stated - set(entry.sources))]
    written: dict[str, str] = {}
    for name, citation in entry.sources.items():
        work, _, remark = citation.partition(": ")
        if work not in bibliography:
            faults.append(f"sources.{name}: there is no work {work!r} in the bibliography")
            continue
        written[name] = f"{bibliography[work]} [{remark}]" if remark else bibliography[work]
    changed: dict[str, Any] = {"sources": written}
    for name in stated:
        part = getattr(entry, name)
        if isinstance(part, Entry):
            changed[name], inner = cite(part, bibliography)
            faults += [f"{name}.{fault}" for fault in inner]
    return entry.model_copy(update=changed), faults
