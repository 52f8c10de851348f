"""What does the store remember that nobody measures now? Reports, advice as it was shown, and earlier step times."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsk.app.store_opening import site_store
from opsk.errors import OpskError
from opsk.workload.advice_record import AdviceRecord
from opsk_tui.data.sources.report_text import report_text
from opsk_tui.data.view import ReportRow

if TYPE_CHECKING:
    from sqlalchemy import Engine

MOST_REPORTS = 200
ADVICE_WITHIN = timedelta(minutes=10)
"""Advice is given a moment before its job is there."""
_SCHEME = "store:"


class StoreSource:
    """The site's store, opened for reading when it is first asked.

    Parameters
    ----------
    url
        What the site has configured; ``None`` is a file of the user's own.
    """

    def __init__(self, url: str | None = None) -> None:
        self._url = url
        self._engine: Engine | None = None

    @property
    def is_there(self) -> bool:
        """Whether there is a store to be read: one that the site names, or a file of this user's own.

        Looked at before anything of it is loaded, which takes half a second.
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
        from opsk.store.records.reports import reports

        found = reports(self._opened(), cluster=cluster or None, limit=MOST_REPORTS)
        return tuple(
            ReportRow(
                job=report.job,
                title=report.title or report.root_cause or report.report,
                kind=report.report,
                made_at_s=report.at.timestamp(),
                path=f"{_SCHEME}{report.job}/{report.report}/{report.form}/{report.at.isoformat()}",
            )
            for report in found
        )

    def report_text(self, path: str, cluster: str) -> str | None:
        """Return the text of a report that `reports` listed; ``None`` where it is not there any more.

        Raises
        ------
        OpskError
            The store cannot be read.
        """
        from opsk.store.records.reports import reports

        job, _, rest = path.removeprefix(_SCHEME).partition("/")
        kind, form, at = [*rest.split("/"), "", "", ""][:3]
        for report in reports(self._opened(), cluster=cluster or None, job=job, report=kind or None):
            if report.form == form and report.at.isoformat() == at:
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
        from opsk.store.records.advice import advice

        since = submitted - ADVICE_WITHIN if submitted is not None else None
        for given in advice(self._opened(), cluster=cluster or None, script_hash=record.hash, since=since):
            lines: Any = given.document.get("lines") if isinstance(given.document, dict) else None
            in_time = submitted is None or given.at.astimezone(UTC) <= submitted + timedelta(minutes=1)
            if in_time and isinstance(lines, list) and lines:
                return tuple(str(line) for line in lines)
        return ()

    def _opened(self) -> Engine:
        if self._engine is None:
            self._engine = site_store(writing=False)
        return self._engine

    def close(self) -> None:
        """Let the database go."""
        if self._engine is not None:
            try:
                self._engine.dispose()
            except OpskError:
                return
