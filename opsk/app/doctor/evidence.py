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
        hint = f"set folder under [postmortem], or rmdir {spool / ENDED}, which turns off the epilog's part"
        yield wrong("evidence", "the epilog hands over jobs, but no folder for evidence is set", spool, hint)
    else:
        yield note(
            "evidence",
            "no evidence of failed jobs is collected",
            site.config_path,
            f"set folder under [postmortem]: {HOWTO}",
        )


def _check_folder(folder: Path) -> Finding:
    try:
        refuse_planted(folder)
    except FileNotFoundError:
        if folder.parent.is_dir():
            return note("evidence", "does not exist yet: the first job with evidence creates it", folder)
        hint = "is the storage mounted? Otherwise root writes evidence to this host's own disk"
        return wrong("evidence", f"neither it nor {folder.parent} exists", folder, hint)
    except PermissionError as error:
        if "not used" not in (error.strerror or ""):
            return unknown("evidence", f"could not be checked: {error.strerror}", folder, "run opsk doctor as root")
        why = (error.strerror or "").partition(": ")[2]
        hint = f"only root, or the group that keeps evidence, may write there: {HOWTO}"
        return wrong("evidence", f"opsk neither writes nor trusts it: {why}", folder, hint)
    return sound("evidence", "its folder exists", folder)


def _check_spool(spool: Path, now_s: float) -> Iterator[Finding]:
    """Report notes that have been waiting for too long."""
    try:
        ended, reports = _find_overdue(spool / ENDED, now_s), _find_overdue(spool / REPORTS, now_s)
    except FileNotFoundError:
        hint = f"fine where no jobs run; on compute nodes see tmpfiles.d/opsk-evidence.conf: {HOWTO}"
        yield note("evidence", "this host collects none: it has no spool", spool / ENDED, hint)
        return
    except PermissionError:
        yield unknown("evidence", "only root can read its spool", spool, "run opsk doctor as root")
        return
    hint = "systemctl enable --now opsk-collector.timer; opsk collect, as root, prints the errors"
    if ended:
        yield wrong("evidence", f"not collected an hour after the end: {_format_jobs(ended)}", spool, hint)
    if reports:
        yield wrong("evidence", f"no report yet: {_format_jobs(reports)}", spool, hint)
    if not ended and not reports:
        yield sound("evidence", "nothing is waiting in the spool", spool)


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
