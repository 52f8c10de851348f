"""Checks the evidence folder and this node's spool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from opsk.app.doctor.finding import Finding, Site, note, sound, unknown, wrong
from opsk.postmortem.evidence.collector import ENDED
from opsk.postmortem.evidence.node_files import refuse_planted
from opsk.postmortem.evidence.reporting import REPORTS
from opsk.text import escape

OVERDUE_AFTER_S = 3600.0
"""The timer runs each minute, and waiting for other nodes and Slurm takes minutes."""
HOWTO = "docs/howto/keep-evidence.md"


def check_evidence(site: Site) -> Iterator[Finding]:
    """Check the folder of evidence, and the spool of this host."""
    folder, spool = site.config.postmortem.folder, site.config.postmortem.spool
    if folder is None:
        yield from _check_without_folder(site, spool)
        return
    yield _check_folder(folder)
    yield from _check_spool(spool, site.now_s)


def _check_without_folder(site: Site, spool: Path) -> Iterator[Finding]:
    try:
        has_spool = (spool / ENDED).is_dir()
    except OSError:
        has_spool = False
    if has_spool:
        hint = f"folder under [postmortem], or rmdir {spool / ENDED}, which switches the epilog's part off"
        yield wrong("evidence", "the epilog hands jobs over, and no folder is named to keep anything in", spool, hint)
    else:
        yield note("evidence", "none is kept of jobs that die", site.config_path, f"[postmortem] folder: {HOWTO}")


def _check_folder(folder: Path) -> Finding:
    try:
        refuse_planted(folder)
    except FileNotFoundError:
        if folder.parent.is_dir():
            return note("evidence", "is not there yet: the first job that ends with evidence makes it", folder)
        hint = "is the storage mounted? root would keep evidence on this host's own disk"
        return wrong("evidence", f"neither it nor {folder.parent} is there", folder, hint)
    except PermissionError as error:
        if "not used" not in (error.strerror or ""):
            return unknown("evidence", f"could not be looked at: {error.strerror}", folder, "run opsk doctor as root")
        why = (error.strerror or "").partition(": ")[2]
        hint = f"nobody but root, or the group of its keepers, may write there: {HOWTO}"
        return wrong("evidence", f"neither written nor believed: {why}", folder, hint)
    return sound("evidence", "its folder is there", folder)


def _check_spool(spool: Path, now_s: float) -> Iterator[Finding]:
    """Report notes that have been waiting for too long."""
    try:
        ended, reports = _find_overdue(spool / ENDED, now_s), _find_overdue(spool / REPORTS, now_s)
    except FileNotFoundError:
        hint = f"right where no jobs run; on nodes tmpfiles.d/opsk-evidence.conf: {HOWTO}"
        yield note("evidence", "this host keeps none: it has no spool", spool / ENDED, hint)
        return
    except PermissionError:
        yield unknown("evidence", "its spool is root's", spool, "run opsk doctor as root")
        return
    hint = "systemctl enable --now opsk-collector.timer; opsk collect, as root, says what is in its way"
    if ended:
        yield wrong("evidence", f"of {_format_jobs(ended)} none is taken yet, an hour after the end", spool, hint)
    if reports:
        yield wrong("evidence", f"no report yet on {_format_jobs(reports)}", spool, hint)
    if not ended and not reports:
        yield sound("evidence", "nothing has been waiting in the spool", spool)


def _find_overdue(folder: Path, now_s: float) -> list[str]:
    """Return the jobs whose notes in a folder of the spool are overdue.

    Raises
    ------
    OSError
        It is not there (that of reports may be missing), or cannot be read.
    """
    jobs = []
    try:
        names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    except FileNotFoundError:
        if folder.name == ENDED:
            raise
        return []
    for name in names:
        try:
            since_s = (folder / name).stat().st_ctime
        except FileNotFoundError:
            continue
        if now_s - since_s > OVERDUE_AFTER_S:
            jobs.append(name.partition("@")[0])
    return jobs


def _format_jobs(names: list[str]) -> str:
    shown = ", ".join(escape(name)[:20] for name in names[:6])
    return f"{len(names)} job{'s' if len(names) > 1 else ''} ({shown}{', ...' if len(names) > 6 else ''})"
