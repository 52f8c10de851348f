"""Implements ``opsk launch``: runs a job's step, and restarts it on spare nodes without leaving the queue."""

from __future__ import annotations

import os

import click

from opsk.errors import InputError
from opsk.remapping.launcher import Launcher, LauncherStep, count_tasks_per_node, validate_srun_options
from opsk.slurm.cluster_name import cluster_name
from opsk.slurm.commands.command import CommandClient
from opsk.slurm.commands.current_job import find_own_job, resolve_label
from opsk.text import escape


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--nodes", type=click.IntRange(1, 100_000), metavar="N",
              help="Nodes to start on; the job's other nodes are spares.  [default: all]")  # fmt: skip
@click.option("--tasks-per-node", type=click.IntRange(1, 1024), metavar="N",
              help="Ranks on each node.  [default: one per GPU]")  # fmt: skip
@click.option(
    "--per-node", is_flag=True, help="Start one task per node, which starts the ranks itself, such as torchrun."
)
@click.option("--wait", "wait_s", type=click.FloatRange(0, 1e7), default=600.0, show_default=True, metavar="S",
              help="Time to wait for a new rank map after a failed step.")  # fmt: skip
@click.option("--grace", "grace_s", type=click.FloatRange(0.1, 3600), default=30.0, show_default=True, metavar="S",
              help="Time that the running step has to end when a new rank map arrives.")  # fmt: skip
@click.option("--srun", "options", multiple=True, metavar="OPTION",
              help="Pass an option to srun (--srun=--cpu-bind=none); repeatable.")  # fmt: skip
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def launch(
    nodes: int | None, tasks_per_node: int | None, per_node: bool, wait_s: float, grace_s: float,
    options: tuple[str, ...], command: tuple[str, ...],
) -> int:  # fmt: skip
    """Run COMMAND as a step of this job, and restart it on the job's spare nodes after opsk remap --apply.

    Use it in place of srun in the batch script of a job that holds spare nodes: opsk launch --nodes 8 -- python
    train.py. Each task gets RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. With --per-node it gets
    NODE_RANK and the variables of torchrun (PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR, ...): opsk launch --per-node
    -- torchrun train.py.

    Exit status: that of the last step.
    """
    number = find_own_job(os.environ)
    if not number:
        raise InputError("not inside a job", hint="run opsk launch in a job's batch script")
    client = CommandClient()
    job = client.job(resolve_label(number, os.environ))
    per_node_tasks = tasks_per_node or count_tasks_per_node(os.environ, job)
    request = LauncherStep(
        job=job.label, command=command, nodes=nodes, ranks_per_node=per_node_tasks, per_node=per_node, wait_s=wait_s,
        grace_s=grace_s, options=validate_srun_options(options), environ=dict(os.environ), cluster=cluster_name(client),
    )  # fmt: skip
    return Launcher(request, client, lambda line: click.echo(f"opsk: {escape(line)}", err=True)).run()
