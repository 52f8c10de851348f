"""Reports what a benchmark measured: lines for people as it goes, and figures as JSON in a file.

A key of a figure ends with its unit: ``_s``, ``_bytes``, ``_per_s``, ``_share``, ``_ratio`` or ``_count``. What was
asked of a figure stands in `benchmarks.budgets` alone: a benchmark measures and does not judge.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

NOT_RUN_STATUS = 3


class NotRunError(Exception):
    """What a benchmark needs is not on this machine; the message says what."""


@dataclass(slots=True, kw_only=True)
class Found:
    """Figures by key, and how a cost grows: points (size, cost) by the key of the curve."""

    figures: dict[str, float] = field(default_factory=dict)
    curves: dict[str, list[tuple[float, float]]] = field(default_factory=dict)


def arguments(purpose: str | None) -> argparse.ArgumentParser:
    """Return a parser of what every benchmark can be told."""
    parser = argparse.ArgumentParser(description=purpose, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="small and once: that it runs, no figures worth keeping")
    parser.add_argument("--found", type=Path, metavar="FILE", help="write the figures to this file, as JSON")
    return parser


def run(measure: Callable[[argparse.Namespace], Found], parser: argparse.ArgumentParser) -> None:
    """Measure what the command line asks for and hand it over; status 3 where something is missing."""
    asked = parser.parse_args()
    try:
        found = measure(asked)
    except NotRunError as why:
        print(f"not run: {why}", flush=True)
        sys.exit(NOT_RUN_STATUS)
    if asked.found:
        asked.found.write_text(json.dumps(asdict(found)), encoding="utf-8")
