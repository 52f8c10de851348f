"""Fit what attention kernels reach to published benchmarks: ``python -m benchmarks.costmodel.attention_fits``.

The share of the 16-bit peak of a kernel on a chip generation, for a width of heads and a direction, is taken as
``plateau * s / (s + c)`` of the length ``s`` of query and key, with one ``c`` for causal masks and one for none. Reads
and writes tables of ``benchmarks/published``.
"""

from __future__ import annotations

import csv
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "published"
TABLES = ("attention.csv", "attention_more.csv")
GENERATIONS = (
    ("A100", "ampere", 312e12), ("H100", "hopper", 989.4e12), ("H200", "hopper", 989.4e12),
    ("H800", "hopper", 989.4e12), ("GB200", "blackwell", 2500e12), ("B200", "blackwell", 2250e12),
    ("GB300", "blackwell-ultra", 2500e12), ("B300", "blackwell-ultra", 2250e12), ("MI300X", "cdna3", 1307.4e12),
    ("MI355X", "cdna4", 2516.6e12),
)  # fmt: skip
"""A word of the GPU's name, its generation, and its dense 16-bit peak [FLOP/s]."""
FULL_LENGTHS = (20, 40, 60, 80, 100, 150, 200, 300)
CAUSAL_LENGTHS = (150, 250, 350, 450, 550, 700, 900, 1200, 1600, 2200)
SHORTEST = 512
KEPT = 0.9
"""Share of the points that decide; the worst of them are other releases and cold clocks."""
FEWEST = 3
COLUMNS = (
    *("architecture", "kernel", "head_dim", "direction", "plateau", "full_tokens", "causal_tokens", "points"),
    "error",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measurement: length, whether the mask is causal, and the share of the peak."""

    tokens: int
    is_causal: bool
    share: float


Key = tuple[str, str, str, str]


def points() -> Mapping[Key, Sequence[Point]]:
    """Return the measurements in 16 bits with as many queries as keys, by generation, kernel, head and direction."""
    found: dict[Key, list[Point]] = defaultdict(list)
    for name in TABLES:
        with (FOLDER / name).open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                generation = _generation(row["gpu"])
                if generation is None or row["precision"] not in ("bf16", "fp16") or row["seq_q"] != row["seq_kv"]:
                    continue
                tokens, rate = int(row["seq_q"]), row["flop_per_s"]
                if tokens < SHORTEST or not rate:
                    continue
                wide = row["head_dim"] if row["v_head_dim"] in ("", row["head_dim"]) else None
                head = wide or f"{row['head_dim']}/{row['v_head_dim']}"
                point = Point(tokens=tokens, is_causal=row["causal"] == "yes", share=float(rate) / generation[1])
                found[generation[0], row["kernel"], head, row["direction"]].append(point)
    return found


def _generation(gpu: str) -> tuple[str, float] | None:
    """Return generation and peak of a GPU; the power of a PCIe card of Hopper makes it another machine."""
    for word, architecture, peak in GENERATIONS:
        if re.search(rf"(?<![A-Z]){word}", gpu) and not (architecture == "hopper" and "PCIe" in gpu):
            return architecture, peak
    return None


def fits() -> Iterator[dict[str, object]]:
    """Yield the best fit of every group that has enough points."""
    for key, measured in sorted(points().items()):
        if len(measured) < FEWEST:
            continue
        has_full, has_causal = (any(point.is_causal == causal for point in measured) for causal in (False, True))
        error, plateau, full, causal = min(
            (*_fit(measured, full, causal), full, causal)
            for full in (FULL_LENGTHS if has_full else FULL_LENGTHS[:1])
            for causal in (CAUSAL_LENGTHS if has_causal else CAUSAL_LENGTHS[:1])
        )
        yield dict(
            zip(
                COLUMNS,
                (*key, f"{plateau:.3f}", full if has_full else "", causal if has_causal else "", len(measured),
                 f"{error:.3f}"),
                strict=True,
            )
        )  # fmt: skip


def _fit(measured: Sequence[Point], full: int, causal: int) -> tuple[float, float]:
    """Return the error of the best plateau for two lengths, as the mean of most |ln|, and the plateau."""
    growth = [point.tokens / (point.tokens + (causal if point.is_causal else full)) for point in measured]
    plateau = statistics.median(point.share / share for point, share in zip(measured, growth, strict=True))
    errors = sorted(
        abs(math.log(point.share / (plateau * share))) for point, share in zip(measured, growth, strict=True)
    )
    return statistics.fmean(errors[: max(1, int(KEPT * len(errors)))]), plateau


def main() -> None:
    """Write the table."""
    path = FOLDER / "attention_fits.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(fits())
    print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
