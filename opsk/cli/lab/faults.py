"""Implements ``opsk lab break`` and ``opsk lab repair``: injects faults that exporters must show."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from opsk.errors import ExitStatus, LabError
from opsk.lab.folder import LabFolder, check_owner, name_os_errors
from opsk.lab.machine.faults import NodeFault, break_domain, break_gpu, break_leaf, break_nic, repair
from opsk.lab.machine.machine import LOST_BY_XID
from opsk.lab.record import read_record
from opsk.text import escape

DEFAULT_DIRECTORY = ".lab"

directory_option = click.option(
    "--dir", "directory", type=click.Path(path_type=Path, file_okay=False), envvar="OPSK_LAB_DIR",
    default=DEFAULT_DIRECTORY, show_default=True, help="Folder of the lab; several labs live in several folders.",
)  # fmt: skip
_KINDS = click.Choice(["gpu", "nic", "leaf", "domain"])


@click.group("break")
def break_group() -> None:
    """Break a GPU, an HCA, a leaf switch or an NVLink domain: exporters show it in the next scrape.

    Only nodes with an exporter have devices that can break. Slurm and the simulated subnet are told nothing.
    """


@break_group.command("gpu")
@directory_option
@click.argument("node")
@click.argument("index", type=int)
@click.option("--xid", default=LOST_BY_XID, show_default=True, help="What the driver says; 79: the GPU is lost.")
def gpu_command(directory: Path, node: str, index: int, xid: int) -> int:
    """Let the driver tell of an XID of GPU INDEX of NODE, with what comes with it (ECC, remapping, a lost GPU)."""
    with name_os_errors(directory):
        return _print_faults("broken", break_gpu(_find_lab_folder(directory), node, index, xid))


@break_group.command("nic")
@directory_option
@click.argument("node")
@click.argument("device")
def nic_command(directory: Path, node: str, device: str) -> int:
    """Take the link of HCA DEVICE (mlx5_3, or 3) of NODE away."""
    with name_os_errors(directory):
        return _print_faults("broken", break_nic(_find_lab_folder(directory), node, device))


@break_group.command("leaf")
@directory_option
@click.argument("leaf")
def leaf_command(directory: Path, leaf: str) -> int:
    """Take the links of all nodes to leaf switch LEAF (its name or GUID) away."""
    with name_os_errors(directory):
        return _print_faults("broken", break_leaf(_find_lab_folder(directory), leaf))


@break_group.command("domain")
@directory_option
@click.argument("node")
def domain_command(directory: Path, node: str) -> int:
    """Break the NVLink domain of NODE: none of its links is up, and each GPU tells of XID 74."""
    with name_os_errors(directory):
        return _print_faults("broken", break_domain(_find_lab_folder(directory), node))


@click.command("repair")
@directory_option
@click.argument("kind", type=_KINDS, required=False)
@click.argument("what", nargs=-1)
def repair_command(directory: Path, kind: str | None, what: tuple[str, ...]) -> int:
    """Repair what `opsk lab break` broke: all of it, all of a KIND, or one thing in the words that broke it.

    Counters of errors stay as they are, as a real repair leaves them.
    """
    with name_os_errors(directory):
        return _print_faults("repaired", repair(_find_lab_folder(directory), kind, *what) or ())


def _print_faults(verb: str, faults: Iterable[NodeFault]) -> int:
    """Print the faults that were broken or repaired."""
    faults = tuple(faults)
    for fault in faults:
        click.echo(f"lab: {verb}: {escape(f'{fault.node}: {fault.fault.shown}')}")
    if not faults:
        click.echo("lab: nothing is broken")
    return int(ExitStatus.ANSWER)


def _find_lab_folder(directory: Path) -> LabFolder:
    """Return the folder of a lab that is up."""
    path = directory.resolve()
    record = read_record(path)
    if record is None or record.state.value != "up":
        option = "" if directory == Path(DEFAULT_DIRECTORY) else f" --dir {directory}"
        raise LabError(f"no lab is up in {path}", hint=f"opsk lab up{option}")
    check_owner(path)
    return record.folder
