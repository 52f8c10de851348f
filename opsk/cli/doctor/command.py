"""Implements ``opsk doctor``: checks a site, and reports what is wrong, where, and what to do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import cast

import click

from opsk.app.doctor.finding import CHECKS_GROUP, Check, Finding, Level, Site, unknown
from opsk.app.doctor.slurm import check_clock, check_slurmctld
from opsk.app.doctor.slurm_installation import check_lua_socket, find_installed_slurm
from opsk.cli.doctor.configuration import check_configuration, read_configuration
from opsk.cli.doctor.evidence import check_evidence
from opsk.cli.doctor.exporters import (
    check_exporters,
    check_jobs,
    check_jobs_folder,
    find_exporter_urls,
    scrape_exporters,
)
from opsk.cli.doctor.prometheus import check_prometheus
from opsk.cli.doctor.store import check_store
from opsk.cli.doctor.text import print_findings
from opsk.cli.document import echo_json
from opsk.config import DEFAULT_PATH
from opsk.errors import ExitStatus, OpskError


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="Site configuration instead of /etc/opsk/opsk.toml.")
@click.option("--exporter", "exporters", multiple=True, metavar="NODE[=URL]",
              help="An exporter to ask; may be repeated, and NODE may be a list (n[0-7]).")  # fmt: skip
@click.option("--all", "show_all", is_flag=True, help="Show what is sound as well.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def doctor(config: Path | None, exporters: tuple[str, ...], *, show_all: bool, as_json: bool) -> int:
    """Explain what is wrong at a running site: what, where, and what to do. Nothing is changed.

    Run it as root where slurmctld or the advisor runs: as another user some of it cannot be looked at, which is said.
    Exporters are those named, those of exporter_targets under [top], else those of Slurm's first 64 nodes.

    Exit status: 0 nothing is wrong, 1 something is.
    """
    findings = diagnose(config, exporters)
    is_wrong = any(finding.level is Level.WRONG for finding in findings)
    if as_json:
        counts = {level.value: sum(finding.level is level for finding in findings) for level in Level}
        echo_json({"findings": findings, "counts": counts, "sound": not is_wrong})
    else:
        print_findings(findings, everything=show_all)
    return ExitStatus.BAD_NEWS if is_wrong else ExitStatus.ANSWER


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
    return cast("Check", entry.load())(site)


def _run_check(name: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return the findings of a check; a check that fails is a finding itself, and does not stop the others."""
    findings: list[Finding] = []
    try:
        findings.extend(check())
    except OpskError as error:
        findings.append(unknown(name, f"could not be looked at: {error.message}", hint=error.hint))
    except (OSError, ImportError) as error:
        findings.append(unknown(name, f"could not be looked at: {error}"))
    return findings
