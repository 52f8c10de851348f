"""Parses a log incrementally into steps and events: reports each step once and counts restarts.

Memory is constant: the parser keeps one unfinished step a label, and the last few steps that it reported.

A job has restarted when a process prints a step before one that it has printed, or prints steps again after a new
launch. Where several ranks print the same step the first counts; the others are duplicates.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from opsk.telemetry.progress.frameworks.registry import READERS
from opsk.telemetry.progress.lines import (
    LabeledLine,
    LineSplitter,
    drop_missing,
    parse_label,
    parse_number,
    parse_positive,
    parse_timestamp_unix_s,
    parse_whole,
    trim_partial_word,
)
from opsk.telemetry.progress.records import MEASURED, Event, EventKind, ParsedLine, Reader, StepPart, StepRecord

_LONGEST_STEP_S = 7 * 86400.0
HINTS = (
    "world size",
    "world_size",
    "start of training step",
    "Running training",
    "Starting job",
    "Training starts at",
    "saving checkpoint",
    "Saving checkpoint",
    "saved checkpoint",
    "Saved checkpoint",
    "saving the checkpoint",
    "Saving model checkpoint",
    "save-checkpoint",
    "validation loss",
    "valid loss",
    "seq_length",
    "seq_len",
    "sequence length",
    "train batch size",
    "global_batch_size",
    "global batch size",
)
_LAUNCH = re.compile(
    r"using world size: \d|\[before the start of training step\]|\*{3,} Running training \*{3,}|Starting job: "
    r"|Training starts at"
)
_SAVING = re.compile(r"\bsaving checkpoint at iteration\s+(\d+)", re.ASCII | re.IGNORECASE)
_SAVED = re.compile(
    r"(?:successfully saved checkpoint|saved checkpoint|Finished saving the checkpoint|Saving model checkpoint to)"
    r"(?:[^\d]{0,80}iteration\s+(\d+))?(?:.{0,120}?\bin ([\d.]+) ?s)?",
    re.ASCII | re.IGNORECASE,
)
_SAVE_TIMER = re.compile(r"\bsave-checkpoint[ .:]*\(?([\d.]+)(?:, ([\d.]+)\))?", re.ASCII)
_VALIDATION = re.compile(r"\bvalid(?:ation)? loss at iteration (\d+)[^:]{0,80}loss value: (\S+)", re.ASCII)
_FACTS = (
    ("world", re.compile(r"\b(?:using )?world[_ ]size[ .:=\"']+(\d+)", re.ASCII)),
    ("seq", re.compile(r"\b(?:seq_length|seq_len|sequence length)[ .:=\"']+(\d+)", re.ASCII)),
    (
        "batch",
        re.compile(r"(?:Total train batch size[^=]{0,80}|\bglobal[_ ]batch[_ ]size)[ .:=\"']+([\d,]+)", re.ASCII),
    ),
)
_DEEPSPEED_CONFIG = ":print]"
"""DeepSpeed calls the number of data-parallel ranks ``world_size`` where it prints its configuration."""
_MAX_LABELS = 4096
_RECENT_STEPS = 256
ProgressItem = StepRecord | Event


def derive_values(
    stated: Mapping[str, float],
    facts: Mapping[str, float],
    *,
    tokens_before: float | None,
    steps_since: int | None,
    seconds_since: float | None,
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Return all values of a step, and the names of those that were computed.

    Parameters
    ----------
    stated
        What the line states.
    facts
        What holds for the run: ``world`` GPUs, ``seq`` tokens a sample, ``batch`` samples a step.
    tokens_before
        Tokens consumed at the record before.
    steps_since, seconds_since
        Steps and time between the record before and this one.
    """
    values = dict(stated)
    batch = stated.get("batch") or facts.get("batch")
    tokens = _compute_tokens_per_step(stated, facts, batch, tokens_before, steps_since)
    world = facts.get("world")
    _set(values, "tokens_per_s", _multiply(values.get("tokens_per_s_per_gpu"), world))
    _set(values, "step_s", _divide(tokens, values.get("tokens_per_s")))
    _set(values, "step_s", _divide(batch, values.get("samples_per_s")))
    if steps_since and seconds_since is not None and 0 < seconds_since / steps_since < _LONGEST_STEP_S:
        _set(values, "step_s", seconds_since / steps_since)
    step_s = values.get("step_s")
    _set(values, "samples_per_s", _divide(batch, step_s))
    _set(values, "tokens_per_s", _divide(tokens, step_s))
    _set(values, "tokens_per_s_per_gpu", _divide(values.get("tokens_per_s"), world))
    return values, tuple(name for name in values if name not in stated)


def _compute_tokens_per_step(
    stated: Mapping[str, float],
    facts: Mapping[str, float],
    batch: float | None,
    tokens_before: float | None,
    steps_since: int | None,
) -> float | None:
    """Return how many tokens a step trains: as stated, by the batch, or by what was consumed since."""
    if "batch_tokens" in stated:
        return stated["batch_tokens"]
    by_batch = _multiply(batch, stated.get("seq") or facts.get("seq"))
    if by_batch is not None:
        return by_batch
    consumed = stated.get("consumed_tokens")
    if consumed is None or tokens_before is None or not steps_since or consumed <= tokens_before:
        return None
    return (consumed - tokens_before) / steps_since


def _set(values: dict[str, float], name: str, value: float | None) -> None:
    if value is not None:
        values.setdefault(name, value)


def _divide(part: float | None, whole: float | None) -> float | None:
    return part / whole if part and whole else None


def _multiply(first: float | None, second: float | None) -> float | None:
    return first * second if first and second else None


def parse_facts(text: str) -> dict[str, float]:
    """Parse what a line states for the whole run: ``world`` GPUs, ``seq`` tokens a sample, ``batch`` samples a step."""
    values: dict[str, float] = {}
    if _DEEPSPEED_CONFIG in text:
        return values
    for name, pattern in _FACTS:
        match = pattern.search(text)
        value = parse_positive(match[1]) if match else None
        if value is not None:
            values[name] = value
    return values


def parse_event(text: str) -> ParsedLine | None:
    """Parse an event between steps."""
    if _LAUNCH.search(text):
        return ParsedLine(part=StepPart.EVENT, event=EventKind.LAUNCH)
    if (match := _VALIDATION.search(text)) is not None:
        values = drop_missing(loss=parse_number(match[2]))
        return ParsedLine(
            part=StepPart.EVENT, event=EventKind.VALIDATION, iteration=parse_whole(match[1]), values=values
        )
    if (match := _SAVE_TIMER.search(text)) is not None:
        took_ms = parse_positive(match[2] or match[1])
        return ParsedLine(part=StepPart.EVENT, event=EventKind.CHECKPOINT, seconds=took_ms / 1e3 if took_ms else None)
    if (match := _SAVING.search(text)) is not None:
        return ParsedLine(part=StepPart.EVENT, event=EventKind.CHECKPOINT, iteration=parse_whole(match[1]))
    if (match := _SAVED.search(text)) is not None:
        return ParsedLine(
            part=StepPart.EVENT,
            event=EventKind.CHECKPOINT,
            iteration=parse_whole(match[1] or ""),
            seconds=parse_positive(match[2] or ""),
        )
    return None


@dataclass(slots=True)
class _Printer:
    """The state of one label: its unfinished step, and its last step."""

    generation: int = 0
    launches: int = 0
    last: int | None = None
    last_at: float | None = None
    last_tokens: float | None = None
    last_loss: float | None = None
    seen: ParsedLine | None = None
    values: dict[str, float] = field(default_factory=dict)
    line: LabeledLine = field(default_factory=lambda: LabeledLine(text=""))
    at: float | None = None


class ProgressReader:
    """Reads one log.

    Parameters
    ----------
    file
        Its name, for the records.
    sequence_tokens, gpus
        Tokens of a sample and GPUs of the job, where the caller knows; else those in the log.
    """

    def __init__(self, file: str = "", *, sequence_tokens: float | None = None, gpus: float | None = None) -> None:
        self.file = file
        self.duplicates = 0
        self.restarts = 0
        self.torn = False
        self.facts: dict[str, float] = {}
        self._reported_facts: dict[str, float] = {}
        self._given_facts = {name: value for name, value in (("seq", sequence_tokens), ("world", gpus)) if value}
        self._readers: tuple[Reader, ...] = tuple(make() for make in READERS)
        words = (word for reader in self._readers for word in reader.hints)
        self._splitter = LineSplitter((*words, *HINTS))
        self._best: Reader | None = None
        self._printers: dict[str, _Printer] = {}
        self._launches = 0
        self._recent: OrderedDict[tuple[int, int], float | None] = OrderedDict()
        self._last_step: int | None = None
        self.changes = 0

    @property
    def framework(self) -> str | None:
        """The framework, by the lines of its steps, or by others that only it prints; ``None`` where it is unknown."""
        best = self._best or next((reader for reader in self._readers if reader.sure), None)
        return best.name if best else None

    def feed(self, data: bytes) -> Iterator[ProgressItem]:
        """Yield what is complete now; after ``changes`` has grown, steps yielded before must be dropped."""
        for line_number, text in self._splitter.feed(data):
            yield from self._line(parse_label(text, line_number))

    def finish(self) -> Iterator[ProgressItem]:
        """Yield what the end of the log completes; a last line that is torn counts as far as it is whole."""
        rest = self._splitter.rest()
        if rest is not None:
            text = trim_partial_word(rest)
            self.torn = text != rest.rstrip()
            yield from self._line(parse_label(text, self._splitter.count))
        for printer in self._printers.values():
            yield from self._close(printer)

    def skip(self) -> None:
        """Forget the unfinished line: what comes next does not follow on it."""
        self._splitter.rest()

    def _line(self, line: LabeledLine) -> Iterator[ProgressItem]:
        """Parse one line that has a hint of a reader."""
        printer = self._printer(line.label)
        if printer is None:
            return
        text = line.text
        for reader in self._readers:
            for word in reader.hints:
                if word in text:
                    break
            else:
                continue
            seen = reader.read(text)
            if seen is None or (seen.part is StepPart.MORE and printer.seen is None and not seen.alone):
                continue
            yield from self._handle_parsed(reader, seen, line, printer)
            return
        if (seen := parse_event(text)) is not None:
            yield from self._event(seen, line)
        else:
            self._learn(text)

    def _learn(self, text: str) -> None:
        """Remember sizes of the run; a size that is stated with two values is unknown."""
        for name, value in parse_facts(text).items():
            if self._reported_facts.setdefault(name, value) != value:
                self.facts.pop(name, None)
            else:
                self.facts[name] = value

    def _printer(self, label: str) -> _Printer | None:
        """Return the state of a label; labels beyond the limit are ignored."""
        printer = self._printers.get(label)
        if printer is None and len(self._printers) < _MAX_LABELS:
            printer = self._printers[label] = _Printer(generation=self.restarts, launches=self._launches)
        return printer

    def _event(self, seen: ParsedLine, line: LabeledLine) -> Iterator[Event]:
        """Yield an event."""
        if seen.event is None:
            return
        if seen.event is EventKind.LAUNCH:
            if self._last_step is not None:
                self._launches += 1
                self._last_step = None
                self._reported_facts.clear()
                self.facts.clear()
            self._learn(line.text)
        yield Event(
            kind=seen.event,
            iteration=seen.iteration,
            seconds=seen.seconds,
            values=seen.values,
            line=line.number,
            file=self.file,
        )

    def _handle_parsed(
        self, reader: Reader, seen: ParsedLine, line: LabeledLine, printer: _Printer
    ) -> Iterator[ProgressItem]:
        """Handle a parsed line, if its reader has precedence."""
        if seen.part is StepPart.EVENT:
            yield from self._event(seen, line)
            return
        if self._best is not reader:
            if self._best is not None and self._best.rank <= reader.rank:
                return
            self._switch_reader(reader)
            printer = self._printers.setdefault(line.label, _Printer())
        if seen.part is StepPart.MORE and printer.seen is not None:
            printer.values.update(seen.values)
            return
        same = printer.seen is not None and seen.part is StepPart.OPEN and printer.seen.iteration == seen.iteration
        if not same:
            yield from self._close(printer)
            printer.seen, printer.line, printer.values = seen, line, {}
        printer.at = parse_timestamp_unix_s(line.text) or printer.at if same else parse_timestamp_unix_s(line.text)
        printer.values.update(seen.values)
        if seen.part is StepPart.STEP or (seen.part is StepPart.MORE and seen.alone):
            yield from self._close(printer)

    def _switch_reader(self, reader: Reader) -> None:
        """Switch to another reader: the steps of the one before were not the training."""
        if self._best is not None:
            self.changes += 1
        self._best = reader
        self._printers.clear()
        self._recent.clear()
        self.restarts = self.duplicates = self._launches = 0
        self._last_step = None

    def _close(self, printer: _Printer) -> Iterator[ProgressItem]:
        """Yield the unfinished step of a label."""
        seen, printer.seen = printer.seen, None
        if seen is None:
            return
        if seen.iteration is not None and not self._is_new(printer, seen.iteration):
            self.duplicates += 1
            return
        yield from self._check_clock(printer, seen)
        values, computed = derive_values(
            printer.values,
            {**self.facts, **self._given_facts},
            tokens_before=printer.last_tokens,
            steps_since=self._steps_since(printer, seen),
            seconds_since=self._seconds_since(printer),
        )
        if seen.iteration is not None:
            printer.last, self._last_step = seen.iteration, seen.iteration
        printer.last_at = printer.at if printer.at is not None else printer.last_at
        printer.last_tokens = printer.values.get("consumed_tokens", printer.last_tokens)
        printer.last_loss = printer.values.get("loss")
        yield StepRecord(
            iteration=seen.iteration,
            total_iterations=seen.total_iterations,
            at_unix_s=printer.at,
            rank=printer.line.rank if printer.line.rank is not None else printer.line.local_rank,
            generation=printer.generation,
            line=printer.line.number,
            file=self.file,
            derived=computed,
            **{name: values.get(name) for name in MEASURED},
        )

    def _check_clock(self, printer: _Printer, seen: ParsedLine) -> Iterator[Event]:
        """Yield an event when a clock went back between two steps."""
        since = self._seconds_since(printer)
        if since is not None and since < 0:
            yield Event(
                kind=EventKind.CLOCK_BACK,
                iteration=seen.iteration,
                seconds=-since,
                line=printer.line.number,
                file=self.file,
            )

    @staticmethod
    def _steps_since(printer: _Printer, seen: ParsedLine) -> int | None:
        """Return how many steps lie between this record of a label and the one before."""
        if printer.last is None or seen.iteration is None or seen.iteration <= printer.last:
            return None
        return seen.iteration - printer.last

    @staticmethod
    def _seconds_since(printer: _Printer) -> float | None:
        """Return how much time has passed by the lines' own times."""
        return None if printer.at is None or printer.last_at is None else printer.at - printer.last_at

    def _is_new(self, printer: _Printer, step: int) -> bool:
        """Return whether a step is new, and detect a restart."""
        if self._went_back(printer, step) or printer.launches < self._launches:
            printer.generation = self.restarts = max(self.restarts, printer.generation + 1)
            printer.last = printer.last_at = printer.last_tokens = None
        printer.launches = self._launches
        key = (printer.generation, step)
        if key in self._recent:
            printer.last = max(printer.last or 0, step)
            return False
        self._recent[key] = printer.at
        if len(self._recent) > _RECENT_STEPS:
            self._recent.popitem(last=False)
        return True

    def _went_back(self, printer: _Printer, step: int) -> bool:
        """Return whether a label prints a step that it had printed, or passed, before."""
        if printer.last is not None:
            if step != printer.last:
                return step < printer.last
            since = self._seconds_since(printer)
            return bool(since) and printer.values.get("loss") != printer.last_loss
        if self._last_step is None or step >= self._last_step or (printer.generation, step) in self._recent:
            return False
        oldest = next(iter(self._recent.values()), None)
        return printer.at is None or oldest is None or printer.at > oldest
