"""Lists and reads the reports that ``opsk postmortem`` wrote to the evidence folder, as far as the caller may read."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from opsk.errors import InputError
from opsk.job_key import JobKey
from opsk.units import MIB
from opsk_tui.data.sources.report_text import report_text
from opsk_tui.data.view import ReportRow

if TYPE_CHECKING:
    from opsk.postmortem.evidence.index import Entry

MAX_REPORTS = 200
MAX_BYTES = 16 * MIB
KIND = "postmortem"


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
