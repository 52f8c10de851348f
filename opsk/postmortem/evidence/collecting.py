"""How does a node keep what is known of a job, at its start and at its end, without ever being in the job's way?

The prolog writes a note of the job (`opsk.telemetry.jobs.job_files`); the epilog only moves it into the spool. A
collector that both start beside themselves does the rest: it snapshots the node while the job is young, and when the
note lies in the spool it snapshots again, reads the kernel's log of that time and the ends of the job's logs, and
writes one file into the folder of the job. A note leaves the spool only when that file is written: what a collector
that was killed, or a folder that was away, left undone is done by the next one. So are reports; see
`opsk.postmortem.evidence.reporting`.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from opsk.errors import InputError
from opsk.postmortem.evidence.as_user import person_of
from opsk.postmortem.evidence.flight_recorder import kept_dump, left_dumps, read_dumps
from opsk.postmortem.evidence.kernel_lines import kernel_lines
from opsk.postmortem.evidence.node_files import FORM, LARGEST_BYTES, job_folder, node_file_name, write_whole
from opsk.postmortem.evidence.node_state import Values, node_state
from opsk.postmortem.evidence.output_tails import output_tails
from opsk.postmortem.evidence.reporting import REPORTS, DueReport, due, due_path, run_start_s
from opsk.telemetry.gpu.samples import GpuReading
from opsk.telemetry.jobs.job_files import JobFile, parse_job_file
from opsk.telemetry.jobs.job_logs import told_logs
from opsk.telemetry.kernel_log import KMSG, boot_unix_s
from opsk.units import KIB, MIB

STARTED, ENDED = "started", "ended"
BEFORE_S, AFTER_S = 60.0, 30.0
"""The kernel's log of so long before the job and after its end is kept."""
MOST_NOTES = 512
MOST_REPORTS = 8
"""So many reports are begun at once; the others wait for the next collector."""
OLDEST_START_S = 90 * 86400.0
_LARGEST_NOTE_BYTES, _LARGEST_START_BYTES = 64 * KIB, 4 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePaths:
    """Where things are on this node.

    Parameters
    ----------
    folder
        Where evidence goes, by job.
    spool
        With the folders ``started`` and ``ended``.
    jobs_folder
        Where the prolog writes.
    dumps
        Where PyTorch leaves dumps of its flight recorder, besides the job's working directory.
    """

    folder: Path
    spool: Path
    jobs_folder: Path = Path("/run/opsk-jobs")
    kernel_log: Path = KMSG
    sysfs: Path = Path("/sys")
    cgroups: Path = Path("/sys/fs/cgroup")
    dumps: tuple[Path, ...] = (Path("/tmp"),)


@dataclass(slots=True, kw_only=True)
class Collected:
    """What one run of the collector did: jobs by what was done, and what could not be done yet."""

    started: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


Reporter = Callable[[DueReport], object]
"""Starts what writes a report."""


class Collector:
    """Collects for one node.

    Parameters
    ----------
    paths
        Where things are.
    gpus
        Reads the GPUs; NVML by default.
    clock
        Seconds since 1970.
    """

    def __init__(
        self, paths: NodePaths, *, gpus: Callable[[], GpuReading] | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._paths = paths
        self._gpus = gpus
        self._clock = clock

    def collect(self, *, started: bool = True, ended: bool = True, report: Reporter | None = None) -> Collected:
        """Do all that is to be done now.

        Parameters
        ----------
        report
            Starts what writes one report; left out, no reports are written on jobs that end.

        Raises
        ------
        InputError
            The spool cannot be used.
        """
        done = Collected()
        try:
            with self._alone():
                # What has ended comes first: it is the one that gets old.
                if ended:
                    self._ended(done, keep_notes=report is not None)
                if started:
                    self._started(done)
                    self._forget_old()
        except OSError as error:
            raise InputError(
                f"{self._paths.spool}: {error.strerror}", hint="[postmortem] spool in opsk.toml"
            ) from error
        if report is not None:
            self._report(report, done)
        return done

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait until no other collector works; the kernel lets go of the lock of one that was killed."""
        for name in (STARTED, ENDED, REPORTS):
            (self._paths.spool / name).mkdir(parents=True, exist_ok=True, mode=0o750)
        with (self._paths.spool / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _started(self, done: Collected) -> None:
        """Snapshot the node for jobs that have no snapshot yet."""
        notes = self._notes(self._paths.jobs_folder)
        new = [(path, note) for path, note in notes if not self._start_path(path.name, note).exists()]
        for path, note in new:
            try:
                said = {"form": FORM, "run": note.run, "state": self._state(note, self._paths.jobs_folder)}
                write_whole(self._start_path(path.name, note), json.dumps(said))
                done.started.append(note.job_id)
            except OSError as error:
                done.problems.append(f"{note.key}: {error.strerror}")

    def _report(self, report: Reporter, done: Collected) -> None:
        """Have reports written on jobs whose evidence is kept: those that have ended now, and what was left."""
        begun = 0
        for path, note in self._notes(self._paths.spool / REPORTS):
            if begun >= MOST_REPORTS:
                return  # what was left of a bad night is no reason to keep a node busy
            try:
                with due(path, note, self._paths.folder) as one:
                    if one is not None:
                        report(one)
                        begun += 1
            except (OSError, InputError) as error:
                done.problems.append(f"{note.key}: no report: {error}")

    def _ended(self, done: Collected, *, keep_notes: bool) -> None:
        """Keep the evidence of jobs that have ended."""
        for path, note in self._notes(self._paths.spool / ENDED):
            try:
                self._keep(path, note)
            except (OSError, InputError) as error:
                done.problems.append(f"{note.key}: {error}")
                continue
            done.ended.append(note.job_id)
            self._start_path(path.name, note).unlink(missing_ok=True)
            self._end_mark(path).unlink(missing_ok=True)
            if keep_notes:
                path.replace(due_path(self._paths.spool, path.name, note))
            else:
                path.unlink(missing_ok=True)

    def _keep(self, path: Path, note: JobFile) -> None:
        """Write the evidence of one job, as it was when it was first taken."""
        node = note.node or os.uname().nodename.partition(".")[0]
        target = job_folder(self._paths.folder, note.key) / node_file_name(node, run_start_s(note))
        taken = self._taken_path(path)
        text = _taken_of(taken, note)
        if text is None:
            text = json.dumps(self._evidence(path, note, node))
            # A folder that is full or away may come back when the node says something else.
            with suppress(OSError):
                write_whole(taken, text)
        write_whole(target, text)
        taken.unlink(missing_ok=True)

    def _evidence(self, path: Path, note: JobFile, node: str) -> dict[str, Any]:
        """Return what there is to know of one job on this node now."""
        ended_s = self._ended_s(path)
        from_s = (note.start_unix_s or note.written_unix_s) - BEFORE_S
        booted_s = boot_unix_s()
        # The logs are read first: their reader is a fork of this process, which the GPUs' reader makes threads in.
        told, began_s = told_logs(note, note.job_id), note.start_unix_s or note.written_unix_s
        tails, log_problem = output_tails(told, note.job_id, person_of(note.uid), since_s=began_s)
        dumps = self._dumps(note, from_s, ended_s)
        kernel = kernel_lines(self._paths.kernel_log, from_s, ended_s + AFTER_S, boot_unix_s=booted_s)
        return {
            "form": FORM, "job": note.job_id, "run": note.run, "node": node, "from_s": from_s, "until_s": ended_s,
            "collected_s": self._clock(), "boot_unix_s": booted_s, "note": asdict(note),
            "start": self._start(path.name, note), "end": self._state(note, path.parent),
            "kernel": asdict(kernel), "logs": tails, "log_problem": log_problem, "recorder": dumps,
        }  # fmt: skip

    def _dumps(self, note: JobFile, from_s: float, ended_s: float) -> list[dict[str, Any]]:
        """Return what the dumps of PyTorch's flight recorder say that the job left on this node."""
        if note.uid is None:
            return []
        work = [Path(note.work_dir)] if note.work_dir and note.work_dir.startswith("/") else []
        left = left_dumps([*self._paths.dumps, *work], uid=note.uid, from_s=from_s, until_s=ended_s + AFTER_S)
        return [kept_dump(dump) for dump in read_dumps(left, owner=note.uid) if not dump.problem]

    def _state(self, note: JobFile, folder: Path) -> Values:
        """Return the state of the node now."""
        return node_state(
            note.key, jobs_folder=folder, sysfs=self._paths.sysfs, cgroups=self._paths.cgroups, gpus=self._gpus,
            clock=self._clock,
        )  # fmt: skip

    def _start(self, name: str, note: JobFile) -> Values:
        """Return the snapshot of the start; empty where there is none of this very run."""
        try:
            with self._start_path(name, note).open("rb") as stream:
                said = json.loads(stream.read(_LARGEST_START_BYTES))
        except (OSError, ValueError):
            return {}
        if not isinstance(said, dict) or not _is_of_run(said, note):
            return {}
        state = said.get("state")
        return state if isinstance(state, dict) else {}

    def _start_path(self, name: str, note: JobFile) -> Path:
        """Return where the snapshot of a run's start lies."""
        return self._paths.spool / STARTED / f"{name}@{run_start_s(note)}.json"

    def _end_mark(self, path: Path) -> Path:
        """Return the empty file whose time is when the epilog ran."""
        return path.with_name(f".{path.name}.end")

    def _taken_path(self, path: Path) -> Path:
        """Return where evidence lies that is taken and not yet in its folder."""
        return path.with_name(f".{path.name}.taken")

    def _ended_s(self, path: Path) -> float:
        try:
            return self._end_mark(path).stat().st_mtime
        except OSError:
            return self._clock()

    def _notes(self, folder: Path) -> list[tuple[Path, JobFile]]:
        """Return the notes in a folder, the oldest first."""
        found = []
        try:
            paths = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
        except OSError:
            return []
        for path in paths[:MOST_NOTES]:
            try:
                handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                try:
                    status = os.fstat(handle)
                    text = os.read(handle, _LARGEST_NOTE_BYTES).decode("utf-8", "replace")
                finally:
                    os.close(handle)
            except OSError:
                continue
            note = parse_job_file(text, status.st_mtime)
            if note is not None:
                found.append((path, note))
        return sorted(found, key=lambda each: each[1].written_unix_s)

    def _forget_old(self) -> None:
        """Remove snapshots of jobs whose end nobody told of."""
        for path in (self._paths.spool / STARTED).iterdir():
            try:
                if self._clock() - path.stat().st_mtime > OLDEST_START_S:
                    path.unlink()
            except OSError:
                continue


def _taken_of(path: Path, note: JobFile) -> str | None:
    """Return the evidence that was taken of this very run before; ``None`` where there is none."""
    try:
        with path.open("rb") as stream:
            text = stream.read(LARGEST_BYTES).decode("utf-8")
        said = json.loads(text)
    except (OSError, ValueError):
        return None
    is_of_run = isinstance(said, dict) and _is_of_run(said, note) and said.get("form") == FORM
    return text if is_of_run else None


def _is_of_run(said: Mapping[str, Any], note: JobFile) -> bool:
    """Tell whether something was kept of this very run; opsk 0.1 named no cluster, the file's name does."""
    return said.get("run") in (note.run, f"{note.job_id}@{run_start_s(note)}")
