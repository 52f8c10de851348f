"""Implements ``opsk remap``: lists the options after a failure, their cost, and their Slurm commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from opsk.app.remap.apply import apply_option, open_journal
from opsk.app.remap.inputs import RemapInputs, RemapRequest, gather_remap
from opsk.app.remap.terms import build_terms, compute_remaining_s
from opsk.cli.document import echo_json
from opsk.cli.remap.document import build_remap_document
from opsk.cli.remap.journal import run_journal_command
from opsk.cli.remap.text import echo_warning, print_applied, print_options
from opsk.errors import ExitStatus
from opsk.planning.ranks import RankOrder
from opsk.planning.remap import terms as usual
from opsk.planning.remap.failure_names import FORMS, parse_failures
from opsk.planning.remap.remap import remap as all_options
from opsk.planning.remap.terms import Terms
from opsk.planning.remap.values import Option
from opsk.remapping.execution import ExecutionResult
from opsk.remapping.preconditions import Preconditions
from opsk.remapping.preparation import build_option_preconditions, find_option
from opsk.slurm.adapter import ChosenClient, slurm_client
from opsk.slurm.topology.release import parse_release
from opsk.text import escape

_SECONDS = click.FloatRange(min=0.0, max=1e9)
_TIMES = (
    ("horizon-s", usual.HORIZON_S, "Losses are counted over this time."),
    ("repair-s", usual.REPAIR_S, "Until a failed part works again."),
    ("checkpoint-interval-s", usual.CHECKPOINT_INTERVAL_S, "Between two checkpoints; half of it is done again."),
    ("detect-s", 0.0, "Until the failure is noticed; 0 when it is known already."),
    ("stop-s", usual.STOP_S, "To end the step that runs."),
    ("queue-s", usual.QUEUE_S, "In the queue after a requeue, with StartTime=now."),
    ("start-s", usual.START_S, "From the start of processes to the first step."),
    ("reload-s", usual.RELOAD_S, "To read the checkpoint."),
    ("optical-s", usual.OPTICAL_S, "To switch optical circuits and train the links."),
)


def _add_time_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command one option for each time."""
    for name, default, text in reversed(_TIMES):
        option = click.option(f"--{name}", type=_SECONDS, default=default, show_default=True, metavar="S", help=text)
        command = option(command)
    return command


@click.command()
@click.argument("job", required=False, metavar="[JOB]")
@click.option("--failed", multiple=True, metavar="WHAT",
              help="What failed: " + ", ".join(FORMS) + "; may be repeated.")  # fmt: skip
@click.option(
    "--plan", metavar="PLAN.toml", help="The job's plan; else what its advice, its script or its record tells."
)
@click.option("--nodes", metavar="LIST", help="Nodes that the job uses, in the order of its ranks.")
@click.option("--spares", metavar="LIST", help="Nodes that the job holds and does not use.")
@click.option("--free", metavar="LIST", help="Nodes that the job could get; else the idle ones of its partition.")
@click.option("--placement", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Where its ranks are: the answer of opsk place --json.")  # fmt: skip
@click.option("--fabric", multiple=True, type=click.Path(path_type=Path, dir_okay=False), metavar="DUMP",
              help="A dump of the fabric, as opsk fabric reads it; may be repeated.")  # fmt: skip
@click.option("--routes", multiple=True, type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Forwarding tables of the switches, as dump_fts prints them; may be repeated.")  # fmt: skip
@click.option("--node-file", multiple=True, type=click.Path(path_type=Path), metavar="[HOST=]FILE",
              help="What a node says of itself, as opsk fabric reads it; may be repeated.")  # fmt: skip
@click.option("--cluster", metavar="NAME|FILE", help="Catalogue name of the cluster, or a cluster TOML.")
@click.option("--gpus-per-node", type=click.IntRange(1, 1024), metavar="N", help="GPUs that the job uses on a node.")
@click.option("--rank-order", type=click.Choice([order.value for order in RankOrder]),
              help="Axes as rank numbers run through them, fastest first.  [default: as in the placement, else "
              f"{RankOrder.TP_CP_EP_DP_PP.value}]")  # fmt: skip
@click.option("--optical", is_flag=True, help="Optical circuit switches can put an HCA on another leaf.")
@click.option("--slurm-release", metavar="X.Y",
              help="Release to write commands for; else the installed one, else the newest known.")  # fmt: skip
@_add_time_options
@click.option("--rank-file", default="opsk-ranks.txt", show_default=True, metavar="FILE",
              help="Where the file with one host per rank will be; --apply writes it.")  # fmt: skip
@click.option("--apply", "chosen", metavar="KIND|N", help="Carry out the first option of this kind, or number N.")
@click.option("--world", metavar="HASH",
              help="With --apply: only if the option's world (see --json) is still this one.")  # fmt: skip
@click.option("--until-end-s", type=_SECONDS, metavar="S",
              help="Goodput is told until then; else until the job's time limit, or over the horizon.")  # fmt: skip
@click.option("--journal", is_flag=True, help="List what was carried out, and how far it got.")
@click.option("--all-clusters", is_flag=True, help="With --journal: remaps of other clusters as well.")
@click.option("--resume", metavar="ID", help="Go on with a remap that was broken off.")
@click.option("--undo", metavar="ID", help="Take a remap back, as far as Slurm allows.")
@click.option("--resume-node", metavar="LIST", help="Take nodes back that opsk drained, after their repair.")
@click.option("--journal-dir", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Where the journal is.  [default: opsk/remaps in the user's state folder]")  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask before anything is run.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def remap(
    job: str | None, *, failed: tuple[str, ...], plan: str | None, nodes: str | None, spares: str | None,
    free: str | None, placement: Path | None, fabric: tuple[Path, ...], routes: tuple[Path, ...],
    node_file: tuple[Path, ...], cluster: str | None, gpus_per_node: int | None, rank_order: str | None,
    optical: bool, slurm_release: str | None, rank_file: str, chosen: str | None, world: str | None,
    until_end_s: float | None, journal: bool, all_clusters: bool, resume: str | None, undo: str | None,
    resume_node: str | None, journal_dir: Path | None, yes: bool, as_json: bool, **times: float,
) -> int:  # fmt: skip
    """Show what job JOB can do after a failure: who takes over, how fast it then runs, what it loses.

    JOB is left out, or -, where --plan, and --nodes or --placement, say all of it.

    --apply writes a journal: --journal lists what was done on this cluster, --resume ID goes on with what was broken
    off, --undo ID takes it back as far as Slurm allows.

    Exit status: 0 an answer; 2 wrong usage, or WHAT is not known; 3 Slurm does not answer, or refused a command, or
    something has changed since the plan was made.
    """
    actions = [resume, undo, resume_node]
    if as_json and (chosen or any(actions)) and not yes:
        raise click.UsageError("this asks before it acts: with --json give --yes as well")
    if sum([journal, *(each is not None for each in (*actions, chosen))]) > 1:
        raise click.UsageError("one of --apply, --journal, --resume, --undo and --resume-node at a time")
    if journal or any(each is not None for each in actions):
        return run_journal_command(
            slurm_client(), journal_dir, shown=journal, resumed=resume, undone=undo, nodes=resume_node, yes=yes,
            as_json=as_json, all_clusters=all_clusters,
        )  # fmt: skip
    if not failed:
        raise click.UsageError("say what failed: --failed " + ", ".join(FORMS))
    request = RemapRequest(
        job=job, plan=plan, nodes=nodes, spares=spares, free=free, placement=placement, fabric=fabric, routes=routes,
        node_files=node_file, cluster=cluster, gpus_per_node=gpus_per_node, rank_order=rank_order,
        release=parse_release(slurm_release) if slurm_release else None,
    )  # fmt: skip
    slurm = slurm_client()
    inputs = gather_remap(request, slurm)
    left_s = until_end_s if until_end_s is not None else compute_remaining_s(inputs)
    terms = build_terms(inputs, job, optical=optical, rank_file=rank_file, until_end_s=left_s, **times)
    failure = parse_failures(failed, inputs.machine)
    answer = all_options(inputs.situation, failure, terms)
    document = build_remap_document(inputs, answer, terms, failure)
    applied: ExecutionResult | None = None
    if chosen is not None:
        option = find_option(answer, chosen)
        if not as_json:
            print_options(document)
        applied = _apply(
            option, inputs, terms, slurm, failed=answer.damage.failed, world=world, journal_dir=journal_dir, yes=yes,
            quiet=as_json,
        )  # fmt: skip
        document["applied"] = applied
    if as_json:
        echo_json(document)
    elif applied is not None:
        print_applied(applied)
    else:
        print_options(document)
    went_wrong = applied is not None and (applied.refused is not None or applied.is_outdated)
    return ExitStatus.UNAVAILABLE if went_wrong else ExitStatus.ANSWER


def _apply(
    option: Option, inputs: RemapInputs, terms: Terms, slurm: ChosenClient, *, failed: tuple[str, ...],
    world: str | None, journal_dir: Path | None, yes: bool, quiet: bool,
) -> ExecutionResult:  # fmt: skip
    """Execute an option, unless its preconditions have changed since the caller saw it."""
    now: Preconditions = build_option_preconditions(option, inputs.job, inputs.records)
    if world is not None and world != now.hash:
        message = f"the world is {now.hash} now, the plan was made from {world[:40]}: look at the options again"
        return ExecutionResult(kind=option.kind.value, title=option.title, said=message, is_outdated=True)
    return apply_option(
        option, inputs, terms, failed=failed, journal=open_journal(journal_dir), slurm=slurm,
        ask=None if yes else click.confirm, report=None if quiet else _echo_progress, warn=echo_warning,
    )  # fmt: skip


def _echo_progress(line: str) -> None:
    click.echo(f"opsk: {escape(line)}", err=True)
