"""How far are predictions from published step times and memory? ``python -m benchmarks.accuracy RUNS.csv [PREFIX…]``.

Prints the median and worst error of every source, and the single rows of the sources named by prefix.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from benchmarks.measured_rows import MeasuredRow, read_rows
from opsk.costmodel.efficiency import Efficiency
from opsk.costmodel.predict import predict
from opsk.costmodel.shipped import DEFAULT
from opsk.costmodel.table import PlanTable, PredictionTable
from opsk.errors import OpskError


def predicted_and_measured_s(row: MeasuredRow, table: PredictionTable) -> tuple[float, float] | None:
    """Return predicted and measured seconds of a step; a published rate is turned into seconds by its own convention.

    TFLOP/s are compared in the row's convention (``hardware`` counts recomputation; attention in full, causal or not at
    all), so that the ratio of the two is that of the step times.
    """
    if measured := row.number("iter_time_s"):
        return float(table.time.step_s.expected[0]), measured
    if rate := row.number("tokens_per_s_per_gpu"):
        return 1 / float(table.time.tokens_per_s_per_gpu.expected[0]), 1 / rate
    if rate := row.number("tflops_per_gpu"):
        is_hardware = row.columns["flops_convention"] == "hardware"
        flop = table.time.hardware_flop if is_hardware else table.time.model_flop
        return float(table.time.step_s.expected[0]), float(flop[0]) / row.plan.gpus / rate / 1e12
    return None


def is_scored(row: MeasuredRow) -> bool:
    """Return whether the notes leave the row's time usable."""
    unusable = ("INCONSISTENT", "SUSPECT", "OOM")
    return row.source != "mgold" and not any(word in row.columns["notes"] for word in unusable)


def time_errors(
    rows: Iterable[MeasuredRow], efficiency: Efficiency = DEFAULT
) -> list[tuple[MeasuredRow, float, float]]:
    """Return rows with predicted and measured seconds; rows that cannot be predicted are left out."""
    found = []
    for row in rows:
        try:
            table = predict(row.model, PlanTable.of([row.plan]), row.cluster, efficiency)
        except OpskError:
            continue
        pair = predicted_and_measured_s(row, table)
        if pair is not None and is_scored(row):
            found.append((row, *pair))
    return found


def memory_errors(
    rows: Iterable[MeasuredRow], efficiency: Efficiency = DEFAULT
) -> list[tuple[MeasuredRow, float, float]]:
    """Return rows with predicted and measured bytes; torch-allocated rows against the live terms only."""
    found = []
    for row in rows:
        measured = row.number("peak_mem_gb")
        if measured is None or "INCONSISTENT" in row.columns["notes"]:
            continue
        try:
            memory = predict(row.model, PlanTable.of([row.plan]), row.cluster, efficiency).memory
        except OpskError:
            continue
        predicted = float(memory.total_bytes.expected[0])
        if row.columns["mem_definition"] == "allocated":
            predicted -= float(memory.components["context"][0] + memory.components["slack"][0])
            communication = float(memory.components["communication"][0])
            predicted -= communication if row.plan.sharding.value != "zero3" else 0.0
        found.append((row, predicted, measured * 1e9))
    return found


def report(title: str, found: list[tuple[MeasuredRow, float, float]], shown: tuple[str, ...]) -> None:
    """Print the rows asked for and the summary by source."""
    print(f"\n{title}: predicted / measured - 1, in percent")
    by_source: dict[str, list[float]] = defaultdict(list)
    for row, predicted, measured in found:
        error = predicted / measured - 1
        by_source[row.source].append(error)
        if row.id.startswith(shown):
            plan = row.plan
            print(
                f"  {row.id:12} {row.model.name[:24]:24} TP{plan.tp} PP{plan.pp}x{plan.vpp} DP{plan.dp} "
                f"mbs{plan.micro_batch:<3} {plan.recompute.value:9} {predicted:10.4g} {measured:10.4g} {error:+7.1%}"
            )
    for source, errors in by_source.items():
        absolute = sorted(abs(error) for error in errors)
        print(
            f"  {source:8} rows {len(errors):4}  median |e| {statistics.median(absolute):6.1%}  "
            f"worst {absolute[-1]:6.1%}  median e {statistics.median(errors):+6.1%}"
        )


def markdown(found: list[tuple[MeasuredRow, float, float]], prefixes: tuple[str, ...]) -> str:
    """Return the rows of some sources as the table that the documentation shows."""
    lines = [
        "| run | model | GPUs | plan | measured s | predicted s | error |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row, predicted, measured in found:
        if row.id.startswith(prefixes):
            plan = row.plan
            chunks = f"×{plan.vpp}" if plan.vpp > 1 else ""
            axes = f"TP{plan.tp} PP{plan.pp}{chunks} DP{plan.dp} mbs {plan.micro_batch}"
            recompute = f"{plan.recompute.value}{', SP' if plan.sequence_parallel else ''}"
            lines.append(
                f"| {row.id} | {row.model.name} | {plan.gpus} | {axes}, {recompute} | {measured:.2f} | {predicted:.2f} "
                f"| {predicted / measured - 1:+.1%} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print both reports, or the table of the documentation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, help="table of measured runs")
    parser.add_argument("prefixes", nargs="*", default=["-"], help="sources whose rows are shown")
    parser.add_argument("--markdown", action="store_true", help="print the rows as a table for the documentation")
    asked = parser.parse_args()
    rows, skipped = read_rows(asked.runs)
    times, prefixes = time_errors(rows), tuple(asked.prefixes)
    if asked.markdown:
        print(markdown(times, prefixes), end="")
        return
    report("step time", times, prefixes)
    report("memory", memory_errors(rows), prefixes)
    print(f"\n{len(rows)} rows read, {len(skipped)} lack an input that cannot be assumed")


if __name__ == "__main__":
    main()
