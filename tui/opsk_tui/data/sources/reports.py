"""Lists the reports that ``opsk postmortem`` wrote, as far as the caller may read them, and renders one as text.

The content may come from users' logs, or be no report at all: nothing is assumed about it, and the screen escapes it.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsk.errors import InputError
from opsk.job_key import JobKey
from opsk.units import MIB
from opsk_tui.data.view import ReportRow

if TYPE_CHECKING:
    from opsk.postmortem.evidence.index import Entry

MAX_ROWS = 200
MAX_CHARS = 400
_NAMES = ("node", "rank", "gpu_index", "gpu_uuid", "pci", "hca")
MAX_REPORTS = 200
MAX_BYTES = 16 * MIB
KIND = "postmortem"


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


class ReportFolder:
    """The site's evidence folder.

    Parameters
    ----------
    folder
        ``[postmortem] folder`` of the site; ``None`` where it stores nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._known: Mapping[str, Entry] = {}

    @property
    def is_there(self) -> bool:
        """Whether the site stores reports in a folder."""
        return self._folder is not None

    def reports(self, cluster: str = "") -> tuple[ReportRow, ...]:
        """Return the reports, the newest first; a known report is not read again.

        Parameters
        ----------
        cluster
            Only reports on its jobs, where several clusters share one folder; empty for all.
        """
        from opsk.postmortem.evidence.index import JSON_REPORT, list_entries

        if self._folder is None:
            return ()
        entries, _ = list_entries(self._folder, limit=MAX_REPORTS, known=self._known, cluster=cluster)
        self._known = {entry.folder: entry for entry in entries}
        return tuple(
            ReportRow(
                job=entry.job,
                title=": ".join(part for part in (entry.root_class or entry.state, entry.where, entry.what) if part),
                kind=KIND,
                made_at_s=entry.written_s,
                path=str(Path(entry.folder) / JSON_REPORT),
            )
            for entry in entries
        )

    def is_report(self, path: str) -> bool:
        """Return whether this folder has listed a report by this name."""
        return bool(path) and str(Path(path).parent) in self._known

    def text(self, path: str) -> str:
        """Return the text of a report that `reports` listed.

        Raises
        ------
        InputError
            It cannot be read any more.
        """
        from opsk.postmortem.evidence.index import find_readable

        try:
            handle = os.open(find_readable(Path(path)), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(handle, "rb") as stream:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise InputError(f"{path}: no regular file")
                data = stream.read(MAX_BYTES)
        except OSError as error:
            key = JobKey.of_file_name(Path(path).parent.name)
            hint = f"opsk postmortem {key.job}" if key is not None else ""
            raise InputError(f"{path}: {error.strerror}", hint=hint) from error
        return report_text(data.decode("utf-8", errors="replace"))
