"""Tracks the directory that commands run in, and resolves paths relative to it.

Directories and paths are relative to the directory in which the job starts: empty for that directory itself, absolute
where that is known. If a script may have changed to an unknown directory, a path in it is unknown and never resolves
to a file of the same name elsewhere.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from opsk_jobcheck.scripts.bash.scope import Scope
from opsk_jobcheck.scripts.bash.values import Scalar, Text, join, literal, unknown

DIRECTORY = "."
"""The name under which a scope keeps its directory; no variable of a shell can be called so."""
PUSHED = "pushed "
"""The name under which a scope keeps the directories that ``popd`` returns to."""
START = unknown("it is the directory in which the job starts, known only when it runs", 0, filled=True)
"""What ``$PWD`` holds there."""
MAX_PATH_CHARS = 4096
"""PATH_MAX of Linux."""
_INVALID_NAME = "it is no name that a file would have"
_MOVES = {"srun": ("--chdir", "-D"), "env": ("--chdir", "-C"), "sudo": ("--chdir", "-D"), "make": ("--directory", "-C")}
_OF_STEP = "--container-workdir"
_CONTAINER_FLAGS = (_OF_STEP, "--workdir", "--pwd", "--cwd", "-w")
_STARTS = (*_CONTAINER_FLAGS, *(flag for flags in _MOVES.values() for flag in flags))
_CONTAINER_RUNTIMES = frozenset(
    {"singularity", "apptainer", "docker", "podman", "enroot", "shifter", "charliecloud", "ch-run"}
)


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
        return path, "it lies in a home directory, which is known only when the job runs"
    if where.known is None:
        return path, f"it is relative to a directory that is not known: {where.why}"
    place = posixpath.normpath(posixpath.join(where.known, path))
    return (place, "") if len(place) <= MAX_PATH_CHARS and place.isprintable() else (path, _INVALID_NAME)


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
