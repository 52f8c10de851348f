"""How are the values that a reader finds collected, each with the place it was read at?"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from opsk.workload.model import MODEL_FIELDS, StatedModel
from opsk.workload.plan import PLAN_FIELDS, Precision, Recompute, Sharding, StatedPlan
from opsk.workload.workload import Evidence, Problem, Unknown
from opsk_jobcheck.readers.shell.values import Text

MAX_NUMBER = 10**9
_INTEGER = re.compile(r"[0-9]{1,10}")
_ENUMS = {"plan.sharding": Sharding, "plan.recompute": Recompute, "plan.precision": Precision}


@dataclass(slots=True)
class Findings:
    """What has been found so far, by dotted field name."""

    file: str
    values: dict[str, Any] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    evidence: dict[str, Evidence] = field(default_factory=dict)
    unknown: dict[str, Unknown] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def get(self, name: str) -> Any:
        """Return a value that was stated, ``None`` for "cannot tell"."""
        return self.values.get(name)

    def state(self, name: str, value: object, line: int, text: str, *, file: str = "") -> None:
        """State a value; a later one of the same field replaces an earlier one."""
        typed = _ENUMS[name](str(value)) if name in _ENUMS else value
        self.values[name] = typed
        shown = typed.value if isinstance(typed, Sharding | Recompute | Precision) else typed
        self.evidence[name] = Evidence(field=name, value=shown, file=file or self.file, line=line, text=text[:200])
        self.unknown.pop(name, None)

    def cannot_tell(self, name: str, why: str, line: int) -> None:
        """Say that a field is set somewhere, but to what cannot be told."""
        self.values.pop(name, None)
        self.evidence.pop(name, None)
        self.unknown[name] = Unknown(field=name, why=why, file=self.file, line=line)

    def state_number(self, name: str, value: Text, line: int, shown: str) -> None:
        """State a positive whole number, or say why it cannot be told."""
        known = value.known
        if known is None:
            self.cannot_tell(name, value.why, line)
        elif not _INTEGER.fullmatch(known) or not 0 < int(known) <= MAX_NUMBER:
            self.cannot_tell(name, f"{shown[:80]} is no positive whole number", line)
            self.problems.append(
                Problem(
                    what=f"{shown[:80]}: {known[:40]!r} is no positive whole number",
                    file=self.file,
                    line=line,
                    hint="give a number",
                )
            )
        else:
            self.state(name, int(known), line, shown)

    def model(self, name: str | None) -> StatedModel:
        """Return the stated model."""
        fields = {key: self.values.get(f"model.{key}") for key in MODEL_FIELDS if key != "name"}
        return StatedModel(name=name, **fields)

    def plan(self) -> StatedPlan:
        """Return the stated plan."""
        return StatedPlan(**{key: self.values.get(f"plan.{key}") for key in PLAN_FIELDS})
