"""Which texts would a command write into which files?"""

from __future__ import annotations

from opsk_jobcheck.readers.shell.expansion import Expander
from opsk_jobcheck.readers.shell.syntax import Simple
from opsk_jobcheck.readers.shell.values import Text, join, unknown


def write_files(written: dict[str, Text], expander: Expander, words: list[Text], command: Simple) -> None:
    """Add to ``written`` the text that ``cat <<EOF > file`` and its kin write, by path."""
    body = next((entry.body for entry in command.redirects if entry.body is not None), None)
    targets = [entry.target for entry in command.redirects if entry.op in (">", ">|", ">>")]
    adds = any(entry.op == ">>" for entry in command.redirects) or any(word.known == "-a" for word in words[1:2])
    name = (words[0].known or "") if words else ""
    if body is None and name not in ("echo", "printf"):
        return
    text = expander.text(body) if body is not None else _spoken(words)
    paths = [expander.text(target) for target in targets]
    if name == "tee":
        paths += words[1:]
    for path in paths:
        before = written.get(path.key) if adds else None
        written[path.key] = join((before, text)) if before is not None else text


def _spoken(words: list[Text]) -> Text:
    """Return what ``echo`` or ``printf`` with one argument writes."""
    said = [word for word in words[1:] if (word.known or "") not in ("-e", "-n", "-en")]
    return said[0] if len(said) == 1 else unknown("it is put together by echo", words[0].line if words else 0)
