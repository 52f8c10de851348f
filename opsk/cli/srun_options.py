"""The command ``opsk srun-options``: what must ``srun`` be told beside its own arguments? opsk-srun asks."""

from __future__ import annotations

import os

import click

from opsk.cli.launch_shell import DEADLINE_S, Launch, OutOfTimeError, step_options, within
from opsk.cli.srun_arguments import Step, step_of
from opsk.errors import ExitStatus, InputError, OpskError
from opsk.hostlist import expand
from opsk.planner.rank_map import RankMap
from opsk.slurm.own_job import own_job
from opsk.text import escape


@click.command("srun-options", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--] [SRUN-ARGUMENTS]...")
@click.option("--deadline", type=click.FloatRange(0.1, 600), default=DEADLINE_S, show_default=True, metavar="SECONDS",
              help="Longest that it may take before it leaves Slurm's order.")  # fmt: skip
@click.option("--plan", "plan_file", metavar="PLAN.toml", help="The plan, where the job's record and script have none.")
def srun_options(words: tuple[str, ...], *, deadline: float, plan_file: str | None) -> int:
    """Print the options that seat the tasks of one srun where opsk place puts the ranks; nothing on any doubt.

    Behind them stand the places of the words to leave out (--nodes, which Slurm 24.11 takes no longer beside them).
    Rank 0 stays on the node where Slurm puts it, so that scripts need no change. Exit status: 0.
    """
    options: tuple[str, ...] = ()
    try:
        with within(deadline):
            options = _options(words, plan_file)
    except OutOfTimeError:
        _say(f"no map within {deadline:g} s")
    except OpskError as error:
        _say(error.message)
    except Exception as error:  # noqa: BLE001  the step must start whatever is wrong here
        _say(f"{type(error).__name__}: {error}")
    if options:
        click.echo(" ".join(options))
    return ExitStatus.ANSWER


def _options(words: tuple[str, ...], plan_file: str | None) -> tuple[str, ...]:
    """Return the options, none where Slurm's own order is the one to take."""
    job = own_job(os.environ)
    if not job:
        raise InputError("this is no job")
    step = step_of(words, os.environ)
    ranks, nodes = _map(job, plan_file)
    if ranks.names[0] != nodes[0]:
        raise InputError("rank 0 would leave the job's first node")
    if step.nodes != len(ranks.nodes) or set(ranks.names) != set(nodes):
        raise InputError(f"the step takes {step.nodes} nodes, the map {len(ranks.nodes)} of {len(nodes)}")
    launch = _launch(step, ranks)
    if ranks.is_order_of(nodes):
        return ()
    left_out = (",".join(map(str, step.nodes_at)),) if step.nodes_at else ()
    return (*step_options(ranks, launch)[:2], *left_out)


def _launch(step: Step, ranks: RankMap) -> Launch:
    """Return whether a task is a rank, or starts those of its node."""
    if step.tasks == ranks.world_size:
        return Launch.SRUN
    if step.tasks == step.nodes:
        return Launch.TORCHRUN
    raise InputError(f"the step has {step.tasks} tasks, neither one a rank ({ranks.world_size}) nor one a node")


def _map(job: str, plan_file: str | None) -> tuple[RankMap, tuple[str, ...]]:
    """Return the map that the job was given when it started, else a new one, and the job's nodes in Slurm's order."""
    nodes = expand(os.environ.get("SLURM_JOB_NODELIST") or "")
    known = RankMap.parse(os.environ.get("OPSK_MAP", ""))
    if known is not None and str(known.job) == job and set(known.names) == set(nodes):
        return known, nodes
    # Imported only here: with a map at hand the answer needs no planner, and comes in a third of the time.
    from opsk.app.inputs.placement import Request
    from opsk.cli.place_launch import launched
    from opsk.planner.ranks import RankOrder

    request = Request(plan=plan_file, nodes=None, job=job, fabric=(), cluster=None, gpus_per_node=None)
    found = launched(request, RankOrder.TP_CP_EP_DP_PP, is_anchored=True)
    return found.ranks, tuple(found.slurm_nodes)


def _say(why: str) -> None:
    """Say on stderr why Slurm's order is kept."""
    click.echo(f"opsk: Slurm's own order of ranks is kept: {escape(why)}", err=True)
