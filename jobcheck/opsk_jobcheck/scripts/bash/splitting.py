"""Splits unquoted text into words at IFS; parts of the text may be unknown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from opsk_jobcheck.scripts.bash.lexer import MARK_OPEN
from opsk_jobcheck.scripts.bash.syntax import Lit, Word
from opsk_jobcheck.scripts.bash.values import MAX_VALUE_CHARS, Text, WordPart

DEFAULT_IFS = " \t\n"
MAX_WORDS = 256
_PAIR = re.compile(r"\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}")
_RANGE = re.compile(r"(0|-?[1-9][0-9]{0,3})\.\.(0|-?[1-9][0-9]{0,3})")
_ELSE = "\1"
"""Replaces everything but plain text in the search for a pair."""
_BLANKS = re.compile(r"[ \t\n]+")


def split_fields(text: str, ifs: str) -> list[tuple[int, str]]:
    """Return the fields that an unquoted expansion becomes, each with its offset.

    Source: bash manual, "Word Splitting": blanks of IFS at both ends go away and count once between fields; any other
    character of IFS ends a field, which may be empty.
    """
    fields: list[tuple[int, str]] = []
    blank = "".join(sign for sign in ifs if sign in DEFAULT_IFS)
    start = len(text) - len(text.lstrip(blank)) if blank else 0
    for match in _compile_delimiters(ifs).finditer(text, start):
        fields.append((start, text[start : match.start()]))
        start = match.end()
    if start < len(text):
        fields.append((start, text[start:]))
    return fields


def read_fields(text: str, ifs: str, count: int) -> list[tuple[int, str]]:
    """Return what ``read`` gives to ``count`` names from one line; the last takes all that is left."""
    blank = "".join(sign for sign in ifs if sign in DEFAULT_IFS)
    end = len(text.rstrip(blank)) if blank else len(text)
    start = min(len(text) - len(text.lstrip(blank)) if blank else 0, end)
    fields: list[tuple[int, str]] = []
    delimiters = _compile_delimiters(ifs)
    while len(fields) < count - 1 and start < end:
        match = delimiters.search(text, start, end)
        fields.append((start, text[start : match.start() if match else end]))
        start = match.end() if match else end
    rest = text[start:end]
    only = delimiters.search(rest)
    if only and only.end() == len(rest):
        rest = rest[: only.start()]
    fields.append((start, rest))
    return fields + [(end, "")] * (count - len(fields))


def _compile_delimiters(ifs: str) -> re.Pattern[str]:
    """Return the pattern of what stands between two fields."""
    if not ifs:
        return re.compile(r"(?!)")
    blank = "".join(sign for sign in ifs if sign in DEFAULT_IFS)
    other = "".join(sign for sign in ifs if sign not in DEFAULT_IFS)
    blanks = f"[{re.escape(blank)}]" if blank else "(?!)"
    if not other:
        return re.compile(f"{blanks}+")
    return re.compile(f"{blanks}*[{re.escape(other)}]{blanks}*|{blanks}+")


def is_braced(word: Word) -> bool:
    """Return whether bash makes several words of a word."""
    for piece in word.segments:
        if isinstance(piece, Lit) and "{" in piece.text and not piece.quoted:
            break
    else:  # nearly all words
        return False
    pieces = [piece.text if isinstance(piece, Lit) and not piece.quoted else _ELSE for piece in word.segments]
    return _PAIR.search("".join(pieces)) is not None


def expand_braces(word: Word) -> list[Word] | None:
    """Return the words that bash makes of a word with braces, ``None`` where that is not followed."""
    text = word.bare or ""
    pair = _PAIR.search(text)
    if pair is None or text.count("{") > 1 or text.count("}") > 1:
        return None
    inside = pair.group()[1:-1]
    if "," in inside:
        members = inside.split(",")
    elif span := _RANGE.fullmatch(inside):
        first, last = int(span[1]), int(span[2])
        step = 1 if last >= first else -1
        if abs(last - first) >= MAX_WORDS:
            return None
        members = [str(number) for number in range(first, last + step, step)]
    else:
        return None
    whole = [f"{text[: pair.start()]}{member}{text[pair.end() :]}" for member in members[:MAX_WORDS]]
    return [Word([Lit(text, word.line)], word.line) for text in whole if text]


def get_literal_text(word: Word) -> str:
    """Return the text of a word that is one piece of text, in quotes or not, and in which nothing is to be expanded."""
    segments = word.segments
    if len(segments) != 1 or not isinstance(only := segments[0], Lit):
        return ""
    text = only.text
    return text if len(text) <= MAX_VALUE_CHARS and "{" not in text and MARK_OPEN not in text else ""


def extend_word(word: list[WordPart] | None, parts: Iterable[WordPart]) -> list[WordPart]:
    """Add parts to a word that may not have begun; in place, so that long words stay cheap."""
    if word is None:
        return list(parts)
    word.extend(parts)
    return word


def may_vanish(members: Sequence[Text], index: int) -> bool:
    """Return whether a member, or the one before it, may be empty: the text before and after is then one word."""
    pair = (member.parts for member in members[index - 1 : index + 1])
    return any(parts and all(part.many and not part.text for part in parts) for parts in pair)


def split_at_ifs(
    ifs: str | None, text: Text, done: list[list[WordPart]], current: list[WordPart] | None
) -> list[WordPart] | None:
    """Split a text at IFS; finished words go to ``done``, the open one is returned."""
    if ifs == DEFAULT_IFS:
        return _split_parts(text, done, current)
    known = text.known
    if ifs is None or known is None:
        why = text.why or "IFS is not known"
        return extend_word(current, (WordPart("", text.line, why, many=True),)) if text.parts else current
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
        current = extend_word(current, (WordPart(field, text.line),) if field else ())
    offset, last = fields[-1]
    if offset + len(last) < len(known):
        done.append(current or [])
        return None
    return current


def _split_parts(text: Text, done: list[list[WordPart]], current: list[WordPart] | None) -> list[WordPart] | None:
    """Split a text at blanks; finished words go to ``done``, the open one is returned."""
    for part in text.parts:
        if part.why:
            current = extend_word(current, (part._replace(many=True),))
            continue
        pieces = _BLANKS.split(part.text)
        for index, piece in enumerate(pieces):
            if index and current is not None:
                done.append(current)
                current = None
            if piece:
                current = extend_word(current, (WordPart(piece, part.line),))
    return current
