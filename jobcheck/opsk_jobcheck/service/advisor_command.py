"""Implements the command ``opsk advisor``, apart from ``cli`` because the daemon does not need the analysis."""

from __future__ import annotations

from pathlib import Path

import click

from opsk.config import SiteConfig, load_site
from opsk.errors import InputError
from opsk.text import format_json
from opsk_jobcheck.records.audit import audit_summary, render_summary
from opsk_jobcheck.service.hooks import ADVICE, HOOKS, SETTINGS, install_hooks, policy_setting
from opsk_jobcheck.service.service import serve


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="Site configuration instead of /etc/opsk/opsk.toml.")
@click.option(
    "--install-hooks",
    "directory",
    type=click.Path(path_type=Path),
    help="Write the submit hooks and their settings beside the slurm.conf in this directory, and end.",
)
@click.option(
    "--audit-summary",
    "log",
    type=click.Path(path_type=Path),
    help="Print the counts of requests, verdicts and actions in this audit log and their times, and end.",
)
@click.option("--watch", is_flag=True, help="Poll Slurm for running jobs and free nodes for an advisor.")
@click.option("--json", "as_json", is_flag=True, help="With --audit-summary: one JSON document on stdout.")
def advisor(config: Path | None, directory: Path | None, log: Path | None, *, watch: bool, as_json: bool) -> None:
    """Run the advisor that answers the submit hooks, until it is stopped.

    SIGHUP reads the configuration and opens the audit log again; SIGTERM and SIGINT end the advisor.
    Exit status: 0 it was stopped; 2 the configuration cannot be used; 3 another advisor answers on the socket.
    """
    if log is not None:
        _summarise(log, as_json=as_json)
        return
    site = load_site(config)
    if watch:
        from opsk_jobcheck.workers.watcher import run_service  # the analysis, which the daemon itself does without

        run_service(site)
        return
    if directory is None:
        serve(site, load=lambda: load_site(config))
        return
    _install(directory, site)


def _summarise(log: Path, *, as_json: bool) -> None:
    """Print the summary of an audit log."""
    summary = audit_summary(log)
    if as_json:
        click.echo(format_json(summary))
    else:
        click.echo("\n".join(render_summary(summary)))


def _install(directory: Path, site: SiteConfig) -> None:
    """Install the hooks and say what is left to do; a site's own scripts are not overwritten."""
    for name in HOOKS:
        present = directory / name
        if present.exists() and "of opsk:" not in present.read_text(encoding="utf-8", errors="replace")[:200]:
            raise InputError(
                f"{present}: is a script of this site's own",
                hint=f"install into another directory and load {name} from yours, as its head says",
            )
    try:
        install_hooks(directory, site)
    except OSError as error:
        raise InputError(f"{directory}: {error.strerror}", hint="name the directory of slurm.conf") from error
    click.echo(f"installed in {directory}: {', '.join((*HOOKS, ADVICE, SETTINGS))}")
    if policy_setting(site) == "enforce":
        click.echo("policy = enforce: rules may hold or refuse jobs")
    click.echo("in slurm.conf: JobSubmitPlugins=lua and CliFilterPlugins=lua; then restart slurmctld, the first time")
    click.echo("both hooks need lua-socket for the Lua that Slurm was built with; without it they give no advice")
