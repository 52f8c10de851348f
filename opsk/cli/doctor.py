"""Implements ``opsk doctor``: checks a site, and reports what is wrong, where, and what to do."""

from __future__ import annotations

from pathlib import Path

import click

from opsk.app.doctor.checks import diagnose
from opsk.app.doctor.finding import Level
from opsk.cli.document import echo_json
from opsk.cli.findings import print_findings
from opsk.errors import ExitStatus


@click.command()
@click.option(
    "--config", type=click.Path(path_type=Path), help="Site configuration to check; overrides /etc/opsk/opsk.toml."
)
@click.option("--exporter", "exporters", multiple=True, metavar="NODE[=URL]",
              help="An exporter to query; repeatable, and NODE may be a host list (n[0-7]).")  # fmt: skip
@click.option("--all", "show_all", is_flag=True, help="Also show checks that passed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
def doctor(config: Path | None, exporters: tuple[str, ...], *, show_all: bool, as_json: bool) -> int:
    """Check a running site, and explain what is wrong, where, and what to do. Nothing is changed.

    Run it as root on the host of slurmctld or of the advisor: other users cannot check everything, and opsk doctor
    lists what it could not check. Exporters are taken from --exporter, from exporter_targets under [top] in opsk.toml,
    or from Slurm's first 64 nodes.

    Exit status: 0 nothing is wrong; 1 something is wrong.
    """
    findings = diagnose(config, exporters)
    is_wrong = any(finding.level is Level.WRONG for finding in findings)
    if as_json:
        counts = {level.value: sum(finding.level is level for finding in findings) for level in Level}
        echo_json({"findings": findings, "counts": counts, "sound": not is_wrong})
    else:
        print_findings(findings, everything=show_all)
    return ExitStatus.BAD_NEWS if is_wrong else ExitStatus.ANSWER
