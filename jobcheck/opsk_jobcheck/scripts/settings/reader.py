"""Defines the interface of a framework's reader: its input, its matches and the state that readers share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from opsk.workload.workload import OwnName
from opsk_jobcheck.scripts.bash.scope import compute_path_key, find_tail, relate_to_start, resolve_path
from opsk_jobcheck.scripts.bash.values import Invocation, Run, Text
from opsk_jobcheck.scripts.bash.written_files import find_changer
from opsk_jobcheck.scripts.settings.arguments import Argument, Arguments
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry, read_config_file
from opsk_jobcheck.scripts.settings.findings import Findings


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A command that a reader knows how to read.

    Parameters
    ----------
    framework
        The framework's name, as in the document's ``workload``.
    weight
        Number of its settings that are this framework's own: of several commands and readers the one with the largest
        weight is read. A program that can be nothing else (``torchtitan.train``) counts 3.
    arguments
        The flags and overrides of the command, as this reader parses them.
    """

    framework: str
    weight: int
    invocation: Invocation
    arguments: Arguments


@dataclass(slots=True, kw_only=True)
class Reading:
    """State that readers share while one script is read.

    ``files`` are texts of files by their requested path; ``missing_files`` are paths whose text is missing; ``unread``
    are those of which it was asked for, and which are not there or cannot be read.
    ``model_name`` is the name of a public model that the script trains (``meta-llama/Llama-3.1-8B``), stated by a
    reader; ``few_ranks`` is why fewer ranks may train than there are GPUs; ``has_gpus`` is whether the job may have
    any, ``trains`` whether the program comes to a backward pass, where that is known; ``own_names`` is how the user's
    own program sets what a change of plan touches.
    """

    run: Run
    findings: Findings
    files: Mapping[str, str] = field(default_factory=dict)
    missing_files: list[str] = field(default_factory=list)
    unread: frozenset[str] = frozenset()
    has_gpus: bool = False
    trains: bool | None = None
    model_name: str | None = None
    few_ranks: str = ""
    own_names: tuple[OwnName, ...] | None = None

    def find_written_text(self, path: Text, where: Text) -> Text | None:
        """Return the text that the script itself writes into a file (a here-document), ``None`` if it writes none."""
        key = compute_path_key(path, where)
        return None if find_changer(self.run.changed, key) else self.run.files.get(key)

    def locate(self, path: Text, where: Text) -> str:
        """Return the path by which a file's text is asked for, empty where none is known; see `find_tail`."""
        place, why = resolve_path(path.known, where) if path.known else ("", "it is not known")
        return find_tail(path, where) if why else place

    def _ask_for(self, place: str) -> None:
        """Ask for the text of a file."""
        if place:
            self.missing_files.append(place)

    def config(self, path: Text, invocation: Invocation, *, form: str = "") -> ConfigFile:
        """Return the settings of a file that a command names; where they are unknown, it has the reason.

        The text is written by the script itself (a here-document), or was read with the user's rights.
        """
        path, where = relate_to_start(path, invocation.directory)
        if path.known is None and (text := self.find_written_text(path, where)) is not None:
            return read_config_file(text, path=path.shown, form=form)
        tail = find_tail(path, where)
        if tail in self.files:
            return read_config_file(self.files[tail], path=tail, form=form)
        if path.known is None:
            self._ask_for(tail)
            return ConfigFile(path=path.shown, why=f"the settings are in {path.shown[:120]}: {path.why}")
        place, why = resolve_path(path.known, where)
        if changed := find_changer(self.run.changed, compute_path_key(path, where)):
            return ConfigFile(path=path.known, why=f"{path.known[:120]} is changed by {changed} before it is read")
        if (text := self.find_written_text(path, where)) is not None:
            return read_config_file(text, path=path.known, form=form)
        if why:
            self._ask_for(tail)
            return ConfigFile(path=path.known, why=f"the settings are in {path.known[:120]}: {why}")
        if place in self.files:
            return read_config_file(self.files[place], path=place, form=form)
        self.missing_files.append(place)
        return ConfigFile(path=path.known, why=f"the settings are in {path.known[:120]}, which opsk has not read")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One framework's reader.

    ``frameworks`` are the names that its matches have. ``recognise`` returns a match for commands that it reads;
    ``read`` states the values of the command and its files in ``Reading.findings``. Neither raises for the content of
    a script.
    """

    frameworks: tuple[str, ...]
    recognise: Callable[[Invocation], Match | None]
    read: Callable[[Match, Reading], None]


def find_best_match(readers: Sequence[Reader], invocations: Sequence[Invocation]) -> tuple[Reader, Match] | None:
    """Return the command that states most and its reader; among equals a certain one, then the first."""
    best: tuple[tuple[int, bool, int], Reader, Match] | None = None
    for index, invocation in enumerate(invocations):
        for reader in readers:
            match = reader.recognise(invocation)
            if match is None:
                continue
            rank = (match.weight, invocation.certain, -index)
            if best is None or rank > best[0]:
                best = (rank, reader, match)
    return best[1:] if best else None


def make_entry(argument: Argument) -> Entry:
    """Return the value of a flag as an entry like those of files, so that both are stated the same way."""
    known = argument.value.known
    return Entry(
        value=known, line=argument.line, text=argument.shown, why="" if known is not None else argument.value.why
    )
