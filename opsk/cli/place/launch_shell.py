"""Builds the shell lines that make the next ``srun`` or ``torchrun`` of a job's script follow a rank map.

``eval "$(opsk place --job $SLURM_JOB_ID --launch srun)"`` must never harm the job: on any error the lines leave Slurm's
own order as it is, the reason is printed on stderr, and the exit status is 0.
"""

from __future__ import annotations

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

from opsk.errors import InputError
from opsk.frameworks.options import Setting
from opsk.planning.placement.rank_map import RankMap
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


class LaunchTarget(StrEnum):
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


def build_step_options(ranks: RankMap, launch: LaunchTarget) -> tuple[str, ...]:
    """Return the options of ``srun`` for the map: a task per rank, or for torchrun one per node.

    Raises
    ------
    InputError
        torchrun numbers ranks node by node, and this map does not.
    """
    if launch is not LaunchTarget.TORCHRUN:
        return (*_build_arrangement(ranks.hosts, ranks.job), f"--ntasks={ranks.world_size}")
    if not ranks.is_node_by_node:
        raise InputError("torchrun numbers ranks node by node, and this order does not", hint="start with srun")
    return (*_build_arrangement(ranks.names, ranks.job), f"--ntasks={len(ranks.nodes)}", "--ntasks-per-node=1")


def build_shell_lines(launch_map: LaunchMap, launch: LaunchTarget, environ: Mapping[str, str]) -> list[str]:
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
    if launch is LaunchTarget.TASK_PROLOG:
        return [
            f"export OPSK_MAP={text}",
            *(f"export {name}={value}" for name, value in settings if name not in environ),
        ]
    is_own = launch is LaunchTarget.SRUN and launch_map.is_listed and ranks.matches_block_order(launch_map.slurm_nodes)
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


def build_default_lines(launch: LaunchTarget) -> list[str]:
    """Return the lines that keep Slurm's order; a map inherited from another job is unset."""
    return [] if launch is LaunchTarget.TASK_PROLOG else ["OPSK_SRUN_OPTIONS=", "unset OPSK_MAP"]


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
