"""The command ``opsk doctor``: what is wrong here, where, and what is to be done?"""

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
from opsk.app.doctor.slurm import ask_slurm, clock_checks
from opsk.app.doctor.slurm_installation import installed_slurm, lua_finding
from opsk.cli.doctor.configuration import configuration_checks, read_configuration
from opsk.cli.doctor.evidence import evidence_checks
from opsk.cli.doctor.exporters import exporter_checks, exporter_urls, hear, job_checks, jobs_folder_checks
from opsk.cli.doctor.picture import show
from opsk.cli.doctor.prometheus import prometheus_checks
from opsk.cli.doctor.store import store_checks
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
    found = diagnose(config, exporters)
    is_wrong = any(finding.level is Level.WRONG for finding in found)
    if as_json:
        counts = {level.value: sum(finding.level is level for finding in found) for level in Level}
        echo_json({"findings": found, "counts": counts, "sound": not is_wrong})
    else:
        show(found, everything=show_all)
    return ExitStatus.BAD_NEWS if is_wrong else ExitStatus.ANSWER


def diagnose(config: Path | None, exporters: Iterable[str] = ()) -> list[Finding]:
    """Look at everything."""
    path = config or Path(os.environ.get("OPSK_CONFIG") or DEFAULT_PATH)
    settings, found = read_configuration(path)
    slurm, said = ask_slurm()
    found += said
    urls, said = exporter_urls(exporters, settings.top)
    found += said
    site = Site(config=settings, config_path=path, slurm=slurm, exporters=urls, now_s=time.time())
    heard = hear(site)
    checks: list[tuple[str, Callable[[], Iterable[Finding]]]] = [
        ("configuration", lambda: configuration_checks(site)),
        ("clock", lambda: clock_checks(site)),
        ("lua-socket", lua_checks),
        *_of_front_ends(site),
        ("exporter", lambda: exporter_checks(heard)),
        ("prolog", lambda: job_checks(site, heard)),
        ("prolog", lambda: jobs_folder_checks(site)),
        ("prometheus", lambda: prometheus_checks(site, heard)),
        ("store", lambda: store_checks(site)),
        ("evidence", lambda: evidence_checks(site)),
    ]
    for name, look in checks:
        found += _looked(name, look)
    return found


def lua_checks() -> Iterable[Finding]:
    """Look for lua-socket where Slurm's Lua plugins are installed."""
    slurm = installed_slurm(Path("/"))
    return [lua_finding(slurm)] if slurm.plugins else []


def _of_front_ends(site: Site) -> list[tuple[str, Callable[[], Iterable[Finding]]]]:
    """Return the checks that front ends bring."""
    entries = sorted(entry_points(group=CHECKS_GROUP), key=lambda each: each.name)
    return [(entry.name, partial(_of_entry, entry, site)) for entry in entries]


def _of_entry(entry: EntryPoint, site: Site) -> Iterable[Finding]:
    return cast("Check", entry.load())(site)


def _looked(name: str, look: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return what a check found; that it could not look is a finding as well, and no reason to leave the others out."""
    found: list[Finding] = []
    try:
        found.extend(look())
    except OpskError as error:
        found.append(unknown(name, f"could not be looked at: {error.message}", hint=error.hint))
    except (OSError, ImportError) as error:
        found.append(unknown(name, f"could not be looked at: {error}"))
    return found
