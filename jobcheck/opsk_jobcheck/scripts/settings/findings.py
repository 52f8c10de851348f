"""Collects the values that a reader finds, each with the file and line that it was read from."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from opsk.workload.model import MODEL_FIELDS, Mixer, StatedModel
from opsk.workload.plan import PLAN_FIELDS, Precision, Recompute, Sharding, StatedPlan
from opsk.workload.workload import Evidence, Problem, Unknown
from opsk_jobcheck.scripts.bash.values import Places, Text

MAX_NUMBER = 10**9
_INTEGER = re.compile(r"[0-9]{1,10}")
_ENUMS = {
    "plan.sharding": Sharding,
    "plan.recompute": Recompute,
    "plan.precision": Precision,
    "model.mixer": Mixer,
}
_OF_MODEL = tuple((key, f"model.{key}") for key in MODEL_FIELDS if key != "name")
_OF_PLAN = tuple((key, f"plan.{key}") for key in PLAN_FIELDS)


@dataclass(slots=True)
class Findings:
    """The values found so far, by dotted field name; ``places`` maps lines to files."""

    file: str
    values: dict[str, Any] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    evidence: dict[str, Evidence] = field(default_factory=dict)
    unknown: dict[str, Unknown] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    places: Places = field(default_factory=Places)

    def locate(self, line: int) -> tuple[str, int]:
        """Return the file, and the line in it, of a line of all text that was read."""
        if not self.places.starts:  # nothing but the script was read
            return self.file, line
        file, number = self.places.locate(line)
        return file or self.file, number

    def find_source(self, *names: str) -> tuple[str, int]:
        """Return file and line of the last of these fields that was stated; no file and 0 when none was."""
        entries = [entry for name, entry in self.evidence.items() if name in names]
        return max(((entry.file, entry.line) for entry in entries), key=lambda place: place[1], default=("", 0))

    def get(self, name: str) -> Any:
        """Return a value that was stated, ``None`` for "unknown"."""
        return self.values.get(name)

    def state(self, name: str, value: object, line: int, text: str, *, file: str = "") -> None:
        """State a value; a later one of the same field replaces an earlier one."""
        shown, kind = value, _ENUMS.get(name)
        if kind is None:
            self.values[name] = value
        else:
            self.values[name] = typed = kind(str(value))
            shown = typed.value
        source_file, number = self.locate(line)
        self.evidence[name] = Evidence(
            field=name, value=shown, file=file or source_file, line=line if file else number, text=text[:200]
        )
        self.unknown.pop(name, None)

    def mark_unknown(self, name: str, why: str, line: int, *, file: str = "") -> None:
        """Mark a field as unknown: it is set somewhere, to an unknown value."""
        self.values.pop(name, None)
        self.evidence.pop(name, None)
        source_file, number = self.locate(line)
        self.unknown[name] = Unknown(field=name, why=why, file=file or source_file, line=line if file else number)

    def state_number(self, name: str, value: Text, line: int, shown: str) -> None:
        """State a positive whole number, or mark it as unknown."""
        known = value.known
        if known is None:
            self.mark_unknown(name, value.why, line)
        elif not _INTEGER.fullmatch(known) or not 0 < int(known) <= MAX_NUMBER:
            self.mark_unknown(name, f"{shown[:80]} is no positive whole number", line)
            self.problems.append(
                Problem(
                    what=f"{shown[:80]}: {known[:40]!r} is no positive whole number",
                    file=self.locate(line)[0],
                    line=self.locate(line)[1],
                    hint="give a number",
                )
            )
        else:
            self.state(name, int(known), line, shown)

    def model(self, name: str | None) -> StatedModel:
        """Return the stated model."""
        return StatedModel(name=name, **{key: self.values.get(field) for key, field in _OF_MODEL})

    def plan(self) -> StatedPlan:
        """Return the stated plan."""
        return StatedPlan(**{key: self.values.get(field) for key, field in _OF_PLAN})
