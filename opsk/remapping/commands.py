"""Runs one Slurm command, and determines what the caller may do in Slurm."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Callable, Sequence

from opsk.errors import OpskError
from opsk.slurm.commands.command import DEADLINE_S, CommandClient, build_command_environment
from opsk.slurm.commands.remap_commands import Command, Where, Who
from opsk.slurm.records import JobRecord

_MAX_OUTPUT_CHARS = 300
_RIGHTS_DEADLINE_S = 5.0
_LEVELS = {"administrator": Who.ADMINISTRATOR, "operator": Who.OPERATOR}

Run = Callable[[Sequence[str]], tuple[int, str]]
"""Runs a command and returns its status and its output: stderr, then stdout."""


def run_command(argv: Sequence[str]) -> tuple[int, str]:
    """Run one Slurm command, and return its status and output."""
    try:
        ran = subprocess.run(
            list(argv), env=build_command_environment(os.environ), stdin=subprocess.DEVNULL, capture_output=True,
            timeout=DEADLINE_S, check=False,
        )  # fmt: skip
    except OSError as error:
        return 127, f"{argv[0]}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return 124, f"{argv[0]} did not answer within {DEADLINE_S:g} s; it may have been carried out all the same"
    complained, answered = (each.decode("utf-8", errors="replace").strip() for each in (ran.stderr, ran.stdout))
    return ran.returncode, "\n".join(filter(None, (complained[:_MAX_OUTPUT_CHARS], answered[:_MAX_OUTPUT_CHARS])))


def find_caller_name() -> str:
    """Return who runs this, as Slurm would call him; the number of one who has no name, as in many containers."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def read_slurm_user() -> str:
    """Return the user of slurmctld, ``slurm(64030)`` in its configuration; empty where it does not answer."""
    try:
        return CommandClient(deadline_s=_RIGHTS_DEADLINE_S).config().get("SlurmUser", "")
    except OpskError:
        return ""


def find_caller_rights(
    job: JobRecord | None, run: Run = run_command, find_slurm_user: Callable[[], str] = read_slurm_user
) -> tuple[Who, ...]:
    """Return what the caller may do: with the job as its owner, and by the admin level in slurmdbd.

    root and SlurmUser may do everything. Where neither slurmdbd nor slurmctld answers, the caller is a user.

    Parameters
    ----------
    job
        The job that the caller may own; ``None`` for jobs of their own.
    find_slurm_user
        Returns SlurmUser from slurmctld's configuration.
    """
    name = find_caller_name()
    if os.geteuid() == 0:
        return tuple(Who)
    status, output = run(("sacctmgr", "-nP", "show", "user", name, "format=adminlevel"))
    level = _LEVELS.get(output.strip().rpartition("\n")[2].lower()) if status == 0 else None
    if level is Who.ADMINISTRATOR or find_slurm_user() in {name, f"{name}({os.geteuid()})"}:
        return tuple(Who)
    if level is Who.OPERATOR:
        return (Who.USER, Who.OPERATOR)
    return (Who.USER,) if job is None or job.user == name else ()


def is_allowed(command: Command, rights: tuple[Who, ...]) -> bool:
    """Return whether the caller can run a command, here and now."""
    return command.who in rights and command.where is Where.ANYWHERE and command.is_complete and not command.later


def format_executor(command: Command) -> str:
    """Return who runs a command that the caller cannot run, and where or when."""
    if command.where is Where.IN_JOB:
        return "in the job"
    if not command.is_complete:
        return "fill in what stands in capitals"
    return f"{'later, ' if command.later else ''}by {'the owner' if command.who is Who.USER else f'an {command.who}'}"
