"""Prints the remaps of the journal, and the result of resuming or undoing one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from opsk.app.remap.apply import open_journal
from opsk.app.remap.journal import resume_nodes, resume_remap
from opsk.cli.document import echo_json
from opsk.cli.remap.text import echo_warning, print_applied
from opsk.errors import ExitStatus
from opsk.remapping.journal import FileJournal, Remapping
from opsk.slurm.client import SlurmClient
from opsk.slurm.cluster_name import cluster_name
from opsk.text import escape

_MAX_LISTED = 50


def run_journal_command(
    slurm: SlurmClient, folder: Path | None, *, shown: bool, resumed: str | None, undone: str | None,
    nodes: str | None, yes: bool, as_json: bool, all_clusters: bool = False,
) -> int:  # fmt: skip
    """Run one of ``--journal``, ``--resume``, ``--undo`` and ``--resume-node``."""
    journal, ask = open_journal(folder), None if yes else click.confirm
    if shown:
        return _print_list(journal, "" if all_clusters else cluster_name(slurm), as_json=as_json)
    if nodes is not None:
        applied = resume_nodes(slurm, nodes, ask=ask)
    else:
        applied = resume_remap(
            journal, slurm, resumed or undone or "", is_undo=undone is not None, ask=ask, warn=echo_warning
        )
    if as_json:
        echo_json({"applied": applied})
    else:
        print_applied(applied)
    return ExitStatus.UNAVAILABLE if applied.refused is not None or applied.is_outdated else ExitStatus.ANSWER


def _print_list(journal: FileJournal, cluster: str, *, as_json: bool) -> int:
    """List the remaps of one cluster and of unknown clusters; of all where none is named."""
    all_remaps = journal.all()
    remaps = [remap for remap in all_remaps if not cluster or remap.planned.cluster in ("", cluster)]
    others = len(all_remaps) - len(remaps)
    if as_json:
        echo_json(
            {"remaps": [_build_row(remap) for remap in remaps], "cluster": cluster or None, "other_clusters": others}
        )
        return ExitStatus.ANSWER
    if not remaps:
        click.echo("no remap was carried out with this journal" + (f" on cluster {cluster}" if others else ""))
    for remap in remaps[:_MAX_LISTED]:
        row = _build_row(remap)
        job = f"job {row['job']}" if remap.planned.cluster == cluster else str(remap.planned.key)
        click.echo(escape(f"{row['id']}  {row['state']:<9} {job}  {row['kind']}: {row['title']}"))
        for step in row["steps"]:
            click.echo(escape(f"    {step['state'] or 'to do':<8} {step['text']}"))
        if row["said"]:
            click.echo(escape(f"    {row['said']}"))
        if remap.is_open and remap.state != "undoing":
            click.echo(escape(f"    go on: opsk remap --resume {row['id']}"))
    if others:
        click.echo(f"{others} of other clusters: see opsk remap --journal --all-clusters")
    return ExitStatus.ANSWER


def _build_row(remap: Remapping) -> dict[str, Any]:
    """Return one remap of the list."""
    planned, done = remap.planned, remap.steps
    messages = [line.said for line in remap.lines if line.number is None and line.said]
    return {
        "id": planned.id,
        "state": remap.state,
        "at": datetime.fromtimestamp(planned.at_s, tz=UTC),
        "by": planned.by,
        "host": planned.host,
        "job": planned.job,
        "cluster": planned.cluster or None,
        "failed": planned.failed,
        "kind": planned.kind,
        "title": planned.title,
        "world": planned.world.hash,
        "steps": [{"number": step.number, "text": step.text, "state": done.get(step.number)} for step in planned.steps],
        "left": planned.left,
        "said": messages[-1] if messages else None,
        "damaged_lines": remap.damaged,
    }
