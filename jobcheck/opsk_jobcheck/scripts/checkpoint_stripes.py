"""Finds over how many storage targets of Lustre a script spreads the files of its checkpoints.

Source: lfs-setstripe(1); a file gets the layout of the directory that it is made in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from opsk_jobcheck.scripts.bash.values import Invocation, Run, Text
from opsk_jobcheck.scripts.launchers.programs import list_base_names
from opsk_jobcheck.scripts.settings.arguments import Argument, Arguments

ALL_TARGETS = -1
"""The stripe count that stands for all storage targets."""
_FOLDERS: Mapping[str, str] = {"megatron": "--save", "torchtitan": "--checkpoint.folder"}
"""Where frameworks save checkpoints whose ranks each write files of their own, by the start of the framework's name."""
_FORMAT, _ONE_FILE_A_STAGE = "--ckpt-format", "torch"
"""Megatron's old format: the first replica alone writes, one file for each rank of tensor and pipeline parallelism."""
_COUNT_FLAGS = ("-c", "--stripe-count", "--count")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stripes:
    """Over how many targets files are spread, and the line that says so."""

    count: int
    line: int

    @property
    def text(self) -> str:
        """The command, without the folder."""
        return f"lfs setstripe -c {self.count}"


def find_stripes(framework: str, arguments: Arguments, run: Run) -> Stripes | None:
    """Return the stripes of the folder into which each rank certainly saves files of its own, ``None`` without them."""
    folder = _find_folder(framework, arguments)
    if folder is None:
        return None
    stripes = None
    for command in run.invocations:
        words = list_base_names(command)
        if words[:2] != ("lfs", "setstripe") or not command.certain or not _holds(command.words[-1], folder):
            continue
        count = _parse_count(command)
        stripes = Stripes(count=count, line=command.line) if count is not None else None
    return stripes


def _find_folder(framework: str, arguments: Arguments) -> Text | None:
    """Return the folder of the checkpoints, ``None`` where it is unknown or ranks do not write files of their own."""
    flags = arguments.flags
    name = next((flag for start, flag in _FOLDERS.items() if framework.startswith(start)), "")
    if name not in flags or not flags[name].certain or _is_one_file_a_stage(flags):
        return None
    return flags[name].value


def _is_one_file_a_stage(flags: Mapping[str, Argument]) -> bool:
    """Return whether checkpoints are, or may be, in the format without a file for each rank."""
    stated = flags.get(_FORMAT)
    return stated is not None and stated.value.known in (None, _ONE_FILE_A_STAGE)


def _holds(folder: Text, inner: Text) -> bool:
    """Return whether a folder is certainly the other one, or around it."""
    outer = folder.key.rstrip("/")
    return bool(outer) and (inner.key.rstrip("/") == outer or inner.key.startswith(f"{outer}/"))


def _parse_count(command: Invocation) -> int | None:
    """Return the stripe count of ``lfs setstripe``; ``None`` where it is not stated, unknown, or one of several."""
    words = command.known_words
    if any(word in ("-E", "--component-end") for word in words):
        return None
    stated = [after for before, after in pairwise(words) if before in _COUNT_FLAGS]
    stated += [word.partition("=")[2] for word in words if word.startswith("--stripe-count=")]
    stated += [word[2:] for word in words if word.startswith("-c") and len(word) > 2]
    if len(stated) != 1 or not stated[0].removeprefix("-").isdecimal():
        return None
    return int(stated[0][:6])
