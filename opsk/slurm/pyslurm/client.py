"""Queries Slurm through pyslurm in a child process, which may hang or die; Slurm's commands supply what it lacks."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import re
import selectors
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from opsk.errors import OpskError, SlurmError
from opsk.slurm.commands.command import DEADLINE_S, CommandClient, build_command_environment
from opsk.slurm.job_ids import parse_base_number, select_job, unknown_job_error
from opsk.slurm.pyslurm.records import ENDED_STATES, build_job, build_nodes, is_exit_code_doubtful
from opsk.slurm.records import JobRecord, NodeRecord
from opsk.text import blank_controls
from opsk.units import MIB

CHILD = Path(__file__).with_name("child.py")
MAX_ANSWER_BYTES = 512 * MIB
"""An answer beyond this is not read: about a kilobyte a job, so that of half a million jobs."""

_LENGTH = struct.Struct(">I")
_CHUNK_BYTES = MIB
_COMPLAINT_BYTES = 4096
_END_WAIT_S = 0.2
START_DEADLINE_S = 5.0
"""Importing pyslurm takes 0.15 s; without a slurm.conf that it likes it tries for 60 s."""
USUAL_CONFS = (
    "/etc/slurm/slurm.conf",
    "/run/slurm/conf/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/usr/local/etc/slurm.conf",
    "/opt/slurm/etc/slurm.conf",
)
"""Where Slurm's library may look when ``SLURM_CONF`` is not set; the first is Slurm's own default."""
_RELEASE = re.compile(r"(\d+)\.(\d+)")
_UNREACHABLE = frozenset({1001, 1002, 1003, 1004, 1800, 1801, 1802, 1803, 1804, 5004})
_INCOMPATIBLE = frozenset({1005, 1006, 1007})
_REFUSED = frozenset({2002, 2010})
_UNKNOWN_JOB = 2017
_OTHER_WAY = "set OPSK_SLURM_ADAPTER=commands"


class ProcessFailedError(SlurmError):
    """The process ended before it answered, or answered what cannot be read."""


class ProcessDeadlineError(SlurmError):
    """The process did not answer in time and was ended."""


class PyslurmProcess:
    """The process that imports pyslurm; it is started for the first request, and again after it was ended.

    Parameters
    ----------
    environment
        All variables of the process.
    python
        The interpreter, in which pyslurm is installed.
    """

    def __init__(self, environment: Mapping[str, str], *, python: str = sys.executable) -> None:
        self._environment = dict(environment)
        self._python = python
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._complaints = _memory_file()
        self._finalizer: weakref.finalize[..., PyslurmProcess] | None = None
        weakref.finalize(self, self._complaints.close)

    @property
    def is_running(self) -> bool:
        """True while a process waits for the next request."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Number of the running process."""
        return self._process.pid if self._process is not None and self.is_running else None

    def ask(self, question: Mapping[str, Any], *, deadline_s: float) -> dict[str, Any]:
        """Return the answer to one request; only one is sent at a time.

        Raises
        ------
        ProcessFailedError
            The process ended instead of answering (the message is its last line), or its answer cannot be read.
        ProcessDeadlineError
            The deadline passed, and the process was ended.
        SlurmError
            It cannot be started.
        """
        with self._lock:
            until = time.monotonic() + deadline_s
            process = self._start()
            self._complaints.truncate(0)
            body = json.dumps({**question, "deadline_s": deadline_s}).encode("ascii")
            try:
                assert process.stdin is not None
                process.stdin.write(_LENGTH.pack(len(body)) + body)
                process.stdin.flush()
                answer = json.loads(self._read(process, until, deadline_s))
            except BrokenPipeError:
                raise self._build_error(process) from None
            except ValueError as error:
                self.close()
                raise ProcessFailedError(f"pyslurm's process answers what is no JSON: {error}") from error
            except BaseException:
                # Ctrl-C as well: what is left of this answer must not be taken for the next one.
                self.close()
                raise
            return dict(answer)

    def close(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            finalizer, self._process, self._finalizer = self._finalizer, None, None
            if finalizer is not None:
                finalizer()

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        try:
            self._process = subprocess.Popen(
                [self._python, "-P", str(CHILD)],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
            )
        except OSError as error:
            raise SlurmError(f"{self._python}: {error.strerror}", hint="set OPSK_SLURM_ADAPTER=commands") from error
        self._finalizer = weakref.finalize(self, _end, self._process)
        return self._process

    def _read(self, process: subprocess.Popen[bytes], until: float, deadline_s: float) -> bytes:
        """Return the body of one frame."""
        assert process.stdout is not None
        source = process.stdout.fileno()
        received, expected = bytearray(), _LENGTH.size
        with selectors.DefaultSelector() as waiting:
            waiting.register(source, selectors.EVENT_READ)
            while len(received) < expected:
                if not waiting.select(max(0.0, until - time.monotonic())):
                    raise ProcessDeadlineError(
                        f"pyslurm did not answer within {deadline_s:g} s", hint="see `scontrol ping`"
                    )
                chunk = os.read(source, min(_CHUNK_BYTES, expected - len(received)))
                if not chunk:
                    raise self._build_error(process)
                received += chunk
                if len(received) == expected == _LENGTH.size:
                    expected += _LENGTH.unpack(received)[0]
                    if expected > MAX_ANSWER_BYTES:
                        raise ProcessFailedError(
                            f"pyslurm's answer has {expected} bytes, more than {MAX_ANSWER_BYTES}",
                            hint="set OPSK_SLURM_ADAPTER=commands",
                        )
        return bytes(received[_LENGTH.size :])

    def _build_error(self, process: subprocess.Popen[bytes]) -> ProcessFailedError:
        """Return the error for a process that ended by itself, with the last line that it wrote."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_WAIT_S)
        status = process.returncode
        self._complaints.seek(0)
        written = self._complaints.read()[-_COMPLAINT_BYTES:].decode("utf-8", errors="replace")
        lines = [line for line in written.splitlines() if line.strip()]
        message = blank_controls(lines[-1]) if lines else "without a word"
        self.close()
        how = f"ended by signal {-status}" if status is not None and status < 0 else f"ended with status {status}"
        return ProcessFailedError(f"pyslurm's process {how}: {message}", hint="set OPSK_SLURM_ADAPTER=commands")


def _memory_file() -> IO[bytes]:
    """Return a file of this process's memory: there may be no folder to write to, and a pipe could fill up.

    It is appended to, so that what the child writes after it was emptied begins at its beginning.
    """
    file = os.fdopen(os.memfd_create("pyslurm-stderr"), "r+b", buffering=0)
    fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
    return file


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process at once: it may hold the interpreter's lock and ignore other signals."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    process.wait()


class PyslurmUnusableError(SlurmError):
    """pyslurm, as it is installed, cannot serve this cluster, however often it is queried; Slurm's commands may."""


class PyslurmClient:
    """Queries Slurm through pyslurm; see `opsk.slurm.client.SlurmClient` for the contract of the methods.

    It only reads. pyslurm reports neither exit codes of 128 and above nor the GPUs in use on nodes of which it sees not
    all jobs; ``commands`` are queried for those, and where they do not answer the values stay unknown.

    Parameters
    ----------
    environment
        Variables to start from instead of this process's own; ``SLURM_CONF`` in it names the cluster.
    deadline_s
        Maximum duration of one query [s]; pyslurm has no such limit.
    python
        The interpreter in which pyslurm is installed.
    confs
        Where slurm.conf may be when ``SLURM_CONF`` is not set.
    """

    def __init__(
        self,
        *,
        environment: Mapping[str, str] | None = None,
        deadline_s: float = DEADLINE_S,
        python: str = sys.executable,
        confs: tuple[str, ...] = USUAL_CONFS,
    ) -> None:
        given = os.environ if environment is None else environment
        self._environment = child_environment(given)
        self._confs = confs
        self._deadline_s = deadline_s
        self._commands = CommandClient(environment=given, deadline_s=deadline_s)
        self._process = PyslurmProcess(self._environment, python=python)
        self._release: tuple[int, int] | None = None
        self._is_checked = False

    def jobs(self, *, details: bool = False, finished: bool = False) -> tuple[JobRecord, ...]:
        """Return pending and active jobs; with ``finished`` those too that Slurm still remembers."""
        excluded_states = [] if finished else list(ENDED_STATES)
        records = self._ask("jobs", details=details, without_states=excluded_states)
        jobs = tuple(build_job(raw, details=details) for raw in records)
        doubtful = {raw["id"] for raw in records if is_exit_code_doubtful(raw)}
        return self._with_exit_codes(jobs, doubtful) if doubtful else jobs

    def job(self, job_id: str) -> JobRecord:
        """Return one job with all details."""
        try:
            records = self._ask("job", id=parse_base_number(job_id))
        except _UnknownJobError as error:
            raise unknown_job_error(job_id) from error
        job = select_job([build_job(raw, details=True) for raw in records], job_id)
        if not any(raw["id"] == job.id and is_exit_code_doubtful(raw) for raw in records):
            return job
        try:
            return dataclasses.replace(job, exit_code=self._commands.job(job.label).exit_code)
        except OpskError:
            return dataclasses.replace(job, exit_code=None)

    def nodes(self) -> tuple[NodeRecord, ...]:
        """Return all nodes."""
        nodes, is_all = build_nodes(self._ask("nodes"))
        if is_all:
            return nodes
        try:
            return self._commands.nodes()
        except SlurmError:
            return nodes

    def release(self) -> tuple[int, int]:
        """Return the release of Slurm that this pyslurm was built for."""
        return self._start()

    def config(self) -> dict[str, str]:
        """Return the output of ``scontrol show config``, by parameter; pyslurm names them differently."""
        return self._commands.config()

    def close(self) -> None:
        """End the child process; the next query starts another."""
        self._process.close()

    def _with_exit_codes(self, jobs: tuple[JobRecord, ...], doubtful: set[int]) -> tuple[JobRecord, ...]:
        """Return the jobs, with the exit codes of Slurm's commands for the doubtful ones."""
        try:
            known = {job.id: job.exit_code for job in self._commands.jobs(finished=True)}
        except SlurmError:
            known = {}
        return tuple(
            dataclasses.replace(job, exit_code=known.get(job.id)) if job.id in doubtful else job for job in jobs
        )

    def _start(self) -> tuple[int, int]:
        """Start the child process where none runs, and return the release of its pyslurm.

        Raises
        ------
        PyslurmUnusableError
            There is no slurm.conf that pyslurm could use, or it cannot be imported.
        """
        if self._release is not None and self._process.is_running:
            return self._release
        problem = conf_problem(self._environment, self._confs)
        if problem:
            raise PyslurmUnusableError(problem, hint="name the file in SLURM_CONF")
        try:
            answer = self._answer("start", deadline_s=min(START_DEADLINE_S, self._deadline_s))
        except ProcessDeadlineError as error:
            raise PyslurmUnusableError(
                f"import pyslurm: no end within {START_DEADLINE_S:g} s", hint=_OTHER_WAY
            ) from error
        match = _RELEASE.search(str(answer["release"]))
        if not match:
            raise PyslurmUnusableError(f"pyslurm says that its release is {str(answer['release'])[:40]!r}")
        self._release = (int(match.group(1)), int(match.group(2)))
        return self._release

    def _ask(self, question: str, **details: Any) -> Any:
        """Return the answer to one query, after the check before the first one."""
        self._start()
        if not self._is_checked:
            self._check(self._answer("cluster", deadline_s=self._deadline_s))
            self._is_checked = True
        return self._answer(question, deadline_s=self._deadline_s, **details)

    def _check(self, cluster: Mapping[str, Any]) -> None:
        """Refuse a cluster that this pyslurm would report incompletely.

        Raises
        ------
        PyslurmUnusableError
            slurmctld is older than this pyslurm, or does not count GPUs.
        """
        match, own_release = _RELEASE.search(str(cluster.get("release"))), self._start()
        if match and (int(match.group(1)), int(match.group(2))) < own_release:
            raise PyslurmUnusableError(
                f"pyslurm {_format_release(own_release)} cannot ask slurmctld {match.group()}", hint=_OTHER_WAY
            )
        tracked = cluster.get("tracked")
        if tracked is not None and not any(str(name).startswith("gres/gpu") for name in tracked):
            raise PyslurmUnusableError(
                "AccountingStorageTRES has no gres/gpu: pyslurm cannot tell how many GPUs a job asks for",
                hint=_OTHER_WAY,
            )

    def _answer(self, question: str, *, deadline_s: float, **details: Any) -> Any:
        """Return the child's answer, or raise its error."""
        try:
            answer = self._process.ask({"ask": question, **details}, deadline_s=deadline_s)
        except ProcessFailedError as error:
            raise PyslurmUnusableError(error.message, hint=_OTHER_WAY) from error
        if "error" not in answer:
            return answer["answer"]
        message = blank_controls(str(answer.get("text")))
        if answer["error"] == "rpc":
            raise _rpc_error(answer.get("errno"), message)
        self._process.close()
        raise PyslurmUnusableError(message, hint=_OTHER_WAY)


class _UnknownJobError(SlurmError):
    """Slurm knows no job with that number."""


def _rpc_error(number: int | None, message: str) -> SlurmError:
    """Return the error for what Slurm answered through pyslurm."""
    if number == _UNKNOWN_JOB:
        return _UnknownJobError(f"pyslurm: {message}")
    if number in _INCOMPATIBLE:
        return PyslurmUnusableError(
            f"pyslurm: {message}: slurmctld is older than pyslurm, or of another cluster",
            hint=_OTHER_WAY,
        )
    if number in _REFUSED:
        return SlurmError(f"pyslurm: {message}", hint="ask as a user to whom Slurm shows it (PrivateData)")
    hint = "see `scontrol ping`" if number in _UNREACHABLE else _OTHER_WAY
    return SlurmError(f"pyslurm: {message}", hint=hint)


def _format_release(release: tuple[int, int]) -> str:
    return f"{release[0]}.{release[1]:02}"


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the child: without settings of Slurm's commands, and safe to import pyslurm in."""
    return {**build_command_environment(environment), "PYSLURM_DISABLE_AUTO_INIT": "1"}


def conf_problem(environment: Mapping[str, str], confs: tuple[str, ...] = USUAL_CONFS) -> str | None:
    """Return why pyslurm would find no slurm.conf; ``None`` when it may find one.

    The import ends the interpreter without one, and tries for 60 s when ``SLURM_CONF`` names a missing file.
    """
    named = environment.get("SLURM_CONF")
    if named:
        return None if os.access(named, os.R_OK) else f"SLURM_CONF names {named!r}, which cannot be read"
    if environment.get("SLURM_CONF_SERVER") or any(Path(conf).exists() for conf in confs):
        return None
    return f"no slurm.conf for pyslurm: SLURM_CONF is not set, and there is none at {', '.join(confs[:2])}"
