"""What is kept of the files that a script writes, and which of them does it change in ways that are not followed?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from opsk_jobcheck.scripts.bash.changes import changed_by_code, changed_files, interpreter_of, may_run_text
from opsk_jobcheck.scripts.bash.directories import directory, place_key
from opsk_jobcheck.scripts.bash.expansion import Expander
from opsk_jobcheck.scripts.bash.syntax import Redirect, Simple
from opsk_jobcheck.scripts.bash.values import Text, join, literal, unknown

if TYPE_CHECKING:
    from opsk_jobcheck.scripts.bash.evaluate import Evaluator

_TEE = "tee"


def writes(words: list[Text], command: Simple) -> bool:
    """Tell whether `written_files` could yield anything at all."""
    return bool(command.redirects) or (bool(words) and words[0].known == _TEE)


def written_files(expander: Expander, words: list[Text], command: Simple) -> Iterator[tuple[Text, Text | None, bool]]:
    """Yield what a command writes: the path, the text or ``None`` where it is not known, and whether it is added.

    Known is what ``cat <<EOF > file``, ``tee file <<EOF`` and ``echo text > file`` write.
    """
    body = next((entry.body for entry in command.redirects if entry.body is not None), None)
    own = [entry for entry in command.redirects if not entry.is_other]
    targets = [entry.target for entry in own if entry.op in (">", ">|", ">>")]
    adds = any(entry.op == ">>" for entry in own) or any(word.known == "-a" for word in words[1:2])
    name = (words[0].known or "") if words else ""
    text: Text | None = None
    if name in ("echo", "printf"):
        text = _spoken(words)
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


def _spoken(words: list[Text]) -> Text:
    """Return what ``echo`` or ``printf`` with one argument writes."""
    name, line = words[0].known, words[0].line
    options = [word.known for word in words[1:] if word.known in ("-e", "-n", "-en", "-ne")]
    said = words[1 + len(options) :]
    has_escapes = any(
        sign in part.text for word in said for part in word.parts for sign in ("\\" if name == "echo" else "\\%")
    )
    if len(said) != 1 or (has_escapes and (name == "printf" or options not in ([], ["-n"]))):
        return unknown(f"it is put together by {name}", line)
    return said[0] if name == "printf" or "-n" in options else join((said[0], literal("\n", said[0].line)))


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
