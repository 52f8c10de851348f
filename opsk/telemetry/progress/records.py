"""Defines the records that progress logs are parsed into: steps, and events between steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """The values of one progress line, or block of lines; ``None`` is neither stated nor derived.

    Parameters
    ----------
    iteration, total_iterations
        Which step, and of how many.
    step_s
        Time of one step, the mean since the record before [s].
    tokens_per_s, tokens_per_s_per_gpu
        Tokens trained by the whole job, and by one GPU [tokens/s].
    tflops_per_gpu
        TFLOP/s of one GPU, by the framework's own count of FLOPs.
    samples_per_s
        Sequences trained by the whole job [1/s].
    loss, grad_norm, lr
        As printed; NaN and infinity too.
    memory_bytes
        Peak memory of a GPU, as the framework counts it [bytes].
    at_unix_s
        When the line was printed [s since 1970]; a stamp without a zone is taken as UTC.
    rank
        Who printed it, where the line is labelled so; torchrun's labels (``[default3]:``) have the rank on its node.
    generation
        How often the job had restarted before.
    line, file
        Where it was read.
    derived
        Names of the values that were computed here, not read.
    """

    iteration: int | None = None
    total_iterations: int | None = None
    step_s: float | None = None
    tokens_per_s: float | None = None
    tokens_per_s_per_gpu: float | None = None
    tflops_per_gpu: float | None = None
    samples_per_s: float | None = None
    loss: float | None = None
    grad_norm: float | None = None
    memory_bytes: float | None = None
    lr: float | None = None
    at_unix_s: float | None = None
    rank: int | None = None
    generation: int = 0
    line: int = 0
    file: str = ""
    derived: tuple[str, ...] = ()


MEASURED = (
    "step_s",
    "tokens_per_s",
    "tokens_per_s_per_gpu",
    "tflops_per_gpu",
    "samples_per_s",
    "loss",
    "grad_norm",
    "memory_bytes",
    "lr",
)
"""The values of a `StepRecord` that a line may state."""


class EventKind(StrEnum):
    """What happens between steps."""

    LAUNCH = "launch"
    VALIDATION = "validation"
    CHECKPOINT = "checkpoint"
    CLOCK_BACK = "clock_back"
    SUMMARY = "summary"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event in a log that is no step.

    Parameters
    ----------
    kind
        What it is.
    iteration
        After which step, where that is stated.
    seconds
        How long it took, where that is stated [s].
    values
        Numbers that belong to it, by name.
    line, file
        Where it was read.
    """

    kind: EventKind
    iteration: int | None = None
    seconds: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    line: int = 0
    file: str = ""


class StepPart(StrEnum):
    """How a parsed line belongs to a step."""

    STEP = "step"
    """A step, complete."""
    OPEN = "open"
    """A step begins, or continues when it is the same one; more may follow on other lines."""
    MORE = "more"
    """More about the step that has begun."""
    EVENT = "event"
    """No step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedLine:
    """What a reader has parsed from one line.

    Parameters
    ----------
    part
        How it belongs to a step.
    iteration, total_iterations
        Which step.
    values
        By name: those of `MEASURED`, and ``batch`` (samples a step), ``seq`` (tokens a sample), ``batch_tokens``,
        ``consumed_tokens``, which others are derived from.
    event
        For ``Part.EVENT``.
    alone
        For ``Part.MORE``: it is a record of its own when no step has begun.
    """

    part: StepPart
    iteration: int | None = None
    total_iterations: int | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    event: EventKind | None = None
    seconds: float | None = None
    alone: bool = False


class Reader:
    """Reads the progress lines of one framework; one instance a log, for it may remember lines.

    Parameters
    ----------
    name
        The framework, as ``opsk check`` calls it; a reader may refine it while it reads.
    rank
        Of several readers that find steps in one log the one with the least rank is used.
    hints
        Words of which every line that it reads has one.
    sure
        It has read a line that no other framework prints, if none of a step.
    """

    name = ""
    rank = 50
    hints: tuple[str, ...] = ()
    sure = False

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line; ``None`` when it is none of this framework's."""
        raise NotImplementedError
