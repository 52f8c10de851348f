"""Which script of its own does a command start, and what does that script see of this one? ``srun bash train.sh 8``"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opsk_jobcheck.readers.shell.directories import directory, from_start, stand
from opsk_jobcheck.readers.shell.scope import EXPORTED, Scope
from opsk_jobcheck.readers.shell.values import Scalar, Text, unknown

_SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch")
SHELLS = frozenset({"bash", "sh", "zsh", "dash"})
_STARTERS = frozenset(
    {
        *(
            "srun",
            "mpirun",
            "mpiexec",
            "nohup",
            "time",
            "timeout",
            "numactl",
            "taskset",
            "env",
            "exec",
            "stdbuf",
            "nice",
        ),
        *("singularity", "apptainer", "docker", "podman", "enroot", "command", "setsid", "bash", "sh", "zsh", "dash"),
    }
)
_PROGRAM = re.compile(
    r"python[0-9.]*|torchrun|accelerate|deepspeed|perl|ruby|ls|cat|cp|mv|rm|grep|sed|awk|tar|test|pip"
)
"""What is no starter: a script behind it is its argument."""
_VALUES = frozenset({"--prolog", "--epilog", "--task-prolog", "--task-epilog", "-o", "-e", "--output", "--error"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A script that a command starts: its path, which word of the command that is, and its arguments."""

    path: Text
    at: int
    arguments: tuple[Text, ...]


def started_script(words: Sequence[Text], knowns: Sequence[str], is_written: Callable[[Text], bool]) -> Started | None:
    """Return the script that a command starts, ``None`` when it starts none that can be told.

    ``knowns`` are the words as far as they are known; ``is_written`` tells of a path that is not whether the script at
    hand has written such a file.
    """
    first = knowns[0].rpartition("/")[2] if knowns else ""
    if first not in _STARTERS and not _may_start(words[0], knowns[0], is_written):
        return None
    if any(known.startswith("--export") and known != "--export=ALL" for known in knowns):
        return None
    after_shell = False
    for index, (word, known) in enumerate(zip(words, knowns, strict=True)):
        if known.rpartition("/")[2] in SHELLS:
            after_shell = True
            continue
        if known.startswith(("-", "+")) or (index and knowns[index - 1] in _VALUES):
            if after_shell and not {"c", "s"}.isdisjoint(known.lstrip("-+")) and not known.startswith("--"):
                return None
            continue
        if (after_shell and known) or _may_start(word, known, is_written):
            return Started(path=word, at=index, arguments=tuple(words[index + 1 :]))
        if _PROGRAM.fullmatch(known.rpartition("/")[2]):
            return None
        if after_shell:
            return None
    return None


def _may_start(word: Text, known: str, is_written: Callable[[Text], bool]) -> bool:
    """Tell whether a word is a script's path: by its end, or since the script at hand has written that file."""
    if known:
        return _is_script(known)
    inside = from_start(word)
    return (inside is not None and _is_script(inside.known or "")) or (bool(word.parts) and is_written(word))


def _is_script(name: str) -> bool:
    return name.endswith(_SUFFIXES) and "://" not in name


def export(scope: Scope, name: str) -> None:
    """Note that a variable is handed to the commands that a script starts."""
    scope.set(EXPORTED + name, Scalar(Text()))


def keep_to_itself(scope: Scope, name: str) -> None:
    """Note that a variable is not handed on any more (``declare +x``, ``unset``)."""
    if EXPORTED + name in scope.variables:
        scope.remove(EXPORTED + name)
    if name in scope.given or name in (scope.environment or ()):
        scope.set(EXPORTED + name, Scalar(unknown(f"{name} is not exported any more", 0)))


def _from_outside(scope: Scope, inside: Scope) -> None:
    """Hand on what the script has made of variables that were exported before it began."""
    for name in (*(scope.environment or ()), *scope.given):
        if name in scope.unset:
            inside.remove(name)
        elif isinstance(variable := scope.variables.get(name), Scalar) and name.isidentifier() and name != "IFS":
            inside.set(name, variable)


def inherited(scope: Scope, arguments: tuple[Text, ...]) -> Scope:
    """Return the scope that a started script begins with: what is exported, and its own arguments.

    What may or may not be exported is unknown there; what the script at hand does not mention comes from an environment
    of which nothing is known.
    """
    inside = Scope(scope.given, scope.environment, arguments, asked=scope.asked or frozenset())
    inside.maybe_set_by = scope.maybe_set_by
    _from_outside(scope, inside)
    for name in [name for name in scope.variables if name.startswith(EXPORTED)]:
        bare = name.removeprefix(EXPORTED)
        variable = scope.find(bare)
        if scope.text(name, 0).why:
            lost = Scalar(unknown(f"{bare} may or may not be exported", 0))
            inside.set(bare, lost)
            inside.set(name, lost)
        elif isinstance(variable, Scalar):
            inside.set(bare, variable)
            export(inside, bare)
        elif bare in scope.unset:
            inside.remove(bare)
    stand(inside, directory(scope))
    return inside
