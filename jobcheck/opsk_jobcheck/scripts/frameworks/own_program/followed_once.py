"""Follows a program once, where a script starts it several times with settings that it does not look at, or the same.

A script that starts one program on each of its nodes gives each a rank of its own. What a program asks for is noted
while it is followed; where the answers are the same, so is what follows from them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.count import Followed, follow_program
from opsk_jobcheck.scripts.frameworks.own_models.machine import LookUp
from opsk_jobcheck.scripts.frameworks.own_models.training.usual_inputs import Inputs
from opsk_jobcheck.scripts.frameworks.own_models.values import File

MAX_RESULTS = 4
"""Programs whose results are at hand."""
MAX_QUESTIONS = 4000
"""A program that asks more is followed each time."""


@dataclass(slots=True)
class _Questions:
    """Settings that note what is asked for, and the answers."""

    settings: LookUp
    asked: dict[tuple[Any, ...], str] = field(default_factory=dict)

    def find(self, path: tuple[str, ...], *, of_file: bool) -> Any:
        """Return the value of a setting by its dotted name."""
        return self._note(("find", path, of_file), self.settings.find(path, of_file=of_file))

    def find_given(self, name: str) -> Any:
        """Return a value of the command line."""
        return self._note(("given", name), self.settings.find_given(name))

    def list_names(self, path: tuple[str, ...]) -> list[str]:
        """Return the names of the settings of files below a dotted name."""
        return list(self._note(("names", path), self.settings.list_names(path)))

    def find_words(self) -> list[Any] | None:
        """Return the words of the command."""
        words = self._note(("words",), self.settings.find_words())
        return list(words) if words is not None else None

    def find_variable(self, name: str) -> Any:
        """Return a variable of the environment."""
        return self._note(("variable", name), self.settings.find_variable(name))

    def find_file(self, path: str) -> Any:
        """Return the settings of a file as a table."""
        return self._note(("file", path), self.settings.find_file(path))

    def _note(self, question: tuple[Any, ...], answer: Any) -> Any:
        """Note an answer as text, since a program may change a table that it is given."""
        if question not in self.asked:
            self.asked[question] = _describe(answer)
        return answer

    def are_answered_by(self, settings: LookUp) -> bool:
        """Return whether other settings give the same answers."""
        look_ups: dict[str, Callable[..., Any]] = {
            "find": lambda path, of_file: settings.find(path, of_file=of_file),
            "given": settings.find_given,
            "words": settings.find_words,
            "names": settings.list_names,
            "variable": settings.find_variable,
            "file": settings.find_file,
        }
        return all(_describe(look_ups[question[0]](*question[1:])) == answer for question, answer in self.asked.items())


@dataclass(frozen=True, slots=True)
class _Result:
    files: tuple[tuple[str, Any], ...]
    options: tuple[bool, Inputs | None]
    questions: _Questions
    followed: Followed


_results: deque[_Result] = deque(maxlen=MAX_RESULTS)


def follow_once(files: Sequence[File], settings: LookUp, *, is_short: bool, inputs: Inputs | None) -> Followed:
    """Return what following a program tells, from the last time where it is started with the same settings."""
    parts, options = tuple((file.path, file.digest) for file in files), (is_short, inputs)
    for result in _results:
        if result.options == options and _are_same(result.files, parts) and result.questions.are_answered_by(settings):
            return result.followed
    questions = _Questions(settings)
    followed = follow_program(files, questions, is_short=is_short, inputs=inputs)
    if len(questions.asked) <= MAX_QUESTIONS:
        _results.append(_Result(parts, options, questions, followed))
    return followed


def _are_same(files: tuple[tuple[str, Any], ...], others: tuple[tuple[str, Any], ...]) -> bool:
    """Return whether files are the same texts: each text is parsed once."""
    return len(files) == len(others) and all(
        path == other and digest is text for (path, digest), (other, text) in zip(files, others, strict=True)
    )


def _describe(answer: Any) -> str:
    """Return an answer with its kind as text."""
    return f"{type(answer).__name__} {answer!r}"
