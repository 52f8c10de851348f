"""Records the files that a script writes, and those that it changes in ways that are not followed.

The content of such a file at submission says nothing about its content when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise

from opsk_jobcheck.scripts.bash.expansion import Expander
from opsk_jobcheck.scripts.bash.scope import compute_path_key, get_directory
from opsk_jobcheck.scripts.bash.state import ShellState
from opsk_jobcheck.scripts.bash.syntax import Redirect, Simple
from opsk_jobcheck.scripts.bash.values import Text, join, literal, unknown

_TEE = "tee"
_IN_PLACE = frozenset({"sed", "perl", "yq", "crudini", "ruby", "dasel", "ex"})
_COPIES = frozenset({"cp", "mv", "ln", "install", "rsync", "scp"})
_CHANGERS = _IN_PLACE | _COPIES | {"truncate", "wget", "find"}
_FIRST = _CHANGERS | {"srun", "xargs", "sudo", "env", "nice", "timeout", "time", "command"}
"""What a command begins with that changes files, or may start another that does."""
_INTERPRETERS = re.compile(r"(?:python|perl|ruby|node)[0-9.]*")
_CODE_FLAGS = frozenset({"-c", "-e", "--eval"})
_WRITES = re.compile(r"""dump|write|save|replace|rename|copy|["'](?:[wax]|r\+)[bt+]*["']""")
"""Words in program text that may change a file."""
_TOKEN = re.compile(r"[\w./*-]+")
_SUFFIXES = (".json", ".yaml", ".yml", ".toml", ".cfg", ".conf", ".ini", ".sh")
_FROM_ENVIRONMENT = re.compile(r"""environ[\w.]{0,8}[\[(]\s?["'](\w{1,80})["']""")
MAX_CODE = 1 << 16
MAX_PATH_CHARS, MAX_STARS = 512, 4
_OUTPUTS = frozenset(
    (
        "--out",
        "--output",
        "--output-document",
        "-O",
        "--output-file",
        "--out-file",
        "-o",
        "--save",
        "--save-path",
        "--write",
    )
)
_PATTERN = frozenset("*?[")
_NOWHERE = ("/dev/null", "/dev/stdout", "/dev/stderr")


def may_write_files(words: list[Text], command: Simple) -> bool:
    """Return whether `find_written_files` could yield anything."""
    return bool(command.redirects) or (bool(words) and words[0].known == _TEE)


def find_written_files(
    expander: Expander, words: list[Text], command: Simple
) -> Iterator[tuple[Text, Text | None, bool]]:
    """Yield the writes of a command: the path, the text or ``None`` where unknown, and whether it is appended.

    The text is known for ``cat <<EOF > file``, ``tee file <<EOF`` and ``echo text > file``.
    """
    body = next((entry.body for entry in command.redirects if entry.body is not None), None)
    stdout_redirects = [entry for entry in command.redirects if not entry.is_other]
    targets = [entry.target for entry in stdout_redirects if entry.op in (">", ">|", ">>")]
    adds = any(entry.op == ">>" for entry in stdout_redirects) or any(word.known == "-a" for word in words[1:2])
    name = (words[0].known or "") if words else ""
    text: Text | None = None
    if name in ("echo", "printf"):
        text = _compute_output(words)
    elif body is not None and (name in ("cat", "tee", "") or not words):
        text = expander.text(body)
    paths = [expander.text(target) for target in targets]
    if name == _TEE:
        paths += [word for word in words[1:] if not (word.known or "").startswith("-")]
    for path in paths:
        yield path, text, adds
    for entry in command.redirects:
        if (entry.is_other and entry.op in (">", ">|", ">>")) or entry.op in ("&>", "&>>", "<>"):
            yield expander.text(entry.target), None, False


def _compute_output(words: list[Text]) -> Text:
    """Return the output of ``echo`` or ``printf`` with one argument."""
    name, line = words[0].known, words[0].line
    options = [word.known for word in words[1:] if word.known in ("-e", "-n", "-en", "-ne")]
    operands = words[1 + len(options) :]
    has_escapes = any(
        sign in part.text for word in operands for part in word.parts for sign in ("\\" if name == "echo" else "\\%")
    )
    if len(operands) != 1 or (has_escapes and (name == "printf" or options not in ([], ["-n"]))):
        return unknown(f"its value is built by {name}", line)
    return operands[0] if name == "printf" or "-n" in options else join((operands[0], literal("\n", operands[0].line)))


def record_written_files(state: ShellState, words: list[Text], known: tuple[str, ...], command: Simple) -> None:
    """Record the texts that a command writes into files, and the files that it changes in unknown ways."""
    where = get_directory(state.scope)
    unseen: list[Text] = []
    for path, text, adds in (
        find_written_files(state.expander(), words, command) if may_write_files(words, command) else ()
    ):
        key = compute_path_key(path, where)
        before = state.effects.written.get(key) if adds else None
        if text is None or (adds and before is None):
            unseen.append(path)
            continue
        if not state.flow.certain:
            text = unknown("it is written only if a test holds", command.line)
        state.effects.written[key] = join((before, text)) if before is not None else text
        state.effects.changed.pop(key, None)
    name = words[0].shown[:40] if words else "a redirection"
    for path in find_changed_files(words, known, unseen):
        state.effects.changed[compute_path_key(path, where)] = name
    if may_run_text(known, command) and (index := find_interpreter(known)) is not None:
        bodies = [state.expander().text(entry.body).shown for entry in command.redirects if entry.body is not None]
        state.budget.spend(sum(map(len, bodies)))
        changed = find_files_changed_by_code(words, known, index, bodies)
        held = (state.scope.text(variable, command.line) for variable in changed.variables)
        for path in (*changed.paths, *(text for text in held if text.known)):
            state.effects.changed[compute_path_key(path, where)] = name


def forget_written_files(state: ShellState, redirects: Iterable[Redirect]) -> None:
    """Record files that receive the output of several commands; their content is not followed."""
    for redirect in redirects:
        path = state.expander().text(redirect.target)
        state.effects.changed[compute_path_key(path, get_directory(state.scope))] = "several commands"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedByCode:
    """Files that program text may change: by their paths, and by names of variables that hold one."""

    paths: tuple[Text, ...] = ()
    variables: tuple[str, ...] = ()


def find_changed_files(words: Sequence[Text], known: Sequence[str], written_to: Sequence[Text]) -> Iterator[Text]:
    """Yield the paths that a command may change: edited in place, copied over, written to, or named as its output.

    Parameters
    ----------
    words, known
        The command, and its words as far as they are known.
    written_to
        Targets of its redirections, those of followed here-documents left out.
    """
    yield from (path for path in written_to if path.known not in _NOWHERE)
    index = _find_changing_program(known)
    if index is not None:
        name = known[index].rpartition("/")[2]
        paths = _find_changed_paths(name, words[index + 1 :])
        is_any = "xargs" in known[:index] and (paths or name not in _IN_PLACE or _is_in_place(words[index + 1 :]))
        yield from [literal("*", words[index].line)] if is_any else paths
    if not _OUTPUTS.isdisjoint(known):
        pairs = zip(words[1:], pairwise(known), strict=True)
        yield from (word for word, (before, _) in pairs if before in _OUTPUTS and word.parts)


def find_interpreter(known: Sequence[str]) -> int | None:
    """Return the index of the word that is a program that runs text, ``None`` where there is none."""
    return next((index for index, word in enumerate(known) if _INTERPRETERS.fullmatch(word.rpartition("/")[2])), None)


def may_run_text(known: Sequence[str], command: Simple) -> bool:
    """Return whether a command may be given program text: by a flag, or on its standard input."""
    return any(entry.body is not None for entry in command.redirects) or not _CODE_FLAGS.isdisjoint(known)


def find_files_changed_by_code(
    words: Sequence[Text], known: Sequence[str], index: int, bodies: Sequence[str]
) -> ChangedByCode:
    """Return the files that program text on the command line, or in a here-document, may change.

    Parameters
    ----------
    index
        Index of the word that runs the text.
    bodies
        Here-documents of the command.
    """
    text = _extract_code(known[index + 1 :], bodies)[:MAX_CODE]
    if not _WRITES.search(text):
        return ChangedByCode()
    line = words[index].line
    named = dict.fromkeys(token for token in _TOKEN.findall(text) if _is_settings(token))
    given = tuple(word for word, path in zip(words[index:], known[index:], strict=True) if _is_settings(path))
    return ChangedByCode(
        paths=(*(literal(path, line) for path in named), *given),
        variables=tuple(dict.fromkeys(_FROM_ENVIRONMENT.findall(text))),
    )


def _find_changing_program(known: Sequence[str]) -> int | None:
    """Return the index of the word that changes files, after launchers; ``None`` where there is none."""
    if not known or known[0].rpartition("/")[2] not in _FIRST:
        return None
    return next((index for index, word in enumerate(known) if word.rpartition("/")[2] in _CHANGERS), None)


def _is_settings(path: str) -> bool:
    """Return whether a word may be the path of a file with settings."""
    return path.endswith(_SUFFIXES) and len(path) <= MAX_PATH_CHARS


def _extract_code(arguments: Sequence[str], bodies: Sequence[str]) -> str:
    """Return the program text that an interpreter is given, by a flag or on its standard input; empty for a file's."""
    for index, word in enumerate(arguments):
        if word in _CODE_FLAGS:
            return "".join(arguments[index + 1 : index + 2])
        if word == "-":
            break
        if not word.startswith("-"):
            return ""
    return "\n".join(bodies)


def find_changer(changed: Mapping[str, str], key: str) -> str:
    """Return what changes a file, by its key or by a pattern that it matches; empty where nothing does."""
    if program := changed.get(key, ""):
        return program
    patterns = ((pattern, name) for pattern, name in changed.items() if not _PATTERN.isdisjoint(pattern))
    return next((name for pattern, name in patterns if _matches(key, pattern)), "")


def _matches(key: str, pattern: str) -> bool:
    """Return whether a file may be meant by a pattern; by one that would take long to try, any file may."""
    if len(pattern) > MAX_PATH_CHARS or len(key) > MAX_PATH_CHARS or pattern.count("*") > MAX_STARS:
        return True
    return fnmatchcase(key, pattern)


def _find_changed_paths(name: str, words: Sequence[Text]) -> Sequence[Text]:
    """Return the paths that a command changes which is known for that."""
    paths = [word for word in words if word.parts and not (word.known or "").startswith("-")]
    if name in _COPIES:
        return paths[-1:]
    if name == "wget":
        urls = (word.known.rpartition("/")[2] for word in paths if word.known and "://" in word.known)
        return [literal(url, words[0].line) for url in urls if url]
    if name == "find":
        pairs = list(pairwise(words))
        acts = any(before.known in ("-exec", "-execdir") and after.known in _IN_PLACE for before, after in pairs)
        return [after for before, after in pairs if before.known in ("-name", "-iname")] if acts else ()
    return paths if name not in _IN_PLACE or _is_in_place(words) else ()


def _is_in_place(words: Sequence[Text]) -> bool:
    """Return whether an editor of streams writes into its files."""
    return any("i" in flag for word in words if (flag := word.known or "").startswith("-"))
