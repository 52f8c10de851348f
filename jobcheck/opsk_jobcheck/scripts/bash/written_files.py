"""Records the files that a script writes, and those that it changes in ways that are not followed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from opsk_jobcheck.scripts.bash.changed_files import (
    find_changed_files,
    find_files_changed_by_code,
    find_interpreter,
    may_run_text,
)
from opsk_jobcheck.scripts.bash.directories import compute_path_key, get_directory
from opsk_jobcheck.scripts.bash.expansion import Expander
from opsk_jobcheck.scripts.bash.syntax import Redirect, Simple
from opsk_jobcheck.scripts.bash.values import Text, join, literal, unknown

if TYPE_CHECKING:
    from opsk_jobcheck.scripts.bash.evaluate import Evaluator

_TEE = "tee"


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
        return unknown(f"it is put together by {name}", line)
    return operands[0] if name == "printf" or "-n" in options else join((operands[0], literal("\n", operands[0].line)))


def record_written_files(evaluator: Evaluator, words: list[Text], known: tuple[str, ...], command: Simple) -> None:
    """Record the texts that a command writes into files, and the files that it changes in unknown ways."""
    where = get_directory(evaluator.scope)
    unseen: list[Text] = []
    for path, text, adds in (
        find_written_files(evaluator.expander(), words, command) if may_write_files(words, command) else ()
    ):
        key = compute_path_key(path, where)
        before = evaluator.written.get(key) if adds else None
        if text is None or (adds and before is None):
            unseen.append(path)
            continue
        if not evaluator.certain:
            text = unknown("it is written only if a test holds", command.line)
        evaluator.written[key] = join((before, text)) if before is not None else text
        evaluator.changed.pop(key, None)
    name = words[0].shown[:40] if words else "a redirection"
    for path in find_changed_files(words, known, unseen):
        evaluator.changed[compute_path_key(path, where)] = name
    if may_run_text(known, command) and (index := find_interpreter(known)) is not None:
        bodies = [evaluator.expander().text(entry.body).shown for entry in command.redirects if entry.body is not None]
        evaluator.spend(sum(map(len, bodies)))
        changed = find_files_changed_by_code(words, known, index, bodies)
        held = (evaluator.scope.text(variable, command.line) for variable in changed.variables)
        for path in (*changed.paths, *(text for text in held if text.known)):
            evaluator.changed[compute_path_key(path, where)] = name


def forget_written_files(evaluator: Evaluator, redirects: Iterable[Redirect]) -> None:
    """Record files that receive the output of several commands; their content is not followed."""
    for redirect in redirects:
        path = evaluator.expander().text(redirect.target)
        evaluator.changed[compute_path_key(path, get_directory(evaluator.scope))] = "several commands"
