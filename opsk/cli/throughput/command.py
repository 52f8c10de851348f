"""Implements ``opsk throughput``: reads the progress and speed of a training job from its logs."""

from __future__ import annotations

import io
import json
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import cast

import click

from opsk.cli.document import echo_json
from opsk.cli.throughput.report import build_step_document, build_throughput_document, format_speed, print_throughput
from opsk.errors import ExitStatus, InputError
from opsk.telemetry.progress.follow import Tail
from opsk.telemetry.progress.records import Event, EventKind, StepRecord
from opsk.telemetry.progress.runs import STALL, STDIN, Log, Tally, merge_logs, read_log
from opsk.telemetry.progress.stream import ProgressItem, ProgressReader
from opsk.text import escape, format_bytes, format_duration, to_json_values
from opsk.units import KIB

SHOWN_AT_FIRST = 10
"""Number of earlier steps that are shown to people."""
_WINDOW, _ENOUGH = 16, 4
_PIPE_BYTES = 64 * KIB


def follow_logs(
    logs: Sequence[Path],
    *,
    as_json: bool,
    sequence_tokens: float | None = None,
    gpus: float | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> ExitStatus:
    """Print steps as they come, until the user interrupts it or standard input ends.

    Raises
    ------
    InputError
        A log cannot be followed.
    """
    printer = StepPrinter(as_json=as_json)
    try:
        if STDIN in logs:
            if len(logs) > 1:
                raise InputError("- cannot be followed together with logs", hint="give the logs, or - alone")
            _follow_stdin(printer, ProgressReader("-", sequence_tokens=sequence_tokens, gpus=gpus))
        else:
            _follow_files(printer, Tail(logs, sequence_tokens=sequence_tokens, gpus=gpus), sleep)
    except KeyboardInterrupt:
        pass
    return printer.end()


def _follow_files(printer: StepPrinter, tail: Tail, sleep: Callable[[float], None]) -> None:
    """Follow logs until interrupted."""
    changes, reported = 0, ""
    try:
        while True:
            for event in tail.poll():
                if tail.changes != changes:
                    changes = tail.changes
                    printer.forget()
                printer.take(event)
            if tail.is_live:
                printer.go_live()
            problem = "; ".join(tail.problems.values())
            if problem != reported:
                reported = problem
                if problem:
                    click.echo(f"opsk: waiting: {escape(problem)}", err=True)
            sleep(tail.rest_s)
    finally:
        printer.take_all(tail.finish())
        if tail.skipped_bytes:
            left_out = format_bytes(tail.skipped_bytes)
            click.echo(f"opsk: {left_out} of the logs were skipped: they grow faster than they can be read", err=True)


def _follow_stdin(printer: StepPrinter, reader: ProgressReader) -> None:
    """Follow standard input until it ends."""
    printer.go_live()
    changes, stream = 0, cast("io.BufferedReader", sys.stdin.buffer)
    try:
        while data := stream.read1(_PIPE_BYTES):
            for event in reader.feed(data):
                if reader.changes != changes:
                    changes = reader.changes
                    printer.forget()
                printer.take(event)
    finally:
        printer.take_all(reader.finish())


class StepPrinter:
    """Prints steps, and accumulates the summary.

    Parameters
    ----------
    as_json
        One JSON object a step, and nothing else on standard output.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._is_live = as_json
        self._early: deque[str] = deque(maxlen=SHOWN_AT_FIRST)
        self._recent: deque[float] = deque(maxlen=_WINDOW)
        self._tally = Tally()
        self._generation = 0

    def take(self, event: ProgressItem) -> None:
        """Print a step, or an event between two."""
        if isinstance(event, StepRecord):
            self._tally.add(event)
            if self._as_json:
                click.echo(json.dumps(to_json_values(build_step_document(event)), ensure_ascii=True))
                return
            if event.generation > self._generation:
                self._recent.clear()
                self._print(f"restart {event.generation}")
            self._generation = event.generation
            self._print(self._format_step(event))
        elif not self._as_json and (text := _format_event(event)):
            self._print(text)

    def take_all(self, events: Iterator[ProgressItem]) -> None:
        """Print all remaining events."""
        for event in events:
            self.take(event)

    def go_live(self) -> None:
        """Print the last buffered lines, and from now on every line."""
        self._is_live = True
        while self._early:
            click.echo(self._early.popleft())

    def forget(self) -> None:
        """Discard steps that were not the training's."""
        self._tally = Tally()
        self._early.clear()
        self._recent.clear()
        self._generation = 0

    def end(self) -> ExitStatus:
        """Sum up."""
        self.go_live()
        last = self._tally.last
        if not self._as_json:
            click.echo(self._format_summary())
        is_finite = last is None or last.loss is None or math.isfinite(last.loss)
        return ExitStatus.ANSWER if is_finite else ExitStatus.BAD_NEWS

    def _format_summary(self) -> str:
        """Return the summary."""
        count = len(self._tally)
        if not count:
            return "no known progress lines"
        rates = format_speed({**self._tally.compute_steady_state().medians, "from": "steps"})
        return f"{count:,} record{'s' if count > 1 else ''}, median {rates}"

    def _print(self, text: str) -> None:
        """Print a line, or buffer it while old ones are read."""
        if self._is_live:
            click.echo(escape(text))
        else:
            self._early.append(escape(text))

    def _format_step(self, record: StepRecord) -> str:
        """Format one step for people."""
        step = "step" if record.iteration is None else f"step {record.iteration:,}"
        parts = [step + (f"/{record.total_iterations:,}" if record.total_iterations else "")]
        if record.step_s:
            parts.append(format_duration(record.step_s))
        for value, what in (
            (record.tflops_per_gpu, "TFLOP/s/GPU"),
            (record.tokens_per_s_per_gpu, "tokens/s/GPU"),
            (record.tokens_per_s, "tokens/s"),
        ):
            if value and math.isfinite(value):
                parts.append(f"{value:,.0f} {what}" if value >= 1000 else f"{value:.4g} {what}")
        if record.loss is not None:
            parts.append(f"loss {record.loss:.4g}")
        if (slow := self._compute_slowness(record.step_s)) is not None:
            parts.append(f"slow: {slow:.1f} times the median")
        return "  ".join(parts)

    def _compute_slowness(self, step_s: float | None) -> float | None:
        """Return the ratio of a step to the recent median, if it is large."""
        if step_s is None or not math.isfinite(step_s):
            return None
        usual = median(self._recent) if len(self._recent) >= _ENOUGH else None
        self._recent.append(step_s)
        return step_s / usual if usual and step_s > STALL * usual else None


def _format_event(event: Event) -> str | None:
    """Return the text of an event; ``None`` for events that are shown otherwise."""
    after = f" after step {event.iteration:,}" if event.iteration is not None else ""
    took = f", {format_duration(event.seconds)}" if event.seconds else ""
    if event.kind is EventKind.CHECKPOINT:
        return f"checkpoint{after}{took}"
    if event.kind is EventKind.VALIDATION:
        loss = event.values.get("loss")
        return f"validation{after}" + (f": loss {loss:.4g}" if loss is not None else "")
    return None


@click.command()
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@click.option(
    "--skip-warmup/--no-skip-warmup",
    default=True,
    show_default=True,
    help="Leave the warm-up of each start out of the medians: its first record, and slow ones right after it.",
)
@click.option(
    "--sequence",
    type=click.FloatRange(min=1),
    metavar="TOKENS",
    help="Tokens per sample, if the log does not state them: gives tokens/s for frameworks that count samples.",
)
@click.option(
    "--gpus",
    type=click.FloatRange(min=1),
    metavar="N",
    help="GPUs of the job, if the log does not state them: converts rates of the job to rates of one GPU, and back.",
)
@click.option(
    "--follow",
    is_flag=True,
    help="Keep reading as the logs grow and print a line per step until interrupted; with --json an object per line.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def throughput(
    logs: tuple[str, ...],
    *,
    skip_warmup: bool,
    sequence: float | None,
    gpus: float | None,
    follow: bool,
    as_json: bool,
) -> int:
    """Report the progress and the speed of a training job from the progress lines in its logs.

    Megatron-LM and its forks, NeMo, torchtitan, DeepSpeed, HuggingFace's Trainer and what is built on it, Composer,
    nanotron, OLMo, torchtune, LitGPT, progress bars, and others (docs/reference/progress-lines.md). Give several
    logs for the ranks of one run, or for its successive starts. They may be compressed; - is standard input.

    Medians cover the steady state, without the first record of each start. Values that are computed, not read, are
    marked.

    With --follow, steps are printed as they arrive (with --json also those that the log has already); a log may be
    rotated, truncated, or created later. It takes less than 1 % of a core. Ctrl-C stops it and prints a summary.

    Exit status: 0 a result, even without progress lines; 1 the last loss is not a number; 2 no log can be read.
    """
    if follow:
        return follow_logs([Path(name) for name in logs], as_json=as_json, sequence_tokens=sequence, gpus=gpus)
    read: list[Log] = []
    unread: list[tuple[str, InputError]] = []
    for name in logs:
        try:
            read.append(read_log(Path(name), sequence_tokens=sequence, gpus=gpus))
        except InputError as error:
            unread.append((name, error))
    if not read:
        raise InputError("; ".join(why.message for _, why in unread), hint=unread[0][1].hint)
    run = merge_logs([*read, *(Log(file=name, problem=why.message) for name, why in unread)])
    document = build_throughput_document(run, skip_warm_up=skip_warmup)
    if as_json:
        for _, why in unread:
            click.echo(f"opsk: {escape(why.message)}", err=True)
        echo_json(document)
    else:
        print_throughput(document, run)
    return ExitStatus.BAD_NEWS if document["loss"]["finite"] is False else ExitStatus.ANSWER
