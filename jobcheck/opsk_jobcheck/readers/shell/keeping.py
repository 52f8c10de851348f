"""What is kept of the files that a script writes, and which of them does it change in ways that are not followed?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from opsk_jobcheck.readers.shell.changes import changed_by_code, changed_files, interpreter_of, may_run_text
from opsk_jobcheck.readers.shell.directories import directory, place_key
from opsk_jobcheck.readers.shell.syntax import Redirect, Simple
from opsk_jobcheck.readers.shell.values import Text, join, unknown
from opsk_jobcheck.readers.shell.written import writes, written_files

if TYPE_CHECKING:
    from opsk_jobcheck.readers.shell.evaluate import Evaluator


def keep_written(evaluator: Evaluator, words: list[Text], known: tuple[str, ...], command: Simple) -> None:
    """Keep the texts that a command writes into files, and which files it changes unseen."""
    where = directory(evaluator.scope)
    unseen: list[Text] = []
    for path, text, adds in written_files(evaluator.expander(), words, command) if writes(words, command) else ():
        key = place_key(path, where)
        before = evaluator.written.get(key) if adds else None
        if text is None or (adds and before is None):
            unseen.append(path)
            continue
        if not evaluator.certain:
            text = unknown("it is written only if a test holds", command.line)
        evaluator.written[key] = join((before, text)) if before is not None else text
        evaluator.changed.pop(key, None)
    name = words[0].shown[:40] if words else "a redirection"
    for path in changed_files(words, known, unseen):
        evaluator.changed[place_key(path, where)] = name
    if may_run_text(known, command) and (at := interpreter_of(known)) is not None:
        bodies = [evaluator.expander().text(entry.body).shown for entry in command.redirects if entry.body is not None]
        evaluator.spend(sum(map(len, bodies)))
        found = changed_by_code(words, known, at, bodies)
        held = (evaluator.scope.text(variable, command.line) for variable in found.variables)
        for path in (*found.paths, *(text for text in held if text.known)):
            evaluator.changed[place_key(path, where)] = name


def lose_written(evaluator: Evaluator, redirects: Iterable[Redirect]) -> None:
    """Note that the output of several commands goes into files: what these hold is not followed."""
    for redirect in redirects:
        path = evaluator.expander().text(redirect.target)
        evaluator.changed[place_key(path, directory(evaluator.scope))] = "several commands"
