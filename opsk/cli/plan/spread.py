"""Defines the options that split a search over processes and jobs, and implements them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import click

from opsk.cli.document import echo_json
from opsk.cli.plan.array import ArrayJob, choose_folder, submit_script, write_array
from opsk.cli.plan.array_folder import MAX_PARTS, REQUEST, Search, part_file
from opsk.cli.plan.digest import Digests, compute_digests
from opsk.cli.plan.parts import ForeignPartError, Part, PartResult, read_part, run_part
from opsk.cli.plan.request import PlanOptions
from opsk.cli.plan.run import SearchRun, run_search
from opsk.cli.plan.workers import shared_search
from opsk.errors import InputError
from opsk.planning.search.parts import join_all, part_sizes
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.result import SearchResult
from opsk.text import escape


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedPart:
    """A part that was left out, and the reason."""

    part: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsSummary:
    """Summary of the parts of a search; ``seconds`` is the sum of their durations, ``longest_s`` the maximum."""

    parts: int
    joined: int
    seconds: float
    longest_s: float
    missing: tuple[int, ...] = ()
    damaged: tuple[SkippedPart, ...] = ()
    foreign: tuple[SkippedPart, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether no part was left out."""
        return self.joined == self.parts

    def format_lines(self) -> list[str]:
        """Return lines on the parts that were left out."""
        messages = [f"part {skipped.part} is damaged: {skipped.why}" for skipped in self.damaged]
        messages += [f"part {skipped.part} is of another search: {skipped.why}" for skipped in self.foreign]
        if self.missing:
            messages.append(f"missing of {self.parts} parts: {_format_ranges(self.missing)}")
        return [escape(line) for line in messages]


def merge_parts(
    folder: Path, requests: Sequence[PlanRequest], parts: int, *, digests: Digests, front: bool
) -> tuple[SearchRun, PartsSummary]:
    """Join the parts in a folder; return the result and a summary.

    Where some are left out, the rest is joined, and the run counts as interrupted.

    Raises
    ------
    InputError
        No part can be read.
    """
    sizes = part_sizes(requests, parts)
    results: list[PartResult] = []
    missing, damaged, foreign = list[int](), list[SkippedPart](), list[SkippedPart]()
    for number, size in enumerate(sizes):
        try:
            part = Part(number=number, parts=parts)
            path = part_file(folder, number)
            results.append(read_part(path, part, requests=requests, space=size, digests=digests, front=front))
        except FileNotFoundError:
            missing.append(number)
        except ForeignPartError as error:
            foreign.append(SkippedPart(part=number, why=escape(error.message)))
        except InputError as error:
            damaged.append(SkippedPart(part=number, why=escape(error.message)))
    summary = PartsSummary(
        parts=parts,
        joined=len(results),
        seconds=sum(result.seconds for result in results),
        longest_s=max((result.seconds for result in results), default=0.0),
        missing=tuple(missing),
        damaged=tuple(damaged),
        foreign=tuple(foreign),
    )
    if not results:
        raise InputError(
            escape(f"{folder}: nothing to join: ") + "; ".join(summary.format_lines()),
            hint="see squeue and the files part-*.log; parts that are not done: sbatch plan-array.sbatch again",
        )
    joined = join_all(result.found for result in results)
    rest = sum(sizes) - joined.space
    joined = joined.joined(SearchResult(most=joined.most, space=rest, front=joined.front)) if rest else joined
    return SearchRun(found=joined, seconds=summary.seconds, interrupted=not summary.is_whole), summary


def _format_ranges(numbers: Sequence[int]) -> str:
    """Return numbers in order as ``0-3, 7``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)


MAX_WORKERS = 256
_DIGITS = 9
_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)


def _parse_part(context: click.Context, option: click.Parameter, text: str | None) -> Part | None:
    """Return the part that ``I/N`` names: part I of N, 0 to N - 1."""
    if text is None:
        return None
    number, sign, parts = text.partition("/")
    if not (sign and all(word.isascii() and word.isdecimal() and len(word) < _DIGITS for word in (number, parts))):
        raise click.BadParameter(f"{text[:40]!r} is no part: write 0/8 to 7/8", context, option)
    if not 0 <= int(number) < int(parts) <= MAX_PARTS:
        raise click.BadParameter(
            f"part {number} of {parts}: parts are 0 to N - 1, N at most {MAX_PARTS}", context, option
        )
    return Part(number=int(number), parts=int(parts))


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--workers", type=click.IntRange(1, MAX_WORKERS), default=1, metavar="N",
                 help="Processes to search with. Default: 1."),
    click.option("--array", type=click.IntRange(1, MAX_PARTS), metavar="N",
                 help="Search as a Slurm job array of N tasks."),
    click.option("--array-dir", type=_FOLDER, metavar="DIR",
                 help="Where --array writes, and its tasks: a folder that all nodes share."),
    click.option("--submit/--no-submit", default=True, help="Submit what --array writes, or only write it."),
    click.option("--partition", metavar="NAME", help="Partition of the job array; left out, Slurm's default."),
    click.option("--time-limit", default="1:00:00", metavar="TIME",
                 help="Time limit of each task of --array. Default: 1:00:00."),
    click.option("--merge", type=_FOLDER, metavar="DIR", help="Join what the tasks of --array found in DIR."),
    click.option("--part", callback=_parse_part, metavar="I/N",
                 help="Search part I of N alone, as task I of --array does."),
    click.option("--output", type=_FILE, metavar="FILE", help="Where --part writes what it found."),
    click.option("--force", is_flag=True,
                 help="Search a --part that is done once more; let --array write over another search."),
)  # fmt: skip


def spread_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that split a search."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadOptions:
    """The options by which a search is split."""

    workers: int = 1
    array: int | None = None
    array_dir: Path | None = None
    submit: bool = True
    partition: str | None = None
    time_limit: str = "1:00:00"
    merge: Path | None = None
    part: Part | None = None
    output: Path | None = None
    force: bool = False

    def plan_file(self, given: str | None, flags: Mapping[str, Any]) -> str | None:
        """Return the plan file: the one that was given, or that of the folder to merge.

        Raises
        ------
        UsageError
            ``--merge`` together with a request, or for a folder without one.
        """
        if self.merge is None:
            return given
        if given is not None or flags:
            raise click.UsageError("--merge joins what was searched: the request is in its folder, give no other")
        path = self.merge / REQUEST
        if not path.is_file():
            raise InputError(
                escape(f"{self.merge} holds no {REQUEST}"), hint="name the folder that opsk plan --array wrote"
            )
        return str(path)


def parse_spread(flags: Mapping[str, Any]) -> SpreadOptions:
    """Return the options of a command line.

    Raises
    ------
    UsageError
        Two of them exclude each other, or one lacks another.
    """
    spread = SpreadOptions(**{item.name: flags[item.name] for item in fields(SpreadOptions)})
    modes = [name for name in ("array", "part", "merge") if getattr(spread, name) is not None]
    if spread.workers > 1:
        modes.append("workers")
    if len(modes) > 1:
        raise click.UsageError(" and ".join(f"--{name}" for name in modes) + " exclude each other")
    if (spread.part is None) != (spread.output is None):
        raise click.UsageError("--part and --output need each other: a part is no answer for people")
    conflicting = {"--array-dir": spread.array_dir, "--partition": spread.partition, "--no-submit": not spread.submit}
    if spread.array is None and any(conflicting.values()):
        raise click.UsageError(f"{', '.join(name for name, given in conflicting.items() if given)} without --array")
    return spread


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadSearch:
    """A search that may be split: its requests, tables and options, and the ``[search]`` table that it must match."""

    spread: SpreadOptions
    requests: Sequence[PlanRequest]
    tables: Mapping[str, Any]
    options: PlanOptions
    search: Search | None

    @property
    def is_deferred(self) -> bool:
        """Whether this process only writes a job array, or searches a part, and gives no answer."""
        return self.spread.array is not None or self.spread.part is not None

    def run_deferred(self, *, as_json: bool) -> None:
        """Write and submit the job array, or search the part.

        Raises
        ------
        InputError
            Something cannot be written, or does not match the request.
        SlurmError
            Slurm rejected the job.
        UsageError
            A script is requested as well, which needs an answer.
        """
        if self.options.script:
            raise click.UsageError("--sbatch takes an answer: give it with --merge, when all parts are there")
        if self.spread.part is not None and self.spread.output is not None:
            self._verify_request()
            part, output = self.spread.part, self.spread.output
            is_new = run_part(
                self.requests, part, output, digests=self._digests(), force=self.spread.force,
                walk=self._walk, front=self.options.pareto,
            )  # fmt: skip
            words = "searched" if is_new else "was done already"
            self._print_result({"part": part.number, "parts": part.parts, "file": output, "searched": is_new},
            as_json=as_json,
                       words=f"part {part} {words}: {output}")  # fmt: skip
        elif self.spread.array is not None:
            self._write_array(self.spread.array, as_json=as_json)

    def run(self) -> tuple[SearchRun, dict[str, Any] | None]:
        """Search in this and other processes, or join parts; return the result, and the summary of the parts.

        Raises
        ------
        InputError
            There are no parts to join.
        """
        if self.spread.merge is None:
            search = shared_search(self.requests, self.spread.workers, walk=self._walk, front=self.options.pareto)
            with closing(search):
                return run_search(search), None
        parts = self._verify_request().parts
        if parts is None:
            raise InputError(escape(f"{self.spread.merge / REQUEST}: does not say how many parts there are"))
        done, became = merge_parts(
            self.spread.merge, self.requests, parts, digests=self._digests(), front=self.options.pareto
        )
        for line in became.format_lines():
            click.echo(f"opsk: {line}", err=True)
        return done, asdict(became)

    @property
    def _walk(self) -> bool | None:
        return True if self.options.exhaustive else None

    def _digests(self) -> Digests:
        return compute_digests(self.requests, exhaustive=self.options.exhaustive, front=self.options.pareto)

    def _verify_request(self) -> Search:
        """Return the ``[search]`` table, after checking that its digests match this request."""
        search = self.search or Search(options={})
        if search.digests is not None and search.digests != self._digests():
            what = "efficiencies" if search.digests.request == self._digests().request else "request"
            raise InputError(
                f"the {what} that is read here differs from the one that --array wrote",
                hint="has request.toml, a flag, or the version of opsk changed? write it anew with --array",
            )
        return search

    def _write_array(self, parts: int, *, as_json: bool) -> None:
        """Write the job array, and submit it."""
        digests = self._digests()
        job = ArrayJob(parts=parts, time_limit=self.spread.time_limit, partition=self.spread.partition)
        folder = self.spread.array_dir or choose_folder(digests)
        script = write_array(folder, job, self.tables, self.options, digests=digests, force=self.spread.force)
        job_id, messages = None, ""
        if self.spread.submit:
            job_id, messages = submit_script(script)
        for line in messages.splitlines():
            click.echo(escape(line), err=True)
        merge = f"opsk plan --merge {shlex.quote(str(folder))}"
        words = f"submitted job {job_id}, {parts} tasks" if job_id else f"wrote {script}: submit it with sbatch"
        document = {"folder": folder, "script": script, "parts": parts, "job_id": job_id, "merge": merge}
        self._print_result(document, as_json=as_json, words=f"{words}; when all have ended: {merge}")

    def _print_result(self, document: Mapping[str, Any], *, words: str, as_json: bool) -> None:
        """Print the result."""
        if as_json:
            echo_json({"array" if self.spread.array else "part": document})
        else:
            click.echo(f"opsk: {escape(words)}")
