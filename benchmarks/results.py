"""Stores results, one JSON file a benchmark, so that one can be measured again without the others."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from benchmarks.catalogue import BENCHMARKS
from benchmarks.found import Found
from benchmarks.machine import Machine

FOLDER = Path(__file__).resolve().parent / "results"
_DIGITS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one run of a benchmark found, and when, where and beside how much else.

    Parameters
    ----------
    date
        Of the run (UTC), ``2026-11-22``.
    load
        Processes that wanted to run when it began, the mean of a minute; ``None`` where nobody looked.
    took_s
        How long it took [s]; ``None`` likewise.
    said
        The lines that it printed.
    """

    date: str
    machine: Machine
    load: float | None
    took_s: float | None
    found: Found
    said: tuple[str, ...]


_RESULT = TypeAdapter(Result)


def read_results(folder: Path = FOLDER) -> dict[str, Result]:
    """Return the results of the benchmarks that have one, in the catalogue's order."""
    paths = {benchmark.name: folder / f"{benchmark.name}.json" for benchmark in BENCHMARKS}
    return {name: _RESULT.validate_json(path.read_bytes()) for name, path in paths.items() if path.exists()}


def write_result(name: str, result: Result, folder: Path = FOLDER) -> None:
    """Keep the result of a benchmark in place of an earlier one."""
    folder.mkdir(exist_ok=True)
    document = json.dumps(_round(asdict(result)), indent=1, ensure_ascii=False)
    (folder / f"{name}.json").write_text(document + "\n", encoding="utf-8")


def _round(value: Any) -> Any:
    """Return a document whose numbers have as many digits as a measurement has."""
    if isinstance(value, dict):
        return {key: _round(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_round(each) for each in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
