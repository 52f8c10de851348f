"""Which reports lie in the folder of evidence, as ``opsk postmortem`` writes them? Those that the caller may read."""

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

MOST_REPORTS = 200
LARGEST_BYTES = 16 * MIB
KIND = "postmortem"


class ReportFolder:
    """The site's folder of evidence.

    Parameters
    ----------
    folder
        ``[postmortem] folder`` of the site; ``None`` where it keeps nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._known: Mapping[str, Entry] = {}

    @property
    def is_there(self) -> bool:
        """Whether the site keeps reports in a folder."""
        return self._folder is not None

    def reports(self, cluster: str = "") -> tuple[ReportRow, ...]:
        """Return the reports, the newest first; one that was known before is not read again.

        Parameters
        ----------
        cluster
            Only those on its jobs, where several clusters keep theirs in one folder; empty for all.
        """
        from opsk.postmortem.evidence.index import JSON_REPORT, entries_of

        if self._folder is None:
            return ()
        found, _ = entries_of(self._folder, limit=MOST_REPORTS, known=self._known, cluster=cluster)
        self._known = {entry.folder: entry for entry in found}
        return tuple(
            ReportRow(
                job=entry.job,
                title=": ".join(part for part in (entry.root_class or entry.state, entry.where, entry.what) if part),
                kind=KIND,
                made_at_s=entry.written_s,
                path=str(Path(entry.folder) / JSON_REPORT),
            )
            for entry in found
        )

    def is_report(self, path: str) -> bool:
        """Tell whether this folder has listed a report by this name."""
        return bool(path) and str(Path(path).parent) in self._known

    def text(self, path: str) -> str:
        """Return the text of a report that `reports` listed.

        Raises
        ------
        InputError
            It cannot be read any more.
        """
        from opsk.postmortem.evidence.index import readable

        try:
            handle = os.open(readable(Path(path)), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(handle, "rb") as stream:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise InputError(f"{path}: no regular file")
                data = stream.read(LARGEST_BYTES)
        except OSError as error:
            key = JobKey.of_file_name(Path(path).parent.name)
            hint = f"opsk postmortem {key.job}" if key is not None else ""
            raise InputError(f"{path}: {error.strerror}", hint=hint) from error
        return report_text(data.decode("utf-8", errors="replace"))
