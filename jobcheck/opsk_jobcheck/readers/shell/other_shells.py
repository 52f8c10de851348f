"""What does a script hand to other shells: a text (``bash -c "..."``), or another script that it starts or sources?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from opsk_jobcheck.readers.shell.changes import changer
from opsk_jobcheck.readers.shell.directories import DIRECTORY, directory, place_key, placed
from opsk_jobcheck.readers.shell.handed_on import HandedOn, hand_on, handed_on
from opsk_jobcheck.readers.shell.second_scripts import Started, inherited, started_script
from opsk_jobcheck.readers.shell.source import Source, expanded_source, script_source
from opsk_jobcheck.readers.shell.values import Scalar, Text

if TYPE_CHECKING:
    from opsk_jobcheck.readers.shell.evaluate import Evaluator

MAX_STARTED = 16
"""Scripts that are followed into, of all that a script starts."""
_INNER_SCRIPT = re.compile(r"-[a-z]*c[a-z]*")
_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "/bin/bash", "/bin/sh", "/usr/bin/bash", "/usr/bin/env"})


def walk_handed_over(evaluator: Evaluator, words: Sequence[Text], known: Sequence[str], where: Text) -> None:
    """Walk what a command hands to another shell, where it hands over anything that can be told.

    Parameters
    ----------
    words, known
        The command, and its words as far as they are known.
    where
        The directory that it runs in.
    """
    if (script := started_script(words, known)) is not None:
        _start(evaluator, script, where)
        return
    shell: int | None = None
    for at, before in enumerate(known[:-1], start=1):
        if shell is not None and _INNER_SCRIPT.fullmatch(before):
            _inner(evaluator, words[at], tuple(words[at + 2 :]), handed_on(known[:shell]))
            return
        if before in _SHELLS:
            shell = at


def named_source(evaluator: Evaluator, path: Text, where: Text | None = None) -> Source | None:
    """Return the source of a script that is named: written by this one, or given; else it is wanted."""
    where = directory(evaluator.scope) if where is None else where
    key = place_key(path, where)
    if changer(evaluator.changed, key):
        return None
    if key in evaluator.written:
        return expanded_source(evaluator.written[key])
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


def _start(evaluator: Evaluator, script: Started, where: Text) -> None:
    """Walk another script that is started, with what is exported to it."""
    outer = evaluator.scope, evaluator.functions, evaluator.frames, evaluator.ended, evaluator.open_turns
    inside = inherited(evaluator.scope, script.arguments)
    inside.set(DIRECTORY, Scalar(where))
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
