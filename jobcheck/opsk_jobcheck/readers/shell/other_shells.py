"""What does a script hand to other shells: a text (``bash -c "..."``), or another script that it starts or sources?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from opsk_jobcheck.readers.shell.changes import changer
from opsk_jobcheck.readers.shell.directories import directory, place_key, placed, seen, stand
from opsk_jobcheck.readers.shell.handed_on import HandedOn, hand_on, handed_on
from opsk_jobcheck.readers.shell.second_scripts import SHELLS, Started, inherited, started_script
from opsk_jobcheck.readers.shell.source import Source, expanded_source, script_source
from opsk_jobcheck.readers.shell.syntax import Redirect
from opsk_jobcheck.readers.shell.values import HANDS_OVER, Text

if TYPE_CHECKING:
    from opsk_jobcheck.readers.shell.evaluate import Evaluator
    from opsk_jobcheck.readers.shell.expansion import Expander

MAX_STARTED = 16
"""Scripts that are followed into, of all that a script starts."""
_INNER_SCRIPT = re.compile(r"-[a-z]*c[a-z]*")
_TALKERS = frozenset({"echo", "printf", "which", "type", "man", "alias", "logger"})
_HAND_INPUT_ON = frozenset(
    {"srun", "env", "time", "nohup", "exec", "numactl", "nice", "stdbuf", "singularity", "apptainer"}
)
"""What gives its own input to the shell that it starts."""
_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "/bin/bash", "/bin/sh", "/usr/bin/bash", "/usr/bin/env"})


def walk_handed_over(
    evaluator: Evaluator, words: Sequence[Text], known: Sequence[str], where: Text, given: Text | None = None
) -> None:
    """Walk what a command hands to another shell, where it hands over anything that can be told.

    Parameters
    ----------
    words, known
        The command, and its words as far as they are known.
    where
        The directory that it runs in.
    given
        What stands behind it as its input, if anything does.
    """

    def is_written(path: Text) -> bool:
        return place_key(path, where) in evaluator.written

    if known[0] in _TALKERS or "xargs" in known or "find" in known[:1]:
        return  # it is only said, or its words are filled in
    if (script := started_script(words, known, is_written)) is not None:
        _start(evaluator, script, where, handed_on(words[: script.at], known[: script.at]))
        return
    shell: int | None = None
    for at, before in enumerate(known[:-1], start=1):
        if shell is not None and _INNER_SCRIPT.fullmatch(before):
            _hand_over(evaluator, words, known, words[at], shell=shell, behind=at + 2)
            return
        if before in _SHELLS:
            shell = at
    if given is not None and (rest := _reads_input(known)) is not None:
        behind = len(words) - rest
        _hand_over(evaluator, words, known, given, shell=behind, behind=behind)


def _hand_over(
    evaluator: Evaluator, words: Sequence[Text], known: Sequence[str], text: Text, *, shell: int, behind: int
) -> None:
    """Walk a text that the command kept last gives to its shell, whose name ends before the word ``shell``.

    Words from ``behind`` on are that shell's arguments.
    """
    outer, before = evaluator.invocations[-1], len(evaluator.invocations)
    _inner(evaluator, text, tuple(words[behind:]), handed_on(words[:shell], known[:shell]))
    starts_program = "-m" in known[:shell] or any(word.endswith(".py") for word in known[:shell])
    if len(evaluator.invocations) > before and not starts_program:
        outer.facts[HANDS_OVER] = True


def input_of(expander: Expander, redirects: Sequence[Redirect]) -> Text | None:
    """Return the text that a command is given as its input (``<<EOF``, ``<<<``), ``None`` where there is none."""
    for entry in reversed(redirects):
        if entry.op in ("<<", "<<-", "<<<"):
            return expander.text(entry.body if entry.body is not None else entry.target)
        if entry.op in ("<", "<>"):
            return None
    return None


def _reads_input(known: Sequence[str]) -> int | None:
    """Return how many arguments a shell gets that reads its commands from its input; ``None`` where none does.

    mpirun gives its input to one rank, ssh to another host: what that means for the job is not followed.
    """
    at = next((at for at, word in enumerate(known) if word.rpartition("/")[2] in SHELLS), None)
    if at is None or (at and known[0].rpartition("/")[2] not in _HAND_INPUT_ON):
        return None
    if any(word.startswith(("--input", "-i")) for word in known[:at]):
        return None
    for place, word in enumerate(known[at + 1 :], start=at + 1):
        if word in ("-s", "--", "-"):
            behind = known[place + 1 :]
            return len(behind) - (behind[:1] == ("--",)) if word == "-s" else (0 if not behind else None)
        if not word.startswith(("-", "+")) or _INNER_SCRIPT.fullmatch(word) or word in ("-o", "-O", "--rcfile"):
            return None
    return 0


def named_source(evaluator: Evaluator, path: Text, where: Text | None = None) -> Source | None:
    """Return the source of a script that is named: written by this one, or given; else it is wanted."""
    where = directory(evaluator.scope) if where is None else where
    key = place_key(path, where)
    if changer(evaluator.changed, key):
        return None
    if key in evaluator.written:
        return expanded_source(evaluator.written[key])
    path, where = seen(path, where)
    if path.known is None:
        return None
    place, why = placed(path.known, where)
    if why:
        return None
    if place in evaluator.files:
        text = evaluator.files[place]
        return script_source(text, start=evaluator.places.add(place, text.count("\n") + 1))
    evaluator.sourced.append(place)
    return None


def _inner(evaluator: Evaluator, text: Text, arguments: tuple[Text, ...], changes: HandedOn) -> None:
    """Walk a text that another shell would run, with what is exported to it and the words behind the text."""
    if not text.parts:
        return
    evaluator.depth += 4
    outer = evaluator.scope
    evaluator.scope = inherited(outer, arguments)
    hand_on(evaluator.scope, changes, text.line)
    was_ended, turns, evaluator.open_turns = evaluator.ended, evaluator.open_turns, []
    evaluator.read(expanded_source(text))
    evaluator.scope, evaluator.ended, evaluator.open_turns = outer, was_ended, turns
    evaluator.is_over = False
    evaluator.depth -= 4


def _start(evaluator: Evaluator, script: Started, where: Text, changes: HandedOn) -> None:
    """Walk another script that is started, with what is exported to it."""
    outer = evaluator.scope, evaluator.functions, evaluator.frames, evaluator.ended, evaluator.open_turns
    inside = inherited(evaluator.scope, script.arguments)
    hand_on(inside, changes, script.path.line)
    stand(inside, where)
    source = named_source(evaluator, script.path, where) if evaluator.started < MAX_STARTED else None
    if source is None:
        return
    evaluator.started += 1
    evaluator.depth += 8
    evaluator.scope, evaluator.functions, evaluator.frames, evaluator.open_turns = inside, {}, [], []
    evaluator.read(source)
    evaluator.scope, evaluator.functions, evaluator.frames, evaluator.ended, evaluator.open_turns = outer
    evaluator.is_over = False
    evaluator.depth -= 8
