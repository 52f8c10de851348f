"""Which lines at the top of a script are directives, and into which words does sbatch cut them?"""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_WORDS = 4096
SEPARATORS = ("hetjob", "packjob")
"""Words between the components of a heterogeneous job."""
SPACE = " \t\r\v\f"
"""What C's ``isspace`` takes, but for the end of a line."""

_SIGNS = re.compile(r"[\\\"'#]")
_FIRST_SIGN = re.compile(rf"[{SPACE}]*(?=[#\n]|\Z)")
"""A line that is blank or a comment, up to its sign."""
_WORD = re.compile(rf"[^{SPACE}]+")
_OTHERS = (("#PBS", "pbs"), ("#BSUB", "lsf"), ("#COBALT", "cobalt"))


def sbatch_words(line: str) -> tuple[tuple[str, ...], str]:
    """Return the words that sbatch makes of a directive line, and the quote that it does not close (or nothing).

    Quotes group; a backslash takes the next character as it is; an unquoted ``#`` ends the line wherever it stands;
    so do an empty word and a separator of components. Nothing is expanded. An escaped blank belongs to the word, as in
    Slurm 26.05; 22.05 ends the word there.
    """
    if _SIGNS.search(line) is None:
        return _blank_separated(line), ""
    words: list[str] = []
    at, size = 0, len(line)
    while True:
        while at < size and line[at] in SPACE:
            at += 1
        word: list[str] = []
        quote = ""
        while at < size and (quote or line[at] not in SPACE):
            character = line[at]
            at += 1
            if character == "\\":
                if at < size and (line[at] == " " or line[at] not in SPACE):
                    word.append(line[at])
                    at += 1
            elif quote and character == quote:
                quote = ""
            elif not quote and character in "\"'":
                quote = character
            elif not quote and character == "#":
                at = size
            else:
                word.append(character)
        if quote:
            return (), quote
        found = "".join(word)
        if not found or found.lower() in SEPARATORS or len(words) >= MAX_WORDS:
            return tuple(words), ""
        words.append(found)


def _blank_separated(line: str) -> tuple[str, ...]:
    """Return the words of a line that has no sign of quoting: most have none."""
    words = _WORD.findall(line)[:MAX_WORDS]
    end = next((at for at, word in enumerate(words) if word.lower() in SEPARATORS), len(words))
    return tuple(words[:end])


def head_end(text: str) -> int:
    """Return where the first command of a script begins, the length of the text where there is none."""
    start = 0
    while found := _FIRST_SIGN.match(text, start):
        newline = text.find("\n", found.end())
        if newline < 0:
            return len(text)
        start = newline + 1
    return start


def head_lines(head: str) -> Iterator[str]:
    """Return the lines of a script up to its first command."""
    start = 0
    while start < len(head):
        end = head.find("\n", start)
        end = len(head) if end < 0 else end
        line = head[start:end]
        if line.lstrip(SPACE)[:1] not in ("", "#"):
            return
        yield line
        start = end + 1


def other_scheduler(head: str) -> str | None:
    """Return the scheduler whose directives a script has that has none for Slurm."""
    for line in head_lines(head):
        for magic, name in _OTHERS:
            if line.startswith(magic) and line[len(magic) : len(magic) + 1] in ("", " ", "\t"):
                return name
    return None
