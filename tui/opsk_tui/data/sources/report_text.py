"""How does a report that was kept as JSON read as text? Its cause first, then why, when, what is missing, what to do.

What it holds may come from users' logs, or be no report at all: nothing is taken for granted, and the screen makes it
harmless.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

MOST_ROWS = 200
LONGEST = 400
_NAMES = ("node", "rank", "gpu_index", "gpu_uuid", "pci", "hca")


def report_text(content: str) -> str:
    """Return a post-mortem as text; anything else as it is."""
    try:
        said = json.loads(content)
    except (ValueError, RecursionError):
        return content
    if not isinstance(said, dict) or "root_cause" not in said:
        return content
    return "\n".join(_lines(said))


def _lines(said: Mapping[str, Any]) -> Iterator[str]:
    job = _table(said.get("job"))
    yield "  ".join(
        part
        for part in (
            f"job {_word(job.get('job_id'))}",
            _word(job.get("user")),
            _word(job.get("name")),
            _word(said.get("state")),
        )
        if part
    )
    root = said.get("root_cause")
    if isinstance(root, dict):
        yield f"cause   {_cause(root)}"
        yield f"where   {_word(root.get('where'))}"
        yield from _part("why", map(_word, _rows(root.get("why"))))
        yield from _part("evidence", map(_seen, _rows(root.get("evidence"))))
    else:
        yield "no cause can be told from what there is"
    yield from _part(
        "else", (f"{_cause(each)} ({_word(_table(each).get('where'))})" for each in _rows(said.get("alternatives")))
    )
    yield from _part("when", map(_moment, _rows(said.get("timeline"))))
    for title in ("missing", "actions", "recurrence", "unreadable"):
        yield from _part(title, map(_any, _rows(said.get(title))))


def _part(title: str, rows: Iterator[str]) -> Iterator[str]:
    """Yield rows under their title, where there are any."""
    for number, row in enumerate(rows):
        if number == 0:
            yield ""
            yield title
        yield f"        {row}"


def _cause(said: object) -> str:
    cause = _table(said)
    sure = cause.get("confidence")
    told = f", {sure:.0%} sure" if isinstance(sure, int | float) else ""
    return f"{_word(cause.get('class'))}{told}: {_word(cause.get('what'))}"


def _seen(said: object) -> str:
    sign = _table(said)
    return f"{_word(sign.get('source'))}:{_word(sign.get('line'))}: {_word(sign.get('text'))}"


def _moment(said: object) -> str:
    moment = _table(said)
    place = " ".join(f"{name} {_word(moment[name])}" for name in _NAMES if moment.get(name) not in (None, ""))
    return "  ".join(part for part in (_time(moment.get("time_s")), place, _word(moment.get("what"))) if part)


def _time(value: object) -> str:
    try:
        return f"{datetime.fromtimestamp(value, UTC):%F %T}Z" if isinstance(value, int | float) else ""
    except (OverflowError, ValueError, OSError):
        return ""


def _any(said: object) -> str:
    """Return a row of which only the form is known: a sentence, or words with names."""
    if isinstance(said, dict):
        told = {str(name): _word(value) for name, value in said.items() if value not in (None, "", [], {})}
        first = told.pop("what", "")
        return "  ".join((first, *(f"{name}: {text}" for name, text in told.items()))).strip()[:LONGEST]
    return _word(said)


def _rows(value: object) -> list[object]:
    return value[:MOST_ROWS] if isinstance(value, list) else []


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _word(value: object) -> str:
    return "" if value is None else str(value)[:LONGEST].replace("\n", " ")
