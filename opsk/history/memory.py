"""Estimates the memory of a submission from earlier runs: of the same settings, or along one setting that changed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from opsk.history.runs import PastRun
from opsk.history.submission import GPUS

SAME_RATIO = 0.02
"""Peaks that differ by less are the same: two runs of one program differ by as much."""
TWO_POINTS_RATIO = 0.05
"""Range of a line through two values; more values show by themselves how straight it is."""
LAST_RUNS = 5
MAX_EXTRAPOLATION = 4.0
"""A setting that grows beyond the largest value that was run by more than this is not followed."""
_MISSING = ""
_LENGTH_OF_RUN = re.compile(
    r"epoch|iter|steps?$|step_|round|repeat|patience|interval|every|freq|warmup|burn|worker|thread|verbos|debug",
    re.IGNORECASE,
)
"""Names of settings that say how long or how a program runs: they are taken to leave memory alone until runs differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A setting that differs from an earlier run; an empty value is "not set"."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Memory of one GPU.

    Parameters
    ----------
    runs
        The runs that it comes from.
    low_bytes, expected_bytes, high_bytes
        The range, and the middle; ``None`` in all three where a change has an effect that no runs show.
    changes
        Settings that may change memory, and differ from the last of these runs.
    scaled_by
        The setting that memory follows; ``constant_bytes`` and ``bytes_per_unit`` are the line through its values.
    """

    runs: tuple[PastRun, ...]
    low_bytes: float | None = None
    expected_bytes: float | None = None
    high_bytes: float | None = None
    changes: tuple[Change, ...] = ()
    scaled_by: str = ""
    constant_bytes: float = 0.0
    bytes_per_unit: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Runs with the same settings, the last one first, and the median of their peaks."""

    settings: Mapping[str, str]
    runs: tuple[PastRun, ...]
    peak_bytes: float


def estimate_memory(runs: Sequence[PastRun], settings: Mapping[str, str]) -> MemoryEstimate | None:
    """Return the memory that a program needs with some settings; ``None`` where no run shows any.

    Parameters
    ----------
    runs
        Runs of the program, the last one first.
    """
    groups = _group([run for run in runs if run.has_memory])
    if not groups:
        return None
    harmless = _find_harmless(groups, settings)
    same = [group for group in groups if not (_differing(group.settings, settings) - harmless)]
    if same:
        return _of_same(same)
    scaled = _scale(groups, settings, harmless)
    if scaled is not None:
        return scaled
    names = _differing(groups[0].settings, settings) - harmless
    return MemoryEstimate(runs=groups[0].runs[:LAST_RUNS], changes=_list_changes(groups[0], settings, names))


def _group(runs: Sequence[PastRun]) -> list[_Group]:
    by_settings: dict[tuple[tuple[str, str], ...], list[PastRun]] = {}
    for run in runs:
        by_settings.setdefault(tuple(sorted(run.settings.items())), []).append(run)
    return [
        _Group(
            settings=members[0].settings, runs=tuple(members),
            peak_bytes=median(run.memory_peak_bytes or 0.0 for run in members[:LAST_RUNS]),
        )
        for members in by_settings.values()
    ]  # fmt: skip


def _differing(first: Mapping[str, str], second: Mapping[str, str]) -> set[str]:
    """Return the names of settings that differ, or that only one of the two has."""
    return {name for name, _ in first.items() ^ second.items()}


def _find_harmless(groups: Sequence[_Group], settings: Mapping[str, str]) -> set[str]:
    """Return the settings that leave memory alone: runs show it, or nothing speaks against it.

    A size is a whole number. A setting with a fraction (a rate, a tolerance, a probability), or one that says how long
    the program runs, is taken to be harmless until two runs that differ in it alone differ in memory.
    """
    without: set[str] = set()
    effective: set[str] = set()
    for index, group in enumerate(groups):
        for other in groups[index + 1 :]:
            names = _differing(group.settings, other.settings)
            if len(names) > 1:
                continue
            is_same = abs(group.peak_bytes - other.peak_bytes) <= SAME_RATIO * max(group.peak_bytes, other.peak_bytes)
            (without if is_same else effective).update(names)
    maps = [settings, *(group.settings for group in groups)]
    assumed = {
        name for each in maps for name, text in each.items() if _LENGTH_OF_RUN.search(name) or _is_fraction(text)
    }
    return (without | assumed) - effective


def _is_fraction(text: str) -> bool:
    number = _parse_number(text)
    return number is not None and number != int(number)


def _of_same(groups: Sequence[_Group]) -> MemoryEstimate:
    """Return the estimate from runs whose settings make no difference."""
    runs = sorted((run for group in groups for run in group.runs), key=lambda run: -run.ended_at_s)[:LAST_RUNS]
    peaks = [run.memory_peak_bytes or 0.0 for run in runs]
    return MemoryEstimate(runs=tuple(runs), low_bytes=min(peaks), expected_bytes=median(peaks), high_bytes=max(peaks))


def _scale(groups: Sequence[_Group], settings: Mapping[str, str], harmless: set[str]) -> MemoryEstimate | None:
    """Return the estimate along one numeric setting that was run with two values or more, all else the same."""
    best: MemoryEstimate | None = None
    for name, text in settings.items():
        value = _parse_number(text)
        if value is None or name == GPUS:
            continue
        points = [
            (number, group)
            for group in groups
            if _differing(group.settings, settings) - harmless == {name}
            and (number := _parse_number(group.settings.get(name, _MISSING))) is not None
        ]
        estimate = _fit_line(name, value, points)
        if estimate is not None and (best is None or len(estimate.runs) > len(best.runs)):
            last = points[0][1]
            names = _differing(last.settings, settings) - harmless
            best = MemoryEstimate(
                runs=estimate.runs, low_bytes=estimate.low_bytes, expected_bytes=estimate.expected_bytes,
                high_bytes=estimate.high_bytes, changes=_list_changes(last, settings, names), scaled_by=name,
                constant_bytes=estimate.constant_bytes, bytes_per_unit=estimate.bytes_per_unit,
            )  # fmt: skip
    return best


def _fit_line(name: str, value: float, points: Sequence[tuple[float, _Group]]) -> MemoryEstimate | None:
    """Return the memory at a value by least squares; ``None`` where it does not grow along a line that far."""
    values = [number for number, _ in points]
    if len(set(values)) < 2 or not 0 < value <= MAX_EXTRAPOLATION * max(values):
        return None
    peaks = [group.peak_bytes for _, group in points]
    mean_value, mean_peak = sum(values) / len(values), sum(peaks) / len(peaks)
    spread = sum((number - mean_value) ** 2 for number in values)
    slope = sum((number - mean_value) * (peak - mean_peak) for number, peak in zip(values, peaks, strict=True)) / spread
    constant = mean_peak - slope * mean_value
    expected = constant + slope * value
    if slope <= 0 or constant < -SAME_RATIO * max(peaks) or expected <= 0:
        return None
    errors = [abs(constant + slope * number - peak) / peak for number, peak in zip(values, peaks, strict=True)]
    if max(errors) > 2 * TWO_POINTS_RATIO:
        return None  # no line
    reach = max(1.0, value / max(values))
    width = max(TWO_POINTS_RATIO if len(values) == 2 else SAME_RATIO, max(errors)) * reach
    return MemoryEstimate(
        runs=tuple(run for _, group in points for run in group.runs), low_bytes=expected * (1 - width),
        expected_bytes=expected, high_bytes=expected * (1 + width), scaled_by=name, constant_bytes=max(0.0, constant),
        bytes_per_unit=slope,
    )  # fmt: skip


def _list_changes(group: _Group, settings: Mapping[str, str], names: set[str]) -> tuple[Change, ...]:
    return tuple(
        Change(name=name, before=group.settings.get(name, _MISSING), after=settings.get(name, _MISSING))
        for name in sorted(names)
    )


def _parse_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None
