"""Where does an unquoted text end one word and begin the next, when parts of it may be unknown?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from opsk_jobcheck.readers.shell.fields import DEFAULT_IFS, split_fields
from opsk_jobcheck.readers.shell.source import MARK_OPEN
from opsk_jobcheck.readers.shell.syntax import Lit, Word
from opsk_jobcheck.readers.shell.values import MAX_VALUE_CHARS, Part, Text

_BLANKS = re.compile(r"[ \t\n]+")


def unsplit(word: Word) -> str:
    """Return the text of a word that is one piece of text, in quotes or not, and in which nothing is to be expanded."""
    segments = word.segments
    if len(segments) != 1 or not isinstance(only := segments[0], Lit):
        return ""
    text = only.text
    return text if len(text) <= MAX_VALUE_CHARS and "{" not in text and MARK_OPEN not in text else ""


def longer(word: list[Part] | None, parts: Iterable[Part]) -> list[Part]:
    """Add parts to a word that may not have begun; in place, so that long words stay cheap."""
    if word is None:
        return list(parts)
    word.extend(parts)
    return word


def may_vanish(members: Sequence[Text], index: int) -> bool:
    """Tell whether a member, or the one before it, may be none: what stands before and behind is then one word."""
    pair = (member.parts for member in members[index - 1 : index + 1])
    return any(parts and all(part.many and not part.text for part in parts) for parts in pair)


def split_by(ifs: str | None, text: Text, done: list[list[Part]], current: list[Part] | None) -> list[Part] | None:
    """Split a text at IFS; finished words go to ``done``, the open one is returned."""
    if ifs == DEFAULT_IFS:
        return _split_parts(text, done, current)
    known = text.known
    if ifs is None or known is None:
        why = text.why or "IFS is not known"
        return longer(current, (Part("", text.line, why, many=True),)) if text.parts else current
    fields = split_fields(known, ifs)
    if not fields:
        if known and current is not None:
            done.append(current)
            return None
        return current
    if fields[0][0] and current is not None:
        done.append(current)
        current = None
    for index, (_, field) in enumerate(fields):
        if index:
            done.append(current or [])
            current = []
        current = longer(current, (Part(field, text.line),) if field else ())
    offset, last = fields[-1]
    if offset + len(last) < len(known):
        done.append(current or [])
        return None
    return current


def _split_parts(text: Text, done: list[list[Part]], current: list[Part] | None) -> list[Part] | None:
    """Split a text at blanks; finished words go to ``done``, the open one is returned."""
    for part in text.parts:
        if part.why:
            current = longer(current, (part._replace(many=True),))
            continue
        pieces = _BLANKS.split(part.text)
        for index, piece in enumerate(pieces):
            if index and current is not None:
                done.append(current)
                current = None
            if piece:
                current = longer(current, (Part(piece, part.line),))
    return current
