"""How is YAML read when nobody vouches for it? As plain texts, lists and maps, within bounds, never as objects."""

from __future__ import annotations

import contextlib
from typing import Any

import yaml

from opsk.errors import InputError

MAX_CHARACTERS = 4_000_000
"""A topology of 10,000 nodes takes about 100 kB."""
MAX_DEPTH = 20
"""Slurm's deepest topology (a placement of a torus) nests 8 deep."""
MAX_DAMAGED_LINES = 20
"""Lines that do not fit are left out one by one; a file with more of them is no YAML."""


class _PlainLoader(yaml.BaseLoader):
    """Builds texts, lists and maps: ``007`` stays a name, and ``yes`` a word. Aliases are refused: they multiply."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._nested = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose one node, refusing aliases and what is nested too deep."""
        if self.check_event(yaml.AliasEvent):
            raise _refused(self, "uses an alias (*name), which no topology needs")
        if self._nested >= MAX_DEPTH:
            raise _refused(self, f"is nested more than {MAX_DEPTH} deep")
        self._nested += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._nested -= 1


class _RefusedError(yaml.YAMLError):
    """What may be YAML, but is not read."""


def load_yaml(text: str, *, source: str) -> tuple[Any, tuple[str, ...]]:
    """Return the first document of a YAML text with every scalar as text, and which lines had to be left out.

    Raises
    ------
    InputError
        When it is not YAML, too large, nested too deep, or uses aliases.
    """
    if len(text) > MAX_CHARACTERS:
        raise InputError(
            f"{source}: larger than {MAX_CHARACTERS} characters, no topology is", hint="is it the right file?"
        )
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    problems: list[str] = []
    while True:
        try:
            return _first_document("\n".join(lines)), tuple(problems)
        except _RefusedError as error:
            raise InputError(f"{source}: {error}", hint="write it out, as Slurm's topology.yaml(5) shows") from error
        except (yaml.YAMLError, ValueError) as error:
            number, what = _place(error)
            if number is None or len(problems) >= MAX_DAMAGED_LINES or not lines[number].strip():
                where = f"{source}:{number + 1}" if number is not None else source
                raise InputError(f"{where}: no YAML: {what}", hint="give a topology.conf or topology.yaml") from error
            problems.append(f"{source}:{number + 1}: left out: {what}: {lines[number].strip()[:80]!r}")
            lines[number] = ""


def _first_document(text: str) -> Any:
    """Return the first document; what follows after ``---`` is another matter."""
    loader = _PlainLoader(text)
    try:
        return loader.get_data() if loader.check_data() else None  # type: ignore[no-untyped-call]
    finally:
        with contextlib.suppress(AttributeError):
            loader.dispose()


def _refused(loader: Any, why: str) -> _RefusedError:
    """Return the refusal of what comes next."""
    mark = loader.peek_event().start_mark
    return _RefusedError(f"line {mark.line + 1} {why}")


def _place(error: Exception) -> tuple[int | None, str]:
    """Return the line (from 0) that an error is about, and what is wrong there."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return error.problem_mark.line, str(error.problem or error.context or "cannot be read")[:120]
    return None, str(error).split("\n", 1)[0][:120]
