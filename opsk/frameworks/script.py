"""Generates the batch script that runs a plan: Slurm options, user-defined variables, and the launch command.

Untrusted text (the name of a model, the value of a setting) is quoted where it is a word, and reduced to one printable
line where it is in a comment. Ranks fill the nodes in the order of ``Job.hosts``, or in Slurm's order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opsk.errors import InputError
from opsk.frameworks.options import File, Group, Setting, Settings, one_line, quote
from opsk.hardware.spec import ClusterSpec
from opsk.workload.plan import Plan

_TIME = re.compile(r"[0-9]{1,6}|([0-9]{1,4}-)?[0-9]{1,4}(:[0-9]{1,2}){1,2}|[0-9]{1,4}-[0-9]{1,2}")
_HOST = re.compile(r"[A-Za-z0-9._-]{1,255}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SLURM_NAME = re.compile(r"--[a-z][a-z-]*")
_PORT = 29500


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The job that runs a plan.

    Parameters
    ----------
    nodes, gpus_per_node
        The requested nodes, and GPUs of each; their product is the plan's GPUs.
    name
        Slurm's name of the job; untrusted text.
    time_limit
        As ``sbatch --time`` takes it.
    partition, account
        Left out where empty.
    hosts
        The nodes in the order in which ranks fill them; empty leaves the choice to Slurm.
    sbatch
        More flags of ``sbatch`` (`opsk.planning.placement.launch`).
    env
        More variables of the job (`opsk.planning.placement.launch`).
    """

    nodes: int
    gpus_per_node: int
    name: str = "training"
    time_limit: str = "24:00:00"
    partition: str = ""
    account: str = ""
    hosts: tuple[str, ...] = ()
    sbatch: tuple[Setting, ...] = ()
    env: tuple[Setting, ...] = ()

    def __post_init__(self) -> None:
        """Raise for values that would produce a wrong script, listing all of them."""
        wrong = [
            f"{name} is {value}, must be at least 1"
            for name, value in (("nodes", self.nodes), ("gpus_per_node", self.gpus_per_node))
            if value < 1
        ]
        if not _TIME.fullmatch(self.time_limit):
            wrong.append(f"time limit {self.time_limit!r} is none that sbatch takes (24:00:00, 2-12, 90)")
        if self.hosts and len(self.hosts) != self.nodes:
            wrong.append(f"{len(self.hosts)} hosts for {self.nodes} nodes")
        wrong += [f"{host!r} is no name of a host" for host in self.hosts if not _HOST.fullmatch(host)]
        wrong += _ill_named(self.env, _ENV_NAME, "variable")
        wrong += _ill_named(self.sbatch, _SLURM_NAME, "flag of sbatch")
        if wrong:
            raise InputError("the job cannot be written: " + "; ".join(wrong))


def _ill_named(settings: Iterable[Setting], form: re.Pattern[str], what: str) -> list[str]:
    """Return an error message for every setting with an invalid name."""
    return [f"{setting.name!r} is no name of a {what}" for setting in settings if not form.fullmatch(setting.name)]


def job_for(plan: Plan, cluster: ClusterSpec, *, name: str = "training") -> Job:
    """Return a job with the nodes that the plan's GPUs need on a cluster.

    Raises
    ------
    InputError
        When its GPUs do not fill nodes.
    """
    per_node = min(plan.gpus, cluster.node.gpus)
    if plan.gpus % per_node:
        raise InputError(
            f"{plan.gpus} GPUs do not fill nodes of {per_node}",
            hint="a script starts as many ranks on each node: ask for a multiple",
        )
    return Job(nodes=plan.gpus // per_node, gpus_per_node=per_node, name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserVariable:
    """A variable that the user sets: its ``name``, ``what`` to set it to, and its ``default``; empty for none."""

    name: str
    what: str
    default: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """The launcher of the ranks of a node: its ``command``, and its options for nodes, ranks and addresses."""

    command: str
    node_rank: str
    nodes: str
    sizes: str
    address: str
    port: str


TORCHRUN = Launcher(
    command="torchrun",
    node_rank="--node-rank",
    nodes="--nnodes",
    sizes="--nproc-per-node {gpus_per_node}",
    address="--master-addr",
    port="--master-port",
)

ACCELERATE = Launcher(
    command="accelerate launch",
    node_rank="--machine_rank",
    nodes="--num_machines",
    sizes="--num_processes {gpus}",
    address="--main_process_ip",
    port="--main_process_port",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The program of a framework, and how to start it.

    Parameters
    ----------
    places
        Variables to be set by the user; those without a default stop the script where they are empty.
    command
        Lines of shell words after those of the launcher: already quoted, with variables to expand.
    setup
        Lines before the launch.
    """

    places: tuple[UserVariable, ...]
    command: tuple[str, ...]
    setup: tuple[str, ...] = ()
    launcher: Launcher = TORCHRUN


_RUN_DIR = UserVariable(name="RUN_DIR", what="a folder that all nodes see", default="$PWD")


def sbatch_script(
    settings: Settings,
    program: Program,
    job: Job,
    *,
    title: str,
    comments: Sequence[str] = (),
    stated: Sequence[str] = (),
) -> str:
    """Return the text of a runnable script.

    Parameters
    ----------
    title, comments
        First line, and more lines, of the comment at its head; untrusted text.
    stated
        Lines for ``opsk check``, without untrusted text.
    """
    blocks = [
        [*_head(settings, job, title, comments), *stated, "set -euo pipefail"],
        _places(program.places),
        _environment((*settings.env, *job.env)),
        *(_file(file) for file in settings.files),
        *(_array(group) for group in settings.groups),
        list(program.setup),
        _launch(settings, program, job),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def _head(settings: Settings, job: Job, title: str, comments: Sequence[str]) -> list[str]:
    """Return the first lines: the title, the comments, and the options for Slurm."""
    lines = ["#!/bin/bash", f"# {one_line(title)}", *(f"# {one_line(line, longest=500)}" for line in comments)]
    lines += [f"# Mind: {one_line(note, longest=500)}." for note in settings.notes]
    lines += [f"# MISSING: {settings.framework} has no option for {one_line(what)}." for what in settings.missing]
    sbatch_options = {
        "--job-name": slurm_name(job.name),
        "--nodes": str(job.nodes),
        "--ntasks-per-node": "1",
        "--gpus-per-node": str(job.gpus_per_node),
        "--time": job.time_limit,
        "--output": "%x-%j.out",
        "--partition": slurm_name(job.partition) if job.partition else "",
        "--account": slurm_name(job.account) if job.account else "",
        "--nodelist": ",".join(job.hosts),
        **{setting.name: one_line(setting.value).replace(" ", "") for setting in job.sbatch},
    }
    lines += [f"#SBATCH {name}={value}" for name, value in sbatch_options.items() if value]
    return [*lines, "#SBATCH --exclusive"]


def slurm_name(text: str) -> str:
    """Return a name as one word of a ``#SBATCH`` line, where quoting does not work."""
    return "".join(sign if sign.isascii() and (sign.isalnum() or sign in "._-") else "_" for sign in text)[:64] or "_"


def _places(places: Iterable[UserVariable]) -> list[str]:
    """Return the lines that set the user's variables, and that exit at once where one is empty."""
    lines = ["# What only you know: set it here, or in the environment of sbatch."]
    all_places = (*places, _RUN_DIR)
    lines += [f"{place.name}=${{{place.name}:-{place.default}}}  # {place.what}" for place in all_places]
    lines += [
        f'[ -n "${place.name}" ] || {{ echo "{place.name} is empty: set it to {place.what}" >&2; exit 2; }}'
        for place in all_places
        if not place.default
    ]
    return [*lines, 'mkdir -p "$RUN_DIR"']


def _environment(env: Iterable[Setting]) -> list[str]:
    """Return the lines that export variables, each with its reason."""
    lines = []
    for setting in env:
        lines += [f"# {one_line(setting.why)}", f"export {setting.name}={quote(setting.value)}"]
    return lines


def _file(file: File) -> list[str]:
    """Return the lines that write a file that the framework reads, on a path that all nodes see."""
    text = file.text.rstrip("\n")
    mark = "OPSK_END"
    while mark in text:
        mark += "_"
    return [f"cat > \"$RUN_DIR\"/{quote(file.name)} <<'{mark}'", text, mark]


def _array(group: Group) -> list[str]:
    """Return the lines of an array with an option a line, and its reason as a comment."""
    if not group.options:
        return [f"{group.name}=()"]
    lines = [f"{group.name}=("]
    for option in group.options:
        why = f"  # {one_line(option.why)}" if option.why else ""
        lines.append(f"    {option.quoted}{why}")
    return [*lines, ")"]


def _launch(settings: Settings, program: Program, job: Job) -> list[str]:
    """Return the lines that start one launcher a node, numbered in the order in which ranks fill the nodes."""
    srun = ["srun", "--ntasks-per-node=1"]
    lines: list[str] = []
    if job.hosts:
        lines = [
            "# ranks fill the nodes in this order",
            'export SLURM_HOSTFILE="$RUN_DIR/hosts.$SLURM_JOB_ID"',
            f"printf '%s\\n' {' '.join(job.hosts)} > \"$SLURM_HOSTFILE\"",
            f"MASTER_ADDR={job.hosts[0]}",
        ]
        srun = ["srun", f"--ntasks={job.nodes}", "--distribution=arbitrary"]
    else:
        lines.append('MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)')
    launcher = program.launcher
    start = f'exec {launcher.command} {launcher.node_rank} "$SLURM_PROCID" "$@"'
    sizes = launcher.sizes.format(gpus_per_node=job.gpus_per_node, gpus=job.nodes * job.gpus_per_node)
    lines += [
        f"export MASTER_ADDR MASTER_PORT=${{MASTER_PORT:-{_PORT}}}",
        "# one task a node, so that $SLURM_PROCID numbers the nodes",
        " \\\n    ".join(
            [
                " ".join([*srun, f"bash -c '{start}' launch"]),
                f"{launcher.nodes} {job.nodes} {sizes}",
                f'{launcher.address} "$MASTER_ADDR" {launcher.port} "$MASTER_PORT"',
                *program.command,
                *(f'{file.option} "$RUN_DIR"/{quote(file.name)}' for file in settings.files if file.option),
            ]
        ),
    ]
    return lines
