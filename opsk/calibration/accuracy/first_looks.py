"""Reads errors of runs that were predicted before anybody had looked at their source, and adds them to those left out.

Leaving a source out of a fit does not undo what people learnt from it while they built the model. First predictions
of sources that nobody had seen are the only honest sample of what a new site may expect, so they are kept as data.
"""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from opsk.calibration.fitting.spread import Residuals
from opsk.costmodel.efficiency.cases import ASPECTS, Case, find_missing_aspects, select_held
from opsk.errors import InputError

MAX_BYTES = 4_000_000
COLUMNS = ("look", "id", "source", "quantity", "assumed", "case", "log_error")
QUANTITIES = ("time", "memory")
LATER_LOOK = 2.0
"""A look counts so much more than the one before it: what that one showed was mended, so it tells less of the model."""
MAX_LOOK = 100
MAX_LOG_ERROR = 10.0
"""A larger one is no error of a prediction but a wrong number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLook:
    """The first prediction of one run of a source that nobody had seen.

    Parameters
    ----------
    look
        Number of the look, 1 for the first.
    quantity
        ``time`` of a step, or ``memory``.
    assumed_inputs
        Inputs of it that were assumed.
    log_error
        ln(predicted / measured), of the time of a step also where a rate is published.
    """

    look: int
    id: str
    source: str
    quantity: str
    assumed_inputs: int
    case: Case
    log_error: float


def read_first_looks(path: Path) -> tuple[FirstLook, ...]:
    """Read a table of first looks (CSV, UTF-8, one header line).

    Raises
    ------
    InputError
        The file cannot be read, or a row is none.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        text = data.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path}: {reason}", hint="give a CSV of first looks") from error
    if len(data) > MAX_BYTES:
        raise InputError(f"{path}: larger than {MAX_BYTES} bytes", hint="is this a table of first looks?")
    reader = csv.DictReader(io.StringIO(text, newline=""))
    missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise InputError(f"{path}: no column {', '.join(missing)}", hint="is this a table of first looks?")
    try:
        return tuple(_parse_row(row) for row in reader)
    except (csv.Error, ValueError) as error:
        raise InputError(f"{path}: line {reader.line_num}: {error}"[:300], hint="correct the row") from error


def select_newest(looks: Sequence[FirstLook]) -> tuple[FirstLook, ...]:
    """Return the newest of several looks, which a fit and its ranges leave out: it tells how good they are."""
    numbers = {look.look for look in looks}
    return tuple(look for look in looks if len(numbers) > 1 and look.look == max(numbers))


def _parse_row(row: Mapping[str, str | None]) -> FirstLook:
    """Return one row; `ValueError` says what is wrong with it."""
    cells = {name: (row[name] or "").strip() for name in COLUMNS}
    look = FirstLook(
        look=int(cells["look"]),
        id=cells["id"],
        source=cells["source"],
        quantity=cells["quantity"],
        assumed_inputs=int(cells["assumed"]),
        case=Case.parse(cells["case"]),
        log_error=float(cells["log_error"]),
    )
    if look.quantity not in QUANTITIES:
        raise ValueError(f"quantity is {look.quantity[:40]!r}, must be one of {', '.join(QUANTITIES)}")
    if not 1 <= look.look <= MAX_LOOK:
        raise ValueError(f"look is {look.look}, must be 1 to {MAX_LOOK}")
    if not look.source or look.assumed_inputs < 0 or not math.fabs(look.log_error) <= MAX_LOG_ERROR:
        raise ValueError("a source, assumed inputs of 0 or more and an error within e^±10 are needed")
    return look


def add_first_looks(
    errors: Residuals, cases: Sequence[Case], looks: Sequence[FirstLook], *, quantity: str
) -> Residuals:
    """Return the errors of sources left out, whose cases are given, and those of first looks after them.

    What is near to a first look is what sources other than its own have in the table.
    """
    chosen = [look for look in looks if look.quantity == quantity]
    last = max((look.look for look in chosen), default=1)
    held = select_held(cases, errors.log_errors.tolist())
    by_source = defaultdict(set)
    for case, source in zip(cases, errors.sources, strict=True):
        by_source[source].add(case)
    known = {
        source: {case for other, members in by_source.items() if other != source for case in members & held}
        for source in {look.source for look in chosen}
    }
    missing = [find_missing_aspects(look.case, known[look.source]) for look in chosen]
    lacks = np.array([[name in lacked for name in ASPECTS] for lacked in missing], dtype=np.bool_)
    return replace(
        errors,
        log_errors=np.concatenate([errors.log_errors, [look.log_error for look in chosen]]),
        assumed_inputs=np.concatenate([errors.assumed_inputs, np.array([look.assumed_inputs for look in chosen], int)]),
        lacks=np.concatenate([errors.lacks, lacks.reshape(len(chosen), len(ASPECTS))]),
        sources=np.concatenate([errors.sources, np.array([look.source for look in chosen], dtype=object)]),
        classes={
            name: np.concatenate([column, np.array([getattr(look.case, name) for look in chosen], dtype=object)])
            for name, column in errors.classes.items()
        },
        unseen_weights=np.concatenate([errors.unseen_weights, [LATER_LOOK ** (look.look - last) for look in chosen]]),
    )


MAX_SQUARE = 0.25
"""A source that is farther off than e^0.5 counts as one that is so far off: it lacks a mechanism, and has no offset."""
MIN_RUNS = 3
"""A source of fewer runs does not tell how far they are from each other."""


def find_offset_share(errors: Residuals) -> float | None:
    """Return the share of the variance of first looks that is common to the runs of a source; ``None`` without any.

    It is what a site takes away when it learns its own offset. A source counts once, by its median.
    """
    by_source: dict[str, list[float]] = defaultdict(list)
    for source, error in zip(errors.sources[errors.is_unseen], errors.log_errors[errors.is_unseen], strict=True):
        by_source[source].append(float(error))
    medians = {source: float(np.median(of_source)) for source, of_source in by_source.items()}
    between = [min(median**2, MAX_SQUARE) for median in medians.values()]
    within = [
        float(np.mean([min((error - medians[source]) ** 2, MAX_SQUARE) for error in of_source]))
        for source, of_source in by_source.items()
        if len(of_source) >= MIN_RUNS
    ]
    if not within:
        return None
    total = float(np.mean(between)) + float(np.mean(within))
    return float(np.mean(between)) / total if total else None
