"""How do host file, MPI rankfile and torchrun's node ranks get into files that a job script names?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from opsk.errors import InputError
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
