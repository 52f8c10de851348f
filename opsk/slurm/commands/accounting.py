"""Reads Slurm's accounting: the runs of a job that ended, their steps, why nodes were drained, and coordinators.

``sacct`` is called in the same way from 22.05 to 26.05: fields are chosen from those that the release has, times are
seconds since 1970, and each field ends with a random separator, since names may hold any character.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from opsk import hostlist
from opsk.errors import InputError, SlurmError
from opsk.slurm.commands.command import build_command_environment, draw_separator, parse_complaint
from opsk.slurm.commands.fields import (
    parse_count,
    parse_duration_s,
    parse_exit_status,
    parse_gpus,
    parse_optional,
    parse_time,
)
from opsk.slurm.commands.job_text import parse_rows
from opsk.slurm.job_ids import parse_base_number

DEADLINE_S = 20.0
"""slurmdbd may have to read a table of millions of jobs."""
REQUIRED_FIELDS = ("JobID", "JobIDRaw", "State", "ExitCode", "NodeList", "Start", "End")
FIELDS = (
    *REQUIRED_FIELDS, "JobName", "User", "UID", "Account", "Partition", "QOS", "DerivedExitCode", "Reason", "Submit",
    "TimelimitRaw", "NTasks", "NNodes", "AdminComment", "Restarts", "FailedNode", "WorkDir", "StdOut", "StdErr",
    "MaxRSS", "Cluster", "AllocTRES",
)  # fmt: skip
"""Fields of ``sacct``; older releases lack some."""
NODE_COLUMNS = ("NodeList", "StateComplete", "Reason", "Timestamp", "User")
_CANCELLED_BY = re.compile(r"CANCELLED by (\d+)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)")
_MAX_ROWS = 200_000
_MINUTE_S = 60
_UNENDED = frozenset({"PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "RESIZING"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountedStep:
    """One step of a run; ``id`` is ``batch``, ``extern``, ``interactive`` or a number.

    ``exit_signal`` 125 is Slurm's way to say that memory ran out. ``memory_peak_bytes`` is of the largest task.
    """

    id: str
    name: str = ""
    state: str = ""
    cancelled_by: int | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    nodes: tuple[str, ...] = ()
    tasks: int | None = None
    start_s: float | None = None
    end_s: float | None = None
    memory_peak_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountedRun:
    """One run of a job; a requeued job has several. ``None`` and empty is "not reported".

    Parameters
    ----------
    id, label
        Slurm's own number, and the id as people write it (``10_3``).
    state
        Without the rest: ``CANCELLED by 1000`` is ``CANCELLED``, and ``cancelled_by`` 1000.
    derived_exit_code, derived_exit_signal
        The highest of its steps.
    failed_node
        The node that Slurm gave up on.
    std_out, std_err
        Patterns as the user wrote them, in releases whose accounting keeps them.
    """

    id: int
    label: str
    name: str = ""
    user: str = ""
    uid: int | None = None
    account: str = ""
    partition: str = ""
    qos: str = ""
    state: str = ""
    cancelled_by: int | None = None
    reason: str = ""
    exit_code: int | None = None
    exit_signal: int | None = None
    derived_exit_code: int | None = None
    derived_exit_signal: int | None = None
    nodes: tuple[str, ...] = ()
    tasks: int | None = None
    gpus: int = 0
    submit_s: float | None = None
    start_s: float | None = None
    end_s: float | None = None
    time_limit_s: int | None = None
    restarts: int = 0
    cluster: str = ""
    admin_comment: str = ""
    failed_node: str = ""
    work_dir: str = ""
    std_out: str = ""
    std_err: str = ""
    steps: tuple[AccountedStep, ...] = ()

    @property
    def has_ended(self) -> bool:
        """True when nothing of this run goes on."""
        return self.state not in _UNENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReason:
    """The reason why a node was drained or set down, by whom, and when [s since 1970]."""

    node: str
    state: str
    reason: str
    by: str = ""
    at_s: float | None = None


class AccountingClient:
    """Queries ``sacct`` and ``sinfo``.

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
        self._fields: tuple[str, ...] | None = None

    def runs(self, job_id: str, *, is_number: bool = False) -> tuple[AccountedRun, ...]:
        """Return the runs of one job, the first one first.

        Parameters
        ----------
        job_id
            As people write it, ``4711_3``.
        is_number
            It is Slurm's own number, as on a node: one task of each array has the number of the array.

        Raises
        ------
        InputError
            ``job_id`` is no job id, accounting knows no such job, or it names several.
        SlurmError
            There is no accounting, or it does not answer.
        """
        parse_base_number(job_id)
        fields, separator = self._known_fields(), draw_separator()
        output = self._run(
            "sacct", "-n", "-p", "-D", "--units=K", f"--delimiter={separator}", "-o", ",".join(fields), "-j", job_id
        )
        runs = parse_runs(output, fields, separator)
        labels = dict.fromkeys(run.label for run in runs)
        if is_number:
            runs = tuple(run for run in runs if str(run.id) == job_id)
        elif job_id in labels:
            runs = tuple(run for run in runs if run.label == job_id)
        elif len(labels) > 1:
            shown = ", ".join(list(labels)[:8])
            raise InputError(f"job {job_id} stands for {len(labels)} jobs ({shown})", hint="name one of them")
        if not runs:
            raise InputError(f"Slurm's accounting knows no job {job_id}", hint="see sacct -j; name logs with --log")
        return runs

    def list_ended(self, states: Sequence[str], from_s: float, until_s: float) -> tuple[AccountedRun, ...]:
        """Return the runs of all users that ended in some states between two times, the first one first.

        Raises
        ------
        SlurmError
            There is no accounting, or it does not answer.
        """
        fields, separator = self._known_fields(), draw_separator()
        output = self._run(
            "sacct", "-n", "-p", "-D", "-X", "-a", "--units=K", f"--delimiter={separator}", "-o", ",".join(fields),
            f"--state={','.join(states)}", "-S", f"uts{from_s:.0f}", "-E", f"uts{until_s:.0f}",
        )  # fmt: skip
        runs = (run for run in parse_runs(output, fields, separator) if run.state in states and run.end_s is not None)
        return tuple(sorted((run for run in runs if from_s <= (run.end_s or 0.0) <= until_s), key=_ended_s))

    def node_reasons(self, nodes: Sequence[str]) -> tuple[NodeReason, ...]:
        """Return why nodes were drained or set down; other nodes are left out.

        Raises
        ------
        SlurmError
            Slurm does not answer.
        """
        if not nodes:
            return ()
        separator = draw_separator()
        output_format = ",".join(f"{column}:{separator}" for column in NODE_COLUMNS)
        return parse_reasons(
            self._run("sinfo", "-h", "-a", "-N", "-n", hostlist.fold(nodes), "-O", output_format), separator
        )

    def coordinators(self) -> dict[str, tuple[str, ...]]:
        """Return the accounts that each user coordinates, those below an account of theirs included.

        Raises
        ------
        SlurmError
            There is no accounting, or it does not answer.
        """
        return parse_coordinators(
            self._run("sacctmgr", "-n", "-P", "show", "account", "withcoordinator", "format=Account,Coordinators")
        )

    def _known_fields(self) -> tuple[str, ...]:
        """Return the requested fields that this release has."""
        if self._fields is None:
            known = {word.lower() for word in self._run("sacct", "-e").split()}
            lacking = [field for field in REQUIRED_FIELDS if field.lower() not in known]
            if lacking:
                raise SlurmError(f"sacct has no field {', '.join(lacking)}", hint="is this Slurm's sacct?")
            self._fields = tuple(field for field in FIELDS if field.lower() in known)
        return self._fields

    def _run(self, *command: str) -> str:
        """Run one command and return its stdout.

        Raises
        ------
        SlurmError
            It is not installed, took longer than the deadline, or failed.
        """
        try:
            done = subprocess.run(
                command, env=self._environment, stdin=subprocess.DEVNULL, capture_output=True,
                timeout=self._deadline_s, check=False,
            )  # fmt: skip
        except OSError as error:
            raise SlurmError(f"{command[0]}: {error.strerror}", hint="put Slurm's commands on PATH") from error
        except subprocess.TimeoutExpired as error:
            raise SlurmError(
                f"{command[0]} did not answer within {self._deadline_s:g} s", hint="see slurmdbd's log"
            ) from error
        if done.returncode or (not done.stdout and b"error" in done.stderr):
            raise SlurmError(
                f"{command[0]}: {parse_complaint(done.stderr)}", hint="see `sacctmgr ping` and slurmdbd's log"
            )
        return done.stdout.decode("utf-8", errors="replace")


def parse_runs(text: str, fields: Sequence[str], separator: str) -> tuple[AccountedRun, ...]:
    """Return the runs of ``sacct -n -p -D`` in which ``separator`` ends every field.

    Steps follow the run that they are of. A job that gave nodes back has a row before it in state RESIZING, which is
    no run of its own.

    Raises
    ------
    SlurmError
        The output ends within a record, or is none of sacct's.
    """
    runs: list[AccountedRun] = []
    for number, row in enumerate(parse_rows(text, fields, separator)):
        if number >= _MAX_ROWS:
            raise SlurmError(f"sacct answered more than {_MAX_ROWS} rows", hint="name one job")
        label, mark, step = row["JobID"].strip().partition(".")
        if mark:
            if runs and runs[-1].label == label:
                runs[-1] = replace(runs[-1], steps=(*runs[-1].steps, _build_step(step, row)))
            continue
        run = _build_run(label, row)
        if runs and runs[-1].label == label and runs[-1].state == "RESIZING":
            run = replace(run, nodes=tuple(dict.fromkeys((*runs[-1].nodes, *run.nodes))), steps=runs.pop().steps)
        earlier = sum(other.label == label for other in runs)
        runs.append(replace(run, restarts=max(run.restarts, earlier)))
    return tuple(runs)


def parse_reasons(text: str, separator: str) -> tuple[NodeReason, ...]:
    """Return the nodes of ``sinfo -h -N -O`` that have a reason, each once.

    Raises
    ------
    SlurmError
        The output ends within a record.
    """
    reasons: dict[str, NodeReason] = {}
    for row in parse_rows(text, NODE_COLUMNS, separator):
        reason = parse_optional(row["Reason"])
        if reason is None:
            continue
        node = row["NodeList"].strip()
        reasons[node] = NodeReason(
            node=node, state=row["StateComplete"].strip().upper(), reason=reason, by=parse_optional(row["User"]) or "",
            at_s=_parse_unix_s(row["Timestamp"]),
        )  # fmt: skip
    return tuple(reasons.values())


def parse_coordinators(text: str) -> dict[str, tuple[str, ...]]:
    """Return the accounts by coordinator, from lines ``account|user,user``.

    Source: ``sacctmgr_print_coord_list`` in Slurm's sacctmgr, the same since 2.1: no name of a user has a comma.
    """
    accounts: dict[str, list[str]] = {}
    for line in text.splitlines():
        account, mark, users = line.rpartition("|")
        for user in users.split(",") if mark and account else ():
            if user.strip():
                accounts.setdefault(user.strip(), []).append(account)
    return {user: tuple(sorted(set(names))) for user, names in accounts.items()}


def find_last_ended(runs: Iterable[AccountedRun]) -> AccountedRun | None:
    """Return the last run that is over; else the last; ``None`` of none."""
    runs = tuple(runs)
    ended = [run for run in runs if run.has_ended]
    return ended[-1] if ended else runs[-1] if runs else None


def _ended_s(run: AccountedRun) -> float:
    return run.end_s or 0.0


def _build_run(label: str, row: Mapping[str, str]) -> AccountedRun:
    """Return one run, without its steps."""
    number = parse_count(row["JobIDRaw"])
    if number is None:
        raise SlurmError(f"sacct answered a job without id: {row['JobIDRaw'][:40]!r}")
    state, by = _parse_state(row["State"])
    code, signal = parse_exit_status(row["ExitCode"])
    derived_code, derived_signal = parse_exit_status(row.get("DerivedExitCode", ""))
    minutes = parse_count(row.get("TimelimitRaw", ""))
    texts = {name: parse_optional(row.get(column, "")) or "" for name, column in _TEXTS.items()}
    ended = state not in _UNENDED
    return AccountedRun(
        **texts,  # type: ignore[arg-type]
        id=number, label=label, name=row.get("JobName", ""), uid=parse_count(row.get("UID", "")),
        state=state, cancelled_by=by, exit_code=code if ended else None, exit_signal=signal if ended else None,
        derived_exit_code=derived_code, derived_exit_signal=derived_signal, nodes=_parse_nodes(row["NodeList"]),
        tasks=parse_count(row.get("NTasks", "")), gpus=parse_gpus(row.get("AllocTRES", ""))[0],
        submit_s=_parse_unix_s(row.get("Submit", "")), start_s=_parse_unix_s(row["Start"]),
        end_s=_parse_unix_s(row["End"]), restarts=parse_count(row.get("Restarts", "")) or 0,
        time_limit_s=minutes * _MINUTE_S if minutes is not None else parse_duration_s(row.get("Timelimit", "")),
    )  # fmt: skip


_TEXTS = {
    "user": "User", "account": "Account", "partition": "Partition", "qos": "QOS", "reason": "Reason",
    "admin_comment": "AdminComment", "failed_node": "FailedNode", "work_dir": "WorkDir", "std_out": "StdOut",
    "std_err": "StdErr", "cluster": "Cluster",
}  # fmt: skip


def _build_step(step: str, row: Mapping[str, str]) -> AccountedStep:
    """Return one step."""
    state, by = _parse_state(row["State"])
    code, signal = parse_exit_status(row["ExitCode"])
    return AccountedStep(
        id=step, name=row.get("JobName", ""), state=state, cancelled_by=by, exit_code=code, exit_signal=signal,
        nodes=_parse_nodes(row["NodeList"]), tasks=parse_count(row.get("NTasks", "")),
        start_s=_parse_unix_s(row["Start"]),
        end_s=_parse_unix_s(row["End"]), memory_peak_bytes=_parse_size_bytes(row.get("MaxRSS", "")),
    )  # fmt: skip


def _parse_state(text: str) -> tuple[str, int | None]:
    """Return the state, and who cancelled the job."""
    match = _CANCELLED_BY.match(text.strip())
    words = text.split()
    return (words[0].upper().rstrip("+") if words else ""), int(match[1]) if match else None


def _parse_nodes(text: str) -> tuple[str, ...]:
    """Return the names of a host list; none for ``None assigned``."""
    if text.strip() in ("", "None assigned", "(null)", "None"):
        return ()
    try:
        return tuple(hostlist.expand(text.strip()))
    except InputError as error:
        raise SlurmError(f"sacct answered a node list that cannot be read: {error.message}") from error


def _parse_unix_s(text: str) -> float | None:
    """Return a time [s since 1970]; ``None`` for ``Unknown`` and 0."""
    time = parse_time(text)
    return time.timestamp() if time is not None and time.timestamp() > 0 else None


def _parse_size_bytes(text: str) -> int | None:
    """Return a size as ``sacct --units=K`` writes it (``1234K``) [bytes]; Slurm's units are powers of 1024."""
    match = _SIZE.fullmatch(text.strip())
    return None if match is None else int(float(match[1]) * 1024.0 ** " KMGTP".find(match[2] or " "))
