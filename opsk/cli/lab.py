"""Implements ``opsk lab up | down | status | run | env``: a whole cluster in one folder of this machine."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from opsk.cli.document import echo_json
from opsk.errors import ExitStatus, InputError, LabError
from opsk.lab.folder import LabFolder, check_owner, name_os_errors
from opsk.lab.jobs import follow, submit
from opsk.lab.lifecycle import lab_lock, take_down, up
from opsk.lab.machine.faults import NodeFault, break_domain, break_gpu, break_leaf, break_nic, list_faults, repair
from opsk.lab.machine.machine import LOST_BY_XID
from opsk.lab.parts import ADVISOR, EXPORTER, list_parts
from opsk.lab.record import LabRecord, LabShape, read_record
from opsk.lab.status import LabStatus, build_slurm_environment, read_lab_status
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

    Only nodes with an exporter have such devices. Slurm and the simulated subnet do not notice.
    """


@break_group.command("gpu")
@directory_option
@click.argument("node")
@click.argument("index", type=int)
@click.option(
    "--xid", default=LOST_BY_XID, show_default=True, help="XID that the driver reports; 79 means that the GPU is lost."
)
def gpu_command(directory: Path, node: str, index: int, xid: int) -> int:
    """Report an XID of GPU INDEX of NODE, with its consequences (ECC errors, row remapping, a lost GPU)."""
    with name_os_errors(directory):
        return _print_faults("broken", break_gpu(_find_lab_folder(directory), node, index, xid))


@break_group.command("nic")
@directory_option
@click.argument("node")
@click.argument("device")
def nic_command(directory: Path, node: str, device: str) -> int:
    """Take down the link of HCA DEVICE (mlx5_3, or 3) of NODE."""
    with name_os_errors(directory):
        return _print_faults("broken", break_nic(_find_lab_folder(directory), node, device))


@break_group.command("leaf")
@directory_option
@click.argument("leaf")
def leaf_command(directory: Path, leaf: str) -> int:
    """Take down the links of all nodes to leaf switch LEAF (its name or GUID)."""
    with name_os_errors(directory):
        return _print_faults("broken", break_leaf(_find_lab_folder(directory), leaf))


@break_group.command("domain")
@directory_option
@click.argument("node")
def domain_command(directory: Path, node: str) -> int:
    """Break the NVLink domain of NODE: all of its links go down, and each GPU reports XID 74."""
    with name_os_errors(directory):
        return _print_faults("broken", break_domain(_find_lab_folder(directory), node))


@click.command("repair")
@directory_option
@click.argument("kind", type=_KINDS, required=False)
@click.argument("what", nargs=-1)
def repair_command(directory: Path, kind: str | None, what: tuple[str, ...]) -> int:
    """Repair what `opsk lab break` broke: everything, everything of a KIND, or one device, named as when it was broken.

    Error counters keep their values, as after a real repair.
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


_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")


@click.group()
def lab() -> None:
    """Run a cluster on this machine: real Slurm, munge, MariaDB and InfiniBand subnet, with simulated GPUs."""


lab.add_command(break_group)
lab.add_command(repair_command)


@lab.command("up")
@directory_option
@click.option("--nodes", type=int, help="Nodes, each a real slurmd.  [default: 16]")
@click.option("--gpus", type=int, help="GPUs of a node.  [default: 8]")
@click.option("--hcas", type=int, help="HCAs of a node.  [default: 8]")
@click.option("--leaves", type=int, help="Leaf switches.  [default: one for each HCA of a node]")
@click.option("--spines", type=int, help="Spine switches.  [default: 4]")
@click.option("--advice/--no-advice", "advice", default=True, help="Run the advisor and its submit hooks.")
@click.option(
    "--exporters",
    type=click.IntRange(0, 512),
    help="Number of nodes with simulated devices and an exporter that reads them.  [default: 2]",
)
@click.option(
    "--prometheus/--no-prometheus", default=False, help="Run a Prometheus that scrapes the exporters.  [default: no]"
)
@_as_json
def up_command(
    directory: Path, *, advice: bool, exporters: int | None, prometheus: bool, as_json: bool, **sizes: int | None
) -> int:
    """Start the lab, unless it is up already.

    Exit status: 0 it is up; 2 its size is not possible; 3 a program is missing or failed, and all were stopped.
    """
    path = directory.resolve()
    left_out = {ADVISOR: not advice, EXPORTER: exporters == 0}
    parts = tuple(name for name in list_parts() if not left_out.get(name))
    watched = (2 if exporters is None else exporters) if EXPORTER in parts else 0
    with Console(stderr=True).status("lab: starts") as status:

        def progress(what: str) -> None:
            if sys.stderr.isatty():
                status.update(f"lab: {what}")
            else:
                click.echo(f"lab: {what}", err=True)

        with name_os_errors(path):
            record, was_up = up(
                path, shape=_build_shape(sizes), parts=parts, progress=progress, exporters=watched,
                prometheus=prometheus and watched > 0,
            )  # fmt: skip
    if was_up and (exporters not in (None, record.exporters) or (prometheus and not record.prometheus)):
        prometheus_too = "a" if record.prometheus else "no"
        raise LabError(
            f"{path}: a lab is up with {record.exporters} exporters and {prometheus_too} Prometheus",
            hint="opsk lab down, then up again",
        )
    if as_json:
        echo_json(_build_document(read_lab_status(path)))
        return int(ExitStatus.ANSWER)
    click.echo(f"lab {'is up already' if was_up else f'up in {record.up_s:.1f} s'}: {record.shape.summary}")
    click.echo(f"  Slurm {record.slurm[0]}.{record.slurm[1]:02d}, advice {'on' if ADVISOR in record.parts else 'off'}")
    _print_addresses(record)
    click.echo(f"  logs    {record.folder.path / 'log'}")
    click.echo(f'  use it  eval "$(opsk lab env{_format_dir_option(directory)})"')
    return int(ExitStatus.ANSWER)


@lab.command("down")
@directory_option
@click.option("--purge", is_flag=True, help="Also remove the folder with its logs.")
def down_command(directory: Path, *, purge: bool) -> int:
    """Stop everything that the lab started, even after a crash, and keep logs and configuration."""
    path = directory.resolve()
    if not path.exists():
        click.echo(f"no lab in {path}")
        return int(ExitStatus.ANSWER)
    check_owner(path)
    try:
        record = read_record(path)
    except LabError as error:
        click.echo(f"opsk: {error.message}; looking for its processes by their environment", err=True)
        record = None
    with name_os_errors(path), lab_lock(path) if record is not None else nullcontext():
        ended = take_down(path, record)
        if purge and record is not None:
            _purge(path)
    click.echo(f"lab down: {ended} processes ended" if ended else "lab was down")
    return int(ExitStatus.ANSWER)


@lab.command("status")
@directory_option
@_as_json
def status_command(directory: Path, *, as_json: bool) -> int:
    """Show daemons, nodes and logs.

    Exit status: 0 the lab is up and complete; 1 it is down or broken.
    """
    current = read_lab_status(directory.resolve())
    if as_json:
        echo_json(_build_document(current))
    else:
        _print_status(current)
    return int(ExitStatus.ANSWER if current.state == "up" else ExitStatus.BAD_NEWS)


@lab.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@directory_option
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[SBATCH OPTIONS] SCRIPT [ARGUMENTS]")
def run_command(directory: Path, words: tuple[str, ...]) -> int:
    """Submit SCRIPT to the lab with sbatch, as yourself, and print its output until it ends.

    Exit status: 0 it completed; 1 it ended otherwise; 3 the lab is not up or sbatch refused.
    """
    record = _read_running_lab(directory)
    job_id = submit(record, words)
    click.echo(f"lab: job {job_id} submitted", err=True)
    try:
        ends = follow(record, job_id, write=_write, notice=lambda text: click.echo(f"lab: {escape(text)}", err=True))
    except KeyboardInterrupt:
        click.echo(f"lab: job {job_id} continues; cancel it with: scancel {job_id}", err=True)
        return 130
    for end in ends:
        line = f"job {end.id} {end.state.lower()}, exit {end.exit_code}, on {end.nodes or 'no node'}"
        click.echo(f"lab: {escape(line)}", err=True)
    return int(ExitStatus.ANSWER if all(end.state == "COMPLETED" for end in ends) else ExitStatus.BAD_NEWS)


@lab.command("env")
@directory_option
def env_command(directory: Path) -> int:
    """Print the variables that make sbatch, squeue and opsk use this lab: eval "$(opsk lab env)"."""
    for name, value in build_slurm_environment(_read_running_lab(directory)).items():
        click.echo(f"export {name}={shlex.quote(value)}")
    return int(ExitStatus.ANSWER)


def _build_shape(sizes: dict[str, int | None]) -> LabShape | None:
    """Return the requested size; ``None`` when no size option is given."""
    given = {name: value for name, value in sizes.items() if value is not None}
    if not given:
        return None
    if "hcas" in given and "leaves" not in given:
        given["leaves"] = given["hcas"]
    return LabShape(**given)


def _read_running_lab(directory: Path) -> LabRecord:
    path = directory.resolve()
    record = read_record(path)
    if record is None or record.state.value != "up":
        raise LabError(f"no lab is up in {path}", hint=f"opsk lab up{_format_dir_option(directory)}")
    return record


def _format_dir_option(directory: Path) -> str:
    return "" if directory == Path(DEFAULT_DIRECTORY) else f" --dir {shlex.quote(str(directory))}"


def _purge(path: Path) -> None:
    """Remove the folder of a stopped lab; other files stay, and raise an error."""
    for entry in (path / "etc", path / "log", *path.glob("nvml-*")):
        shutil.rmtree(entry, ignore_errors=True)
    for name in ("fabric.net", "fabric.ibnetdiscover", "lab.json", "lab.json.new", "lock"):
        (path / name).unlink(missing_ok=True)
    try:
        path.rmdir()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", hint="it has files that the lab did not write") from error


def _write(chunk: bytes) -> None:
    sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


def _build_document(status: LabStatus) -> dict[str, Any]:
    """Return the JSON document of the status."""
    record = status.record
    document: dict[str, Any] = {
        "dir": status.path,
        "state": status.state,
        "problems": status.problems,
        "nodes": status.nodes,
        "daemons": [
            {"name": daemon.name, "running": daemon.running, "pid": daemon.pid, "log": daemon.log}
            for daemon in status.daemons
        ],
    }
    if record is not None:
        document |= {
            "id": record.id,
            "cluster": record.cluster,
            "shape": record.shape,
            "user": record.user,
            "slurm": f"{record.slurm[0]}.{record.slurm[1]:02d}",
            "parts": record.parts,
            "started": record.started.isoformat(),
            "up_s": record.up_s,
            "ports": {
                "slurmctld": record.slurmctld_port,
                "slurmdbd": record.slurmdbd_port,
                "slurmd": record.slurmd_ports,
                "exporters": record.exporter_ports,
                "prometheus": record.prometheus_port or None,
            },
            "notes": record.notes,
            "devices": {node: record.folder.nodes / node for node in record.exporter_ports},
            "faults": [
                {
                    "node": daemon.node,
                    "kind": daemon.fault.kind,
                    "what": daemon.fault.what,
                    "xid": daemon.fault.xid or None,
                }
                for daemon in list_faults(record.folder)
            ],
            "environment": build_slurm_environment(record),
            "fabric": record.folder.dump,
        }
    return document


def _print_addresses(record: LabRecord) -> None:
    """Print the addresses of exporters and Prometheus, and the lab's notes."""
    for node, port in record.exporter_ports.items():
        click.echo(f"  {node:<7} exporter http://127.0.0.1:{port}/metrics")
    if record.prometheus_port and any(daemon.name == "prometheus" for daemon in record.daemons):
        click.echo(f"  Prometheus http://127.0.0.1:{record.prometheus_port}")
    for note in record.notes:
        click.echo(f"  note    {escape(note)}")


def _print_status(status: LabStatus) -> None:
    record = status.record
    if record is None:
        click.echo(f"no lab in {status.path}")
        return
    click.echo(f"lab {status.state}: {record.shape.summary}")
    click.echo(f"  folder  {status.path}")
    if status.daemons:
        _print_addresses(record)
        for broken in list_faults(record.folder):
            click.echo(f"  broken  {escape(f'{broken.node}: {broken.fault.shown}')}")
    if status.nodes:
        click.echo(
            "  nodes   " + ", ".join(f"{count} {escape(state)}" for state, count in sorted(status.nodes.items()))
        )
    for daemon in status.daemons:
        click.echo(f"  {'runs' if daemon.running else 'DEAD'}  {daemon.pid or '-':>8}  {daemon.name:<12} {daemon.log}")
    if not status.daemons:
        logs = sorted((record.folder.path / "log").glob("*"))
        click.echo(f"  {len(logs)} logs in {record.folder.path / 'log'}")
    for problem in status.problems:
        click.echo(f"  problem: {escape(problem)}")
    if record.state.value in ("starting", "stopping"):
        click.echo("  another command is running, or was killed: opsk lab down cleans up")
