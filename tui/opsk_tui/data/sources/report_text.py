"""Renders a post-mortem report stored as JSON as text: cause, reasons, timeline, missing evidence, actions.

The content may come from users' logs, or be no report at all: nothing is assumed about it, and the screen escapes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

MAX_ROWS = 200
MAX_CHARS = 400
_NAMES = ("node", "rank", "gpu_index", "gpu_uuid", "pci", "hca")


def report_text(content: str) -> str:
    """Return a post-mortem as text; any other content unchanged."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return content
    if not isinstance(document, dict) or "root_cause" not in document:
        return content
    return "\n".join(_render_lines(document))


def _render_lines(document: Mapping[str, Any]) -> Iterator[str]:
    job = _as_mapping(document.get("job"))
    yield "  ".join(
        part
        for part in (
            f"job {_format_value(job.get('job_id'))}",
            _format_value(job.get("user")),
            _format_value(job.get("name")),
            _format_value(document.get("state")),
        )
        if part
    )
    root = document.get("root_cause")
    if isinstance(root, dict):
        yield f"cause   {_format_cause(root)}"
        yield f"where   {_format_value(root.get('where'))}"
        yield from _render_part("why", map(_format_value, _as_list(root.get("why"))))
        yield from _render_part("evidence", map(_format_observation, _as_list(root.get("evidence"))))
    else:
        yield "no cause can be told from what there is"
    yield from _render_part(
        "else",
        (
            f"{_format_cause(each)} ({_format_value(_as_mapping(each).get('where'))})"
            for each in _as_list(document.get("alternatives"))
        ),
    )
    yield from _render_part("when", map(_format_moment, _as_list(document.get("timeline"))))
    for title in ("missing", "actions", "recurrence", "unreadable"):
        yield from _render_part(title, map(_format_any, _as_list(document.get(title))))


def _render_part(title: str, rows: Iterator[str]) -> Iterator[str]:
    """Yield rows under their title, where there are any."""
    for number, row in enumerate(rows):
        if number == 0:
            yield ""
            yield title
        yield f"        {row}"


def _format_cause(document: object) -> str:
    cause = _as_mapping(document)
    sure = cause.get("confidence")
    certainty = f", {sure:.0%} sure" if isinstance(sure, int | float) else ""
    return f"{_format_value(cause.get('class'))}{certainty}: {_format_value(cause.get('what'))}"


def _format_observation(document: object) -> str:
    observation = _as_mapping(document)
    source, line, text = (_format_value(observation.get(name)) for name in ("source", "line", "text"))
    return f"{source}:{line}: {text}"


def _format_moment(document: object) -> str:
    moment = _as_mapping(document)
    place = " ".join(f"{name} {_format_value(moment[name])}" for name in _NAMES if moment.get(name) not in (None, ""))
    return "  ".join(
        part for part in (_format_time(moment.get("time_s")), place, _format_value(moment.get("what"))) if part
    )


def _format_time(value: object) -> str:
    try:
        return f"{datetime.fromtimestamp(value, UTC):%F %T}Z" if isinstance(value, int | float) else ""
    except (OverflowError, ValueError, OSError):
        return ""


def _format_any(document: object) -> str:
    """Return a row of unknown form as text: a sentence, or names with values."""
    if isinstance(document, dict):
        values = {
            str(name): _format_value(value) for name, value in document.items() if value not in (None, "", [], {})
        }
        first = values.pop("what", "")
        return "  ".join((first, *(f"{name}: {text}" for name, text in values.items()))).strip()[:MAX_CHARS]
    return _format_value(document)


def _as_list(value: object) -> list[object]:
    return value[:MAX_ROWS] if isinstance(value, list) else []


def _as_mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _format_value(value: object) -> str:
    return "" if value is None else str(value)[:MAX_CHARS].replace("\n", " ")
