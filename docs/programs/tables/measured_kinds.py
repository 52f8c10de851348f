"""Writes ``opsk/costmodel/efficiency/runs.toml``: how many measured runs there are of each kind of plan.

    python docs/programs/tables/measured_kinds.py RUNS.csv

Toys and runs that ran out of memory are not counted.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from opsk.calibration.runs.runs import read_runs
from opsk.costmodel.efficiency.evidence import PlanKind, build_kind

ROOT = Path(__file__).resolve().parents[3]
FILE = ROOT / "opsk" / "costmodel" / "efficiency" / "runs.toml"
HEAD = """\
# Measured runs of each kind of plan, written by: python docs/programs/tables/measured_kinds.py RUNS.csv
#
# Keys are the chip generation, the software and the kind of model; then come the axes above 1, and what data-parallel
# ranks share: "states" (nothing, or ZeRO-1) or "weights" (ZeRO-2, ZeRO-3, FSDP). Values are numbers of runs.
"""


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, help="table of measured runs")
    runs = read_runs(parser.parse_args().runs).runs
    counts = Counter(
        build_kind(run.model, run.plan, run.cluster) for run in runs if not (run.is_toy or run.measured.is_oom)
    )
    FILE.write_text(HEAD + "".join(_tables(counts)), encoding="utf-8")


def _tables(counts: Counter[PlanKind]) -> list[str]:
    """Return one table for each chip generation, software and kind of model."""
    tables: dict[str, list[str]] = {}
    for kind, count in sorted(counts.items()):
        name = f"{kind.architecture}.{kind.software}.{kind.model}"
        tables.setdefault(name, []).append(f'"{kind.plan_name}" = {count}\n')
    return [f"\n[{name}]\n{''.join(lines)}" for name, lines in tables.items()]


if __name__ == "__main__":
    main()
