"""Computes the rank map of a running job from inside the job, and falls back to Slurm's order on any error."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from opsk.app.inputs.placement import PlacementInputs, Request, gather_inputs
from opsk.cli.place.launch_shell import (
    LaunchMap,
    LaunchTarget,
    OutOfTimeError,
    build_default_lines,
    build_shell_lines,
    limit_time,
)
from opsk.errors import ExitStatus, InputError, OpskError
from opsk.planning.placement.initial_placements import PlacementProblem, Prepared, prepare
from opsk.planning.placement.launch import nccl_settings, rank_map
from opsk.planning.placement.placement import Placement, anchor_rank_0, place
from opsk.planning.ranks import RankOrder
from opsk.planning.routing.fabric_routes import build_routes
from opsk.planning.routing.routes import Routes
from opsk.slurm.commands.command import CommandClient
from opsk.slurm.commands.current_job import find_own_job, read_node_list
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
    """Write the requested files; ``document`` is that of ``opsk place``.

    Raises
    ------
    InputError
        A file cannot be written, or torchrun cannot express this order.
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
"""Time limit of one query to Slurm; two fit into the default deadline."""


def print_launch(request: Request, launch: LaunchTarget, order: RankOrder, *, deadline_s: float) -> int:
    """Print the lines that a job's script evaluates; on any error those that keep Slurm's order."""
    try:
        with limit_time(deadline_s):
            lines = build_shell_lines(
                compute_launch(request, order, is_anchored=launch is LaunchTarget.TASK_PROLOG), launch, os.environ
            )
    except OutOfTimeError:
        lines = _fall_back(launch, f"no map within {deadline_s:g} s")
    except OpskError as error:
        lines = _fall_back(launch, error.message)
    except Exception as error:  # noqa: BLE001  a job must start despite any error here
        lines = _fall_back(launch, f"{type(error).__name__}: {error}")
    click.echo("".join(f"{line}\n" for line in lines), nl=False)
    return ExitStatus.ANSWER


def compute_launch(request: Request, order: RankOrder, *, is_anchored: bool) -> LaunchMap:
    """Return the launch map of a job.

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
    job_id = request.job or find_own_job(os.environ)
    if not job_id:
        raise InputError("no job is given, and this is not a job", hint="name it with --job")
    inputs = gather_inputs(replace(request, job=job_id), CommandClient(deadline_s=_ANSWER_S))
    if inputs.job is None or not inputs.job.nodes:
        raise InputError(f"job {job_id} has no nodes")
    routes = build_routes(inputs.fabric, inputs.rails, inputs.tables, adaptive=inputs.adaptive)
    problem = build_problem(inputs, routes, order)
    placement: Placement | None = place(problem)
    if placement is not None and is_anchored:

        def prepare_anchored(nodes: Sequence[str]) -> Prepared:
            return prepare(replace(problem, nodes=nodes, slurm_nodes=nodes))

        placement = anchor_rank_0(placement, inputs.job.nodes[0], inputs.rails, prepare_anchored)
    if placement is None:
        raise InputError("no order that begins on the job's first node is better than Slurm's own")
    if placement.unknown_nodes:
        raise InputError(f"the fabric does not show {', '.join(placement.unknown_nodes[:4])}: record it again")
    is_own = job_id == find_own_job(os.environ)
    start_nodes = (read_node_list(os.environ) if is_own else ()) or inputs.job.nodes
    if inputs.job.tasks not in (None, len(start_nodes), len(start_nodes) * inputs.gpus_per_node):
        raise InputError(
            f"the job has {inputs.job.tasks} tasks on {len(start_nodes)} nodes, neither one a GPU nor one a node"
        )
    settings, _ = nccl_settings(placement, inputs.rails, devices_known=not inputs.is_designed)
    return LaunchMap(
        ranks=rank_map(placement, inputs.job.id),
        slurm_nodes=inputs.job.nodes,
        env=settings,
        is_listed=is_own and start_nodes == inputs.job.nodes,
    )


def build_problem(
    inputs: PlacementInputs, routes: Routes, order: RankOrder, *, distribution: str = "block"
) -> PlacementProblem:
    """Return the placement problem of the inputs that were read."""
    return PlacementProblem(
        model=inputs.model,
        plan=inputs.plan,
        rails=inputs.rails,
        nodes=inputs.nodes,
        gpus_per_node=inputs.gpus_per_node,
        hb_domains=inputs.hb_domains,
        routes=routes,
        step=inputs.step,
        order=order,
        distribution=distribution,
        slurm_nodes=inputs.slurm_nodes,
        node_gpus=max(inputs.gpus_per_node, inputs.cluster.node.gpus) if inputs.cluster else None,
        affinity=inputs.affinity,
    )


def _fall_back(launch: LaunchTarget, why: str) -> list[str]:
    """Report on stderr why Slurm's order is kept, and return the lines that keep it."""
    click.echo(f"opsk: Slurm's own order of ranks is used: {escape(why)}", err=True)
    return build_default_lines(launch)
