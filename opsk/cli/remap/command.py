"""Implements ``opsk remap``: lists the options after a failure, executes one, resumes and undoes remaps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from opsk.app.remap.execution import RemapSession, apply_option, open_journal, resume_nodes, resume_remap
from opsk.app.remap.inputs import RemapInputs, RemapRequest, gather_remap
from opsk.app.remap.options import build_remap_document, build_terms, compute_remaining_s
from opsk.cli.document import echo_json, echo_message
from opsk.cli.option_groups import option_group
from opsk.cli.remap.text import print_applied, print_options
from opsk.errors import ExitStatus
from opsk.planning.ranks import RankOrder
from opsk.planning.remap import values as usual
from opsk.planning.remap.failure import FORMS, parse_failures
from opsk.planning.remap.remap import remap as all_options
from opsk.planning.remap.values import Option, Terms
from opsk.remapping.execution import ExecutionResult
from opsk.remapping.journal import FileJournal, Remapping
from opsk.remapping.preparation import build_option_preconditions, find_option
from opsk.slurm.adapter import slurm_client
from opsk.slurm.client import SlurmClient
from opsk.slurm.cluster_name import cluster_name
from opsk.slurm.topology.release import parse_release
from opsk.text import escape

_MAX_LISTED = 50
_SECONDS = click.FloatRange(min=0.0, max=1e9)
_FILE = click.Path(path_type=Path, dir_okay=False)
_TIMES = (
    ("horizon-s", usual.HORIZON_S, "Time over which losses are counted."),
    ("repair-s", usual.REPAIR_S, "Until a failed part works again."),
    ("checkpoint-interval-s", usual.CHECKPOINT_INTERVAL_S, "Time between checkpoints; half of it is repeated."),
    ("detect-s", 0.0, "Until the failure is detected; 0 if it is known already."),
    ("stop-s", usual.STOP_S, "To end the running step."),
    ("queue-s", usual.QUEUE_S, "In the queue after a requeue, with StartTime=now."),
    ("start-s", usual.START_S, "From the start of the processes to the first step."),
    ("reload-s", usual.RELOAD_S, "To load the checkpoint."),
    ("optical-s", usual.OPTICAL_S, "To switch optical circuits and train the links."),
)


def _parse_release(ctx: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, int] | None:
    return parse_release(text) if text else None


_JOB_OPTIONS = (
    click.option("--plan", metavar="PLAN.toml", help="Plan of the job; by default from its advice, script or record."),
    click.option("--nodes", metavar="LIST", help="Nodes that the job uses, in the order of its ranks."),
    click.option("--spares", metavar="LIST", help="Nodes that the job holds but does not use."),
    click.option("--free", metavar="LIST",
                 help="Nodes that the job could get; by default the idle nodes of its partition."),
    click.option("--placement", type=_FILE, metavar="FILE", help="Current rank placement, from opsk place --json."),
    click.option("--fabric", multiple=True, type=_FILE, metavar="DUMP",
                 help="A dump of the fabric, as opsk fabric reads it; repeatable."),
    click.option("--routes", multiple=True, type=_FILE, metavar="FILE",
                 help="Forwarding tables of the switches, as dump_fts prints them; repeatable."),
    click.option("--node-file", "node_files", multiple=True, type=click.Path(path_type=Path), metavar="[HOST=]FILE",
                 help="A file that describes a node, as opsk fabric reads it; repeatable."),
    click.option("--cluster", metavar="NAME|FILE", help="A cluster of the catalogue, or a cluster TOML."),
    click.option("--gpus-per-node", type=click.IntRange(1, 1024), metavar="N",
                 help="GPUs that the job uses on each node."),
    click.option("--rank-order", type=click.Choice([order.value for order in RankOrder]),
                 help="Order in which rank numbers run through the axes, fastest first.  [default: as in the "
                 f"placement, else {RankOrder.TP_CP_EP_DP_PP.value}]"),
)  # fmt: skip
_TERM_OPTIONS = (
    click.option("--optical", is_flag=True, help="Optical circuit switches can move an HCA to another leaf."),
    click.option("--slurm-release", "release", metavar="X.Y", callback=_parse_release, expose_value=True,
                 help="Slurm release to write commands for; by default the installed or the newest known one."),
    *(
        click.option(f"--{name}", type=_SECONDS, default=default, show_default=True, metavar="S", help=text)
        for name, default, text in _TIMES
    ),
    click.option("--rank-file", default="opsk-ranks.txt", show_default=True, metavar="FILE",
                 help="Path of the file with one host per rank; --apply writes it."),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRequest:
    """The options on remaps in the journal; ``wants_list`` lists them."""

    wants_list: bool
    all_clusters: bool
    resume: str | None
    undo: str | None
    resume_node: str | None
    journal_dir: Path | None

    @property
    def actions(self) -> list[str]:
        """What is to be done to a remap of the journal, or to drained nodes."""
        return [text for text in (self.resume, self.undo, self.resume_node) if text is not None]


_JOURNAL_OPTIONS = (
    click.option("--journal", "wants_list", is_flag=True, help="List the remaps that were executed, with their steps."),
    click.option("--all-clusters", is_flag=True, help="With --journal: include remaps of other clusters."),
    click.option("--resume", metavar="ID", help="Resume a remap that was interrupted."),
    click.option("--undo", metavar="ID", help="Undo a remap, as far as Slurm allows."),
    click.option("--resume-node", metavar="LIST", help="Resume nodes that opsk drained, after their repair."),
    click.option("--journal-dir", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
                 help="Folder of the journal.  [default: opsk/remaps in the user's state folder]"),
)  # fmt: skip


@click.command()
@click.argument("job", required=False, metavar="[JOB]")
@click.option("--failed", multiple=True, metavar="WHAT",
              help="What failed: " + ", ".join(FORMS) + "; repeatable.")  # fmt: skip
@option_group("request", RemapRequest, (*_JOB_OPTIONS, *_TERM_OPTIONS))
@click.option("--apply", "chosen", metavar="KIND|N", help="Execute option number N, or the first option of this kind.")
@click.option("--world", metavar="HASH",
              help="With --apply: only if the option's world hash (see --json) has not changed.")  # fmt: skip
@click.option("--until-end-s", type=_SECONDS, metavar="S",
              help="Time that goodput covers; by default until the job's time limit, or the horizon.")  # fmt: skip
@option_group("journal", JournalRequest, _JOURNAL_OPTIONS)
@click.option("--yes", is_flag=True, help="Run commands without asking for confirmation.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
def remap(
    *, failed: tuple[str, ...], request: RemapRequest, journal: JournalRequest, chosen: str | None, world: str | None,
    until_end_s: float | None, yes: bool, as_json: bool, **terms: Any,
) -> int:  # fmt: skip
    """Show how job JOB can continue after a failure: which GPUs take over, how fast it runs, and what is lost.

    Leave out JOB, or give -, if --plan with --nodes or --placement describes the job.

    --apply writes a journal: --journal lists what was executed on this cluster, --resume ID continues an interrupted
    remap, and --undo ID takes one back as far as Slurm allows.

    Exit status: 0 an answer; 2 wrong usage, or WHAT is unknown; 3 Slurm does not answer or refused a command, or the
    cluster has changed since the plan was made.
    """
    if as_json and (chosen or journal.actions) and not yes:
        raise click.UsageError("--json cannot ask for confirmation: add --yes")
    if len(journal.actions) + journal.wants_list + (chosen is not None) > 1:
        raise click.UsageError("give only one of --apply, --journal, --resume, --undo and --resume-node")
    if journal.wants_list:
        return _print_list(journal, slurm_client(), as_json=as_json)
    if journal.actions:
        return _run_journal_action(journal, slurm_client(), yes=yes, as_json=as_json)
    if not failed:
        raise click.UsageError("say what failed: --failed " + ", ".join(FORMS))
    slurm = slurm_client()
    inputs = gather_remap(request, slurm)
    left_s = until_end_s if until_end_s is not None else compute_remaining_s(inputs)
    all_terms = build_terms(inputs, request.job, until_end_s=left_s, **terms)
    failure = parse_failures(failed, inputs.machine)
    answer = all_options(inputs.situation, failure, all_terms)
    document = build_remap_document(inputs, answer, all_terms, failure)
    if chosen is None:
        if as_json:
            echo_json(document)
        else:
            print_options(document)
        return ExitStatus.ANSWER
    option = find_option(answer, chosen)
    session = _open_session(journal, slurm, yes=yes, report=None if as_json else echo_message)
    if not as_json:
        print_options(document)
    applied = _apply(option, inputs, all_terms, session, failed=answer.damage.failed, world=world)
    return _report_applied(applied, {**document, "applied": applied} if as_json else None)


def _report_applied(applied: ExecutionResult, document: dict[str, Any] | None) -> int:
    """Print the result of an execution, as a document where there is one, and return the exit status."""
    if document is not None:
        echo_json(document)
    else:
        print_applied(applied)
    return ExitStatus.UNAVAILABLE if applied.refused is not None or applied.is_outdated else ExitStatus.ANSWER


def _open_session(
    request: JournalRequest, slurm: SlurmClient, *, yes: bool, report: Callable[[str], None] | None = None
) -> RemapSession:
    """Return the session of a caller at a terminal."""
    return RemapSession(
        journal=open_journal(request.journal_dir), slurm=slurm, ask=None if yes else click.confirm,
        report=report or (lambda line: None), warn=echo_message,
    )  # fmt: skip


def _apply(
    option: Option, inputs: RemapInputs, terms: Terms, session: RemapSession, *, failed: tuple[str, ...],
    world: str | None,
) -> ExecutionResult:  # fmt: skip
    """Execute an option, unless its preconditions have changed since the caller saw it."""
    now = build_option_preconditions(option, inputs.job, inputs.records)
    if world is not None and world != now.hash:
        message = f"its world hash is now {now.hash}, not {world[:40]}: list the options again"
        return ExecutionResult(kind=option.kind.value, title=option.title, said=message, is_outdated=True)
    return apply_option(session, option, inputs, terms, failed=failed)


def _run_journal_action(request: JournalRequest, slurm: SlurmClient, *, yes: bool, as_json: bool) -> int:
    """Resume or undo a remap, or resume drained nodes."""
    session = _open_session(request, slurm, yes=yes)
    if request.resume_node is not None:
        applied = resume_nodes(slurm, request.resume_node, ask=session.ask)
    else:
        applied = resume_remap(session, request.resume or request.undo or "", is_undo=request.undo is not None)
    return _report_applied(applied, {"applied": applied} if as_json else None)


def _print_list(request: JournalRequest, slurm: SlurmClient, *, as_json: bool) -> int:
    """List the remaps of this cluster and of unknown clusters, or of all."""
    journal: FileJournal = open_journal(request.journal_dir)
    cluster = "" if request.all_clusters else cluster_name(slurm)
    all_remaps = journal.all()
    remaps = [remap for remap in all_remaps if not cluster or remap.planned.cluster in ("", cluster)]
    others = len(all_remaps) - len(remaps)
    if as_json:
        echo_json(
            {"remaps": [_build_row(remap) for remap in remaps], "cluster": cluster or None, "other_clusters": others}
        )
        return ExitStatus.ANSWER
    if not remaps:
        click.echo("this journal has no remap" + (f" of cluster {cluster}" if others else ""))
    for remap in remaps[:_MAX_LISTED]:
        _print_remap(remap, cluster)
    if others:
        click.echo(f"{others} of other clusters: see opsk remap --journal --all-clusters")
    return ExitStatus.ANSWER


def _print_remap(remap: Remapping, cluster: str) -> None:
    """Print one remap with its steps."""
    row = _build_row(remap)
    job = f"job {row['job']}" if remap.planned.cluster == cluster else str(remap.planned.key)
    click.echo(escape(f"{row['id']}  {row['state']:<9} {job}  {row['kind']}: {row['title']}"))
    for step in row["steps"]:
        click.echo(escape(f"    {step['state'] or 'to do':<8} {step['text']}"))
    if row["said"]:
        click.echo(escape(f"    {row['said']}"))
    if remap.is_open and remap.state != "undoing":
        click.echo(escape(f"    to resume it: opsk remap --resume {row['id']}"))


def _build_row(remap: Remapping) -> dict[str, Any]:
    """Return one remap of the list."""
    planned, done = remap.planned, remap.steps
    messages = [line.said for line in remap.lines if line.number is None and line.said]
    names = ("id", "by", "host", "job", "failed", "kind", "title", "left")
    return {
        **{name: getattr(planned, name) for name in names},
        "state": remap.state,
        "at": datetime.fromtimestamp(planned.at_s, tz=UTC),
        "cluster": planned.cluster or None,
        "world": planned.world.hash,
        "steps": [{"number": step.number, "text": step.text, "state": done.get(step.number)} for step in planned.steps],
        "said": messages[-1] if messages else None,
        "damaged_lines": remap.damaged,
    }
