"""How is one option carried out? Commands that the caller may run are run, the others are handed over; words, no shell.

The caller is asked first. The first command that Slurm refuses ends it, and what was done is told.
"""

from __future__ import annotations

import getpass
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from opsk.cli.document import harmless
from opsk.errors import InputError
from opsk.planner.remap.terms import Terms
from opsk.planner.remap.values import Answer, Option
from opsk.slurm.command import DEADLINE_S, command_environment
from opsk.slurm.records import JobRecord
from opsk.slurm.remap_commands import Command, Where, Who, state_of

_MOST_SAID = 300
_MOST_WAITED_S = 180.0
"""A job that is requeued is COMPLETING while its processes are killed and epilogs run."""
_POLL_S = 0.5
_LEVELS = {"administrator": Who.ADMINISTRATOR, "operator": Who.OPERATOR}

Run = Callable[[Sequence[str]], tuple[int, str]]
"""Runs a command and returns its status and what it complained of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What became of the commands of an option.

    ``done`` were run; ``refused`` is the one that Slurm refused, with its words in ``said``; ``left`` are for someone
    else, for later, or for the job itself; ``rank_file`` was written.
    """

    kind: str
    title: str
    rights: tuple[Who, ...]
    done: tuple[str, ...] = ()
    refused: str | None = None
    said: str | None = None
    left: tuple[tuple[str, str], ...] = ()
    rank_file: str | None = None


def chosen_option(answer: Answer, chosen: str) -> Option:
    """Return option number N, or the first of a kind.

    Raises
    ------
    InputError
        There is none; what there is is told.
    """
    if chosen.isdecimal() and chosen.isascii() and 1 <= int(chosen) <= len(answer.options):
        return answer.options[int(chosen) - 1]
    for option in answer.options:
        if option.kind.value == chosen:
            return option
    if answer.nothing_to_do:
        raise InputError(f"nothing to apply: {answer.nothing_to_do}", hint="leave --apply out")
    kinds = ", ".join(f"{number} {option.kind}" for number, option in enumerate(answer.options, start=1))
    why = "; ".join(refusal.why for refusal in answer.refused if refusal.kind.value == chosen)
    raise InputError(f"there is no option {chosen[:40]!r}" + (f": {why}" if why else ""), hint=f"there are {kinds}")


def apply_option(
    option: Option,
    job: JobRecord | None,
    terms: Terms,
    *,
    ask: Callable[[str], bool] | None,
    run: Run | None = None,
    rights: tuple[Who, ...] | None = None,
) -> Applied:
    """Carry an option out as far as the caller may.

    Parameters
    ----------
    ask
        Asks the caller, and says whether to go on; ``None`` goes on.
    run, rights
        Instead of Slurm's commands, and of what Slurm says of the caller.
    """
    runs = run or _run
    mine = rights if rights is not None else caller_rights(job, runs)
    todo = [command for command in option.commands if _is_mine(command, mine)]
    left = tuple((command.text, _for_whom(command)) for command in option.commands if command not in todo)
    question = f"{option.title}: run {len(todo)} commands now?"
    shown = Applied(kind=option.kind, title=option.title, rights=mine, left=left)
    if ask is not None and not ask(harmless(question)):
        return Applied(
            kind=option.kind,
            title=option.title,
            rights=mine,
            left=tuple((command.text, _for_whom(command)) for command in option.commands),
        )
    written = _write_rank_file(option, terms)
    done: list[str] = []
    for number, command in enumerate(todo):
        status, said = _await(command, terms, runs)
        status, said = (status, said) if status else runs(command.argv)
        if status:
            rest = tuple((later.text, "not run any more") for later in todo[number + 1 :])
            return Applied(
                kind=shown.kind, title=shown.title, rights=mine, done=tuple(done), refused=command.text, said=said,
                left=(*rest, *left), rank_file=written,
            )  # fmt: skip
        done.append(command.text)
    return Applied(kind=shown.kind, title=shown.title, rights=mine, done=tuple(done), left=left, rank_file=written)


def _await(command: Command, terms: Terms, run: Run) -> tuple[int, str]:
    """Wait until the job is in the state that a command needs; a status other than 0 when it does not come."""
    deadline = time.monotonic() + _MOST_WAITED_S
    while command.when:
        status, said = run(state_of(terms.job))
        if status or said.strip() == command.when:
            return status, said
        if time.monotonic() > deadline:
            return 1, f"job {terms.job} is still {said.strip()} after {_MOST_WAITED_S:.0f} s, not {command.when}"
        time.sleep(_POLL_S)
    return 0, ""


def caller_rights(job: JobRecord | None, run: Run) -> tuple[Who, ...]:
    """Return what the caller may do: with the job as its owner, and by the level that slurmdbd knows."""
    name = getpass.getuser()
    if os.geteuid() == 0:
        return tuple(Who)
    status, said = run(("sacctmgr", "-nP", "show", "user", name, "format=adminlevel"))
    level = _LEVELS.get(said.strip().lower()) if status == 0 else None
    if level is Who.ADMINISTRATOR:
        return tuple(Who)
    if level is Who.OPERATOR:
        return (Who.USER, Who.OPERATOR)
    return (Who.USER,) if job is None or job.user == name else ()


def _is_mine(command: Command, rights: tuple[Who, ...]) -> bool:
    """Return whether the caller can run a command, here and now."""
    return command.who in rights and command.where is Where.ANYWHERE and command.is_complete and not command.later


def _for_whom(command: Command) -> str:
    """Say who runs a command, and where or when."""
    if command.where is Where.IN_JOB:
        return "in the job"
    if not command.is_complete:
        return "fill in what stands in capitals"
    return f"{'later, ' if command.later else ''}by {'the owner' if command.who is Who.USER else f'an {command.who}'}"


def _write_rank_file(option: Option, terms: Terms) -> str | None:
    """Write the file with one host per rank, where the option needs it.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    if not option.rank_file:
        return None
    try:
        Path(terms.rank_file).write_text(option.rank_file, encoding="utf-8")
    except OSError as error:
        raise InputError(
            harmless(f"{terms.rank_file}: {error.strerror}; nothing was run"), hint="name another --rank-file"
        ) from error
    return terms.rank_file


def _run(argv: Sequence[str]) -> tuple[int, str]:
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
    said = (ran.stderr or ran.stdout).decode("utf-8", errors="replace").strip()
    return ran.returncode, said[:_MOST_SAID]
