"""Finds the Python file of a program, asks for its text, and composes the settings with which Hydra starts it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from functools import partial

from opsk_jobcheck.scripts.bash.values import Invocation, Text, literal
from opsk_jobcheck.scripts.launchers.programs import Program, list_base_names
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry
from opsk_jobcheck.scripts.settings.hydra_config import Composed, compose, find_hydra
from opsk_jobcheck.scripts.settings.reader import Reading

PROJECT = "pyproject.toml"
MAX_LAUNCHER_WORDS = 8
"""Words of a command among which its own name is looked for."""
_TRAINS = re.compile(r"train|tune|sft|dpo|grpo|fit(\W|_|$)", re.IGNORECASE)
_SCRIPTS = (("project", "scripts"), ("tool", "poetry", "scripts"))
_TARGET = re.compile(r"([\w.]{1,100}):(?:([\w.]{1,100})\.)?\w{1,100}")
"""The function that a command starts: its module behind a colon or before, ``mine:train.main``."""


def list_programs(program: Program, invocation: Invocation) -> list[Text]:
    """Return the paths that the program's file may have.

    ``python -m`` finds a module from the working directory on, or where the project is installed from: ``src``.
    """
    if not program.is_module:
        is_last_known = program.name.endswith(".py") and program.name.rpartition("/")[2] != ".py"
        word = program.invocation.words[-len(program.words) - 1] if program.invocation is not None else None
        return [word or literal(program.name, invocation.line)] if is_last_known else []
    if "\N{HORIZONTAL ELLIPSIS}" in program.name:
        return []
    name = program.name.replace(".", "/")
    files = (f"{name}.py", f"{name}/__main__.py", f"src/{name}.py", f"src/{name}/__main__.py")
    return [literal(file, invocation.line) for file in files]


def find_console_program(invocation: Invocation, reading: Reading) -> Program | None:
    """Return the module that a command of the user's project starts, as ``pyproject.toml`` names it; else ``None``.

    ``my-train --lr 1e-4`` with ``my-train = "mine.train:main"`` under ``[project.scripts]`` starts ``mine.train``.
    """
    names = list_base_names(invocation)[:MAX_LAUNCHER_WORDS]
    if not any(_TRAINS.search(name) for name in names if "." not in name):  # train.sh is a file
        return None
    config = reading.config(literal(PROJECT, invocation.line), invocation)
    for index, name in enumerate(names):
        entry = next((row for path in _SCRIPTS if (row := config.entry(*path, name)) is not None), None)
        match = _TARGET.fullmatch(entry.value) if entry is not None and isinstance(entry.value, str) else None
        if match is not None:
            module = f"{match[1]}.{match[2]}" if match[2] else match[1]
            words = invocation.words[index + 1 :]
            program = Program(name=module, is_module=True, words=words, invocation=invocation)
            invocation.facts["program"] = program
            return program
    return None


def read_text(path: Text, invocation: Invocation, reading: Reading) -> tuple[str | None, str]:
    """Return the text of a Python file and its path; a text that is not at hand is asked for where the job has GPUs."""
    if (text := reading.find_written_text(path, invocation.directory)) is not None:
        return text.known, path.shown
    place = reading.locate(path, invocation.directory)
    if not place:
        return None, ""
    if place in reading.files:
        return reading.files[place], place
    ask_for(place, reading)
    return None, ""


def ask_for(place: str, reading: Reading) -> None:
    """Ask for a text by its path from where the job starts, where the job has GPUs."""
    if reading.has_gpus or any(reading.findings.get(f"plan.{name}") for name in ("gpus", "gpus_per_node")):
        reading.missing_files.append(place)


def compose_settings(
    program: Program, invocation: Invocation, reading: Reading, given: Mapping[str, Entry]
) -> Composed | None:
    """Return what Hydra starts a program with; ``None`` where it does not start it, or its file is not at hand."""
    for path in list_programs(program, invocation):
        text, _ = read_text(path, invocation, reading)
        start = find_hydra(text) if text is not None else None
        if start is not None and path.known is not None:
            folder = posixpath.dirname(path.known)
            composed = compose(start, folder, given, partial(_read_config, invocation=invocation, reading=reading))
            is_missing = composed is not None and composed.config.why and start.has_store
            return None if is_missing else composed
    return None


def _read_config(path: str, *, invocation: Invocation, reading: Reading) -> ConfigFile:
    """Return the settings of a file; one that is not at hand is asked for."""
    return reading.config(literal(path, invocation.line), invocation)
