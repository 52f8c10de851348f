"""Implements ``opsk doctor``: checks a site, and reports what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

import click

from opsk.app.doctor.checks import diagnose
from opsk.app.doctor.finding import Finding, Level
from opsk.cli.document import echo_json
from opsk.errors import ExitStatus
from opsk.text import escape

WIDTH = 100
_INDENT = " " * 4
_MARKS = {Level.WRONG: "✗", Level.UNKNOWN: "?", Level.NOTE: "·", Level.SOUND: "✓"}


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


def print_findings(findings: Sequence[Finding], *, everything: bool) -> None:
    """Print the findings, the worst first, and the count of each level."""
    for level, mark in _MARKS.items():
        for finding in findings:
            if finding.level is level and (everything or level is not Level.SOUND):
                _print_finding(finding, mark)
    counts = {level: sum(finding.level is level for finding in findings) for level in _MARKS}
    more = "" if everything or not counts[Level.SOUND] else " (shown with --all)"
    verdict = f"{counts[Level.WRONG]} wrong" if counts[Level.WRONG] else "nothing wrong"
    could = f", {counts[Level.UNKNOWN]} could not be checked" if counts[Level.UNKNOWN] else ""
    click.echo(f"{verdict}{could}, {counts[Level.SOUND]} sound{more}")


def _print_finding(finding: Finding, mark: str) -> None:
    head = f"{mark} {finding.check}: {escape(finding.what)}"
    lines = wrap(head, WIDTH, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False)
    if finding.where and finding.where not in finding.what:
        lines.append(f"{_INDENT}at {escape(finding.where)}")
    if finding.hint:
        first, rest = f"{_INDENT}→ ", f"{_INDENT}  "
        lines += wrap(
            escape(finding.hint), WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
    click.echo("\n".join(lines))
