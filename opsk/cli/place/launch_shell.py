"""What does a job's script evaluate, so that the ``srun`` or ``torchrun`` after it starts ranks in their places?

``eval "$(opsk place --job $SLURM_JOB_ID --launch srun)"`` must never hurt the job: whatever goes wrong, the lines leave
Slurm's own order as it is, the reason is on stderr, and the exit status is 0.
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
from opsk.frameworks.setting import Setting
from opsk.planning.placement.rank_map import RankMap
from opsk.units import KIB

DEADLINE_S = 20.0
_LONGEST_OPTION = 64 * KIB
"""Linux takes no word of more than 128 KiB; a list of hosts longer than half of that goes into a file."""
_LONGEST_MAP = 100 * KIB
_PLAIN = re.compile(r"[A-Za-z0-9._,:/=+\-]*")
_FIRST_PORT, _PORTS = 15000, 15000
"""Below the ports that Linux hands out by itself (32768 and up)."""


_OF_THE_START = ("SLURM_NNODES", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE",
                 "SLURM_JOB_NUM_NODES", "SLURM_JOB_NODELIST", "SLURM_NODELIST")  # fmt: skip
"""What srun takes from a job's environment that is no longer so when nodes are gone (``--no-kill``)."""


class Launch(StrEnum):
    """Who reads the lines: a script that calls srun or torchrun, or Slurm's TaskProlog."""

    SRUN = "srun"
    TORCHRUN = "torchrun"
    TASK_PROLOG = "task-prolog"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A map to start with: ``slurm_nodes`` are the job's nodes in Slurm's order, ``env`` what NCCL should be told.

    ``is_listed`` tells that the job's environment still lists just these nodes.
    """

    ranks: RankMap
    slurm_nodes: Sequence[str]
    env: Sequence[Setting] = field(default_factory=tuple)
    is_listed: bool = True


def step_options(ranks: RankMap, launch: Launch) -> tuple[str, ...]:
    """Return the options of ``srun`` that bring the map about: a task a rank, or for torchrun one a node.

    Raises
    ------
    InputError
        torchrun numbers ranks node by node, and this map does not.
    """
    if launch is not Launch.TORCHRUN:
        return (*_arranged(ranks.hosts, ranks.job), f"--ntasks={ranks.world_size}")
    if not ranks.is_node_by_node:
        raise InputError("torchrun numbers ranks node by node, and this order does not", hint="start with srun")
    return (*_arranged(ranks.names, ranks.job), f"--ntasks={len(ranks.nodes)}", "--ntasks-per-node=1")


def shell_lines(launched: Launched, launch: Launch, environ: Mapping[str, str]) -> list[str]:
    """Return lines for ``eval`` in sh, bash or zsh, or for TaskProlog, which has no shell to test variables in.

    Raises
    ------
    InputError
        The map is too long for an environment, or torchrun cannot bring it about.
    """
    ranks = launched.ranks
    text = ranks.render()
    if len(text) > _LONGEST_MAP:
        raise InputError(f"a map of {len(text)} bytes is too long for an environment")
    port = str(_FIRST_PORT + ranks.job % _PORTS)
    settings = [(setting.name, setting.value) for setting in launched.env if _PLAIN.fullmatch(setting.value)]
    if launch is Launch.TASK_PROLOG:
        return [
            f"export OPSK_MAP={text}",
            *(f"export {name}={value}" for name, value in settings if name not in environ),
        ]
    is_own = launch is Launch.SRUN and launched.is_listed and ranks.is_order_of(launched.slurm_nodes)
    options = () if is_own else step_options(ranks, launch)
    first, each = ranks.names[0], len(ranks.nodes[0].ranks)
    return [
        *([] if launched.is_listed else [f"unset {' '.join(_OF_THE_START)}"]),
        f"OPSK_SRUN_OPTIONS={shlex.quote(' '.join(options))}",
        f"export OPSK_MAP={shlex.quote(text)}",
        f"export MASTER_ADDR={shlex.quote(first)}",
        f'[ -n "${{MASTER_PORT-}}" ] || export MASTER_PORT={port}',
        f"export OPSK_WORLD_SIZE={ranks.world_size} OPSK_NODES={len(ranks.nodes)} OPSK_RANKS_PER_NODE={each}",
        *(f'[ -n "${{{name}+set}}" ] || export {name}={shlex.quote(value)}' for name, value in settings),
    ]


def default_lines(launch: Launch) -> list[str]:
    """Return what leaves everything as Slurm does it; a map that was inherited from another job is forgotten."""
    return [] if launch is Launch.TASK_PROLOG else ["OPSK_SRUN_OPTIONS=", "unset OPSK_MAP"]


class OutOfTimeError(BaseException):
    """The deadline passed. No `Exception`, so that nothing on the way takes it for an answer that is missing."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
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


def _arranged(hosts: Sequence[str], job: int) -> tuple[str, ...]:
    """Return the options that seat the tasks on these hosts in this order; 24.11 refuses ``--nodes`` beside them."""
    listed = ",".join(hosts)
    if len(listed) > _LONGEST_OPTION:
        with tempfile.NamedTemporaryFile("w", prefix=f"opsk-{job}-", suffix=".hosts", delete=False) as file:
            file.write("".join(f"{host}\n" for host in hosts))
        listed = str(Path(file.name).absolute())
        if not _PLAIN.fullmatch(listed):
            Path(listed).unlink()
            raise InputError("the folder for temporary files has a name that no unquoted word can be")
    return "--distribution=arbitrary", f"--nodelist={listed}"
