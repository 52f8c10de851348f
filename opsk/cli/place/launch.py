"""How does a job, from inside, get the map for the nodes that it was really given, whatever goes wrong?"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from opsk.app.inputs.placement import Asked, Request, gather
from opsk.cli.place.launch_shell import Launch, Launched, OutOfTimeError, default_lines, shell_lines, within
from opsk.errors import ExitStatus, InputError, OpskError
from opsk.planning.placement.anchoring import anchored
from opsk.planning.placement.launch import rank_map
from opsk.planning.placement.nccl_settings import nccl_settings
from opsk.planning.placement.placement import Placement, place
from opsk.planning.placement.preparing import Prepared, prepare
from opsk.planning.ranks import RankOrder
from opsk.planning.routing.routes_of_fabric import routes_of
from opsk.slurm.commands.command import CommandClient
from opsk.slurm.commands.own_job import listed_nodes, own_job
from opsk.text import escape

_PATH = click.Path(path_type=Path, dir_okay=False)
_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--rank-file", "--host-file", "rank_file", type=_PATH, metavar="FILE",
                 help="Write the rank file for SLURM_HOSTFILE there as well: one host for each rank."),
    click.option("--mpi-rank-file", type=_PATH, metavar="FILE", help="Write the rankfile for Open MPI's mpirun there."),
    click.option("--torchrun-file", type=_PATH, metavar="FILE",
                 help="Write each node and its --node-rank for torchrun there, the master first."),
)  # fmt: skip


def launch_file_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that name files for launchers."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def write_launch_files(
    document: Mapping[str, Any], *, rank_file: Path | None, mpi_rank_file: Path | None, torchrun_file: Path | None
) -> None:
    """Write the files that were asked for; ``document`` is that of ``opsk place``.

    Raises
    ------
    InputError
        A file cannot be written, or torchrun cannot bring this order about.
    """
    if rank_file is not None:
        _write(rank_file, document["rank_file"], "--rank-file")
    if mpi_rank_file is not None:
        _write(mpi_rank_file, document["mpi_rank_file"], "--mpi-rank-file")
    if torchrun_file is not None:
        torchrun = document["torchrun"]
        if torchrun is None:
            raise InputError(
                "torchrun numbers ranks node by node, and this order of ranks does not",
                hint="start with srun and --rank-file, or take another --rank-order",
            )
        _write(
            torchrun_file, "".join(f"{node} {rank}\n" for node, rank in torchrun.node_rank.items()), "--torchrun-file"
        )


def _write(path: Path, text: str, option: str) -> None:
    """Write one file."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(escape(f"{path}: {error.strerror}"), hint=f"name another file for {option}") from error


_ANSWER_S = 5.0
"""One question to Slurm; two fit into the usual deadline."""


def print_launch(request: Request, launch: Launch, order: RankOrder, *, deadline_s: float) -> int:
    """Print the lines that a job's script evaluates; on any trouble those that leave Slurm's order."""
    try:
        with within(deadline_s):
            lines = shell_lines(launched(request, order, is_anchored=launch is Launch.TASK_PROLOG), launch, os.environ)
    except OutOfTimeError:
        lines = _kept(launch, f"no map within {deadline_s:g} s")
    except OpskError as error:
        lines = _kept(launch, error.message)
    except Exception as error:  # noqa: BLE001  a job must start whatever is wrong here
        lines = _kept(launch, f"{type(error).__name__}: {error}")
    click.echo("".join(f"{line}\n" for line in lines), nl=False)
    return ExitStatus.ANSWER


def launched(request: Request, order: RankOrder, *, is_anchored: bool) -> Launched:
    """Return the map of a job.

    Parameters
    ----------
    is_anchored
        Rank 0 stays on the first node in Slurm's order, for scripts that take their master from there.

    Raises
    ------
    InputError
        There is no map for this job; the message says why.
    SlurmError
        Slurm does not answer.
    """
    job_id = request.job or own_job(os.environ)
    if not job_id:
        raise InputError("no job is named, and this is none", hint="name it with --job")
    asked = gather(replace(request, job=job_id), CommandClient(deadline_s=_ANSWER_S))
    if asked.job is None or not asked.job.nodes:
        raise InputError(f"job {job_id} has no nodes")
    ways = routes_of(asked.fabric, asked.rails, asked.tables, adaptive=asked.adaptive)
    judge = partial(
        prepare, asked.model, asked.plan, asked.rails, gpus_per_node=asked.gpus_per_node, hb_domains=asked.hb_domains,
        routes=ways, step=asked.step, order=order, affinity=asked.affinity, node_gpus=_node_gpus(asked),
    )  # fmt: skip
    placement: Placement | None = place(
        asked.model, asked.plan, asked.rails, asked.nodes, asked.gpus_per_node, asked.hb_domains, routes=ways,
        step=asked.step, order=order, slurm_nodes=asked.slurm_nodes, affinity=asked.affinity,
        node_gpus=_node_gpus(asked),
    )  # fmt: skip
    if placement is not None and is_anchored:

        def prepared(nodes: Sequence[str]) -> Prepared:
            return judge(nodes, slurm_nodes=nodes)

        placement = anchored(placement, asked.job.nodes[0], asked.rails, prepared)
    if placement is None:
        raise InputError("no order that begins on the job's first node is better than Slurm's own")
    if placement.unknown_nodes:
        raise InputError(f"the fabric does not show {', '.join(placement.unknown_nodes[:4])}: record it again")
    is_own = job_id == own_job(os.environ)
    began_on = (listed_nodes(os.environ) if is_own else ()) or asked.job.nodes
    if asked.job.tasks not in (None, len(began_on), len(began_on) * asked.gpus_per_node):
        raise InputError(
            f"the job has {asked.job.tasks} tasks on {len(began_on)} nodes, neither one a GPU nor one a node"
        )
    settings, _ = nccl_settings(placement, asked.rails, devices_known=not asked.is_designed)
    return Launched(
        ranks=rank_map(placement, asked.job.id),
        slurm_nodes=asked.job.nodes,
        env=settings,
        is_listed=is_own and began_on == asked.job.nodes,
    )


def _node_gpus(asked: Asked) -> int | None:
    """Return how many GPUs a node has, where the cluster is known."""
    return max(asked.gpus_per_node, asked.cluster.node.gpus) if asked.cluster else None


def _kept(launch: Launch, why: str) -> list[str]:
    """Say why Slurm's order is kept, and return the lines that keep it."""
    click.echo(f"opsk: Slurm's own order of ranks is kept: {escape(why)}", err=True)
    return default_lines(launch)
