"""Implements ``opsk srun-options``: prints the options that opsk-srun adds to the arguments of ``srun``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import click

from opsk.cli.place.launch_shell import DEADLINE_S, LaunchTarget, OutOfTimeError, build_step_options, limit_time
from opsk.errors import ExitStatus, InputError, OpskError
from opsk.hostlist import expand
from opsk.planning.placement.rank_map import RankMap
from opsk.slurm.commands.current_job import find_own_job
from opsk.text import escape

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
        raise InputError(f"{word.partition('=')[0][:40]} may place the tasks")
    return {name: value}


def _parse_short(letters: str, rest: list[str]) -> dict[str, str]:
    """Return the options of one word such as ``-lN2``."""
    options: dict[str, str] = {}
    while letters:
        name, letters = _SHORT.get(letters[0], ""), letters[1:]
        if not name:
            raise InputError("an option of one letter may place the tasks")
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
              help="Time limit, after which Slurm's order is used.")  # fmt: skip
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
        raise InputError("this is not a job")
    step = parse_step(words, os.environ)
    ranks, nodes = _find_rank_map(job, plan_file)
    if ranks.names[0] != nodes[0]:
        raise InputError("rank 0 would leave the job's first node")
    if step.nodes != len(ranks.nodes) or set(ranks.names) != set(nodes):
        raise InputError(f"the step takes {step.nodes} nodes, the map {len(ranks.nodes)} of {len(nodes)}")
    launch = _choose_launch(step, ranks)
    if ranks.matches_block_order(nodes):
        return ()
    left_out = (",".join(map(str, step.nodes_at)),) if step.nodes_at else ()
    return (*build_step_options(ranks, launch)[:2], *left_out)


def _choose_launch(step: Step, ranks: RankMap) -> LaunchTarget:
    """Return whether a task is one rank, or starts the ranks of its node."""
    if step.tasks == ranks.world_size:
        return LaunchTarget.SRUN
    if step.tasks == step.nodes:
        return LaunchTarget.TORCHRUN
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
    click.echo(f"opsk: Slurm's own order of ranks is used: {escape(why)}", err=True)
