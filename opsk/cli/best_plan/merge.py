"""What did the parts of a job array find together, and which are missing, damaged or of another search?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from opsk.cli.best_plan.digest import Digests
from opsk.cli.best_plan.folder import part_file
from opsk.cli.best_plan.parts import ForeignPartError, Part, PartResult, read_part
from opsk.cli.best_plan.run import Run
from opsk.errors import InputError
from opsk.planner.best_plan.found import Found
from opsk.planner.best_plan.parts import all_joined, part_sizes
from opsk.planner.best_plan.request import PlanRequest
from opsk.text import escape


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A part that was left out, and why."""

    part: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What became of the parts of a search; ``seconds`` is the sum of theirs, ``longest_s`` the most of one."""

    parts: int
    joined: int
    seconds: float
    longest_s: float
    missing: tuple[int, ...] = ()
    damaged: tuple[LeftOut, ...] = ()
    foreign: tuple[LeftOut, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether no part was left out."""
        return self.joined == self.parts

    def lines(self) -> list[str]:
        """Return what people should know of the parts that were left out."""
        told = [f"part {one.part} is damaged: {one.why}" for one in self.damaged]
        told += [f"part {one.part} is of another search: {one.why}" for one in self.foreign]
        if self.missing:
            told.append(f"missing of {self.parts} parts: {_ranges(self.missing)}")
        return [escape(line) for line in told]


def merged(
    folder: Path, requests: Sequence[PlanRequest], parts: int, *, digests: Digests, front: bool
) -> tuple[Run, Parts]:
    """Return what the parts in a folder found together, and what became of them.

    Where some are left out, the rest is joined: then the run counts as interrupted.

    Raises
    ------
    InputError
        No part can be read.
    """
    sizes = part_sizes(requests, parts)
    results: list[PartResult] = []
    missing, damaged, foreign = list[int](), list[LeftOut](), list[LeftOut]()
    for number, size in enumerate(sizes):
        try:
            part = Part(number=number, parts=parts)
            path = part_file(folder, number)
            results.append(read_part(path, part, requests=requests, space=size, digests=digests, front=front))
        except FileNotFoundError:
            missing.append(number)
        except ForeignPartError as error:
            foreign.append(LeftOut(part=number, why=escape(error.message)))
        except InputError as error:
            damaged.append(LeftOut(part=number, why=escape(error.message)))
    became = Parts(
        parts=parts,
        joined=len(results),
        seconds=sum(one.seconds for one in results),
        longest_s=max((one.seconds for one in results), default=0.0),
        missing=tuple(missing),
        damaged=tuple(damaged),
        foreign=tuple(foreign),
    )
    if not results:
        raise InputError(
            escape(f"{folder}: nothing to join: ") + "; ".join(became.lines()),
            hint="see squeue and the files part-*.log; parts that are not done: sbatch plan-array.sbatch again",
        )
    found = all_joined(one.found for one in results)
    rest = sum(sizes) - found.space
    found = found.joined(Found(most=found.most, space=rest, front=found.front)) if rest else found
    return Run(found=found, seconds=became.seconds, interrupted=not became.is_whole), became


def _ranges(numbers: Sequence[int]) -> str:
    """Return numbers in order as ``0-3, 7``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)
