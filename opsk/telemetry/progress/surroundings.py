"""What do lines between the steps say, whatever the framework: launches, checkpoints, validation, sizes of the run?"""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import EventKind, Part, Seen
from opsk.telemetry.progress.values import known, number, positive, whole

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
