"""Builds the options and shell lines that make a job's ``srun`` or ``torchrun`` follow a rank map.

``eval "$(opsk place --job $SLURM_JOB_ID --launch srun)"`` must never harm the job: on any error the lines leave Slurm's
own order as it is, the reason is printed on stderr, and the exit status is 0. `opsk srun-options` does the same for one
``srun``.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import FrameType

import click

from opsk.errors import ExitStatus, InputError, OpskError
from opsk.frameworks.options import Setting
from opsk.hostlist import expand
from opsk.planning.placement.rank_map import RankMap
from opsk.slurm.commands.current_job import find_own_job
from opsk.text import escape
from opsk.units import KIB

DEADLINE_S = 20.0
_MAX_OPTION_BYTES = 64 * KIB
"""Linux limits an argument to 128 KiB; a list of hosts longer than half of that goes into a file."""
_MAX_MAP_BYTES = 100 * KIB
_PLAIN = re.compile(r"[A-Za-z0-9._,:/=+\-]*")
_FIRST_PORT, _PORTS = 15000, 15000
"""Below Linux's ephemeral ports (32768 and up)."""


_START_VARIABLES = ("SLURM_NNODES", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE",
                 "SLURM_JOB_NUM_NODES", "SLURM_JOB_NODELIST", "SLURM_NODELIST")  # fmt: skip
"""Variables of a job that srun reads, and that are outdated when nodes are gone (``--no-kill``)."""
_SHORT = {"n": "ntasks", "N": "nodes", "c": "cpus-per-task", "o": "output", "e": "error", "i": "input", "D": "chdir",
          "J": "job-name", "t": "time", "W": "wait", "K": "kill-on-bad-exit", "l": "label", "u": "unbuffered",
          "v": "verbose", "Q": "quiet"}  # fmt: skip
_FLAGS = frozenset({"label", "unbuffered", "verbose", "quiet", "no-kill"})
_OPTIONAL = frozenset({"kill-on-bad-exit"})
"""Options whose value follows without a blank: ``-K0``, ``--kill-on-bad-exit=0``."""
_VALUED = frozenset({
    "ntasks", "nodes", "ntasks-per-node", "cpus-per-task", "gpus-per-task", "gpus-per-node", "gpu-bind", "cpu-bind",
    "mem-bind", "accel-bind", "mem", "mem-per-cpu", "mem-per-gpu", "hint", "threads-per-core", "output", "error",
    "input", "chdir", "job-name", "time", "wait", "mpi", "export", "task-prolog", "task-epilog", "prolog", "epilog",
    "slurmd-debug", "comment", "propagate", "network", "container-image", "container-mounts", "container-name",
    "container-workdir", "container-env",
})  # fmt: skip
_CONFLICTING_VARIABLES = ("SLURM_HOSTFILE", "SLURM_DISTRIBUTION", "SLURM_OVERLAP", "SLURM_RELATIVE", "SLURM_EXCLUSIVE",
           "SLURM_NTASKS_PER_CORE", "SLURM_NTASKS_PER_SOCKET", "SLURM_NTASKS_PER_GPU")  # fmt: skip


class Launch(StrEnum):
    """The consumer of the lines: a script that calls srun or torchrun, or Slurm's TaskProlog."""

    SRUN = "srun"
    TORCHRUN = "torchrun"
    TASK_PROLOG = "task-prolog"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchMap:
    """A rank map to launch: ``slurm_nodes`` are the job's nodes in Slurm's order, ``env`` settings for NCCL.

    ``is_listed`` means that the job's environment still lists exactly these nodes.
    """

    ranks: RankMap
    slurm_nodes: Sequence[str]
    env: Sequence[Setting] = field(default_factory=tuple)
    is_listed: bool = True


def build_step_options(ranks: RankMap, launch: Launch) -> tuple[str, ...]:
    """Return the options of ``srun`` for the map: a task per rank, or for torchrun one per node.

    Raises
    ------
    InputError
        torchrun numbers ranks node by node, and this map does not.
    """
    if launch is not Launch.TORCHRUN:
        return (*_build_arrangement(ranks.hosts, ranks.job), f"--ntasks={ranks.world_size}")
    if not ranks.is_node_by_node:
        raise InputError("torchrun numbers ranks node by node, and this order does not", hint="start with srun")
    return (*_build_arrangement(ranks.names, ranks.job), f"--ntasks={len(ranks.nodes)}", "--ntasks-per-node=1")


def build_shell_lines(launch_map: LaunchMap, launch: Launch, environ: Mapping[str, str]) -> list[str]:
    """Return lines for ``eval`` in sh, bash or zsh, or for TaskProlog, which has no shell to test variables in.

    Raises
    ------
    InputError
        The map is too long for an environment, or torchrun cannot express it.
    """
    ranks = launch_map.ranks
    text = ranks.render()
    if len(text) > _MAX_MAP_BYTES:
        raise InputError(f"a map of {len(text)} bytes is too long for an environment")
    port = str(_FIRST_PORT + ranks.job % _PORTS)
    settings = [(setting.name, setting.value) for setting in launch_map.env if _PLAIN.fullmatch(setting.value)]
    if launch is Launch.TASK_PROLOG:
        return [
            f"export OPSK_MAP={text}",
            *(f"export {name}={value}" for name, value in settings if name not in environ),
        ]
    is_own = launch is Launch.SRUN and launch_map.is_listed and ranks.is_order_of(launch_map.slurm_nodes)
    options = () if is_own else build_step_options(ranks, launch)
    master, ranks_per_node = ranks.names[0], len(ranks.nodes[0].ranks)
    return [
        *([] if launch_map.is_listed else [f"unset {' '.join(_START_VARIABLES)}"]),
        f"OPSK_SRUN_OPTIONS={shlex.quote(' '.join(options))}",
        f"export OPSK_MAP={shlex.quote(text)}",
        f"export MASTER_ADDR={shlex.quote(master)}",
        f'[ -n "${{MASTER_PORT-}}" ] || export MASTER_PORT={port}',
        f"export OPSK_WORLD_SIZE={ranks.world_size} OPSK_NODES={len(ranks.nodes)} OPSK_RANKS_PER_NODE={ranks_per_node}",
        *(f'[ -n "${{{name}+set}}" ] || export {name}={shlex.quote(value)}' for name, value in settings),
    ]


def build_default_lines(launch: Launch) -> list[str]:
    """Return the lines that keep Slurm's order; a map inherited from another job is unset."""
    return [] if launch is Launch.TASK_PROLOG else ["OPSK_SRUN_OPTIONS=", "unset OPSK_MAP"]


class OutOfTimeError(BaseException):
    """The deadline passed. No `Exception`, so that no handler in between catches it."""


@contextmanager
def limit_time(seconds: float) -> Iterator[None]:
    """Raise `OutOfTimeError` when the work takes longer."""

    def late(signum: int, frame: FrameType | None) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _build_arrangement(hosts: Sequence[str], job: int) -> tuple[str, ...]:
    """Return the options that place the tasks on these hosts in this order; 24.11 refuses ``--nodes`` with them."""
    listed = ",".join(hosts)
    if len(listed) > _MAX_OPTION_BYTES:
        with tempfile.NamedTemporaryFile("w", prefix=f"opsk-{job}-", suffix=".hosts", delete=False) as file:
            file.write("".join(f"{host}\n" for host in hosts))
        listed = str(Path(file.name).absolute())
        if not _PLAIN.fullmatch(listed):
            Path(listed).unlink()
            raise InputError("the folder for temporary files has a name that no unquoted word can be")
    return "--distribution=arbitrary", f"--nodelist={listed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """How many nodes and tasks a step asks for.

    ``nodes_at`` are the positions of the words of ``--nodes``, from 1: Slurm 24.11 and later reject this option
    together with a list of hosts in a given order, which implies it.
    """

    nodes: int
    tasks: int
    nodes_at: tuple[int, ...] = ()


def parse_step(words: Sequence[str], environ: Mapping[str, str]) -> Step:
    """Return the step that the arguments of ``srun`` request.

    Raises
    ------
    InputError
        They, or variables that ``srun`` reads, place the tasks themselves, or are unknown here.
    """
    conflicting = [name for name in _CONFLICTING_VARIABLES if environ.get(name)]
    if conflicting:
        raise InputError(f"{conflicting[0]} is set")
    if environ.get("SLURM_HET_SIZE", "1") not in ("", "0", "1"):
        raise InputError("the job is heterogeneous")
    options, command, nodes_at = _parse_options(words)
    if not command:
        raise InputError("there is no command")
    if ":" in command:
        raise InputError("a colon among the words may divide a heterogeneous step")
    nodes = _parse_number(
        options.get("nodes") or environ.get("SLURM_NNODES") or environ.get("SLURM_JOB_NUM_NODES"), "nodes"
    )
    per_node = options.get("ntasks-per-node") or environ.get("SLURM_NTASKS_PER_NODE")
    total = options.get("ntasks") or ("" if "ntasks-per-node" in options else environ.get("SLURM_NTASKS"))
    if total:
        return Step(nodes=nodes, tasks=_parse_number(total, "tasks"), nodes_at=nodes_at)
    return Step(nodes=nodes, tasks=nodes * _parse_number(per_node or "1", "tasks of a node"), nodes_at=nodes_at)


def _parse_options(words: Sequence[str]) -> tuple[dict[str, str], Sequence[str], tuple[int, ...]]:
    """Return the options by their long names, the command after them, and the positions of ``--nodes``.

    ``srun`` stops at the first word that is no option.
    """
    options: dict[str, str] = {}
    nodes_at: list[int] = []
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        before = len(rest)
        word = rest.pop(0)
        if word == "--":
            break
        parsed = _parse_long(word, rest) if word.startswith("--") else _parse_short(word[1:], rest)
        options.update(parsed)
        if "nodes" in parsed:
            if len(parsed) > 1:
                raise InputError("--nodes stands in one word with other options")
            nodes_at.extend(len(words) - left + 1 for left in range(before, len(rest), -1))
    return options, rest, tuple(nodes_at)


def _parse_long(word: str, rest: list[str]) -> dict[str, str]:
    """Return the option of a word such as ``--nodes=2``."""
    name, sign, value = word[2:].partition("=")
    if name in _VALUED and not sign:
        value = _take_value(rest, word)
    elif name not in _VALUED | _OPTIONAL | _FLAGS or (name in _FLAGS and sign):
        raise InputError(f"{word.partition('=')[0][:40]} may seat the tasks")
    return {name: value}


def _parse_short(letters: str, rest: list[str]) -> dict[str, str]:
    """Return the options of one word such as ``-lN2``."""
    options: dict[str, str] = {}
    while letters:
        name, letters = _SHORT.get(letters[0], ""), letters[1:]
        if not name:
            raise InputError("an option of one letter may seat the tasks")
        if name in _FLAGS:
            options[name] = ""
            continue
        options[name] = letters if letters or name in _OPTIONAL else _take_value(rest, name)
        break
    return options


def _take_value(rest: list[str], option: str) -> str:
    """Take the value of an option from the next word."""
    if not rest:
        raise InputError(f"{option} has no value")
    return rest.pop(0)


def _parse_number(text: str | None, what: str) -> int:
    """Read a plain number."""
    if not text or not text.isascii() or not text.isdigit() or not 0 < len(text) < 8:
        raise InputError(f"the number of {what} is not one plain number")
    return int(text)


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
        with limit_time(deadline):
            options = _compute_options(words, plan_file)
    except OutOfTimeError:
        _report_fallback(f"no map within {deadline:g} s")
    except OpskError as error:
        _report_fallback(error.message)
    except Exception as error:  # noqa: BLE001  the step must start despite any error here
        _report_fallback(f"{type(error).__name__}: {error}")
    if options:
        click.echo(" ".join(options))
    return ExitStatus.ANSWER


def _compute_options(words: tuple[str, ...], plan_file: str | None) -> tuple[str, ...]:
    """Return the options; none where Slurm's own order is as good."""
    job = find_own_job(os.environ)
    if not job:
        raise InputError("this is no job")
    step = parse_step(words, os.environ)
    ranks, nodes = _find_rank_map(job, plan_file)
    if ranks.names[0] != nodes[0]:
        raise InputError("rank 0 would leave the job's first node")
    if step.nodes != len(ranks.nodes) or set(ranks.names) != set(nodes):
        raise InputError(f"the step takes {step.nodes} nodes, the map {len(ranks.nodes)} of {len(nodes)}")
    launch = _choose_launch(step, ranks)
    if ranks.is_order_of(nodes):
        return ()
    left_out = (",".join(map(str, step.nodes_at)),) if step.nodes_at else ()
    return (*build_step_options(ranks, launch)[:2], *left_out)


def _choose_launch(step: Step, ranks: RankMap) -> Launch:
    """Return whether a task is one rank, or starts the ranks of its node."""
    if step.tasks == ranks.world_size:
        return Launch.SRUN
    if step.tasks == step.nodes:
        return Launch.TORCHRUN
    raise InputError(f"the step has {step.tasks} tasks, neither one a rank ({ranks.world_size}) nor one a node")


def _find_rank_map(job: str, plan_file: str | None) -> tuple[RankMap, tuple[str, ...]]:
    """Return the map from the job's start, else a new one, and the job's nodes in Slurm's order."""
    nodes = expand(os.environ.get("SLURM_JOB_NODELIST") or "")
    known = RankMap.parse(os.environ.get("OPSK_MAP", ""))
    if known is not None and str(known.job) == job and set(known.names) == set(nodes):
        return known, nodes
    # Imported only here: with a known map no planner is needed, and the answer takes a third of the time.
    from opsk.app.inputs.placement import Request
    from opsk.cli.place.launch import compute_launch
    from opsk.planning.ranks import RankOrder

    request = Request(plan=plan_file, nodes=None, job=job, fabric=(), cluster=None, gpus_per_node=None)
    launch_map = compute_launch(request, RankOrder.TP_CP_EP_DP_PP, is_anchored=True)
    return launch_map.ranks, tuple(launch_map.slurm_nodes)


def _report_fallback(why: str) -> None:
    """Report on stderr why Slurm's order is kept."""
    click.echo(f"opsk: Slurm's own order of ranks is kept: {escape(why)}", err=True)
