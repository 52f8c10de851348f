"""Which texts would a command write into which files?"""

from __future__ import annotations

from collections.abc import Iterator

from opsk_jobcheck.readers.shell.expansion import Expander
from opsk_jobcheck.readers.shell.syntax import Simple
from opsk_jobcheck.readers.shell.values import Text, unknown

_TEE = "tee"


def writes(words: list[Text], command: Simple) -> bool:
    """Tell whether `written_files` could yield anything at all."""
    return bool(command.redirects) or (bool(words) and words[0].known == _TEE)


def written_files(expander: Expander, words: list[Text], command: Simple) -> Iterator[tuple[Text, Text | None, bool]]:
    """Yield what a command writes: the path, the text or ``None`` where it is not known, and whether it is added.

    Known is what ``cat <<EOF > file``, ``tee file <<EOF`` and ``echo text > file`` write.
    """
    body = next((entry.body for entry in command.redirects if entry.body is not None), None)
    targets = [entry.target for entry in command.redirects if entry.op in (">", ">|", ">>")]
    adds = any(entry.op == ">>" for entry in command.redirects) or any(word.known == "-a" for word in words[1:2])
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


def _spoken(words: list[Text]) -> Text:
    """Return what ``echo`` or ``printf`` with one argument writes."""
    said = [word for word in words[1:] if (word.known or "") not in ("-e", "-n", "-en")]
    return said[0] if len(said) == 1 else unknown("it is put together by echo", words[0].line if words else 0)
