"""Finds the directive lines at the top of a script, and splits them into words as sbatch does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum


class ArgumentKind(Enum):
    """Whether an option takes a value."""

    NONE = "none"
    REQUIRED = "required"
    OPTIONAL = "optional"
    """Only after ``=``, or for a short option only without a blank."""


_NONE = """
consolidate-segments contiguous external get-user-env help hold ignore-pbs no-requeue overcommit oversubscribe parsable
quiet reboot share spread-job spread-segments stepmgr test-only usage use-min-nodes verbose version wait
"""
_OPTIONAL = "exclusive nice no-kill oom-kill-step propagate requeue resv-ports"
_REQUIRED = """
account acctg-freq array autocomplete batch bb bbf begin chdir cluster cluster-constraint clusters comment constraint
container container-id context core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot
dependency distribution error exclude export export-file extra extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node
gpus-per-socket gpus-per-task gres gres-flags hint input job-name kill-on-invalid-dep licenses mail-type mail-user
mcs-label mem mem-bind mem-per-cpu mem-per-gpu mem-update mincpus network nodefile nodelist nodes ntasks
ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket ntasks-per-tres open-mode output partition power
prefer priority profile qos reservation resources runtime segment signal sockets-per-node switches tasks-per-node
thread-spec threads-per-core time time-min tmp tres-bind tres-per-task uid wait-all-nodes wckey wrap
"""
_LONG = {
    **dict.fromkeys(_NONE.split(), ArgumentKind.NONE),
    **dict.fromkeys(_OPTIONAL.split(), ArgumentKind.OPTIONAL),
    **dict.fromkeys(_REQUIRED.split(), ArgumentKind.REQUIRED),
}
_SAME = {"tasks-per-node": "ntasks-per-node"}
_SHORT = {
    "A": "account", "a": "array", "b": "begin", "D": "chdir", "M": "clusters", "C": "constraint", "S": "core-spec",
    "c": "cpus-per-task", "d": "dependency", "m": "distribution", "e": "error", "x": "exclude",
    "B": "extra-node-info", "G": "gpus", "h": "help", "H": "hold", "i": "input", "J": "job-name", "L": "licenses",
    "k": "no-kill", "F": "nodefile", "w": "nodelist", "N": "nodes", "n": "ntasks", "o": "output", "O": "overcommit",
    "s": "oversubscribe", "p": "partition", "q": "qos", "Q": "quiet", "t": "time", "V": "version", "v": "verbose",
    "W": "wait",
}  # fmt: skip


def find_long_option(name: str) -> tuple[str, ArgumentKind] | None:
    """Return the full name and kind of a long option, or ``None`` when sbatch itself has none such."""
    if name not in _LONG:
        starts = [full for full in _LONG if full.startswith(name)] if name else []
        if len(starts) != 1:
            return None
        name = starts[0]
    return _SAME.get(name, name), _LONG[name]


def find_short_option(letter: str) -> tuple[str, ArgumentKind] | None:
    """Return the full name and kind of a one-letter option, or ``None`` when sbatch itself has none such."""
    name = _SHORT.get(letter)
    return (name, _LONG[name]) if name else None


MAX_WORDS = 4096
SEPARATORS = ("hetjob", "packjob")
"""Words between the components of a heterogeneous job."""
SPACE = " \t\r\v\f"
"""What C's ``isspace`` takes, but for the end of a line."""

_SPECIAL_CHARACTERS = re.compile(r"[\\\"'#]")
_LINE_START = re.compile(rf"[{SPACE}]*(?=[#\n]|\Z)")
"""A line that is blank or a comment, up to its ``#``."""
_WORD = re.compile(rf"[^{SPACE}]+")
_OTHER_SCHEDULERS = (("#PBS", "pbs"), ("#BSUB", "lsf"), ("#COBALT", "cobalt"))


def split_sbatch_words(line: str) -> tuple[tuple[str, ...], str]:
    """Return the words that sbatch makes of a directive line, and the quote that it does not close (or nothing).

    Quotes group; a backslash takes the next character as it is; an unquoted ``#`` ends the line wherever it stands;
    so do an empty word and a separator of components. Nothing is expanded. An escaped blank belongs to the word, as in
    Slurm 26.05; 22.05 ends the word there.
    """
    if _SPECIAL_CHARACTERS.search(line) is None:
        return _split_at_blanks(line), ""
    words: list[str] = []
    position, size = 0, len(line)
    while True:
        while position < size and line[position] in SPACE:
            position += 1
        word: list[str] = []
        quote = ""
        while position < size and (quote or line[position] not in SPACE):
            character = line[position]
            position += 1
            if character == "\\":
                if position < size and (line[position] == " " or line[position] not in SPACE):
                    word.append(line[position])
                    position += 1
            elif quote and character == quote:
                quote = ""
            elif not quote and character in "\"'":
                quote = character
            elif not quote and character == "#":
                position = size
            else:
                word.append(character)
        if quote:
            return (), quote
        text = "".join(word)
        if not text or text.lower() in SEPARATORS or len(words) >= MAX_WORDS:
            return tuple(words), ""
        words.append(text)


def _split_at_blanks(line: str) -> tuple[str, ...]:
    """Return the words of a line without quoting characters: most have none."""
    words = _WORD.findall(line)[:MAX_WORDS]
    end = next((index for index, word in enumerate(words) if word.lower() in SEPARATORS), len(words))
    return tuple(words[:end])


def find_head_end(text: str) -> int:
    """Return where the first command of a script begins, the length of the text where there is none."""
    start = 0
    while match := _LINE_START.match(text, start):
        newline = text.find("\n", match.end())
        if newline < 0:
            return len(text)
        start = newline + 1
    return start


def iterate_head_lines(head: str) -> Iterator[str]:
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


def find_other_scheduler(head: str) -> str | None:
    """Return the scheduler whose directives a script has that has none for Slurm."""
    for line in iterate_head_lines(head):
        for magic, name in _OTHER_SCHEDULERS:
            if line.startswith(magic) and line[len(magic) : len(magic) + 1] in ("", " ", "\t"):
                return name
    return None
