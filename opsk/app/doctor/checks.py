"""Runs all checks of ``opsk doctor``, those of the front ends included."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from opsk.app.doctor.configuration import check_configuration, check_store, read_configuration
from opsk.app.doctor.evidence import check_evidence
from opsk.app.doctor.exporters import (
    check_exporters,
    check_jobs,
    check_jobs_folder,
    find_exporter_urls,
    scrape_exporters,
)
from opsk.app.doctor.finding import CHECKS_GROUP, Check, Finding, Site, unknown
from opsk.app.doctor.learning import check_learning
from opsk.app.doctor.prometheus import check_prometheus
from opsk.app.doctor.slurm import check_clock, check_lua_socket, check_slurmctld, find_installed_slurm
from opsk.config import DEFAULT_PATH
from opsk.errors import OpskError


def diagnose(config: Path | None, exporters: Iterable[str] = ()) -> list[Finding]:
    """Run all checks."""
    path = config or Path(os.environ.get("OPSK_CONFIG") or DEFAULT_PATH)
    settings, findings = read_configuration(path)
    slurm, more = check_slurmctld()
    findings += more
    urls, more = find_exporter_urls(exporters, settings.top)
    findings += more
    site = Site(config=settings, config_path=path, slurm=slurm, exporters=urls, now_s=time.time())
    scrapes = scrape_exporters(site)
    checks: list[tuple[str, Callable[[], Iterable[Finding]]]] = [
        ("configuration", lambda: check_configuration(site)),
        ("clock", lambda: check_clock(site)),
        ("lua-socket", check_lua),
        *_load_front_end_checks(site),
        ("exporter", lambda: check_exporters(scrapes)),
        ("prolog", lambda: check_jobs(site, scrapes)),
        ("prolog", lambda: check_jobs_folder(site)),
        ("prometheus", lambda: check_prometheus(site, scrapes)),
        ("store", lambda: check_store(site)),
        ("learning", lambda: check_learning(site)),
        ("evidence", lambda: check_evidence(site)),
    ]
    for name, check in checks:
        findings += _run_check(name, check)
    return findings


def check_lua() -> Iterable[Finding]:
    """Check lua-socket where Slurm's Lua plugins are installed."""
    slurm = find_installed_slurm(Path("/"))
    return [check_lua_socket(slurm)] if slurm.plugins else []


def _load_front_end_checks(site: Site) -> list[tuple[str, Callable[[], Iterable[Finding]]]]:
    """Return the checks of the front ends."""
    entries = sorted(entry_points(group=CHECKS_GROUP), key=lambda each: each.name)
    return [(entry.name, partial(_run_entry_check, entry, site)) for entry in entries]


def _run_entry_check(entry: EntryPoint, site: Site) -> Iterable[Finding]:
    check: Check = entry.load()
    return check(site)


def _run_check(name: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return the findings of a check; a check that fails is a finding itself, and does not stop the others."""
    findings: list[Finding] = []
    try:
        findings.extend(check())
    except OpskError as error:
        findings.append(unknown(name, f"could not be checked: {error.message}", hint=error.hint))
    except (OSError, ImportError) as error:
        findings.append(unknown(name, f"could not be checked: {error}"))
    return findings
