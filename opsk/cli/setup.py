"""Implements ``opsk setup``: checks this host, writes opsk.toml, and prints the lines for slurm.conf."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from opsk.app.doctor.finding import Finding, Level, sound, wrong
from opsk.app.doctor.slurm import (
    read_slurm_lines,
)
from opsk.app.setup import (
    HostCheck,
    check_host,
    format_site,
    write_site,
)
from opsk.cli.document import echo_json
from opsk.cli.findings import print_findings
from opsk.config import DEFAULT_PATH
from opsk.errors import ExitStatus
from opsk.slurm.topology.release import format_release
from opsk.text import escape


@click.command()
@click.option("--root", type=click.Path(path_type=Path, file_okay=False), default=Path("/"), show_default=True,
              help="Check and write below this folder; programs come from PATH.")  # fmt: skip
@click.option("--cluster", "named", metavar="NAME", help="A cluster of the catalogue, or the path of a cluster TOML.")
@click.option(
    "--fabric", type=click.Path(path_type=Path), multiple=True, help="Dump of the compute fabric; repeatable."
)
@click.option("--prometheus", metavar="URL", help="The site's Prometheus; by default one on this host, if it answers.")
@click.option("--shadow", is_flag=True, help="Start with a policy that shows advice to nobody.")
@click.option("--dry-run", is_flag=True, help="Write nothing; print what would be written.")
@click.option("--force", is_flag=True, help="Overwrite an existing opsk.toml, and keep a copy next to it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
def setup(
    root: Path, named: str | None, fabric: tuple[Path, ...], prometheus: str | None, *, shadow: bool, dry_run: bool,
    force: bool, as_json: bool,
) -> int:  # fmt: skip
    """Check this host, write /etc/opsk/opsk.toml with comments, and print the lines that slurm.conf needs.

    An existing opsk.toml is changed only with --force. Nothing else is written, and nothing is started.

    Exit status: 0 nothing is wrong; 1 something is missing or wrong.
    """
    check = check_host(root, named, fabric, prometheus, shadow=shadow)
    path = root / DEFAULT_PATH.relative_to("/")
    text = format_site(check.facts)
    written = _write_configuration(path, text, force=force, dry_run=dry_run)
    findings = (*check.findings, written.finding)
    release = check.slurm.release
    lines = read_slurm_lines(release) if release is not None else ()
    if as_json:
        echo_json({**_build_document(check), "findings": findings, "configuration": text, "slurm_conf": lines,
                   "path": path, "written": written.is_written, "kept_as": written.backup})  # fmt: skip
    else:
        print_findings(findings, everything=True)
        if dry_run:
            click.echo(f"\n{escape(str(path))} would be:\n\n{text}", nl=False)
        if lines and release is not None:
            click.echo(f"\nslurm.conf of Slurm {format_release(release)} needs:\n")
            click.echo("\n".join(lines))
        click.echo("\nnext: opsk advisor --install-hooks /etc/slurm, then opsk doctor")
    return ExitStatus.BAD_NEWS if any(each.level is Level.WRONG for each in findings) else ExitStatus.ANSWER


@dataclass(frozen=True, slots=True, kw_only=True)
class _WriteResult:
    finding: Finding
    is_written: bool = False
    backup: Path | None = None


def _write_configuration(path: Path, text: str, *, force: bool, dry_run: bool) -> _WriteResult:
    """Write the configuration, unless one exists."""
    is_there = path.exists()
    if dry_run:
        return _WriteResult(finding=sound("opsk.toml", "nothing is written: --dry-run", path))
    if is_there and not force:
        return _WriteResult(finding=sound("opsk.toml", "exists and is not changed; --force overwrites it", path))
    try:
        backup = write_site(path, text)
    except OSError as error:
        hint = "run opsk setup as root, or with --root and --dry-run to see what it would write"
        return _WriteResult(finding=wrong("opsk.toml", f"cannot be written: {error.strerror}", path, hint))
    more = f"; the old file is {backup.name}" if backup is not None else ""
    return _WriteResult(finding=sound("opsk.toml", f"written{more}", path), is_written=True, backup=backup)


def _build_document(check: HostCheck) -> dict[str, Any]:
    slurm, facts = check.slurm, check.facts
    return {
        "slurm": {
            "release": facts.release or None, "program": slurm.program or None, "plugins": slurm.plugins,
            "lua": slurm.lua, "lua_socket": slurm.lua_socket, "user": facts.slurm_user,
            "default_partition": facts.default_partition,
        },
        "prometheus": facts.prometheus,
        "gpus": facts.gpus,
        "hcas": check.hcas,
    }  # fmt: skip
