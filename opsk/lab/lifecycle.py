"""Starts and stops a lab: in order, in parallel where possible, and with a cleanup when the start is interrupted."""

from __future__ import annotations

import fcntl
import os
import pwd
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

from opsk.errors import LabError
from opsk.lab.daemons import bring_up_database, bring_up_fabric, bring_up_munge, bring_up_slurmdbd
from opsk.lab.exporters import NO_PROMETHEUS, find_prometheus
from opsk.lab.folder import LOCK, LabFolder, claim, clean, create_layout
from opsk.lab.launcher import Launcher, Stopped
from opsk.lab.parts import LabPart, LabSite, load_parts
from opsk.lab.processes import Process, end, find_all, is_running, read_boot_id, read_command_line
from opsk.lab.programs import locate, read_slurm_release
from opsk.lab.record import LabRecord, LabShape, LabState, new_record, read_record
from opsk.lab.slurm_files import write_site_files, write_slurm_files
from opsk.lab.status import is_fully_up

_ORDER = ("slurmctld", "slurmd", "slurmdbd", "mariadbd", "munged")
"""Who must be gone before who: slurmctld before it sees its nodes die, the database after those that write to it."""
_GRACE_S = 1.0
_JOB_GRACE_S = 0.5
_ROUNDS = 5
MIN_PORT = 20_000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_ATTEMPTS = 200
Progress = Callable[[str], None]
_NODES_READY_WITHIN_S = 180.0
_ASK_SLURM_EVERY_S = 0.1
"""Each question is a process, which the daemons that it asks about would lack the processor for."""


def take_down(path: Path, record: LabRecord | None) -> int:
    """End every process of the lab in ``path`` and remove temporary files; returns how many processes ended.

    Without a record the processes are known by their mark alone, and no file is touched: nothing proves that ``run`` or
    ``state`` in that folder is a lab's.

    Raises
    ------
    LabError
        Names the processes that could not be ended.
    """
    folder = record.folder if record is not None else LabFolder(path=path, base=path)
    if record is not None and record.state is not LabState.DOWN:
        record = replace(record, state=LabState.STOPPING)
        record.save()
    ended = _end_all(folder, _list_recorded(record))
    if record is None:
        return ended
    clean(folder)
    if record.state is not LabState.DOWN:
        replace(record, state=LabState.DOWN, daemons=(), up_s=None).save()
    return ended


def _end_all(folder: LabFolder, recorded: dict[Process, str]) -> int:
    """End daemons in order, then whatever is left, until a search finds nothing."""
    confs = {folder.slurm_conf, folder.path / "etc" / "slurm.conf"}
    ended: set[Process] = set()

    def finish(processes: Iterable[Process], grace_s: float) -> None:
        living = [each for each in processes if is_running(each)]
        end(living, grace_s=grace_s)
        ended.update(living)

    for stage in _ORDER:
        if stage == "slurmdbd":
            # Processes of jobs end when no more of them can start, and before the daemons that others still need.
            finish((each for each in find_all(folder.path, slurm_confs=confs) if each not in recorded), _JOB_GRACE_S)
            finish((each for each, name in recorded.items() if name.partition("-")[0] not in _ORDER), _GRACE_S)
        finish((each for each, name in recorded.items() if name.partition("-")[0] == stage), _GRACE_S)
    for _ in range(_ROUNDS):
        left = find_all(folder.path, slurm_confs=confs)
        if not left:
            return len(ended)
        end(left, grace_s=0.5)
        ended.update(left)
    raise LabError(f"{folder.path}: still running: {_format_processes(find_all(folder.path, slurm_confs=confs))}")


def _list_recorded(record: LabRecord | None) -> dict[Process, str]:
    """Return the recorded processes with their names; none when the machine was booted since."""
    if record is None or record.boot != read_boot_id():
        return {}
    return {daemon.process: daemon.name for daemon in record.daemons if daemon.process is not None}


def _format_processes(processes: Iterable[Process]) -> str:
    return "; ".join(f"{each.pid} {read_command_line(each)[:80]}" for each in processes) or "nothing"


@contextmanager
def reserve_block(count: int) -> Iterator[int]:
    """Hold ``count`` neighbouring free ports; yields the first.

    The ports lie below the ephemeral range and are bound, not listened on, for as long as the lab starts. A second lab
    cannot bind them; the Slurm daemons can, because both sides set ``SO_REUSEADDR`` and only they listen.

    Raises
    ------
    LabError
        When no such block is free.
    """
    highest = _read_ephemeral_start() - count
    if highest <= MIN_PORT:
        raise LabError(f"there are not {count} ports between {MIN_PORT} and the ephemeral ports of this machine")
    for _ in range(_ATTEMPTS):
        first = random.randint(MIN_PORT, highest)
        sockets = _bind_all(range(first, first + count))
        if sockets is None:
            continue
        try:
            yield first
        finally:
            for bound in sockets:
                bound.close()
        return
    raise LabError(f"no {count} consecutive ports are free between {MIN_PORT} and {highest + count}")


def _bind_all(ports: range) -> list[socket.socket] | None:
    """Bind every port of the range, or none: ``None`` when one of them is taken."""
    sockets: list[socket.socket] = []
    for port in ports:
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sockets.append(bound)
        try:
            # First without SO_REUSEADDR, which would overlook another lab that only holds the port.
            bound.bind(("", port))
        except OSError:
            for earlier in sockets:
                earlier.close()
            return None
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return sockets


def _read_ephemeral_start() -> int:
    try:
        return int(_EPHEMERAL.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768


def up(
    path: Path,
    *,
    shape: LabShape | None,
    parts: tuple[str, ...],
    progress: Progress,
    exporters: int = 0,
    prometheus: bool = False,
) -> tuple[LabRecord, bool]:
    """Bring the lab in ``path`` up; returns its record, and whether it was up already.

    Parameters
    ----------
    path
        Absolute path of the lab's folder.
    shape
        ``None`` takes the shape that is up, or the default size.
    parts
        Names of front ends' parts; see `opsk.lab.parts`.
    progress
        Is called with a few words on what is going on.
    exporters
        How many nodes, the first ones, get an exporter, where that part is among ``parts``.
    prometheus
        Whether a Prometheus scrapes them.

    Raises
    ------
    LabError
        When a program is missing or fails; everything that was started has been ended by then.
    """
    programs = locate()
    user = _find_user_name()
    # `create_layout` makes private files private; everything else must be readable by those who may enter the folder.
    os.umask(0o022)
    claim(path, for_all_users=os.geteuid() == 0)
    with lab_lock(path):
        known = read_record(path)
        if known is not None and is_fully_up(known):
            if shape is not None and shape != known.shape:
                raise LabError(f"{path}: a lab of {known.shape.summary} is up", hint="opsk lab down, then up again")
            return known, True
        began = time.monotonic()
        take_down(path, known)
        record = new_record(path, shape=shape or LabShape(), user=user, boot=read_boot_id())
        launcher = Launcher(record)
        try:
            with _signals_raise():
                # Without the program there is no Prometheus, and nothing is to be pointed at its port.
                watched = prometheus and find_prometheus() is not None
                launcher.amend(exporters=min(exporters, record.shape.nodes), prometheus=watched)
                _bring_up(launcher, parts, slurm=read_slurm_release(programs["slurmd"]), progress=progress)
                notes = launcher.record.notes + ((NO_PROMETHEUS,) if prometheus and not watched else ())
                record = launcher.amend(state=LabState.UP, up_s=round(time.monotonic() - began, 2), notes=notes)
        except BaseException:
            launcher.stop()
            progress("ends what was started")
            with _signals_wait():
                take_down(path, launcher.record)
            raise
        finally:
            launcher.forget()
    return record, False


@contextmanager
def lab_lock(path: Path) -> Iterator[None]:
    """Hold the folder's lock: one ``up`` or ``down`` at a time. The kernel releases it when the holder dies.

    Raises
    ------
    LabError
        When another command holds it.
    """
    with (path / LOCK).open("ab") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LabError(f"{path}: another opsk lab command is running", hint="wait for it, or stop it") from error
        yield


def _bring_up(launcher: Launcher, names: tuple[str, ...], *, slurm: tuple[int, int], progress: Progress) -> None:
    """Start everything: munge and database in parallel with the fabric, then Slurm and the parts of front ends."""
    with ExitStack() as stack:
        first_port = stack.enter_context(reserve_block(launcher.record.port_count))
        record = launcher.amend(slurm=slurm, first_port=first_port, parts=names)
        folder = record.folder
        create_layout(folder, spools=record.shape.names)
        site = LabSite(
            etc=folder.etc, run=folder.run, log=folder.log, config=folder.site, shape=record.shape,
            exporters=record.exporter_ports, prometheus_port=record.prometheus_port,
            cluster=record.cluster,
        )  # fmt: skip
        write_site_files(record)
        parts = load_parts(names, site)
        launcher.amend(notes=tuple(note for part in parts for note in part.notes))
        write_slurm_files(
            record,
            snippets=tuple(name for part in parts for name in part.slurm_snippets),
            lines=tuple(line for part in parts for line in part.slurm_lines),
        )
        for part in parts:
            part.install()
        progress("munge, database and fabric")
        _run_together(launcher, (_start_accounting, bring_up_fabric))
        for part in parts:
            if part.prepare is not None:
                part.prepare(launcher)
        progress(f"slurmctld, {record.shape.nodes} slurmd" + "".join(f", {name}" for name in names))
        _run_together(launcher, (_start_slurm, lambda starter: _start_part_daemons(starter, parts)))


def _start_accounting(launcher: Launcher) -> None:
    bring_up_munge(launcher)
    bring_up_database(launcher)
    bring_up_slurmdbd(launcher)


def _start_slurm(launcher: Launcher) -> None:
    launcher.start("slurmctld", ("slurmctld", "-D"), log="slurmctld.log")
    launcher.await_socket("slurmctld", launcher.record.slurmctld_port)
    for name in launcher.record.shape.names:
        launcher.start(f"slurmd-{name}", ("slurmd", "-D", "-N", name), log=f"slurmd-{name}.log")
    _await_nodes(launcher)


def _start_part_daemons(launcher: Launcher, parts: tuple[LabPart, ...]) -> None:
    daemons = [daemon for part in parts for daemon in part.daemons]
    extra = {"OPSK_CONFIG": str(launcher.record.folder.site), "OPSK_TRACEBACK": "1"}
    if "PYTHONPATH" in os.environ:
        extra["PYTHONPATH"] = os.environ["PYTHONPATH"]
    for daemon in daemons:
        launcher.start(daemon.name, daemon.command, extra=extra | dict(daemon.environment))
    for daemon in daemons:
        if daemon.socket is None:
            continue
        launcher.await_socket(daemon.name, daemon.socket)


def _await_nodes(launcher: Launcher) -> None:
    """Wait until slurmctld has heard of every node."""
    required = launcher.record.shape.nodes
    environment = launcher.environment()
    deadline = time.monotonic() + _NODES_READY_WITHIN_S

    def all_idle() -> bool:
        result = subprocess.run(
            ["sinfo", "-h", "-t", "idle", "-o", "%D"],
            env=environment, capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        idle = sum(int(word) for word in result.stdout.split() if word.isdigit())
        if idle < required and time.monotonic() > deadline:
            raise LabError(f"only {idle} of {required} nodes are ready", hint=f"see {launcher.record.folder.log}")
        return idle >= required

    launcher.await_ready("slurmctld", all_idle, every_s=_ASK_SLURM_EVERY_S)


def _run_together(launcher: Launcher, tasks: tuple[Callable[[Launcher], None], ...]) -> None:
    """Run tasks at the same time; the first failure ends the others."""
    with ThreadPoolExecutor(len(tasks)) as pool:
        running: list[Future[None]] = [pool.submit(task, launcher) for task in tasks]
        try:
            wait(running, return_when=FIRST_EXCEPTION)
        except BaseException:
            launcher.stop()
            raise
        failures = [task.exception() for task in running if task.done() and task.exception() is not None]
        if failures:
            launcher.stop()
    for failure in sorted((each for each in failures if each is not None), key=lambda each: isinstance(each, Stopped)):
        raise failure


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Let SIGTERM and SIGHUP call the start off as Ctrl-C does."""

    def call_off(signum: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt(signal.Signals(signum).name)

    # One that is ignored stays so: nohup means it.
    heard = tuple(each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is not signal.SIG_IGN)
    with _handling(heard, call_off):
        yield


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Let nothing but SIGKILL interrupt the cleaning."""
    with _handling((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), signal.SIG_IGN):
        yield


@contextmanager
def _handling(signals: tuple[signal.Signals, ...], handler: object) -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in signals}
    try:
        for number in signals:
            signal.signal(number, handler)  # type: ignore[arg-type]
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _find_user_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError as error:
        raise LabError(
            f"uid {os.geteuid()} has no user name on this machine, and Slurm needs one",
            hint="add it to /etc/passwd",
        ) from error
