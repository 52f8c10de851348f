"""Holds the variables of a shell and the directory that its commands run in.

Directories and paths are relative to the directory in which the job starts: empty for that directory itself, absolute
where that is known. If a script may have changed to an unknown directory, a path in it is unknown and never resolves
to a file of the same name elsewhere.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from opsk_jobcheck.scripts.bash.splitting import DEFAULT_IFS
from opsk_jobcheck.scripts.bash.values import (
    Array,
    Scalar,
    Text,
    Variable,
    WordPart,
    are_flags,
    blend,
    find_mentions,
    is_countable,
    join,
    literal,
    unknown,
)

MAX_VARIABLES, MAX_MENTIONS = 256, 4096
_MENTIONED = re.compile(r"\$\{?[#!]?([A-Za-z_][A-Za-z0-9_]*)")
_SECRET = re.compile(r"TOKEN|SECRET|PASS|KEY|CREDENTIAL|AUTH", re.IGNORECASE)
EXPORTED, ALL_EXPORTED = "export ", "export *"
"""Prefix of the names under which a scope records exported variables, and the name for ``set -a``.
No variable of a shell can have such a name."""
LOST = (Text((WordPart("", 0, "the arguments are moved in a way that is not followed", many=True),)),)
"""Unknown arguments of unknown number."""
BY_BASH = frozenset(
    {
        *("BASHPID", "BASH_ARGC", "BASH_ARGV", "BASH_COMMAND", "BASH_LINENO", "BASH_REMATCH", "BASH_SOURCE"),
        *("BASH_SUBSHELL", "BASH_VERSINFO", "BASH_VERSION", "BASHOPTS", "BASH", "DIRSTACK", "EPOCHREALTIME"),
        *("EPOCHSECONDS", "EUID", "FUNCNAME", "GROUPS", "HISTCMD", "HOSTNAME", "HOSTTYPE", "LINENO", "MACHTYPE"),
        *("OLDPWD", "OPTIND", "OSTYPE", "PIPESTATUS", "PPID", "RANDOM", "SECONDS", "SHELLOPTS", "SHLVL", "SRANDOM"),
        *("UID", "_"),
    }
)
"""Variables that bash sets by itself ("Shell Variables" of bash(1)): never known, whatever they are given."""
DIRECTORY = "."
REPLACED = "()"
"""Ends the name under which a scope notes that a function has the name of a command whose output is computed."""
"""The name under which a scope keeps its directory; no variable of a shell can be called so."""
PUSHED = "pushed "
"""The name under which a scope keeps the directories that ``popd`` returns to."""
START = unknown("it is the directory in which the job starts, known only when it runs", 0, filled=True)
"""What ``$PWD`` holds there."""
MAX_PATH_CHARS = 4096
"""PATH_MAX of Linux."""
_LEADING_PARENTS = re.compile(r"(\.{1,2}/)+")
_INVALID_NAME = "it is not a valid file name"
_MOVES = {"srun": ("--chdir", "-D"), "env": ("--chdir", "-C"), "sudo": ("--chdir", "-D"), "make": ("--directory", "-C")}
_OF_STEP = "--container-workdir"
_CONTAINER_FLAGS = (_OF_STEP, "--workdir", "--pwd", "--cwd", "-w")
_STARTS = (*_CONTAINER_FLAGS, *(flag for flags in _MOVES.values() for flag in flags))
_CONTAINER_RUNTIMES = frozenset(
    {"singularity", "apptainer", "docker", "podman", "enroot", "shifter", "charliecloud", "ch-run"}
)


def find_mentioned_variables(text: str) -> frozenset[str]:
    """Return the variables that a text mentions and that are not named like secrets; none where there are too many.

    The same rule as ``mentioned_variables`` of the hooks in Lua, which send those of the named files, too, once these
    are read.
    """
    mentions = _MENTIONED.findall(text)
    names = set(mentions)
    if len(names) > MAX_VARIABLES or len(mentions) > MAX_MENTIONS:
        return frozenset()
    return frozenset(name for name in names if not _SECRET.search(name))


@dataclass(slots=True)
class Scope:
    """Variables and positional parameters.

    Parameters
    ----------
    given
        What Slurm sets for the job (``SLURM_NNODES``), known or not, by name.
    environment
        The submitting user's variables; ``None`` when they are not known, and then a name that nobody set is unknown.
    arguments
        The script's own arguments; ``None`` when they are not known.
    maybe_set_by
        A file that the script sources and that was not read: names that nobody set may be set there.
    requested_names
        Names that were requested from the environment; others are unknown. ``None``: all were.
    """

    given: Mapping[str, Text]
    environment: Mapping[str, str] | None = None
    arguments: tuple[Text, ...] | None = None
    variables: dict[str, Variable] = field(default_factory=dict)
    unset: set[str] = field(default_factory=set)
    maybe_set_by: str = ""
    requested_names: frozenset[str] | None = None
    fixed: dict[str, str] = field(default_factory=dict)
    """Names whose value after an assignment is unknown, with the reason."""

    def copy(self) -> Scope:
        """Return a scope that can be changed without changing this one."""
        return Scope(
            self.given,
            self.environment,
            self.arguments,
            dict(self.variables),
            set(self.unset),
            self.maybe_set_by,
            self.requested_names,
            self.fixed,
        )

    def adopt(self, other: Scope) -> None:
        """Take over the state of another scope."""
        self.variables, self.unset, self.arguments = other.variables, other.unset, other.arguments
        self.maybe_set_by, self.fixed = other.maybe_set_by, other.fixed

    def set(self, name: str, variable: Variable) -> None:
        """Give a variable a value."""
        if name in self.fixed:
            variable = Scalar(unknown(f"{name}: {self.fixed[name]}", 0))
        self.variables[name] = variable
        self.unset.discard(name)
        if ALL_EXPORTED in self.variables and not name.startswith(EXPORTED):
            self.variables.setdefault(EXPORTED + name, self.variables[ALL_EXPORTED])

    def fix(self, name: str, why: str, line: int, *, is_lost: bool = False) -> None:
        """Mark the values of future assignments to a name as unknown; ``is_lost``: the current value, too."""
        if is_lost:
            self.set(name, Scalar(unknown(why, line)))
        self.fixed = self.fixed | {name: why}

    def lose(self, names: Iterable[str], why: str, line: int) -> None:
        """Forget what variables hold; an array stays one.

        Whether all variables are exported is forgotten first: the others may then be exported as well.
        """
        for name in sorted(names, key=lambda name: (name != ALL_EXPORTED, name)):
            held = self.find(name)
            self.set(name, Array((), why) if isinstance(held, Array) else Scalar(unknown(why, line)))

    def lose_like(self, start: str, why: str, line: int, *, is_slurms: bool = False) -> None:
        """Forget the variables whose names start so: one of them was set, or unset.

        ``is_slurms`` includes Slurm's variables, which scripts may unset. IFS is excluded.
        """
        names = {*self.variables, *(self.given if is_slurms else ())} - {"IFS"}
        self.lose({name for name in names if name.startswith(start) and name.isidentifier()}, why, line)

    def remove(self, name: str) -> None:
        """Unset a variable."""
        self.variables.pop(name, None)
        self.unset.add(name)

    def forget(self, name: str) -> None:
        """Give a name back the meaning that it had before the script set it."""
        self.variables.pop(name, None)
        self.unset.discard(name)

    def find(self, name: str) -> Variable | None:
        """Return a variable; ``None`` when it is certainly unset or when nothing at all is known of it."""
        if name in BY_BASH:
            return Scalar(unknown(f"{name} is set by bash when the job runs", 0))
        if name in self.variables:
            return self.variables[name]
        if name in self.unset:
            return None
        if name in self.given:
            return Scalar(self.given[name])
        if self.environment is not None and name in self.environment:
            return Scalar(literal(self.environment[name], 0))
        return None

    def is_certainly_unset(self, name: str) -> bool:
        """Return whether a name that `find` does not know is certainly unset."""
        if name in self.unset:
            return True
        is_requested = self.requested_names is None or name in self.requested_names
        return self.environment is not None and is_requested and not self.maybe_set_by

    def export(self, name: str) -> None:
        """Mark a variable as exported."""
        self.set(EXPORTED + name, Scalar(Text()))

    def unexport(self, name: str) -> None:
        """Mark a variable as no longer exported (``declare +x``, ``unset``)."""
        if EXPORTED + name in self.variables:
            self.remove(EXPORTED + name)
        if name in self.given or name in (self.environment or ()):
            self.set(EXPORTED + name, Scalar(unknown(f"{name} is not exported any more", 0)))

    def ifs(self) -> str | None:
        """Return the characters that words are split at, ``None`` when they are not known."""
        variable = self.variables.get("IFS")
        if variable is None:
            return DEFAULT_IFS
        return variable.text.known if isinstance(variable, Scalar) else None

    def text(self, name: str, line: int) -> Text:
        """Return what ``$name`` stands for."""
        variable = self.find(name)
        if isinstance(variable, Scalar):
            return variable.text
        if isinstance(variable, Array):
            if variable.why:
                return unknown(variable.why, line)
            if not is_countable(variable.words[:1]):
                return unknown(variable.words[0].why, line)
            return variable.words[0] if variable.words else Text()
        if self.is_certainly_unset(name):
            return Text()
        if self.maybe_set_by:
            return unknown(f"{name} may be set by {self.maybe_set_by}, which opsk has not read", line)
        return unknown(f"{name} is not set in the script, it would come from the environment", line)

    def positional(self, number: int, line: int) -> Text:
        """Return what ``$1`` and so on stand for."""
        if number == 0:
            return unknown("$0 is known only when the job runs", line, filled=True)
        if self.arguments is None:
            return unknown(f"${number} is an argument of the script, not known here", line)
        if not is_countable(self.arguments[:number]):
            return unknown(f"${number} comes after words whose number is not known", line)
        return self.arguments[number - 1] if number <= len(self.arguments) else Text()


def merge_scopes(scopes: list[Scope], line: int) -> Scope:
    """Return the values that are certain after any one of several scopes."""
    first = scopes[0].copy()
    why = f"it depends on the test in line {line}"
    for name in {name for scope in scopes for name in (*scope.variables, *scope.unset)}:
        values = [scope.find(name) for scope in scopes]
        if any(compute_value_key(value) != compute_value_key(values[0]) for value in values[1:]):
            first.set(name, _blend_values(values, why, line))
    if any(scope.arguments != first.arguments for scope in scopes):
        first.arguments = LOST
    first.maybe_set_by = next((scope.maybe_set_by for scope in scopes if scope.maybe_set_by), "")
    first.fixed = {name: reason for scope in scopes for name, reason in scope.fixed.items()}
    first.unset = {name for name in first.unset if all(name in scope.unset for scope in scopes)}
    return first


def find_differing_names(left: Scope, right: Scope) -> set[str]:
    """Return the names that two scopes give different values."""
    names = {*left.variables, *right.variables, *left.unset, *right.unset}
    untouched = {name for name, held in left.variables.items() if right.variables.get(name) is held}
    return {
        name for name in names - untouched if compute_value_key(left.find(name)) != compute_value_key(right.find(name))
    }


def _blend_values(values: list[Variable | None], why: str, line: int) -> Variable:
    """Return what several possible values have in common, with one unknown piece where they differ."""
    arrays = [value for value in values if isinstance(value, Array)]
    if arrays:
        if len(arrays) < len(values) or any(array.why for array in arrays):
            return Array((), why)
        rows = [array.words for array in arrays]
        common = 0
        while all(len(row) > common and row[common].key == rows[0][common].key for row in rows):
            common += 1
        ends = [[part for word in row[common:] for part in word.parts] for row in rows]
        rest = find_mentions(part for end in ends for part in end)
        is_closed = all(map(are_flags, ends))
        return Array((*rows[0][:common], Text((WordPart("", line, why, many=True, mentions=rest, closed=is_closed),))))
    texts = [value.text for value in values if isinstance(value, Scalar)]
    if len(texts) < len(values):
        mentions = find_mentions(part for text in texts for part in text.parts)
        return Scalar(Text((WordPart("", line, why, mentions=mentions),)))
    common_text = texts[0]
    for text in texts[1:]:
        common_text = blend(common_text, text, why, line)
    return Scalar(common_text)


def compute_value_key(variable: Variable | None) -> tuple[str, ...] | str | None:
    """Return something that is equal for values that are certainly equal."""
    if isinstance(variable, Scalar):
        return variable.text.key
    if isinstance(variable, Array):
        return (variable.why, *(word.key for word in variable.words))
    return None


def get_directory(scope: Scope) -> Text:
    """Return the directory that commands of a scope run in."""
    return scope.text(DIRECTORY, 0)


def set_directory(scope: Scope, place: Text) -> None:
    """Set the directory of a scope; a shell that starts there sets ``PWD`` again, whatever it was given."""
    scope.set(DIRECTORY, Scalar(place))
    scope.set("PWD", Scalar(make_absolute(place)))


def make_absolute(place: Text) -> Text:
    """Return a directory as the shell writes it, from the root on."""
    if not place.known:
        return place if place.parts else START
    return place if place.known.startswith("/") else join((START, literal("/" + place.known, place.line)))


def strip_start(path: Text) -> Text | None:
    """Return a path below the directory in which the job starts as seen from there; ``None`` for any other path."""
    if not path.parts or path.parts[0].why != START.why:
        return None
    inside = Text(path.parts[1:]).known
    if inside is None or inside[:1] not in ("", "/"):
        return None
    return literal(inside.lstrip("/") or ".", path.line)


def relate_to_start(path: Text, where: Text) -> tuple[Text, Text]:
    """Return a path, and the directory that it is relative to: paths below the job's directory are relative to it.

    Parameters
    ----------
    where
        The directory of the command that names it.
    """
    inside = strip_start(path)
    return (path, where) if inside is None else (inside, Text())


def change_directory(scope: Scope, path: Text, line: int) -> None:
    """Take a scope to another directory, as ``cd`` does."""
    set_directory(scope, _join(get_directory(scope), path, line))


def forget_directory(scope: Scope, why: str, line: int) -> None:
    """Mark the directory of a scope as unknown."""
    set_directory(scope, unknown(why, line, filled=True))


def resolve_path(path: str, where: Text) -> tuple[str, str]:
    """Return a path relative to where the job starts, and the reason where that is unknown.

    Parameters
    ----------
    where
        The directory of the command that names it, as `get_directory` returns it.
    """
    if len(path) > MAX_PATH_CHARS or not path.isprintable():
        return path, _INVALID_NAME
    if path.startswith("/"):
        return posixpath.normpath(path), ""
    if path.startswith("~"):
        return path, "it is in a home directory, which is known only when the job runs"
    if where.known is None:
        return path, f"it is relative to a directory that is not known: {where.why}"
    place = posixpath.normpath(posixpath.join(where.known, path))
    return (place, "") if len(place) <= MAX_PATH_CHARS and place.isprintable() else (path, _INVALID_NAME)


def find_tail(path: Text, where: Text) -> str:
    """Return where a file in an unknown directory lies if the job is submitted from there; empty where none may.

    Programs and their settings are named from the project's folder on, and jobs are mostly submitted from it:
    ``$PROJECT/configs/a.yaml`` and, after ``cd "$PROJECT"``, ``configs/a.yaml`` are both ``configs/a.yaml``.
    """
    if path.known is not None and path.known.startswith("~/"):
        tail = path.known[2:]
    elif path.known is not None:
        tail = path.known if where.known is None else ""
    else:
        last = next((index for index in range(len(path.parts), 0, -1) if path.parts[index - 1].why), 0)
        rest = "".join(part.text for part in path.parts[last:])
        tail = _LEADING_PARENTS.sub("", rest[1:]) if rest.startswith("/") else ""
    tail = posixpath.normpath(tail) if tail and not tail.startswith(("/", "~")) else ""
    is_valid = tail.isprintable() and len(tail) <= MAX_PATH_CHARS and not tail.startswith("..")
    return tail if is_valid and tail != "." else ""


def compute_path_key(path: Text, where: Text) -> str:
    """Return a string that is equal for paths that certainly name one file."""
    path, where = relate_to_start(path, where)
    if path.known is None:
        return f"{where.key}\0{path.key}"
    place, why = resolve_path(path.known, where)
    return f"{where.key}\0{place}" if why else place


def find_command_directory(words: Sequence[Text], known: Sequence[str], where: Text) -> Text:
    """Return where the last program of a command runs that may take it elsewhere (``srun --chdir``, a container)."""
    moves = _MOVES.get(known[0].rpartition("/")[2], ()) if known else ()
    for index, name in enumerate(known[:-1]):
        if not name.startswith(_STARTS):
            continue
        flag, equals, value = name.partition("=")
        if flag in moves:
            target = literal(value, words[index].line) if equals else words[index + 1]
            return _join(where, target, words[index].line)
        if flag in _CONTAINER_FLAGS and (
            flag == _OF_STEP or any(name.rpartition("/")[2] in _CONTAINER_RUNTIMES for name in known)
        ):
            return unknown("it runs in a directory of a container", words[index].line, filled=True)
    return where


def _join(where: Text, path: Text, line: int) -> Text:
    path, where = relate_to_start(path, where)
    if path.known is None:
        return unknown(path.why, line, filled=True)
    place, why = resolve_path(path.known, where)
    return unknown(why, line, filled=True) if why else literal("" if place == "." else place, line)
