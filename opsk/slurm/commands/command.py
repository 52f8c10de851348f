"""Queries Slurm through ``squeue``, ``sinfo`` and ``scontrol``, with a fixed environment and a deadline.

Only text output is used: it is the same from 22.05 to 26.05, where ``--json`` is not.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
from collections.abc import Mapping, Sequence

from opsk.errors import SlurmError
from opsk.slurm.commands.controller_text import (
    Controller,
    Reservation,
    SchedulerStatistics,
    parse_ping,
    parse_reservations,
    parse_sdiag,
)
from opsk.slurm.commands.job_text import (
    JOB_COLUMNS,
    QUEUE_COLUMNS,
    QueuedJobs,
    add_details,
    parse_jobs,
    parse_queue,
    split_records,
)
from opsk.slurm.commands.node_text import (
    LOAD_COLUMNS,
    NODE_COLUMNS,
    NodeLoad,
    parse_loads,
    parse_nodes,
    parse_partitions,
)
from opsk.slurm.job_ids import parse_base_number, select_job, unknown_job_error
from opsk.slurm.records import JobRecord, NodeRecord, PartitionRecord
from opsk.text import blank_controls

DEADLINE_S = 10.0
MAX_SINGLE_QUERIES = 16
"""Jobs whose record looked forged are queried one by one, but no more than this many for one answer."""

_PRESERVED = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"})
_DROPPED_PREFIXES = ("SLURM_", "SQUEUE_", "SINFO_", "SCONTROL_", "SBATCH_", "SRUN_", "SALLOC_")
_RELEASE = re.compile(r"(\d+)\.(\d+)")
_EXCLUDED_NODES_SINCE = (24, 11)


class CommandClient:
    """Queries Slurm through its commands; see `opsk.slurm.client.SlurmClient` for the contract of the methods.

    Parameters
    ----------
    environment
        Variables to start from instead of this process's own; ``SLURM_CONF`` in it names the cluster.
    deadline_s
        Longest time that one command may take [s].
    """

    def __init__(self, *, environment: Mapping[str, str] | None = None, deadline_s: float = DEADLINE_S) -> None:
        self._environment = build_command_environment(os.environ if environment is None else environment)
        self._deadline_s = deadline_s
        self._release: tuple[int, int] | None = None

    def jobs(self, *, details: bool = False, finished: bool = False) -> tuple[JobRecord, ...]:
        """Return pending and active jobs; with ``finished`` those too that Slurm still remembers."""
        records = self._squeue(["--states=all"] if finished else [])
        return self._with_details(records) if details else records

    def job(self, job_id: str) -> JobRecord:
        """Return one job with all details."""
        number = parse_base_number(job_id)
        query = job_id if "_" in job_id else number
        try:
            records = self._squeue([f"--jobs={query}", "--states=all"])
        except SlurmError as error:
            if "Invalid job id" in error.message:
                raise unknown_job_error(job_id) from error
            raise
        return self._add_details(select_job(records, job_id))

    def nodes(self) -> tuple[NodeRecord, ...]:
        """Return all nodes."""
        separator = draw_separator()
        output_format = ",".join(f"{column}:{separator}" for column in NODE_COLUMNS)
        return parse_nodes(self._run("sinfo", "-h", "-a", "-N", "-O", output_format), NODE_COLUMNS, separator)

    def partitions(self) -> tuple[PartitionRecord, ...]:
        """Return all partitions, those too that are hidden from users."""
        return parse_partitions(self._run("scontrol", "-a", "-o", "show", "partition"))

    def queue(self) -> tuple[QueuedJobs, ...]:
        """Return the whole queue, with the columns that counting it takes."""
        separator = draw_separator()
        output_format = ",".join(f"{column}:{separator}" for column in QUEUE_COLUMNS)
        output = self._run("squeue", "-h", "-a", "-O", output_format, environment={"SLURM_BITSTR_LEN": "0"})
        return parse_queue(output, QUEUE_COLUMNS, separator)

    def loads(self) -> tuple[NodeLoad, ...]:
        """Return how much of each node is in use, and why it is not."""
        separator = draw_separator()
        output_format = ",".join(f"{column}:{separator}" for column in LOAD_COLUMNS)
        return parse_loads(self._run("sinfo", "-h", "-a", "-N", "-O", output_format), LOAD_COLUMNS, separator)

    def statistics(self) -> SchedulerStatistics:
        """Return the statistics of slurmctld."""
        return parse_sdiag(self._run("sdiag"))

    def reservations(self) -> tuple[Reservation, ...]:
        """Return the reservations, now and to come."""
        return parse_reservations(self._run("scontrol", "-a", "show", "reservation"))

    def controllers(self) -> tuple[Controller, ...]:
        """Return every slurmctld, and whether it answers; that one does not is an answer."""
        return parse_ping(self._run("scontrol", "ping", may_fail=True))

    def release(self) -> tuple[int, int]:
        """Return the release of the installed commands."""
        if self._release is None:
            output = self._run("squeue", "--version")
            match = _RELEASE.search(output)
            if not match:
                raise SlurmError(f"squeue --version answers {output.strip()[:40]!r}", hint="is this Slurm's squeue?")
            self._release = (int(match.group(1)), int(match.group(2)))
        return self._release

    def config(self) -> dict[str, str]:
        """Return the output of ``scontrol show config``, by parameter; ``SLURM_CONF`` is the path of slurm.conf."""
        pairs = (line.partition("=") for line in self._run("scontrol", "show", "config").splitlines())
        return {name.strip(): value.strip() for name, sign, value in pairs if sign}

    def _squeue(self, selection: Sequence[str]) -> tuple[JobRecord, ...]:
        """Query ``squeue`` with a separator that no job can contain."""
        columns = JOB_COLUMNS + (("ExcNodes",) if self.release() >= _EXCLUDED_NODES_SINCE else ())
        separator = draw_separator()
        output_format = ",".join(f"{column}:{separator}" for column in columns)
        return parse_jobs(self._run("squeue", "-h", "-a", *selection, "-O", output_format), columns, separator)

    def _with_details(self, jobs: tuple[JobRecord, ...]) -> tuple[JobRecord, ...]:
        """Add the details of all jobs with one query, and of doubtful ones with one more each."""
        if not jobs:
            return jobs
        records = split_records(self._run("scontrol", "-a", "-d", "show", "job"))
        queries, detailed = 0, []
        for job in jobs:
            record = records.get(job.id, [])
            if len(record) == 1:
                detailed.append(add_details(job, record[0]))
            elif len(record) > 1 and queries < MAX_SINGLE_QUERIES:
                queries += 1
                detailed.append(self._add_details(job))
            else:
                detailed.append(job)
        return tuple(detailed)

    def _add_details(self, job: JobRecord) -> JobRecord:
        """Add the details of one job; a job that Slurm forgot in between keeps what is known."""
        try:
            text = self._run("scontrol", "-a", "-d", "show", "job", str(job.id))
        except SlurmError as error:
            if "Invalid job id" in error.message:
                return job
            raise
        record = split_records(text).get(job.id, [])
        return add_details(job, record[0]) if len(record) == 1 else job

    def _run(self, *command: str, environment: Mapping[str, str] | None = None, may_fail: bool = False) -> str:
        """Run one command and return its stdout; with ``may_fail`` whatever status it ends with.

        Raises
        ------
        SlurmError
            It is not installed, took longer than the deadline, or failed.
        """
        try:
            done = subprocess.run(
                command,
                env={**self._environment, **(environment or {})},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._deadline_s,
                check=False,
            )
        except OSError as error:
            raise SlurmError(
                f"{command[0]}: {error.strerror}", hint="install Slurm's client commands, or put them on PATH"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise SlurmError(
                f"{command[0]} did not answer within {self._deadline_s:g} s", hint="see `scontrol ping`"
            ) from error
        if done.returncode and not (may_fail and done.stdout):
            raise SlurmError(f"{command[0]}: {parse_complaint(done.stderr)}", hint="see `scontrol ping`")
        return done.stdout.decode("utf-8", errors="replace")


def build_command_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a Slurm command: no setting of the caller may change the shape of its output."""
    variables = {
        name: value
        for name, value in environment.items()
        if name in _PRESERVED or not name.startswith(_DROPPED_PREFIXES)
    }
    variables.setdefault("PATH", os.defpath)
    return {**variables, "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}


def draw_separator() -> str:
    """Return a separator that no user can have guessed; the first character ends a width before it."""
    return f"|{secrets.token_hex(8)}|"


def parse_complaint(stderr: bytes) -> str:
    """Return the last line of a command's stderr, as one printable line."""
    lines = [line for line in stderr.decode("utf-8", errors="replace").splitlines() if line.strip()]
    last_line = lines[-1] if lines else "failed without a word"
    return blank_controls(last_line)
