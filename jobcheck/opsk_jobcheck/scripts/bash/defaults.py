"""Recognises a test that gives a variable its default: ``if [ -z "$MODEL" ]; then MODEL=small; fi``.

As in ``${MODEL:-small}``, a name that the script never set counts as unset.
"""

from __future__ import annotations

from collections.abc import Iterable

from opsk_jobcheck.scripts.bash.scope import Scope
from opsk_jobcheck.scripts.bash.syntax import Chain, Command, Param, Simple, Test, Word

_OF_THE_JOB = ("SLURM", "CUDA_VISIBLE", "PBS_", "LSB_", "PMI", "OMPI", "RANK", "WORLD_SIZE", "LOCAL_RANK", "HOSTNAME")
"""Variables that Slurm or a launcher sets when the job runs."""
_DECLARES = frozenset({"export", "declare", "local", "typeset", "readonly"})


def gives_default(scope: Scope, test: Iterable[Command] | None, body: Iterable[Command]) -> bool:
    """Return whether a test asks if a variable that the script never set is empty, and what follows sets it."""
    commands = list(test or ())
    name = _find_tested(commands[0]) if len(commands) == 1 else ""
    if not name or name.startswith(_OF_THE_JOB) or name.isdigit() or scope.find(name) is not None:
        return False
    return name in _list_assigned(body)


def _find_tested(command: Command) -> str:
    """Return the variable that ``[ -z "$name" ]`` tests; empty for any other command."""
    if isinstance(command, Chain) and len(command.links) == 1:
        return _find_tested(command.links[0][1])
    words: list[Word] = []
    if isinstance(command, Test):
        words = command.words
    elif isinstance(command, Simple) and command.words and not command.assignments:
        last = command.words[-1].bare
        words = command.words[1:-1] if command.words[0].bare == "[" and last == "]" else []
    if len(words) != 2 or words[0].bare != "-z" or len(words[1].segments) != 1:
        return ""
    segment = words[1].segments[0]
    is_plain = isinstance(segment, Param) and not segment.index and segment.op in ("", ":-", "-") and not segment.arg
    return segment.name if is_plain and isinstance(segment, Param) else ""


def _list_assigned(body: Iterable[Command]) -> set[str]:
    """Return the variables that simple commands set, one after the other."""
    names: set[str] = set()
    for command in body:
        entry = command.links[0][1] if isinstance(command, Chain) and len(command.links) == 1 else command
        if not isinstance(entry, Simple):
            continue
        if not entry.words or entry.words[0].bare in _DECLARES:
            names |= {item.name for item in (*entry.assignments, *entry.arrays)}
    return names
