"""In which directory does a command run, and where does a path that it names lie?

Both are seen from where the job starts: empty for that directory itself, absolute where that is known. A script that
cannot be told to stay gives "cannot tell", never a file of the same name elsewhere.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from opsk_jobcheck.readers.shell.scope import Scope
from opsk_jobcheck.readers.shell.values import Scalar, Text, literal, unknown

DIRECTORY = "."
"""The name under which a scope keeps its directory; no variable of a shell can be called so."""
MAX_PATH_CHARS = 4096
"""PATH_MAX of Linux."""
_ODD = "it is no name that a file would have"
_MOVES = {"srun": ("--chdir", "-D"), "env": ("--chdir", "-C"), "sudo": ("--chdir", "-D"), "make": ("--directory", "-C")}
_OF_STEP = "--container-workdir"
_CONTAINERS = (_OF_STEP, "--workdir", "--pwd", "--cwd", "-w")
_BOXES = frozenset({"singularity", "apptainer", "docker", "podman", "enroot", "shifter", "charliecloud", "ch-run"})


def directory(scope: Scope) -> Text:
    """Return the directory that commands of a scope run in."""
    return scope.text(DIRECTORY, 0)


def moved(scope: Scope, path: Text, line: int) -> None:
    """Take a scope to another directory, as ``cd`` does."""
    place = _joined(directory(scope), path, line)
    scope.set(DIRECTORY, Scalar(place))
    if place.known and place.known.startswith("/"):
        scope.set("PWD", Scalar(place))
    else:
        scope.set("PWD", Scalar(unknown(place.why or "it is relative to where the job starts", line, filled=True)))


def lost(scope: Scope, why: str, line: int) -> None:
    """Say that the directory of a scope cannot be told any more."""
    scope.set(DIRECTORY, Scalar(unknown(why, line, filled=True)))
    scope.set("PWD", Scalar(unknown(why, line, filled=True)))


def placed(path: str, where: Text) -> tuple[str, str]:
    """Return a path as seen from where the job starts, and why that cannot be told where it cannot.

    Parameters
    ----------
    where
        The directory of the command that names it, as `directory` gives it.
    """
    if len(path) > MAX_PATH_CHARS or not path.isprintable():
        return path, _ODD
    if path.startswith("/"):
        return posixpath.normpath(path), ""
    if path.startswith("~"):
        return path, "it lies in a home directory, which is known only when the job runs"
    if where.known is None:
        return path, f"it is relative to a directory that is not known: {where.why}"
    place = posixpath.normpath(posixpath.join(where.known, path))
    return (place, "") if len(place) <= MAX_PATH_CHARS and place.isprintable() else (path, _ODD)


def place_key(path: Text, where: Text) -> str:
    """Return a string that is equal for paths that certainly name one file."""
    if path.known is None:
        return f"{where.key}\0{path.key}"
    place, why = placed(path.known, where)
    return f"{where.key}\0{place}" if why else place


def command_directory(words: Sequence[Text], known: Sequence[str], where: Text) -> Text:
    """Return where the last program of a command runs that may take it elsewhere (``srun --chdir``, a container)."""
    moves = _MOVES.get(known[0].rpartition("/")[2], ()) if known else ()
    for index, name in enumerate(known[:-1]):
        if name[:1] != "-":
            continue
        flag, equals, value = name.partition("=")
        if flag in moves:
            target = literal(value, words[index].line) if equals else words[index + 1]
            return _joined(where, target, words[index].line)
        if flag in _CONTAINERS and (flag == _OF_STEP or any(name.rpartition("/")[2] in _BOXES for name in known)):
            return unknown("it runs in a directory of a container", words[index].line, filled=True)
    return where


def _joined(where: Text, path: Text, line: int) -> Text:
    if path.known is None:
        return unknown(path.why, line, filled=True)
    place, why = placed(path.known, where)
    return unknown(why, line, filled=True) if why else literal("" if place == "." else place, line)
