"""Converts entries of configuration files and flags to findings; tables map keys to fields."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from opsk.workload.plan import Recompute
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry
from opsk_jobcheck.scripts.settings.findings import MAX_NUMBER, Findings

_INTEGER = re.compile(r"[0-9](?:_?[0-9]){0,11}")
_TRUTH = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
_ABSENT = ("null", "none", "")


def state_number(findings: Findings, field: str, entry: Entry | None, *, minimum: int = 1) -> int | None:
    """State a whole number and return it; null and missing values state nothing, an invalid value is unknown."""
    if entry is None or _is_absent(entry):
        return None
    number = parse_integer(entry.value)
    if entry.why or number is None or not minimum <= number <= MAX_NUMBER:
        why = entry.why or f"{entry.text[:80]} is no whole number from {minimum} on"
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
            field, entry.why or f"{entry.text[:80]} is neither yes nor no", entry.line, file=entry.file
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
        why = entry.why or f"{entry.text[:80]} is no value that opsk knows"
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
    for key, field in table.items():
        state_number(findings, field, config.entry(key))


def state_derived(findings: Findings, field: str, value: object, why: str, *inputs: str) -> None:
    """State a value that follows by arithmetic from other fields, cited at the last of those."""
    file, line = findings.find_source(*inputs)
    findings.state(field, value, line, why, file=file)


def state_data_parallel_only(findings: Findings, why: str, line: int) -> None:
    """State that ranks are data-parallel only, for a framework, or a use of it, that has nothing else."""
    for field in ("plan.tp", "plan.pp"):
        if field not in findings.values and field not in findings.unknown:
            findings.state(field, 1, line, why)


def mark_all_unknown(findings: Findings, fields: Iterable[str], why: str, line: int) -> None:
    """Mark unstated fields as unknown."""
    for field in fields:
        if field not in findings.values and field not in findings.unknown:
            findings.mark_unknown(field, why, line)


def parse_integer(value: object) -> int | None:
    """Return a whole number that a file or a flag gives; ``None`` for anything else, yes and no included."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    text = str(value).strip()
    return int(text) if _INTEGER.fullmatch(text) else None


def parse_boolean(value: object) -> bool | None:
    """Return yes or no as files and flags write it."""
    return value if isinstance(value, bool) else _TRUTH.get(str(value).strip().lower())


def _is_absent(entry: Entry) -> bool:
    return not entry.why and (entry.value is None or (isinstance(entry.value, str) and entry.value.lower() in _ABSENT))
