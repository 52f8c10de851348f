"""Reads from the store what no source measures now: reports, advice as it was shown, and earlier step times."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsk.app.site_store import open_site_store
from opsk.config import load_site
from opsk.errors import OpskError
from opsk.text import to_json_values
from opsk.workload.advice_record import AdviceRecord
from opsk_tui.data.sources.reports import report_text
from opsk_tui.data.view import ReportRow

if TYPE_CHECKING:
    from sqlalchemy import Engine

MAX_REPORTS = 200
ADVICE_WITHIN = timedelta(minutes=10)
"""Advice is given a moment before its job exists."""
ACCURACY_OF = timedelta(days=90)
"""The time span of the page on accuracy: the default of `opsk accuracy`."""
_SCHEME = "store:"


class StoreSource:
    """The site's store, opened for reading on first use.

    Parameters
    ----------
    url
        The configured URL; ``None`` is a file of the user's own.
    """

    def __init__(self, url: str | None = None) -> None:
        self._url = url
        self._engine: Engine | None = None

    @property
    def is_there(self) -> bool:
        """Whether there is a store to read: one in the site's configuration, or a file of this user's own.

        Checked before any of its modules is loaded, which takes half a second.
        """
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        return self._url is not None or (Path(state) / "opsk" / "opsk.db").exists()

    def reports(self, cluster: str) -> tuple[ReportRow, ...]:
        """Return the reports, the newest first.

        Raises
        ------
        OpskError
            The store is not installed, or cannot be read.
        """
        from opsk.store.records.outcomes import LOSSES
        from opsk.store.records.reports import find_reports

        # there is one on every slow job: they would hide those on failures
        rows = find_reports(self._open(), cluster=cluster or None, without=LOSSES, limit=MAX_REPORTS)
        return tuple(
            ReportRow(
                job=report.job,
                title=report.title or report.root_cause or report.report,
                kind=report.report,
                made_at_s=report.at.timestamp(),
                path=f"{_SCHEME}{report.job}/{report.report}/{report.form}/{report.at.isoformat()}",
            )
            for report in rows
        )

    def report_text(self, path: str, cluster: str) -> str | None:
        """Return the text of a report that `reports` listed; ``None`` where it no longer exists.

        Raises
        ------
        OpskError
            The store cannot be read.
        """
        from opsk.store.records.reports import find_reports

        job, _, rest = path.removeprefix(_SCHEME).partition("/")
        kind, form, created_at = [*rest.split("/"), "", "", ""][:3]
        for report in find_reports(self._open(), cluster=cluster or None, job=job, report=kind or None):
            if report.form == form and report.at.isoformat() == created_at:
                return report_text(report.content)
        return None

    def advice_lines(self, cluster: str, record: AdviceRecord | None, submitted: datetime | None) -> tuple[str, ...]:
        """Return the advice that was shown for a job: joined by the script's hash, which its record carries, and time.

        Raises
        ------
        OpskError
            The store cannot be read.
        """
        if record is None or record.hash is None:
            return ()
        from opsk.store.records.advice import find_advice

        since = submitted - ADVICE_WITHIN if submitted is not None else None
        for entry in find_advice(self._open(), cluster=cluster or None, script_hash=record.hash, since=since):
            lines: Any = entry.document.get("lines") if isinstance(entry.document, dict) else None
            in_time = submitted is None or entry.at.astimezone(UTC) <= submitted + timedelta(minutes=1)
            if in_time and isinstance(lines, list) and lines:
                return tuple(str(line) for line in lines)
        return ()

    def accuracy(self, cluster: str) -> Mapping[str, Any]:
        """Return how good predictions have been at this cluster in the last days, as far as the caller may see it.

        Raises
        ------
        OpskError
            The store is not installed, or cannot be read.
        """
        engine = self._open()
        from opsk.app.accuracy.document import build_accuracy_document, find_reader
        from opsk.app.accuracy.fit import find_fit_since
        from opsk.app.accuracy.jobs import read_compared_jobs

        since = datetime.now(UTC) - ACCURACY_OF
        compared = read_compared_jobs(engine, since=since, cluster=cluster or None)
        fit_since = find_fit_since(load_site())
        document: Mapping[str, Any] = to_json_values(
            build_accuracy_document(compared, find_reader(), since=since, fit_since=fit_since)
        )
        return document

    def _open(self) -> Engine:
        if self._engine is None:
            self._engine = open_site_store(writing=False)
        return self._engine

    def close(self) -> None:
        """Close the database."""
        if self._engine is not None:
            try:
                self._engine.dispose()
            except OpskError:
                return
