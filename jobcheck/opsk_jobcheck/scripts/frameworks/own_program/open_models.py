"""States of which models a program trains one, where only the running program knows which."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from opsk.workload.unstated.open_models import MAX_MODELS, OPEN_MODELS
from opsk_jobcheck.scripts.frameworks.python.settings import ProgramSettings
from opsk_jobcheck.scripts.frameworks.python.source import Call, Value
from opsk_jobcheck.scripts.settings.reader import Reading

MAX_CALLS = 8
MAX_CHARS = 120


def state_open_models(loads: Sequence[tuple[Call, Value]], settings: ProgramSettings, reading: Reading) -> None:
    """State the models that the calls of a program load, of which it makes one alone.

    Parameters
    ----------
    loads
        The calls, each with the argument that names the model.
    """
    if not 0 < len(loads) <= MAX_CALLS:
        return
    if not all(_exclude(first, second) for (first, _), (second, _) in combinations(loads, 2)):
        return
    rows = [_list_names(value, settings) for _, value in loads]
    names = list(dict.fromkeys(name for row in rows for name in row))
    if all(rows) and 1 < len(names) <= MAX_MODELS and all(_is_word(name) for name in names):
        reading.findings.options[OPEN_MODELS] = " ".join(names)


def _list_names(value: Value, settings: ProgramSettings) -> tuple[str, ...]:
    """Return the names that an argument may have; none where one of them is not known."""
    if value.options:
        return value.options
    if value.choice:
        rows = [_list_names(part, settings) for part in value.choice]
        return tuple(name for row in rows for name in row) if all(rows) else ()
    entry = settings.resolve(value)
    return (entry.value,) if not entry.why and isinstance(entry.value, str) else ()


def _is_word(name: str) -> bool:
    """Return whether a name can be one of several in a text with blanks between."""
    return 0 < len(name) < MAX_CHARS and not any(sign.isspace() for sign in name)


def _exclude(first: Call, second: Call) -> bool:
    """Return whether two calls have conditions that never hold together: those of the branches of a test."""
    opposite = {name[1:] if name.startswith("-") else f"-{name}" for name in second.conditions if "?" not in name}
    return not opposite.isdisjoint(first.conditions)
