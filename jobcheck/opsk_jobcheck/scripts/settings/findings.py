"""Collects the values that a reader states, each with the file and line that it was read from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from opsk.workload.model import MODEL_FIELDS, Mixer, StatedModel
from opsk.workload.plan import PLAN_FIELDS, Precision, Recompute, Sharding, StatedPlan
from opsk.workload.workload import Evidence, Problem, Unknown
from opsk_jobcheck.scripts.bash.values import Places, Text
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry

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
_WHOLE = re.compile(r"[0-9](?:_?[0-9]){0,11}")
_TRUTH = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
_ABSENT = ("null", "none", "")


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
            self.mark_unknown(name, f"{shown[:80]} is not a positive whole number", line)
            self.problems.append(
                Problem(
                    what=f"{shown[:80]}: {known[:40]!r} is not a positive whole number",
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


def state_number(findings: Findings, field: str, entry: Entry | None, *, minimum: int = 1) -> int | None:
    """State a whole number and return it; null and missing values state nothing, an invalid value is unknown."""
    if entry is None or _is_absent(entry):
        return None
    number = parse_integer(entry.value)
    if entry.why or number is None or not minimum <= number <= MAX_NUMBER:
        why = entry.why or f"{entry.text[:80]} is not a whole number from {minimum} on"
        findings.mark_unknown(field, why, entry.line, file=entry.file)
        return None
    findings.state(field, number, entry.line, entry.text, file=entry.file)
    return number


def state_truth(findings: Findings, field: str, entry: Entry | None) -> bool | None:
    """State yes or no and return it."""
    if entry is None or _is_absent(entry):
        return None
    value = parse_boolean(entry.value)
    if entry.why or value is None:
        findings.mark_unknown(
            field, entry.why or f"{entry.text[:80]} is neither true nor false", entry.line, file=entry.file
        )
        return None
    findings.state(field, value, entry.line, entry.text, file=entry.file)
    return value


def state_word(findings: Findings, field: str, entry: Entry | None, values: Mapping[str, object]) -> object | None:
    """State the value that a word stands for and return it; words are compared in lower case."""
    if entry is None or (_is_absent(entry) and "none" not in values):
        return None
    word = "none" if entry.value is None and not entry.why else str(entry.value).strip().lower()
    if entry.why or word not in values:
        why = entry.why or f"{entry.text[:80]} is not a value that opsk knows"
        findings.mark_unknown(field, why, entry.line, file=entry.file)
        return None
    findings.state(field, values[word], entry.line, entry.text, file=entry.file)
    return values[word]


def state_fsdp_checkpointing(findings: Findings, entry: Entry | None) -> None:
    """State that FSDP recomputes all layers; a switch of the Trainer's that is off does not contradict it."""
    is_open = "plan.recompute" not in findings.values and "plan.recompute" not in findings.unknown
    if entry is None or not parse_boolean(entry.value):
        return
    if is_open or findings.get("plan.recompute") == Recompute.NONE:
        findings.state("plan.recompute", "full", entry.line, entry.text, file=entry.file)


def state_numbers(findings: Findings, config: ConfigFile, table: Mapping[str, str]) -> None:
    """State the numbers of a file: ``table`` has the field by the dotted key that states it."""
    for key, name in table.items():
        state_number(findings, name, config.entry(key))


def state_derived(findings: Findings, field: str, value: object, why: str, *inputs: str) -> None:
    """State a value that follows by arithmetic from other fields, cited at the last of those."""
    file, line = findings.find_source(*inputs)
    findings.state(field, value, line, why, file=file)


def state_data_parallel_only(findings: Findings, why: str, line: int) -> None:
    """State that ranks are data-parallel only, for a framework, or a use of it, that has nothing else."""
    for name in ("plan.tp", "plan.pp"):
        if name not in findings.values and name not in findings.unknown:
            findings.state(name, 1, line, why)


def mark_all_unknown(findings: Findings, fields: Iterable[str], why: str, line: int) -> None:
    """Mark unstated fields as unknown."""
    for name in fields:
        if name not in findings.values and name not in findings.unknown:
            findings.mark_unknown(name, why, line)


def parse_integer(value: object) -> int | None:
    """Return a whole number that a file or a flag gives; ``None`` for anything else, yes and no included."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    text = str(value).strip()
    return int(text) if _WHOLE.fullmatch(text) else None


def parse_boolean(value: object) -> bool | None:
    """Return yes or no as files and flags write it."""
    return value if isinstance(value, bool) else _TRUTH.get(str(value).strip().lower())


def _is_absent(entry: Entry) -> bool:
    return not entry.why and (entry.value is None or (isinstance(entry.value, str) and entry.value.lower() in _ABSENT))
