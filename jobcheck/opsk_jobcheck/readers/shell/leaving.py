"""What do ``exit``, ``return``, ``break`` and ``continue`` leave, and is that certain?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opsk_jobcheck.readers.shell.syntax import Simple
from opsk_jobcheck.readers.shell.values import Text

if TYPE_CHECKING:
    from opsk_jobcheck.readers.shell.evaluate import Evaluator


def leave_shell(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``exit`` and ``return`` end the branch at hand."""
    if words[0].known == "return":
        if not evaluator.frames:
            return None
        evaluator.frames[-1].scopes.append(evaluator.scope.copy())
        evaluator.frames[-1].returned = evaluator.certain
        evaluator.ended = True
    else:
        end_shell(evaluator)
    return bool(command and words)


def end_shell(evaluator: Evaluator) -> None:
    """End the shell at hand: certainly, where no test stands before, nor a ``return`` that may have left a function."""
    evaluator.ended = True
    is_left = any(frame.scopes for frame in evaluator.frames)
    evaluator.is_over = evaluator.is_over or (evaluator.certain and not evaluator.guards and not is_left)


def leave_loop(evaluator: Evaluator, command: Simple, words: list[Text]) -> bool | None:
    """``break`` and ``continue`` end the branch at hand, in a loop that is walked turn by turn."""
    turn = evaluator.open_turns[-1] if evaluator.open_turns else None
    if turn is not None:
        (turn.broken if words[0].known == "break" else turn.continued).append(evaluator.scope.copy())
        evaluator.ended = True
    return bool(command)
