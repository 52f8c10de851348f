"""Splits a search over processes or the tasks of a Slurm job array, and joins their results."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import click
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from opsk import __version__
from opsk.cli.document import echo_json
from opsk.cli.plan.array import MAX_PARTS, REQUEST, ArrayJob, Search, compute_digest, write_array, write_atomically
from opsk.cli.plan.request import PlanOptions
from opsk.cli.plan.run import SearchRun, run_search, search_in_processes
from opsk.errors import InputError
from opsk.planning.search.parts import join_all, part_sizes, search_part
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.result import SearchResult
from opsk.slurm.commands.submission import submit
from opsk.text import escape
from opsk.units import MIB

MAX_WORKERS = 256
MAX_BYTES = 64 * MIB
"""A part with 1,000 plans in each list has 3 MB."""
_DIGITS = 9
_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPart:
    """One part of a search: ``number`` from 0 to ``parts`` - 1."""

    number: int
    parts: int

    def __str__(self) -> str:
        """Return ``3/8``."""
        return f"{self.number}/{self.parts}"


class _PartFile(BaseModel):
    """The file of one part; ``digest`` is that of all else in it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    opsk: Annotated[str, Field(max_length=100)] = __version__
    request_sha256: Annotated[str, Field(max_length=64)]
    part: int
    parts: int
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    result: SearchResult
    digest: str = ""

    def serialise(self, **exclude: Any) -> str:
        """Return the file as JSON, without what a file cannot keep."""
        return self.model_dump_json(indent=1, exclude={"result": {"accepts"}, **exclude})

    def compute_digest(self) -> str:
        """Return the hexadecimal SHA-256 of all but the digest."""
        return hashlib.sha256(self.serialise(digest=True).encode()).hexdigest()


class ForeignPartError(InputError):
    """A valid part of another search."""


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

    def format_lines(self) -> list[str]:
        """Return lines on the parts that were left out."""
        messages = [f"part {skipped.part} is damaged: {skipped.why}" for skipped in self.damaged]
        messages += [f"part {skipped.part} is of another search: {skipped.why}" for skipped in self.foreign]
        if self.missing:
            messages.append(f"missing of {self.parts} parts: {', '.join(map(str, self.missing))}")
        return [escape(line) for line in messages]


def _parse_part(context: click.Context, option: click.Parameter, text: str | None) -> SearchPart | None:
    """Return the part that ``I/N`` names: part I of N, 0 to N - 1."""
    if text is None:
        return None
    number, sign, parts = text.partition("/")
    if not (sign and all(word.isascii() and word.isdecimal() and len(word) < _DIGITS for word in (number, parts))):
        raise click.BadParameter(f"{text[:40]!r} is not a part: write 0/8 to 7/8", context, option)
    if not 0 <= int(number) < int(parts) <= MAX_PARTS:
        raise click.BadParameter(
            f"part {number} of {parts}: parts are 0 to N - 1, N at most {MAX_PARTS}", context, option
        )
    return SearchPart(number=int(number), parts=int(parts))


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--workers", type=click.IntRange(1, MAX_WORKERS), default=1, metavar="N",
                 help="Processes to search with. Default: 1."),
    click.option("--array", type=click.IntRange(1, MAX_PARTS), metavar="N",
                 help="Search as a Slurm job array of N tasks."),
    click.option("--array-dir", type=_FOLDER, metavar="DIR",
                 help="Where --array writes, and its tasks: a folder that all nodes share."),
    click.option("--submit/--no-submit", default=True, help="Submit what --array writes, or only write it."),
    click.option("--partition", metavar="NAME", help="Partition of the job array. Default: Slurm's."),
    click.option("--time-limit", default="1:00:00", metavar="TIME",
                 help="Time limit of each task of --array. Default: 1:00:00."),
    click.option("--merge", type=_FOLDER, metavar="DIR", help="Join the results of the tasks of --array in DIR."),
    click.option("--part", callback=_parse_part, metavar="I/N",
                 help="Search part I of N alone, as task I of --array does."),
    click.option("--output", type=_FILE, metavar="FILE", help="Where --part writes its result."),
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
    part: SearchPart | None = None
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
        raise click.UsageError("--part and --output need each other: a part is written to a file")
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

    def run(self) -> tuple[SearchRun, dict[str, Any] | None]:
        """Search in this and other processes, or join parts; return the result, and the summary of the parts.

        Raises
        ------
        InputError
            There are no parts to join.
        """
        if self.spread.merge is None:
            search = search_in_processes(
                self.requests, self.spread.workers, walk=self._walk, front=self.options.pareto
            )  # fmt: skip
            with closing(search):
                return run_search(search), None
        self._verify_request()
        if self.search is None or self.search.parts is None:
            raise InputError(escape(f"{self.spread.merge / REQUEST}: does not say how many parts there are"))
        done, summary = self._merge(self.spread.merge, self.search.parts)
        for line in summary.format_lines():
            click.echo(f"opsk: {line}", err=True)
        return done, asdict(summary)

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
            raise click.UsageError("--sbatch needs an answer: give it with --merge, when all parts are done")
        if self.spread.part is not None and self.spread.output is not None:
            key, (document, words) = "part", self._search_part(self.spread.part, self.spread.output)
        else:
            key, (document, words) = "array", self._write_array(self.spread.array or 1)
        if as_json:
            echo_json({key: document})
        else:
            click.echo(f"opsk: {escape(words)}")

    @property
    def _walk(self) -> bool | None:
        return True if self.options.exhaustive else None

    @property
    def _digest(self) -> str:
        return compute_digest(self.requests, exhaustive=self.options.exhaustive, front=self.options.pareto)

    def _verify_request(self) -> None:
        """Raise where the digest in the ``[search]`` table is not that of this request."""
        if self.search is not None and self.search.digest not in (None, self._digest):
            raise InputError(
                "the request that is read here differs from the one that --array wrote",
                hint="has a file of the folder, a flag, or the version of opsk changed? write it again with --array",
            )

    def _write_array(self, parts: int) -> tuple[dict[str, Any], str]:
        """Write the job array, and submit it."""
        digest = self._digest
        job = ArrayJob(parts=parts, time_limit=self.spread.time_limit, partition=self.spread.partition)
        folder = self.spread.array_dir or Path(f"opsk-plan-{digest[:8]}")
        script = write_array(folder, job, self.tables, self.options, digest=digest, force=self.spread.force)
        submission = submit(script) if self.spread.submit else None
        for line in submission.message.splitlines() if submission else ():
            click.echo(escape(line), err=True)
        job_id = submission.job_id if submission else None
        merge = f"opsk plan --merge {shlex.quote(str(folder))}"
        words = f"submitted job {job_id}, {parts} tasks" if job_id else f"wrote {script}: submit it with sbatch"
        document = {"folder": folder, "script": script, "parts": parts, "job_id": job_id, "merge": merge}
        return document, f"{words}; when all have ended: {merge}"

    def _search_part(self, part: SearchPart, output: Path) -> tuple[dict[str, Any], str]:
        """Search one part and write the result, unless the file has it already."""
        self._verify_request()
        is_new = self.spread.force or not self._has_part(output, part)
        if is_new:
            search = search_part(
                self.requests, part.number, part.parts, walk=self._walk, front=self.options.pareto
            )  # fmt: skip
            done = run_search(search)
            if done.interrupted:
                raise click.Abort
            file = _PartFile(
                request_sha256=self._digest,
                part=part.number,
                parts=part.parts,
                seconds=done.seconds,
                result=done.result,
            )
            file.digest = file.compute_digest()
            write_atomically(output, f"{file.serialise()}\n".encode())
        words = f"part {part} {'searched' if is_new else 'was done already'}: {output}"
        return {"part": part.number, "parts": part.parts, "file": output, "searched": is_new}, words

    def _has_part(self, output: Path, part: SearchPart) -> bool:
        """Return whether a file has the result of a part."""
        try:
            self._read_part(output, part)
        except FileNotFoundError:
            return False
        except InputError as error:
            click.echo(f"opsk: {escape(error.message)}: searched again", err=True)
            return False
        return True

    def _read_part(self, path: Path, part: SearchPart) -> tuple[SearchResult, float]:
        """Read and validate the file of a part; return its result and duration.

        Raises
        ------
        ForeignPartError
            It belongs to another request, or another number of parts.
        FileNotFoundError
            There is no such file.
        InputError
            The file is damaged.
        """
        file = _read_file(path)
        read = SearchPart(number=file.part, parts=file.parts)
        expected = (
            (f"part {read}, not {part}", read, part),
            (f"written by opsk {file.opsk}, this is {__version__}", file.opsk, __version__),
            ("of another request", file.request_sha256, self._digest),
        )
        if other := [text for text, actual, required in expected if actual != required]:
            raise ForeignPartError(f"{path.name}: {'; '.join(other)}")
        if file.digest != file.compute_digest():
            raise InputError(f"{path.name}: it has changed since it was written")
        return file.result, file.seconds

    def _merge(self, folder: Path, parts: int) -> tuple[SearchRun, PartsSummary]:
        """Join the parts in a folder; return the result and a summary.

        Where some are left out, the rest is joined, and the run counts as interrupted.

        Raises
        ------
        InputError
            No part can be read.
        """
        results: list[tuple[SearchResult, float]] = []
        missing, damaged, foreign = list[int](), list[SkippedPart](), list[SkippedPart]()
        for number in range(parts):
            try:
                results.append(self._read_part(folder / f"part-{number}.json", SearchPart(number=number, parts=parts)))
            except FileNotFoundError:
                missing.append(number)
            except InputError as error:
                skipped = foreign if isinstance(error, ForeignPartError) else damaged
                skipped.append(SkippedPart(part=number, why=escape(error.message)))
        durations_s = [seconds for _, seconds in results]
        summary = PartsSummary(
            parts=parts,
            joined=len(results),
            seconds=sum(durations_s),
            longest_s=max(durations_s, default=0.0),
            missing=tuple(missing),
            damaged=tuple(damaged),
            foreign=tuple(foreign),
        )
        if not results:
            raise InputError(
                escape(f"{folder}: nothing to join: ") + "; ".join(summary.format_lines()),
                hint="see squeue and the files part-*.log; parts that are not done: sbatch plan-array.sbatch again",
            )
        joined = join_all(result for result, _ in results)
        if len(results) < parts:
            rest = sum(part_sizes(self.requests, parts)) - joined.space
            joined = joined.merge(SearchResult(most=joined.most, space=rest, front=joined.front))
        return SearchRun(result=joined, seconds=summary.seconds, interrupted=len(results) < parts), summary


def _read_file(path: Path) -> _PartFile:
    """Return the file of a part with valid types."""
    try:
        with path.open("rb") as stream:
            return _PartFile.model_validate_json(stream.read(MAX_BYTES))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"{path.name}: {error.strerror}") from error
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors(include_url=False)[:3]]
        raise InputError(f"{path.name}: {'; '.join(wrong)}") from error
