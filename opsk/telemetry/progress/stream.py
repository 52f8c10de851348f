"""How does a log, in whatever pieces it comes, become steps and events: each step once, restarts counted?

Memory is constant: what is remembered is one unfinished step a label, and the last few steps that were told.

A job has restarted when who prints a step has printed a later one before, or prints steps again after a new launch.
Where several ranks print the same step the first counts; what others print of it is a duplicate.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from opsk.telemetry.progress.derive import derived
from opsk.telemetry.progress.frameworks.registry import READERS
from opsk.telemetry.progress.lines import Line, LineSplitter, labelled, whole_part
from opsk.telemetry.progress.records import MEASURED, Event, EventKind, Part, Reader, Seen, StepRecord
from opsk.telemetry.progress.values import known, number, positive, stamp_unix_s, whole

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


def facts(text: str) -> dict[str, float]:
    """Return what a line fixes for the whole run: ``world`` GPUs, ``seq`` tokens a sample, ``batch`` samples a step."""
    found: dict[str, float] = {}
    if _DEEPSPEED_CONFIG in text:
        return found
    for name, pattern in _FACTS:
        match = pattern.search(text)
        value = positive(match[1]) if match else None
        if value is not None:
            found[name] = value
    return found


def surrounding(text: str) -> Seen | None:
    """Return what happened between steps."""
    if _LAUNCH.search(text):
        return Seen(part=Part.EVENT, event=EventKind.LAUNCH)
    if (found := _VALIDATION.search(text)) is not None:
        values = known(loss=number(found[2]))
        return Seen(part=Part.EVENT, event=EventKind.VALIDATION, iteration=int(found[1]), values=values)
    if (found := _SAVE_TIMER.search(text)) is not None:
        took_ms = positive(found[2] or found[1])
        return Seen(part=Part.EVENT, event=EventKind.CHECKPOINT, seconds=took_ms / 1e3 if took_ms else None)
    if (found := _SAVING.search(text)) is not None:
        return Seen(part=Part.EVENT, event=EventKind.CHECKPOINT, iteration=int(found[1]))
    if (found := _SAVED.search(text)) is not None:
        return Seen(
            part=Part.EVENT,
            event=EventKind.CHECKPOINT,
            iteration=whole(found[1] or ""),
            seconds=positive(found[2] or ""),
        )
    return None


_MOST_LABELS = 4096
_RECENT_STEPS = 256


@dataclass(slots=True)
class _Printer:
    """What is remembered of one label: the step that it is in the midst of, and where it stood."""

    generation: int = 0
    launches: int = 0
    last: int | None = None
    last_at: float | None = None
    last_tokens: float | None = None
    last_loss: float | None = None
    seen: Seen | None = None
    values: dict[str, float] = field(default_factory=dict)
    line: Line = field(default_factory=lambda: Line(text=""))
    at: float | None = None


Found = StepRecord | Event


class ProgressReader:
    """Reads one log.

    Parameters
    ----------
    file
        Its name, for the records.
    sequence_tokens, gpus
        Tokens of a sample and GPUs of the job, where the caller knows; else what the log says.
    """

    def __init__(self, file: str = "", *, sequence_tokens: float | None = None, gpus: float | None = None) -> None:
        self.file = file
        self.duplicates = 0
        self.restarts = 0
        self.torn = False
        self.facts: dict[str, float] = {}
        self._said: dict[str, float] = {}
        self._given = {name: value for name, value in (("seq", sequence_tokens), ("world", gpus)) if value}
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
        """Who trains, by the lines of its steps, or by others that only it prints; ``None`` where nothing tells."""
        known = self._best or next((reader for reader in self._readers if reader.sure), None)
        return known.name if known else None

    def feed(self, data: bytes) -> Iterator[Found]:
        """Yield what is complete now; after ``changes`` has grown, steps told before are to be forgotten."""
        for line_number, text in self._splitter.feed(data):
            yield from self._line(labelled(text, line_number))

    def finish(self) -> Iterator[Found]:
        """Yield what the end of the log completes; a last line that is torn counts as far as it is whole."""
        rest = self._splitter.rest()
        if rest is not None:
            text = whole_part(rest)
            self.torn = text != rest.rstrip()
            yield from self._line(labelled(text, self._splitter.count))
        for printer in self._printers.values():
            yield from self._close(printer)

    def skip(self) -> None:
        """Forget the unfinished line: what comes next does not follow on it."""
        self._splitter.rest()

    def _line(self, line: Line) -> Iterator[Found]:
        """Read one line that has a word of somebody's."""
        printer = self._printer(line.label)
        if printer is None:
            return
        for reader in self._readers:
            if not any(word in line.text for word in reader.hints):
                continue
            seen = reader.read(line.text)
            if seen is None or (seen.part is Part.MORE and printer.seen is None and not seen.alone):
                continue
            yield from self._found(reader, seen, line, printer)
            return
        if (seen := surrounding(line.text)) is not None:
            yield from self._event(seen, line)
        else:
            self._learn(line.text)

    def _learn(self, text: str) -> None:
        """Remember sizes of the run; what a log says in two ways is not known."""
        for name, value in facts(text).items():
            if self._said.setdefault(name, value) != value:
                self.facts.pop(name, None)
            else:
                self.facts[name] = value

    def _printer(self, label: str) -> _Printer | None:
        """Return what is known of a label; of thousands of labels the last are not read."""
        found = self._printers.get(label)
        if found is None and len(self._printers) < _MOST_LABELS:
            found = self._printers[label] = _Printer(generation=self.restarts, launches=self._launches)
        return found

    def _event(self, seen: Seen, line: Line) -> Iterator[Event]:
        """Tell an event."""
        if seen.event is None:
            return
        if seen.event is EventKind.LAUNCH:
            if self._last_step is not None:
                self._launches += 1
                self._last_step = None
                self._said.clear()
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

    def _found(self, reader: Reader, seen: Seen, line: Line, printer: _Printer) -> Iterator[Found]:
        """Take what a reader has found, if it is the one that is believed."""
        if seen.part is Part.EVENT:
            yield from self._event(seen, line)
            return
        if self._best is not reader:
            if self._best is not None and self._best.rank <= reader.rank:
                return
            self._begin(reader)
            printer = self._printers.setdefault(line.label, _Printer())
        if seen.part is Part.MORE and printer.seen is not None:
            printer.values.update(seen.values)
            return
        same = printer.seen is not None and seen.part is Part.OPEN and printer.seen.iteration == seen.iteration
        if not same:
            yield from self._close(printer)
            printer.seen, printer.line, printer.values = seen, line, {}
        printer.at = stamp_unix_s(line.text) or printer.at if same else stamp_unix_s(line.text)
        printer.values.update(seen.values)
        if seen.part is Part.STEP or (seen.part is Part.MORE and seen.alone):
            yield from self._close(printer)

    def _begin(self, reader: Reader) -> None:
        """Believe another reader: what the one before has told was not the training."""
        if self._best is not None:
            self.changes += 1
        self._best = reader
        self._printers.clear()
        self._recent.clear()
        self.restarts = self.duplicates = self._launches = 0
        self._last_step = None

    def _close(self, printer: _Printer) -> Iterator[Found]:
        """Tell the step that a label is in the midst of."""
        seen, printer.seen = printer.seen, None
        if seen is None:
            return
        if seen.iteration is not None and not self._is_new(printer, seen.iteration):
            self.duplicates += 1
            return
        yield from self._clock(printer, seen)
        values, computed = derived(
            printer.values,
            {**self.facts, **self._given},
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

    def _clock(self, printer: _Printer, seen: Seen) -> Iterator[Event]:
        """Tell when a clock went back between two steps."""
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
    def _steps_since(printer: _Printer, seen: Seen) -> int | None:
        """Return how many steps lie between this record of a label and the one before."""
        if printer.last is None or seen.iteration is None or seen.iteration <= printer.last:
            return None
        return seen.iteration - printer.last

    @staticmethod
    def _seconds_since(printer: _Printer) -> float | None:
        """Return how much time has passed by the lines' own times."""
        return None if printer.at is None or printer.last_at is None else printer.at - printer.last_at

    def _is_new(self, printer: _Printer, step: int) -> bool:
        """Tell whether a step was not told before, and notice a restart."""
        if self._fell(printer, step) or printer.launches < self._launches:
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

    def _fell(self, printer: _Printer, step: int) -> bool:
        """Tell whether a label prints a step that it had printed, or passed, before."""
        if printer.last is not None:
            if step != printer.last:
                return step < printer.last
            since = self._seconds_since(printer)
            return bool(since) and printer.values.get("loss") != printer.last_loss
        if self._last_step is None or step >= self._last_step or (printer.generation, step) in self._recent:
            return False
        oldest = next(iter(self._recent.values()), None)
        return printer.at is None or oldest is None or printer.at > oldest
