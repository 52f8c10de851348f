"""What does a command do to the variables that it hands on to the shell it starts? ``srun --export``, ``env``, boxes.

Source: ``--export`` in srun(1), env(1), sudo(8), mpirun(1) of Open MPI, ``apptainer exec --env``, ``docker run -e``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from opsk_jobcheck.readers.shell.scope import EXPORTED, Scope
from opsk_jobcheck.readers.shell.values import Scalar, Text, literal, unknown

_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_BOXES = frozenset({"singularity", "apptainer"})
_CLOSED_BOXES = frozenset({"docker", "podman", "enroot", "sudo"})
"""What hands on little or nothing of what is exported."""
_CLEARS = {
    "env": frozenset({"-i", "-", "--ignore-environment"}),
    **dict.fromkeys(_BOXES, frozenset({"-e", "--cleanenv", "-C", "--containall"})),
}
_SETS = {
    **dict.fromkeys(_BOXES, frozenset({"--env"})),
    **dict.fromkeys(("docker", "podman"), frozenset({"-e", "--env"})),
    "enroot": frozenset({"-e", "--env"}),
    **dict.fromkeys(("mpirun", "mpiexec", "orterun"), frozenset({"-x", "-genv", "-env"})),
}


@dataclass(slots=True)
class HandedOn:
    """What becomes of variables: some are ``given`` a value; of the others nothing is known where it ``is_closed``.

    ``by`` is what does that, for people.
    """

    given: dict[str, Text] = field(default_factory=dict)
    by: str = ""
    is_closed: bool = False


def handed_on(words: Sequence[Text], before: Sequence[str]) -> HandedOn:
    """Return what the words of a command before the shell that it starts do to variables.

    Parameters
    ----------
    words, before
        Those words, and as far as they are known.
    """
    found, starter = HandedOn(), ""
    for index, word in enumerate(before):
        if words[index].known is None:
            _unknown_word(words[index], starter, found)
            continue
        name = word.rpartition("/")[2]
        if name in _CLOSED_BOXES:
            found.is_closed, found.by = True, name
        if name in ("srun", "env") or name in _SETS or name in _CLOSED_BOXES:
            starter = name
        elif word.startswith("--export"):
            _exported(word.partition("=")[2] or next(iter(before[index + 1 : index + 2]), ""), found)
        elif word in _CLEARS.get(starter, ()):
            found.is_closed, found.by = True, starter
        elif starter == "env" and (match := _ASSIGNED.fullmatch(word)):
            found.given[match[1]], found.by = literal(match[2], words[index].line), starter
        elif starter == "env" and word.startswith(("-u", "--unset")):
            found.is_closed, found.by = True, starter
        else:
            flag, equals, value = word.partition("=")
            if flag in _SETS.get(starter, ()):
                value = value if equals else next(iter(before[index + 1 : index + 2]), "")
                found.given |= dict(_pairs(value, starter))
    return found


def _unknown_word(word: Text, starter: str, found: HandedOn) -> None:
    """Take in a word that is not known: of an assignment the value is lost, behind ``env`` it may be any."""
    start = word.parts[0].text
    if starter == "env" and (match := _ASSIGNED.fullmatch(start)):
        found.given[match[1]], found.by = (
            word._replace(parts=(*literal(match[2], word.line).parts, *word.parts[1:])),
            starter,
        )
    elif starter == "env" or start.startswith("--export"):
        found.is_closed, found.by = True, starter


def _exported(asked: str, found: HandedOn) -> None:
    """Take in what ``srun --export`` says: names, ``NAME=value``, ``ALL`` or ``NONE``."""
    parts = [part.strip() for part in asked.split(",")]
    found.by = "srun --export"
    found.is_closed = found.is_closed or "ALL" not in (part.upper() for part in parts)
    found.given |= dict(_pairs(asked, "srun"))


def _pairs(text: str, starter: str) -> Iterator[tuple[str, Text]]:
    """Yield names with their values; boxes and srun take several, parted by commas."""
    for part in text.split(",") if starter in _BOXES or starter == "srun" else (text,):
        if match := _ASSIGNED.fullmatch(part.strip()):
            yield match[1], literal(match[2], 0)


def hand_on(inside: Scope, changes: HandedOn, line: int) -> None:
    """Change the variables that a shell begins with."""
    if changes.is_closed:
        for name in [name for name in inside.variables if name.startswith(EXPORTED)]:
            bare = name.removeprefix(EXPORTED)
            inside.set(bare, Scalar(unknown(f"{changes.by} may not hand {bare} on", line)))
    for name, value in changes.given.items():
        inside.set(name, Scalar(value))
        inside.set(EXPORTED + name, Scalar(Text()))
