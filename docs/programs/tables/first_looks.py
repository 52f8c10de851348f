"""Writes the tables of first looks for ``docs/accuracy.md``: what was predicted of sources that nobody had seen."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from csv import DictReader
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from page_table import NOTHING, table

from opsk.calibration.accuracy.first_looks import FirstLook, read_first_looks
from opsk.calibration.accuracy.scoring import quantile
from opsk.costmodel.efficiency.cases import find_missing_aspects
from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.uncertainty.case_spread import widen_spread
from opsk.costmodel.uncertainty.chance import COVERED_SIGMAS

RECORDED = Path(__file__).resolve().parents[3] / "benchmarks" / "published" / "first_look_errors.csv"
KINDS = [(quantity, is_stated) for quantity in ("time", "memory") for is_stated in (True, False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A first prediction, and half of the range that it had then, in the logarithm."""

    first: FirstLook
    half_width: float

    @property
    def error(self) -> float:
        """Relative error."""
        return math.expm1(self.first.log_error)

    @property
    def was_held(self) -> bool:
        """Whether the measurement lay in the range that was printed."""
        return abs(self.first.log_error) <= self.half_width

    @property
    def is_held(self) -> bool:
        """Whether it lies in a range as wide as today's."""
        return abs(self.first.log_error) <= find_half_width(self.first)


def find_half_width(look: FirstLook) -> float:
    """Return half of the range that the case of a first look has today, in the logarithm."""
    inputs = look.assumed_inputs
    spread = widen_spread(
        DEFAULT.spread,
        time_inputs=inputs,
        memory_inputs=inputs,
        time_lacks=find_missing_aspects(look.case, DEFAULT.fitted),
        memory_lacks=find_missing_aspects(look.case, DEFAULT.fitted_memory),
    )
    return COVERED_SIGMAS * (spread.time_log_sigma if look.quantity == "time" else spread.memory_log_sigma)


def read_looks() -> list[Look]:
    """Return the recorded first looks."""
    with RECORDED.open(encoding="utf-8", newline="") as stream:
        halves = [float(row["half_width"]) for row in DictReader(stream)]
    return [Look(first=look, half_width=half) for look, half in zip(read_first_looks(RECORDED), halves, strict=True)]


def show_looks(names: Mapping[str, str], calibration: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield what all looks found together, and each, the latest first.

    Parameters
    ----------
    names
        What each look is called, by its number.
    calibration
        What ``opsk calibrate --json`` printed: how many ranges hold whose widths were fitted without the source.
    """
    looks = read_looks()
    head = ("", "sources", "rows", "median", "P90", "bias", "in range then", "in a range of today's width")
    yield "\n**All first looks**\n\n" + table(head, list(_summarise(looks)))
    shares = _find_unseen_shares(calibration)
    if shares:
        yield (
            "\nToday's widths were fitted to all these errors but those of the newest look, among others. With widths "
            f"that were fitted without the source, ranges hold {shares} of the older looks.\n"
        )
    for number in sorted({look.first.look for look in looks}, reverse=True):
        inside = [look for look in looks if look.first.look == number]
        yield f"\n**{names[str(number)]}**\n\n" + table(head, list(_summarise(inside)))


def _summarise(looks: Sequence[Look]) -> Iterator[tuple[str, ...]]:
    """Yield the figures of time and memory, with inputs stated and assumed."""
    for quantity, is_stated in KINDS:
        inside = [
            look for look in looks if look.first.quantity == quantity and (look.first.assumed_inputs == 0) == is_stated
        ]
        name = f"{quantity}, inputs {'stated' if is_stated else 'assumed'}"
        if not inside:
            yield (name, "0", "0", *[NOTHING] * 5)
            continue
        signed = sorted(look.error for look in inside)
        errors = sorted(map(abs, signed))
        yield (
            name,
            str(len({look.first.source for look in inside})),
            str(len(inside)),
            f"{quantile(errors, 0.5):.1%}",
            f"{quantile(errors, 0.9):.1%}",
            f"{quantile(signed, 0.5):+.1%}",
            f"{sum(look.was_held for look in inside) / len(inside):.0%}",
            f"{sum(look.is_held for look in inside) / len(inside):.0%}",
        )


def _find_unseen_shares(calibration: Mapping[str, Any] | None) -> str:
    """Return the shares of first looks in ranges whose widths were fitted without their source; empty without any."""
    coverage = ((calibration or {}).get("spread") or {}).get("coverage") or {}
    parts = []
    for quantity, noun in (("time", "times"), ("memory", "memory")):
        held = coverage.get(f"{quantity}_by_class_unseen_widths") or {}
        if "unseen, stated" in held:
            parts.append(f"{held['unseen, stated']:.0%} of stated and {held['unseen, assumed']:.0%} of assumed {noun}")
    return ", ".join(parts)
