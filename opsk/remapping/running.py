"""How is one command of Slurm run, and what may the caller do in Slurm?"""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Callable, Sequence

from opsk.errors import OpskError
from opsk.slurm.commands.command import DEADLINE_S, CommandClient, command_environment
from opsk.slurm.commands.remap_commands import Command, Where, Who
from opsk.slurm.records import JobRecord

_MOST_SAID = 300
_RIGHTS_DEADLINE_S = 5.0
_LEVELS = {"administrator": Who.ADMINISTRATOR, "operator": Who.OPERATOR}

Run = Callable[[Sequence[str]], tuple[int, str]]
"""Runs a command and returns its status and what it said: complaints, then its answer."""


def run_command(argv: Sequence[str]) -> tuple[int, str]:
    """Run one command of Slurm, and return its status with what it said."""
    try:
        ran = subprocess.run(
            list(argv), env=command_environment(os.environ), stdin=subprocess.DEVNULL, capture_output=True,
            timeout=DEADLINE_S, check=False,
        )  # fmt: skip
    except OSError as error:
        return 127, f"{argv[0]}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return 124, f"{argv[0]} did not answer within {DEADLINE_S:g} s; it may have been carried out all the same"
    complained, answered = (each.decode("utf-8", errors="replace").strip() for each in (ran.stderr, ran.stdout))
    return ran.returncode, "\n".join(filter(None, (complained[:_MOST_SAID], answered[:_MOST_SAID])))


def caller_name() -> str:
    """Return who runs this, as Slurm would call him; the number of one who has no name, as in many containers."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def slurm_user() -> str:
    """Return whom slurmctld runs as, ``slurm(64030)`` in its configuration; empty where it does not answer."""
    try:
        return CommandClient(deadline_s=_RIGHTS_DEADLINE_S).config().get("SlurmUser", "")
    except OpskError:
        return ""


def caller_rights(
    job: JobRecord | None, run: Run = run_command, asked_user: Callable[[], str] = slurm_user
) -> tuple[Who, ...]:
    """Return what the caller may do: with the job as its owner, and by the level that slurmdbd knows.

    root and SlurmUser may do everything. Where neither slurmdbd nor slurmctld answers, the caller is a user.

    Parameters
    ----------
    job
        Whose owner the caller may be; ``None`` for jobs of his own.
    asked_user
        Tells SlurmUser as slurmctld's configuration has it.
    """
    name = caller_name()
    if os.geteuid() == 0:
        return tuple(Who)
    status, said = run(("sacctmgr", "-nP", "show", "user", name, "format=adminlevel"))
    level = _LEVELS.get(said.strip().rpartition("\n")[2].lower()) if status == 0 else None
    if level is Who.ADMINISTRATOR or asked_user() in {name, f"{name}({os.geteuid()})"}:
        return tuple(Who)
    if level is Who.OPERATOR:
        return (Who.USER, Who.OPERATOR)
    return (Who.USER,) if job is None or job.user == name else ()


def is_mine(command: Command, rights: tuple[Who, ...]) -> bool:
    """Return whether the caller can run a command, here and now."""
    return command.who in rights and command.where is Where.ANYWHERE and command.is_complete and not command.later


def for_whom(command: Command) -> str:
    """Say who runs a command that the caller cannot run, and where or when."""
    if command.where is Where.IN_JOB:
        return "in the job"
    if not command.is_complete:
        return "fill in what stands in capitals"
    return f"{'later, ' if command.later else ''}by {'the owner' if command.who is Who.USER else f'an {command.who}'}"
