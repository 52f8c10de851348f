"""Formats and parses the advice record that is stored in a job's Slurm record.

The submit hook writes one line into ``admin_comment``, so that the prediction can be read later on any machine and
without a store::

    opsk:v1 verdict=fits fit=0.99 mem_bytes=73800000000 capacity_bytes=84900000000 step_s=12.3 tflops=412 tp=4 pp=2

Other words may stand before and after it. It is read back from ``admin_comment`` alone, which only operators write: a
job's ``comment`` is its user's, who may write any record there.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from enum import StrEnum

from opsk.errors import InputError

SIGNIFICANT_DIGITS = 6
"""Digits of a stored number; more would be false precision, and Slurm holds every comment in memory."""

_MAX_TEXT = 16384
_MARK = re.compile(r"(?<!\S)opsk:v1(?!\S)")
_PAIR = re.compile(r"([a-z][a-z0-9_]{0,31})=(\S{1,80})")
_HASH_PAIR = re.compile(r"(?<= hash=)[0-9A-Za-z]{1,64}\Z")
_NUMBER = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?(e[+-]?[0-9]{1,3})?")
_HASH = re.compile(r"[0-9A-Za-z]{1,64}")
_RATIOS = ("fit", "mfu")
_AMOUNTS = ("mem_bytes", "capacity_bytes", "step_s", "tokens_per_s_per_gpu", "tflops")
_SIZES = ("tp", "pp", "dp", "cp", "ep")


class Verdict(StrEnum):
    """Whether the job fits into the memory of its GPUs."""

    FITS = "fits"
    TIGHT = "tight"
    OOM = "oom"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceRecord:
    """The advice as stored in a job's record; ``None`` means "not predicted".

    Parameters
    ----------
    verdict
        Whether the job fits.
    fit
        Probability that it fits [ratio].
    mem_bytes, capacity_bytes
        Predicted memory of the fullest GPU and what that GPU has [bytes].
    step_s
        Predicted time of one optimizer step [s].
    tokens_per_s_per_gpu
        Predicted training speed [tokens/s of one GPU].
    tflops
        Predicted model TFLOP/s of one GPU.
    mfu
        Predicted model FLOP utilisation [ratio].
    tp, pp, dp, cp, ep
        Sizes of the plan that was predicted.
    hash
        Hash of the script that was advised on: letters and digits.

    Numbers are rounded to six significant digits, as in the text; so ``parse(render())`` is exact.

    Raises
    ------
    InputError
        Names every value that is out of range.
    """

    verdict: Verdict
    fit: float | None = None
    mem_bytes: float | None = None
    capacity_bytes: float | None = None
    step_s: float | None = None
    tokens_per_s_per_gpu: float | None = None
    tflops: float | None = None
    mfu: float | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    cp: int | None = None
    ep: int | None = None
    hash: str | None = None

    def __post_init__(self) -> None:
        """Round the numbers and validate their ranges."""
        wrong = [f"{name} is {getattr(self, name)!r}" for name in KEYS if not _is_valid(name, getattr(self, name))]
        if wrong:
            raise InputError("advice record: " + "; ".join(wrong))
        object.__setattr__(self, "verdict", Verdict(self.verdict))
        for name in _RATIOS + _AMOUNTS:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _round(value))
        for name in _SIZES:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, int(value))

    @property
    def mem_ratio(self) -> float | None:
        """Predicted memory over the GPU's capacity [ratio]; ``None`` when either is not known."""
        if self.mem_bytes is None or not self.capacity_bytes:
            return None
        return self.mem_bytes / self.capacity_bytes

    def render(self, *, script_hash: str | None = None) -> str:
        """Return this record as one line of text, or the same record for another script.

        Parameters
        ----------
        script_hash
            Hash of that script; it replaces the record's own.

        Raises
        ------
        InputError
            When ``script_hash`` is not a hash.
        """
        if not _is_valid("hash", script_hash):
            raise InputError(f"advice record: hash is {script_hash!r}")
        pairs = ((name, script_hash if script_hash and name == "hash" else getattr(self, name)) for name in KEYS)
        return " ".join(["opsk:v1", *(f"{name}={_format_value(value)}" for name, value in pairs if value is not None)])

    @classmethod
    def parse(cls, text: str) -> AdviceRecord | None:
        """Parse the record in an ``admin_comment``; ``None`` when there is none, or its verdict is invalid.

        Unknown keys are skipped, an invalid value means "not predicted"; of a repeated key the first one counts.
        """
        mark = _MARK.search(text[:_MAX_TEXT])
        if mark is None:
            return None
        values: dict[str, object] = {}
        for word in text[mark.end() : _MAX_TEXT].split():
            pair = _PAIR.fullmatch(word)
            if pair is None:
                break
            name, value = pair[1], _parse_value(pair[1], pair[2])
            if name in KEYS and value is not None and _is_valid(name, value):
                values.setdefault(name, value)
        return cls(**values) if "verdict" in values else None  # type: ignore[arg-type]


def replace_hash(line: str, script_hash: str) -> str:
    """Return the line of a record (see `AdviceRecord.render`) with the hash of another script with the same advice.

    Raises
    ------
    InputError
        When ``script_hash`` is not a hash.
    """
    if not _HASH.fullmatch(script_hash):
        raise InputError(f"advice record: hash is {script_hash!r}")
    return _HASH_PAIR.sub(script_hash, line)


KEYS = tuple(field.name for field in fields(AdviceRecord))
_VERDICTS = tuple(Verdict)


def _round(value: float) -> float:
    """Round to ``SIGNIFICANT_DIGITS``."""
    return float(f"{float(value):.{SIGNIFICANT_DIGITS}g}")


def _format_value(value: object) -> str:
    """Return one value as text; whole numbers without a decimal point."""
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and value < 1e16 else repr(value)
    return str(value)


def _parse_value(name: str, word: str) -> object:
    """Parse one word as the type of its key; ``None`` when it is invalid."""
    if name in ("verdict", "hash"):
        return word
    if not _NUMBER.fullmatch(word):
        return None
    if name in _SIZES:
        return int(word) if word.isascii() and word.isdigit() else None
    return float(word)


def _is_valid(name: str, value: object) -> bool:
    """Return whether ``value`` is valid for ``name``."""
    if name == "verdict":
        return value in _VERDICTS
    if value is None:
        return True
    if name == "hash":
        return isinstance(value, str) and _HASH.fullmatch(value) is not None
    number = float(value)  # type: ignore[arg-type]
    if name in _SIZES:
        return number.is_integer() and 1 <= number < 2**31
    return math.isfinite(number) and number >= 0 and (name not in _RATIOS or number <= 1)
