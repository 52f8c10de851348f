"""Collects a node's evidence of a job at its start and at its end, outside of the job's way.

The prolog writes a note of the job (`opsk.telemetry.jobs.job_files`); the epilog only moves it into the spool. Both
start a collector in the background, which does the rest: it takes a snapshot of the node while the job is young. When
the note is in the spool it takes another one, reads the kernel's log of that time and the ends of the job's logs, and
writes one file into the folder of the job. A note leaves the spool only when that file is written: what a collector
left undone because it was killed, or because a folder was unavailable, is done by the next one. The same holds for
reports; see `opsk.postmortem.evidence.reporting`.
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
from opsk.postmortem.evidence.as_user import find_person
from opsk.postmortem.evidence.flight_recorder import dump_to_json, find_default_dumps, read_dumps
from opsk.postmortem.evidence.job_output import read_output_tails
from opsk.postmortem.evidence.node_files import FORM, MAX_FILE_BYTES, job_folder, node_file_name, write_atomically
from opsk.postmortem.evidence.node_state import Values, read_kernel_lines, read_node_state
from opsk.postmortem.evidence.reporting import REPORTS, DueReport, due_path, hold_due_report, run_start_s
from opsk.telemetry.gpu.samples import GpuReading
from opsk.telemetry.jobs.job_files import JobFile, parse_job_file, resolve_log_paths
from opsk.telemetry.kernel_log import KMSG, boot_unix_s
from opsk.units import KIB, MIB

STARTED, ENDED = "started", "ended"
BEFORE_S, AFTER_S = 60.0, 30.0
"""The kernel's log is collected from this long before the job until this long after its end [s]."""
MAX_NOTES = 512
MAX_REPORTS = 8
"""At most this many reports are started at once; the others wait for the next collector."""
MAX_START_AGE_S = 90 * 86400.0
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
class CollectionResult:
    """The result of one run of the collector: jobs by what was done, and problems."""

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

    def collect(self, *, started: bool = True, ended: bool = True, report: Reporter | None = None) -> CollectionResult:
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
        done = CollectionResult()
        try:
            with self._hold_lock():
                # Jobs that have ended come first: their evidence is lost soonest.
                if ended:
                    self._collect_ended(done, keep_notes=report is not None)
                if started:
                    self._snapshot_started(done)
                    self._remove_old()
        except OSError as error:
            raise InputError(
                f"{self._paths.spool}: {error.strerror}", hint="[postmortem] spool in opsk.toml"
            ) from error
        if report is not None:
            self._start_reports(report, done)
        return done

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        """Wait for other collectors to finish; the kernel releases the lock of one that was killed."""
        for name in (STARTED, ENDED, REPORTS):
            (self._paths.spool / name).mkdir(parents=True, exist_ok=True, mode=0o750)
        with (self._paths.spool / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _snapshot_started(self, done: CollectionResult) -> None:
        """Snapshot the node for jobs that have no snapshot yet."""
        notes = self._read_notes(self._paths.jobs_folder)
        new = [(path, note) for path, note in notes if not self._start_path(path.name, note).exists()]
        for path, note in new:
            try:
                document = {"form": FORM, "run": note.run, "state": self._read_state(note, self._paths.jobs_folder)}
                write_atomically(self._start_path(path.name, note), json.dumps(document))
                done.started.append(note.job_id)
            except OSError as error:
                done.problems.append(f"{note.key}: {error.strerror}")

    def _start_reports(self, report: Reporter, done: CollectionResult) -> None:
        """Start reports on jobs whose evidence is collected: those that have just ended, and those left over."""
        started = 0
        for path, note in self._read_notes(self._paths.spool / REPORTS):
            if started >= MAX_REPORTS:
                return  # a backlog after many failures must not keep a node busy
            try:
                with hold_due_report(path, note, self._paths.folder) as due_report:
                    if due_report is not None:
                        report(due_report)
                        started += 1
            except (OSError, InputError) as error:
                done.problems.append(f"{note.key}: no report: {error}")

    def _collect_ended(self, done: CollectionResult, *, keep_notes: bool) -> None:
        """Collect the evidence of jobs that have ended."""
        for path, note in self._read_notes(self._paths.spool / ENDED):
            try:
                self._write_evidence(path, note)
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

    def _write_evidence(self, path: Path, note: JobFile) -> None:
        """Write the evidence of one job, as it was when it was first taken."""
        node = note.node or os.uname().nodename.partition(".")[0]
        target = job_folder(self._paths.folder, note.key) / node_file_name(node, run_start_s(note))
        pending = self._pending_path(path)
        text = _read_pending(pending, note)
        if text is None:
            text = json.dumps(self._build_evidence(path, note, node))
            # A full or unavailable folder may come back after the node's state has changed.
            with suppress(OSError):
                write_atomically(pending, text)
        write_atomically(target, text)
        pending.unlink(missing_ok=True)

    def _build_evidence(self, path: Path, note: JobFile, node: str) -> dict[str, Any]:
        """Return everything that this node knows of one job now."""
        ended_s = self._find_end_s(path)
        from_s = (note.start_unix_s or note.written_unix_s) - BEFORE_S
        booted_s = boot_unix_s()
        # The logs are read first: their reader is a fork of this process, which the GPUs' reader makes threads in.
        paths, began_s = resolve_log_paths(note, note.job_id), note.start_unix_s or note.written_unix_s
        tails, log_problem = read_output_tails(paths, note.job_id, find_person(note.uid), since_s=began_s)
        dumps = self._read_dumps(note, from_s, ended_s)
        kernel = read_kernel_lines(self._paths.kernel_log, from_s, ended_s + AFTER_S, boot_unix_s=booted_s)
        return {
            "form": FORM, "job": note.job_id, "run": note.run, "node": node, "from_s": from_s, "until_s": ended_s,
            "collected_s": self._clock(), "boot_unix_s": booted_s, "note": asdict(note),
            "start": self._read_start(path.name, note), "end": self._read_state(note, path.parent),
            "kernel": asdict(kernel), "logs": tails, "log_problem": log_problem, "recorder": dumps,
        }  # fmt: skip

    def _read_dumps(self, note: JobFile, from_s: float, ended_s: float) -> list[dict[str, Any]]:
        """Return the dumps of PyTorch's flight recorder that the job left on this node."""
        if note.uid is None:
            return []
        work = [Path(note.work_dir)] if note.work_dir and note.work_dir.startswith("/") else []
        left = find_default_dumps([*self._paths.dumps, *work], uid=note.uid, from_s=from_s, until_s=ended_s + AFTER_S)
        return [dump_to_json(dump) for dump in read_dumps(left, owner=note.uid) if not dump.problem]

    def _read_state(self, note: JobFile, folder: Path) -> Values:
        """Return the state of the node now."""
        return read_node_state(
            note.key, jobs_folder=folder, sysfs=self._paths.sysfs, cgroups=self._paths.cgroups, gpus=self._gpus,
            clock=self._clock,
        )  # fmt: skip

    def _read_start(self, name: str, note: JobFile) -> Values:
        """Return the snapshot of the start; empty where there is none of this very run."""
        try:
            with self._start_path(name, note).open("rb") as stream:
                document = json.loads(stream.read(_LARGEST_START_BYTES))
        except (OSError, ValueError):
            return {}
        if not isinstance(document, dict) or not _is_of_run(document, note):
            return {}
        state = document.get("state")
        return state if isinstance(state, dict) else {}

    def _start_path(self, name: str, note: JobFile) -> Path:
        """Return the path of the snapshot of a run's start."""
        return self._paths.spool / STARTED / f"{name}@{run_start_s(note)}.json"

    def _end_mark(self, path: Path) -> Path:
        """Return the empty file whose time is when the epilog ran."""
        return path.with_name(f".{path.name}.end")

    def _pending_path(self, path: Path) -> Path:
        """Return the path of evidence that is taken and not yet in its folder."""
        return path.with_name(f".{path.name}.taken")

    def _find_end_s(self, path: Path) -> float:
        try:
            return self._end_mark(path).stat().st_mtime
        except OSError:
            return self._clock()

    def _read_notes(self, folder: Path) -> list[tuple[Path, JobFile]]:
        """Return the notes in a folder, the oldest first."""
        notes = []
        try:
            paths = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
        except OSError:
            return []
        for path in paths[:MAX_NOTES]:
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
                notes.append((path, note))
        return sorted(notes, key=lambda item: item[1].written_unix_s)

    def _remove_old(self) -> None:
        """Remove snapshots of jobs whose end was never reported."""
        for path in (self._paths.spool / STARTED).iterdir():
            try:
                if self._clock() - path.stat().st_mtime > MAX_START_AGE_S:
                    path.unlink()
            except OSError:
                continue


def _read_pending(path: Path, note: JobFile) -> str | None:
    """Return the evidence that was taken of this very run before; ``None`` where there is none."""
    try:
        with path.open("rb") as stream:
            text = stream.read(MAX_FILE_BYTES).decode("utf-8")
        document = json.loads(text)
    except (OSError, ValueError):
        return None
    is_of_run = isinstance(document, dict) and _is_of_run(document, note) and document.get("form") == FORM
    return text if is_of_run else None


def _is_of_run(document: Mapping[str, Any], note: JobFile) -> bool:
    """Return whether a document belongs to this very run; opsk 0.1 named no cluster, the file's name does."""
    return document.get("run") in (note.run, f"{note.job_id}@{run_start_s(note)}")
