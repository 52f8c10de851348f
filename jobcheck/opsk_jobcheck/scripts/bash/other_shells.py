"""Records the commands of a script, and follows the texts and scripts that they run in other shells."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from opsk_jobcheck.scripts.bash.expansion import Expander
from opsk_jobcheck.scripts.bash.lexer import Source, build_expanded_source, build_script_source
from opsk_jobcheck.scripts.bash.scope import (
    EXPORTED,
    Scope,
    compute_path_key,
    find_command_directory,
    find_tail,
    get_directory,
    relate_to_start,
    resolve_path,
    set_directory,
    strip_start,
)
from opsk_jobcheck.scripts.bash.state import MAX_DEPTH, ShellState
from opsk_jobcheck.scripts.bash.syntax import Redirect
from opsk_jobcheck.scripts.bash.values import RUNS_SHELL_TEXT, Invocation, Scalar, Text, literal, unknown
from opsk_jobcheck.scripts.bash.written_files import find_changer

MAX_INVOCATIONS = 2500
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
"""Programs that start no script: a script after one is its argument."""
_VALUES = frozenset({"--prolog", "--epilog", "--task-prolog", "--task-epilog", "-o", "-e", "--output", "--error"})
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_CONTAINER_RUNTIMES = frozenset({"singularity", "apptainer"})
_ISOLATING_STARTERS = frozenset({"docker", "podman", "enroot", "sudo"})
"""Programs that pass on few or none of the exported variables."""
_CLEARS = {
    "env": frozenset({"-i", "-", "--ignore-environment"}),
    **dict.fromkeys(_CONTAINER_RUNTIMES, frozenset({"-e", "--cleanenv", "-C", "--containall"})),
}
_SETS = {
    **dict.fromkeys(_CONTAINER_RUNTIMES, frozenset({"--env"})),
    **dict.fromkeys(("docker", "podman"), frozenset({"-e", "--env"})),
    "enroot": frozenset({"-e", "--env"}),
    **dict.fromkeys(("mpirun", "mpiexec", "orterun"), frozenset({"-x", "-genv", "-env"})),
}
MAX_STARTED = 16
"""Scripts that are followed into, of all that a script starts."""
_INNER_SCRIPT = re.compile(r"-[a-z]*c[a-z]*")
_PRINTERS = frozenset({"echo", "printf", "which", "type", "man", "alias", "logger"})
_FORWARD_INPUT = frozenset(
    {"srun", "env", "time", "nohup", "exec", "numactl", "nice", "stdbuf", "singularity", "apptainer"}
)
"""Programs that pass their input to the shell that they start."""
_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "/bin/bash", "/bin/sh", "/usr/bin/bash", "/usr/bin/env"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedScript:
    """A script that a command starts: its path, which word of the command that is, and its arguments."""

    path: Text
    word_index: int
    arguments: tuple[Text, ...]


def find_started_script(
    words: Sequence[Text], knowns: Sequence[str], is_written: Callable[[Text], bool]
) -> StartedScript | None:
    """Return the script that a command starts, ``None`` when it starts none that is known.

    ``knowns`` are the words as far as they are known; ``is_written`` returns whether the current
    script has written the file of an unknown path.
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
            return StartedScript(path=word, word_index=index, arguments=tuple(words[index + 1 :]))
        if _PROGRAM.fullmatch(known.rpartition("/")[2]):
            return None
        if after_shell:
            return None
    return None


def _may_start(word: Text, known: str, is_written: Callable[[Text], bool]) -> bool:
    """Return whether a word is a script's path: by its suffix, or because the current script has written that file."""
    if known:
        return _is_script(known)
    inside = strip_start(word)
    return (inside is not None and _is_script(inside.known or "")) or (bool(word.parts) and is_written(word))


def _is_script(name: str) -> bool:
    return name.endswith(_SUFFIXES) and "://" not in name


def _copy_exported(scope: Scope, inside: Scope) -> None:
    """Copy the values of variables that were exported before the script began."""
    for name in (*(scope.environment or ()), *scope.given):
        if name in scope.unset:
            inside.remove(name)
        elif isinstance(variable := scope.variables.get(name), Scalar) and name.isidentifier() and name != "IFS":
            inside.set(name, variable)


def build_inherited_scope(scope: Scope, arguments: tuple[Text, ...]) -> Scope:
    """Return the scope that a started script begins with: what is exported, and its own arguments.

    Variables that may or may not be exported are unknown there; names that the current script does not mention come
    from an unknown environment.
    """
    inside = Scope(scope.given, scope.environment, arguments, requested_names=scope.requested_names or frozenset())
    inside.maybe_set_by = scope.maybe_set_by
    _copy_exported(scope, inside)
    for name in [name for name in scope.variables if name.startswith(EXPORTED)]:
        bare = name.removeprefix(EXPORTED)
        variable = scope.find(bare)
        if scope.text(name, 0).why:
            lost = Scalar(unknown(f"{bare} may or may not be exported", 0))
            inside.set(bare, lost)
            inside.set(name, lost)
        elif isinstance(variable, Scalar):
            inside.set(bare, variable)
            inside.export(bare)
        elif bare in scope.unset:
            inside.remove(bare)
    set_directory(inside, get_directory(scope))
    return inside


@dataclass(slots=True)
class EnvironmentChanges:
    """Changes to the environment: ``given`` are new values; all others are unknown where it ``is_closed``.

    ``by`` is the program that makes the changes, for display.
    """

    given: dict[str, Text] = field(default_factory=dict)
    by: str = ""
    is_closed: bool = False


def find_environment_changes(words: Sequence[Text], before: Sequence[str]) -> EnvironmentChanges:
    """Return the changes to variables by the words of a command before the shell that it starts.

    Parameters
    ----------
    words, before
        Those words, and as far as they are known.
    """
    changes, starter = EnvironmentChanges(), ""
    for index, word in enumerate(before):
        if words[index].known is None:
            _apply_unknown_word(words[index], starter, changes)
            continue
        name = word.rpartition("/")[2]
        if name in _ISOLATING_STARTERS:
            changes.is_closed, changes.by = True, name
        if name in ("srun", "env") or name in _SETS or name in _ISOLATING_STARTERS:
            starter = name
        elif word.startswith("--export"):
            _apply_export_option(word.partition("=")[2] or next(iter(before[index + 1 : index + 2]), ""), changes)
        elif word in _CLEARS.get(starter, ()):
            changes.is_closed, changes.by = True, starter
        elif starter == "env" and (match := _ASSIGNED.fullmatch(word)):
            changes.given[match[1]], changes.by = literal(match[2], words[index].line), starter
        elif starter == "env" and word.startswith(("-u", "--unset")):
            changes.is_closed, changes.by = True, starter
        else:
            flag, equals, value = word.partition("=")
            if flag in _SETS.get(starter, ()):
                value = value if equals else next(iter(before[index + 1 : index + 2]), "")
                changes.given |= dict(_parse_pairs(value, starter))
    return changes


def _apply_unknown_word(word: Text, starter: str, changes: EnvironmentChanges) -> None:
    """Apply an unknown word: an assignment has an unknown value, and after ``env`` it may be any assignment."""
    start = word.parts[0].text
    if starter == "env" and (match := _ASSIGNED.fullmatch(start)):
        changes.given[match[1]], changes.by = (
            word._replace(parts=(*literal(match[2], word.line).parts, *word.parts[1:])),
            starter,
        )
    elif starter == "env" or start.startswith("--export"):
        changes.is_closed, changes.by = True, starter


def _apply_export_option(option: str, changes: EnvironmentChanges) -> None:
    """Apply ``srun --export``: names, ``NAME=value``, ``ALL`` or ``NONE``."""
    parts = [part.strip() for part in option.split(",")]
    changes.by = "srun --export"
    changes.is_closed = changes.is_closed or "ALL" not in (part.upper() for part in parts)
    changes.given |= dict(_parse_pairs(option, "srun"))


def _parse_pairs(text: str, starter: str) -> Iterator[tuple[str, Text]]:
    """Yield names with their values; container runtimes and srun take several, separated by commas."""
    for part in text.split(",") if starter in _CONTAINER_RUNTIMES or starter == "srun" else (text,):
        if match := _ASSIGNED.fullmatch(part.strip()):
            yield match[1], literal(match[2], 0)


def apply_environment_changes(inside: Scope, changes: EnvironmentChanges, line: int) -> None:
    """Apply changes to the variables that a shell starts with."""
    if changes.is_closed:
        for name in [name for name in inside.variables if name.startswith(EXPORTED)]:
            bare = name.removeprefix(EXPORTED)
            inside.set(bare, Scalar(unknown(f"{changes.by} may not pass {bare} on", line)))
    for name, value in changes.given.items():
        inside.set(name, Scalar(value))
        inside.set(EXPORTED + name, Scalar(Text()))


def record_invocation(
    state: ShellState, words: list[Text], known: tuple[str, ...], line: int, given: Text | None = None
) -> None:
    """Record an invocation, and walk what it runs in another shell; ``given`` is its input where that is known."""
    effects = state.effects
    if len(effects.invocations) >= MAX_INVOCATIONS:
        if not effects.is_full:
            effects.problems.append((line, "the script runs more commands than opsk follows; the rest is not read"))
        effects.is_full = True
        return
    where = find_command_directory(words, known, get_directory(state.scope))
    invocation = Invocation(
        words=tuple(words), line=line, certain=state.flow.certain, directory=where, facts={"known words": known}
    )
    state.effects.invocations.append(invocation)
    if state.budget.depth > MAX_DEPTH:
        return
    walk_inner_shell(state, words, known, where, given)


def walk_inner_shell(
    state: ShellState, words: Sequence[Text], known: Sequence[str], where: Text, given: Text | None = None
) -> None:
    """Walk the text or script that a command runs in another shell, where that is known.

    Parameters
    ----------
    words, known
        The command, and its words as far as they are known.
    where
        The directory that it runs in.
    given
        Its input, if there is any.
    """

    def is_written(path: Text) -> bool:
        return compute_path_key(path, where) in state.effects.written

    if known[0] in _PRINTERS or "xargs" in known or "find" in known[:1]:
        return  # it only prints, or its words are filled in
    if (script := find_started_script(words, known, is_written)) is not None:
        _walk_script(
            state, script, where, find_environment_changes(words[: script.word_index], known[: script.word_index])
        )
        return
    shell: int | None = None
    for position, before in enumerate(known[:-1], start=1):
        if shell is not None and _INNER_SCRIPT.fullmatch(before):
            _walk_handed_text(state, words, known, words[position], shell=shell, arguments_start=position + 2)
            return
        if before in _SHELLS:
            shell = position
    if given is not None and (rest := _count_input_arguments(known)) is not None:
        arguments_start = len(words) - rest
        _walk_handed_text(state, words, known, given, shell=arguments_start, arguments_start=arguments_start)


def _walk_handed_text(
    state: ShellState, words: Sequence[Text], known: Sequence[str], text: Text, *, shell: int, arguments_start: int
) -> None:
    """Walk the text that the last recorded command gives to its shell, whose name ends before the word ``shell``.

    Words from ``arguments_start`` on are that shell's arguments.
    """
    outer, before = state.effects.invocations[-1], len(state.effects.invocations)
    _walk_inner_text(
        state, text, tuple(words[arguments_start:]), find_environment_changes(words[:shell], known[:shell])
    )
    starts_program = "-m" in known[:shell] or any(word.endswith(".py") for word in known[:shell])
    if len(state.effects.invocations) > before and not starts_program:
        outer.facts[RUNS_SHELL_TEXT] = True


def expand_input(expander: Expander, redirects: Sequence[Redirect]) -> Text | None:
    """Return the text that a command is given as its input (``<<EOF``, ``<<<``), ``None`` where there is none."""
    for entry in reversed(redirects):
        if entry.op in ("<<", "<<-", "<<<"):
            return expander.text(entry.body if entry.body is not None else entry.target)
        if entry.op in ("<", "<>"):
            return None
    return None


def _count_input_arguments(known: Sequence[str]) -> int | None:
    """Return how many arguments a shell gets that reads its commands from its input; ``None`` where none does.

    mpirun gives its input to one rank, ssh to another host: both are not followed.
    """
    shell_index = next(
        (shell_index for shell_index, word in enumerate(known) if word.rpartition("/")[2] in SHELLS), None
    )
    if shell_index is None or (shell_index and known[0].rpartition("/")[2] not in _FORWARD_INPUT):
        return None
    if any(word.startswith(("--input", "-i")) for word in known[:shell_index]):
        return None
    for position, word in enumerate(known[shell_index + 1 :], start=shell_index + 1):
        if word in ("-s", "--", "-"):
            arguments = known[position + 1 :]
            return len(arguments) - (arguments[:1] == ("--",)) if word == "-s" else (0 if not arguments else None)
        if not word.startswith(("-", "+")) or _INNER_SCRIPT.fullmatch(word) or word in ("-o", "-O", "--rcfile"):
            return None
    return 0


def find_source(state: ShellState, path: Text, where: Text | None = None, *, is_started: bool = False) -> Source | None:
    """Return the source of a named script: written by this one, or given; else it is added to the missing files.

    Parameters
    ----------
    is_started
        Whether it is a program: that of a directory that is not known is asked for as if the job started there.
    """
    where = get_directory(state.scope) if where is None else where
    key = compute_path_key(path, where)
    if find_changer(state.effects.changed, key):
        return None
    if key in state.effects.written:
        return build_expanded_source(state.effects.written[key])
    path, where = relate_to_start(path, where)
    place, why = resolve_path(path.known, where) if path.known is not None else ("", path.why)
    if why:
        place = find_tail(path, where) if is_started else ""
    if not place:
        return None
    if place in state.files:
        text = state.files[place]
        return build_script_source(text, start=state.effects.places.add(place, text.count("\n") + 1))
    state.effects.sourced.append(place)
    return None


def _walk_inner_text(state: ShellState, text: Text, arguments: tuple[Text, ...], changes: EnvironmentChanges) -> None:
    """Walk a text that another shell would run, with what is exported to it and the words after the text."""
    if not text.parts:
        return
    inside = build_inherited_scope(state.scope, arguments)
    apply_environment_changes(inside, changes, text.line)
    state.budget.depth += 4
    with state.shell(inside, state.functions):
        state.read(build_expanded_source(text))
    state.budget.depth -= 4


def _walk_script(state: ShellState, script: StartedScript, where: Text, changes: EnvironmentChanges) -> None:
    """Walk another script that is started, with what is exported to it."""
    inside = build_inherited_scope(state.scope, script.arguments)
    apply_environment_changes(inside, changes, script.path.line)
    set_directory(inside, where)
    may_start = state.budget.started < MAX_STARTED
    source = find_source(state, script.path, where, is_started=True) if may_start else None
    if source is None:
        return
    state.budget.started += 1
    state.budget.depth += 8
    with state.shell(inside, {}):
        state.read(source)
    state.budget.depth -= 8
