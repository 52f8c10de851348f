"""Which texts would a command write into which files?"""

from __future__ import annotations

from collections.abc import Iterator

from opsk_jobcheck.readers.shell.expansion import Expander
from opsk_jobcheck.readers.shell.syntax import Simple
from opsk_jobcheck.readers.shell.values import Text, join, literal, unknown

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
