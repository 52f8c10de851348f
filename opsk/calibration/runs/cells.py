"""Parses the cells of one row of a table of runs, and records what is wrong or assumed.

Every number of the table is parsed here once: a cell that holds no number, or one that is out of range, is reported and
not used. An empty cell means "unknown", and so does a column that the table does not have.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from opsk.calibration.runs.columns import BY_NAME
from opsk.workload.defaults import Assumption

MAX_SIZE = 10**9
"""A size above this is a typo; products of such sizes exceed the range of floating point."""
MAX_SHOWN = 40
MAX_TEXT = 4000
"""Maximum characters of a cell that are read; notes of real tables have some hundred."""

NO_VALUE = frozenset({"nan", "na", "n/a", "null", "<na>", "-"})
"""Values that programs write into an empty cell (pandas, R, spreadsheets)."""
_YES, _NO = frozenset({"yes", "true", "1", "on"}), frozenset({"no", "false", "0", "off"})
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


class Cells:
    """One row while it is parsed.

    Attributes
    ----------
    assumed
        The assumptions, in the order in which they were made.
    wrong
        Errors in cells that the prediction needs: the row cannot be predicted.
    odd
        Errors in cells that the prediction does not need.
    """

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._columns = columns
        self.assumed: list[Assumption] = []
        self.wrong: list[str] = []
        self.odd: list[str] = []

    def text(self, column: str) -> str:
        """Return a cell's text without blanks around it; "" where there is none."""
        cell = (self._columns.get(column) or "").strip()[:MAX_TEXT]
        return "" if cell.lower() in NO_VALUE else cell

    def size(self, column: str) -> int | None:
        """Return a cell that counts something from 1 on; 0 means "none" and is the same as empty."""
        value = self._number(column, self.wrong)
        if value is None:
            return None
        if value != int(value) or not 0 <= value <= MAX_SIZE:
            self.wrong.append(f"{column} is {_quote(self.text(column))}, must be a whole number from 0 to {MAX_SIZE}")
            return None
        return int(value) or None

    def count(self, column: str) -> int | None:
        """Return a cell that counts something from 0 on, where 0 is a value."""
        return 0 if self._number(column, []) == 0 else self.size(column)

    def quantity(self, column: str) -> float | None:
        """Return a cell that measures an input; it must be positive."""
        return self._positive(column, self.wrong)

    def share(self, column: str) -> float | None:
        """Return a cell that holds a share, 0 to 1."""
        value = self._number(column, self.wrong)
        if value is not None and not 0 <= value <= 1:
            self.wrong.append(f"{column} is {_quote(self.text(column))}, must be between 0 and 1")
            return None
        return value

    def choice(self, column: str) -> str:
        """Return a cell that has one of its column's values, in lower case; "" where it is empty.

        Another value is reported, and the cell treated as empty.
        """
        text = self.text(column).lower()
        values = BY_NAME[column].values
        if not text or text in values:
            return text
        self._complain(
            f"{column} is {_quote(self.text(column))}, must be one of {', '.join(values)}: taken as not stated"
        )
        return ""

    def flag(self, column: str) -> bool | None:
        """Return a yes-or-no cell; ``None`` where it is empty, or has another value, which is reported."""
        text = self.text(column).lower()
        if text in _YES or text in _NO:
            return text in _YES
        if text:
            self._complain(f"{column} is {_quote(self.text(column))}, must be yes or no: taken as not stated")
        return None

    def _complain(self, text: str) -> None:
        if text not in self.odd:
            self.odd.append(text)

    def measured(self, column: str) -> float | None:
        """Return a cell that holds a measurement; one that is not a positive number is reported and ignored."""
        return self._positive(column, self.odd)

    def _positive(self, column: str, complaints: list[str]) -> float | None:
        value = self._number(column, complaints)
        if value is not None and value <= 0:
            complaints.append(f"{column} is {_quote(self.text(column))}, must be positive")
            return None
        return value

    def _number(self, column: str, complaints: list[str]) -> float | None:
        """Return a cell as a number; ``None`` where it is empty, or wrong, which is reported."""
        text = self.text(column).replace(",", "")
        if not text:
            return None
        value = float(text) if len(text) <= MAX_SHOWN and _NUMBER.fullmatch(text) else math.nan
        if not math.isfinite(value):
            complaints.append(f"{column} is {_quote(text)}, must be a number")
            return None
        return value

    def assume(self, field: str, value: Any, why: str) -> Any:
        """Record an assumed value, and return it."""
        self.assumed.append(Assumption(field=field, value=value, why=why))
        return value

    def size_or(self, column: str, field: str, value: int, why: str) -> int:
        """Return a counting cell, or record and return an assumed value."""
        stated = self.size(column)
        return stated if stated is not None else int(self.assume(field, value, why))

    def has_assumed(self, *names: str) -> bool:
        """Return whether any of these fields was assumed."""
        return any(entry.field in names for entry in self.assumed)


def _quote(text: str) -> str:
    """Quote untrusted text for an error message, truncated."""
    return repr(text[:MAX_SHOWN]) + ("…" if len(text) > MAX_SHOWN else "")
