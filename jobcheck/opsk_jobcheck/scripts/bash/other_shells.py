"""What does a script hand to other shells: a text (``bash -c "..."``), or another script that it starts or sources?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from opsk_jobcheck.scripts.bash.changes import changer
from opsk_jobcheck.scripts.bash.directories import directory, from_start, place_key, placed, seen, stand
from opsk_jobcheck.scripts.bash.scope import EXPORTED, Scope
from opsk_jobcheck.scripts.bash.source import Source, expanded_source, script_source
from opsk_jobcheck.scripts.bash.syntax import Redirect
from opsk_jobcheck.scripts.bash.values import HANDS_OVER, Scalar, Text, literal, unknown

if TYPE_CHECKING:
    from opsk_jobcheck.scripts.bash.evaluate import Evaluator
    from opsk_jobcheck.scripts.bash.expansion import Expander

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


_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_BOXES = frozenset({"singularity", "apptainer"})
_CLOSED_BOXES = frozenset({"docker", "podman", "enroot", "sudo"})
"""What hands on little or nothing of what is exported."""
_CLEARS = {
    "env": frozenset({"-i", "-", "--ignore-environment"}),
    **dict.fromkeys(_BOXES, frozenset({"-e", "--cleanenv", "-C", "--containall"})),
}
_SETS = {
    **dict.fromkeys(_BOXES, frozenset({"--env"})),
    **dict.fromkeys(("docker", "podman"), frozenset({"-e", "--env"})),
    "enroot": frozenset({"-e", "--env"}),
    **dict.fromkeys(("mpirun", "mpiexec", "orterun"), frozenset({"-x", "-genv", "-env"})),
}


@dataclass(slots=True)
class HandedOn:
    """What becomes of variables: some are ``given`` a value; of the others nothing is known where it ``is_closed``.

    ``by`` is what does that, for people.
    """

    given: dict[str, Text] = field(default_factory=dict)
    by: str = ""
    is_closed: bool = False


def handed_on(words: Sequence[Text], before: Sequence[str]) -> HandedOn:
    """Return what the words of a command before the shell that it starts do to variables.

    Parameters
    ----------
    words, before
        Those words, and as far as they are known.
    """
    found, starter = HandedOn(), ""
    for index, word in enumerate(before):
        if words[index].known is None:
            _unknown_word(words[index], starter, found)
            continue
        name = word.rpartition("/")[2]
        if name in _CLOSED_BOXES:
            found.is_closed, found.by = True, name
        if name in ("srun", "env") or name in _SETS or name in _CLOSED_BOXES:
            starter = name
        elif word.startswith("--export"):
            _exported(word.partition("=")[2] or next(iter(before[index + 1 : index + 2]), ""), found)
        elif word in _CLEARS.get(starter, ()):
            found.is_closed, found.by = True, starter
        elif starter == "env" and (match := _ASSIGNED.fullmatch(word)):
            found.given[match[1]], found.by = literal(match[2], words[index].line), starter
        elif starter == "env" and word.startswith(("-u", "--unset")):
            found.is_closed, found.by = True, starter
        else:
            flag, equals, value = word.partition("=")
            if flag in _SETS.get(starter, ()):
                value = value if equals else next(iter(before[index + 1 : index + 2]), "")
                found.given |= dict(_pairs(value, starter))
    return found


def _unknown_word(word: Text, starter: str, found: HandedOn) -> None:
    """Take in a word that is not known: of an assignment the value is lost, behind ``env`` it may be any."""
    start = word.parts[0].text
    if starter == "env" and (match := _ASSIGNED.fullmatch(start)):
        found.given[match[1]], found.by = (
            word._replace(parts=(*literal(match[2], word.line).parts, *word.parts[1:])),
            starter,
        )
    elif starter == "env" or start.startswith("--export"):
        found.is_closed, found.by = True, starter


def _exported(asked: str, found: HandedOn) -> None:
    """Take in what ``srun --export`` says: names, ``NAME=value``, ``ALL`` or ``NONE``."""
    parts = [part.strip() for part in asked.split(",")]
    found.by = "srun --export"
    found.is_closed = found.is_closed or "ALL" not in (part.upper() for part in parts)
    found.given |= dict(_pairs(asked, "srun"))


def _pairs(text: str, starter: str) -> Iterator[tuple[str, Text]]:
    """Yield names with their values; boxes and srun take several, parted by commas."""
    for part in text.split(",") if starter in _BOXES or starter == "srun" else (text,):
        if match := _ASSIGNED.fullmatch(part.strip()):
            yield match[1], literal(match[2], 0)


def hand_on(inside: Scope, changes: HandedOn, line: int) -> None:
    """Change the variables that a shell begins with."""
    if changes.is_closed:
        for name in [name for name in inside.variables if name.startswith(EXPORTED)]:
            bare = name.removeprefix(EXPORTED)
            inside.set(bare, Scalar(unknown(f"{changes.by} may not hand {bare} on", line)))
    for name, value in changes.given.items():
        inside.set(name, Scalar(value))
        inside.set(EXPORTED + name, Scalar(Text()))


MAX_STARTED = 16
"""Scripts that are followed into, of all that a script starts."""
_INNER_SCRIPT = re.compile(r"-[a-z]*c[a-z]*")
_TALKERS = frozenset({"echo", "printf", "which", "type", "man", "alias", "logger"})
_HAND_INPUT_ON = frozenset(
    {"srun", "env", "time", "nohup", "exec", "numactl", "nice", "stdbuf", "singularity", "apptainer"}
)
"""What gives its own input to the shell that it starts."""
_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "/bin/bash", "/bin/sh", "/usr/bin/bash", "/usr/bin/env"})


def walk_handed_over(
    evaluator: Evaluator, words: Sequence[Text], known: Sequence[str], where: Text, given: Text | None = None
) -> None:
    """Walk what a command hands to another shell, where it hands over anything that can be told.

    Parameters
    ----------
    words, known
        The command, and its words as far as they are known.
    where
        The directory that it runs in.
    given
        What stands behind it as its input, if anything does.
    """

    def is_written(path: Text) -> bool:
        return place_key(path, where) in evaluator.written

    if known[0] in _TALKERS or "xargs" in known or "find" in known[:1]:
        return  # it is only said, or its words are filled in
    if (script := started_script(words, known, is_written)) is not None:
        _start(evaluator, script, where, handed_on(words[: script.at], known[: script.at]))
        return
    shell: int | None = None
    for at, before in enumerate(known[:-1], start=1):
        if shell is not None and _INNER_SCRIPT.fullmatch(before):
            _hand_over(evaluator, words, known, words[at], shell=shell, behind=at + 2)
            return
        if before in _SHELLS:
            shell = at
    if given is not None and (rest := _reads_input(known)) is not None:
        behind = len(words) - rest
        _hand_over(evaluator, words, known, given, shell=behind, behind=behind)


def _hand_over(
    evaluator: Evaluator, words: Sequence[Text], known: Sequence[str], text: Text, *, shell: int, behind: int
) -> None:
    """Walk a text that the command kept last gives to its shell, whose name ends before the word ``shell``.

    Words from ``behind`` on are that shell's arguments.
    """
    outer, before = evaluator.invocations[-1], len(evaluator.invocations)
    _inner(evaluator, text, tuple(words[behind:]), handed_on(words[:shell], known[:shell]))
    starts_program = "-m" in known[:shell] or any(word.endswith(".py") for word in known[:shell])
    if len(evaluator.invocations) > before and not starts_program:
        outer.facts[HANDS_OVER] = True


def input_of(expander: Expander, redirects: Sequence[Redirect]) -> Text | None:
    """Return the text that a command is given as its input (``<<EOF``, ``<<<``), ``None`` where there is none."""
    for entry in reversed(redirects):
        if entry.op in ("<<", "<<-", "<<<"):
            return expander.text(entry.body if entry.body is not None else entry.target)
        if entry.op in ("<", "<>"):
            return None
    return None


def _reads_input(known: Sequence[str]) -> int | None:
    """Return how many arguments a shell gets that reads its commands from its input; ``None`` where none does.

    mpirun gives its input to one rank, ssh to another host: what that means for the job is not followed.
    """
    at = next((at for at, word in enumerate(known) if word.rpartition("/")[2] in SHELLS), None)
    if at is None or (at and known[0].rpartition("/")[2] not in _HAND_INPUT_ON):
        return None
    if any(word.startswith(("--input", "-i")) for word in known[:at]):
        return None
    for place, word in enumerate(known[at + 1 :], start=at + 1):
        if word in ("-s", "--", "-"):
            behind = known[place + 1 :]
            return len(behind) - (behind[:1] == ("--",)) if word == "-s" else (0 if not behind else None)
        if not word.startswith(("-", "+")) or _INNER_SCRIPT.fullmatch(word) or word in ("-o", "-O", "--rcfile"):
            return None
    return 0


def named_source(evaluator: Evaluator, path: Text, where: Text | None = None) -> Source | None:
    """Return the source of a script that is named: written by this one, or given; else it is wanted."""
    where = directory(evaluator.scope) if where is None else where
    key = place_key(path, where)
    if changer(evaluator.changed, key):
        return None
    if key in evaluator.written:
        return expanded_source(evaluator.written[key])
    path, where = seen(path, where)
    if path.known is None:
        return None
    place, why = placed(path.known, where)
    if why:
        return None
    if place in evaluator.files:
        text = evaluator.files[place]
        return script_source(text, start=evaluator.places.add(place, text.count("\n") + 1))
    evaluator.sourced.append(place)
    return None


def _inner(evaluator: Evaluator, text: Text, arguments: tuple[Text, ...], changes: HandedOn) -> None:
    """Walk a text that another shell would run, with what is exported to it and the words behind the text."""
    if not text.parts:
        return
    evaluator.depth += 4
    outer = evaluator.scope
    evaluator.scope = inherited(outer, arguments)
    hand_on(evaluator.scope, changes, text.line)
    was_ended, turns, evaluator.open_turns = evaluator.ended, evaluator.open_turns, []
    evaluator.read(expanded_source(text))
    evaluator.scope, evaluator.ended, evaluator.open_turns = outer, was_ended, turns
    evaluator.is_over = False
    evaluator.depth -= 4


def _start(evaluator: Evaluator, script: Started, where: Text, changes: HandedOn) -> None:
    """Walk another script that is started, with what is exported to it."""
    outer = evaluator.scope, evaluator.functions, evaluator.frames, evaluator.ended, evaluator.open_turns
    inside = inherited(evaluator.scope, script.arguments)
    hand_on(inside, changes, script.path.line)
    stand(inside, where)
    source = named_source(evaluator, script.path, where) if evaluator.started < MAX_STARTED else None
    if source is None:
        return
    evaluator.started += 1
    evaluator.depth += 8
    evaluator.scope, evaluator.functions, evaluator.frames, evaluator.open_turns = inside, {}, [], []
    evaluator.read(source)
    evaluator.scope, evaluator.functions, evaluator.frames, evaluator.ended, evaluator.open_turns = outer
    evaluator.is_over = False
    evaluator.depth -= 8
