"""Writes the table of model FLOP utilisation for ``docs/accuracy.md``: measured and predicted, in points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from page_table import table

from opsk.calibration.accuracy.scoring import ScoredRun, quantile


def show_mfu(rows: Sequence[ScoredRun]) -> Iterator[str]:
    """Yield measured and predicted MFU of the runs whose source prints one, by GPU; nothing without any."""
    told = [row for row in rows if row.time is not None and row.run.measured.mfu]
    if not told:
        return
    yield (
        "\n### Model FLOP utilisation\n\nOf the runs whose source prints MFU, by its own count of FLOP. A step time "
        "that is 10 % off moves an MFU of 40 % by 4 points.\n\n"
    )
    names = [*dict.fromkeys(row.run.gpu or "not stated" for row in told)]
    groups = [
        ("all", told),
        *((name, [row for row in told if (row.run.gpu or "not stated") == name]) for name in names),
    ]
    head = ("", "rows", "measured", "predicted", "median difference", "P90", "bias")
    yield table(head, (_summarise(name, inside) for name, inside in groups))


def _summarise(name: str, rows: Sequence[ScoredRun]) -> tuple[str, ...]:
    """Return medians of MFU, and of the difference of predicted and measured, in points."""
    measured = [100.0 * (row.run.measured.mfu or 0.0) for row in rows]
    predicted = [100.0 * row.prediction.quantities["mfu"].expected for row in rows]
    signed = [mine - theirs for mine, theirs in zip(predicted, measured, strict=True)]
    off = sorted(map(abs, signed))
    points = (f"{quantile(off, 0.5):.1f}", f"{quantile(off, 0.9):.1f}", f"{median(signed):+.1f}")
    return (name, str(len(rows)), f"{median(measured):.1f}%", f"{median(predicted):.1f}%", *points)
