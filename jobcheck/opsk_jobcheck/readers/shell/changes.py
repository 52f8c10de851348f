"""Which files does a command change in a way that is not followed? What such a file says at submission says nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from opsk_jobcheck.readers.shell.values import Text

_IN_PLACE = frozenset({"sed", "perl", "yq", "crudini", "ruby", "dasel", "ex"})
_COPIES = frozenset({"cp", "mv", "ln", "install", "rsync", "scp"})
_CHANGERS = _IN_PLACE | _COPIES | {"truncate"}
_OUTPUTS = frozenset(("--out", "--output", "--output-file", "--out-file", "-o", "--save", "--save-path", "--write"))
_NOWHERE = ("/dev/null", "/dev/stdout", "/dev/stderr")


def changed_files(words: Sequence[Text], known: Sequence[str], written_to: Sequence[Text]) -> Iterator[Text]:
    """Yield the paths that a command may change: edited in place, copied over, written to, or named as its output.

    Parameters
    ----------
    words, known
        The command, and its words as far as they are known.
    written_to
        Targets of its redirections, those of followed here-documents left out.
    """
    yield from (path for path in written_to if path.known not in _NOWHERE)
    name = known[0].rpartition("/")[2] if known else ""
    if name in _CHANGERS:
        yield from _changed_by(name, words[1:])
    if not _OUTPUTS.isdisjoint(known):
        pairs = zip(words[1:], pairwise(known), strict=True)
        yield from (word for word, (before, path) in pairs if before in _OUTPUTS and path)


def _changed_by(name: str, words: Sequence[Text]) -> Sequence[Text]:
    """Return the paths that a command changes which is known for that."""
    paths = [word for word in words if word.known and not word.known.startswith("-")]
    if name in _COPIES:
        return paths[-1:]
    flags = [word.known or "" for word in words if (word.known or "").startswith("-")]
    return paths if name not in _IN_PLACE or any("i" in flag for flag in flags) else ()
