"""Stops a lab and removes everything it started, whatever state it was in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from opsk.errors import LabError
from opsk.lab.folder import LabFolder, clean
from opsk.lab.processes import Process, end, find_all, is_running, read_boot_id, read_command_line
from opsk.lab.record import LabRecord, LabState

_ORDER = ("slurmctld", "slurmd", "slurmdbd", "mariadbd", "munged")
"""Who must be gone before who: slurmctld before it sees its nodes die, the database after those that write to it."""
_GRACE_S = 1.0
_JOB_GRACE_S = 0.5
_ROUNDS = 5


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
