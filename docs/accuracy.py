"""Writes ``docs/accuracy.md``, how far predictions are from measured runs: ``python docs/accuracy.py RUNS.csv``.

``--calibration FILE`` is what ``opsk calibrate RUNS.csv --json`` printed, for the errors of sources left out. Why the
worst rows miss is told in ``docs/accuracy-why.toml``, by id. The page depends on these files and the code alone.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from opsk.calibration.reliability import Reliability
from opsk.calibration.runs import Runs, read_runs
from opsk.calibration.scoring import ErrorSummary, Score, ScoredRun, error_summary
from opsk.calibration.validation import Validation, validate_runs

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "accuracy.md"
WHY = ROOT / "docs" / "accuracy-why.toml"
WORST = 10
KORTHIKANTI = "kor"
"""Prefix of Korthikanti et al. 2022, table 5 and section 6.3: nine runs with one set of efficiencies."""
_TITLES = {"gpu": "GPU", "arch": "Kind of model", "source": "Source", "size": "Parameters"}
_HEAD = """# How accurate the cost model is

<!-- Written by docs/accuracy.py from a table of measured runs: change that program, not this page. -->

Errors are predicted / measured - 1 of what a source prints first of: step time, tokens/s, TFLOP/s, MFU, HFU; rates in
the source's own convention (recomputation counted or not; attention counted in full, causally or not at all). *Stated*
rows state every input that decides the time (or memory); in *assumed* rows something had to be filled in, and
`opsk validate` lists it. Not compared: rows whose source contradicts itself, times of toy models and of runs that ran
out of memory, and seconds of a step whose batch nobody knows. Bias is the median error with its sign. *In range* is the
share of measurements that lie in the predicted range, *range* its median half-width.

"""


def page(runs: Runs, calibration: Mapping[str, Any] | None, why: Mapping[str, str]) -> str:
    """Return the page."""
    validation = validate_runs(runs)
    parts = [
        _HEAD,
        f"{len(validation.rows)} of {len(runs)} rows predicted. Efficiencies: {validation.fit}.\n",
        "\n## Targets\n\n",
        table(("what", "aim", "reached"), targets(validation, calibration)),
        "\n## Time\n\n",
        errors(validation.report.time),
        *groups(validation, "time"),
        "\n## Memory\n\n",
        errors(validation.report.memory),
        *groups(validation, "memory"),
        *left_out(calibration),
        *chances(validation),
        *worst(validation, why),
    ]
    return "".join(parts)


def targets(validation: Validation, calibration: Mapping[str, Any] | None) -> Iterator[tuple[str, str, str]]:
    """Yield what was aimed at and what was reached."""
    report, time, memory = validation.report, validation.report.time, validation.report.memory
    yield "Korthikanti et al. 2022, 9 runs", "mean ≤ 3 %, max ≤ 6 %", _mean_and_max(korthikanti(validation))
    yield "time, inputs stated", "median ≤ 6 %, P90 ≤ 18 %", _median_and_p90(time["stated"])
    yield "the same, source left out", "median ≤ 10 %, P90 ≤ 30 %", _left_out_stated(calibration)
    yield "time, inputs assumed", "median ≤ 12 %", _median_and_p90(time["assumed"])
    for name, words, most in (("stated", "stated", "20"), ("assumed", "assumed", "35")):
        yield f"ranges of time, inputs {words}", f"hold 80–95 %, half-width ≤ {most} %", _coverage(time[name])
    device = memory["device, stated"]
    aim = "median ≤ 5 %, P90 ≤ 12 %, under by > 5 % in ≤ 3 %"
    under = f", under in {device.under:.1%}" if device else ""
    yield "device memory, inputs stated", aim, _median_and_p90(device) + under
    yield "torch-allocated memory", "median ≤ 10 %", _median_and_p90(memory["allocated"])
    calls = report.out_of_memory
    seen = f"{calls.out_of_memory - len(calls.missed)} of {calls.out_of_memory}"
    yield "runs that ran out of memory", "all called tight or oom", seen
    yield "runs with ≤ 85 % of memory filled", "none called oom", f"{len(calls.false_alarms)} of {calls.had_room}"


def korthikanti(validation: Validation) -> ErrorSummary | None:
    """Return the errors of the nine runs."""
    return error_summary([row.time for row in validation.rows if row.time and row.run.source == KORTHIKANTI])


def _median_and_p90(summary: ErrorSummary | None) -> str:
    if summary is None:
        return "–"
    return f"median {summary.median_absolute_error:.1%}, P90 {summary.p90_absolute_error:.1%} ({summary.rows} rows)"


def _mean_and_max(summary: ErrorSummary | None) -> str:
    if summary is None:
        return "–"
    return f"mean {summary.mean_absolute_error:.1%}, max {summary.max_absolute_error:.1%}"


def _coverage(summary: ErrorSummary | None) -> str:
    return "–" if summary is None else f"{summary.coverage:.0%}, ±{summary.median_half_width:.0%}"


def _left_out_stated(calibration: Mapping[str, Any] | None) -> str:
    figures = ((calibration or {}).get("cross_validation") or {}).get("stated")
    if not figures:
        return "–"
    return f"median {figures['median']:.1%}, P90 {figures['p90']:.1%} ({figures['runs']} rows)"


def groups(validation: Validation, kind: str) -> Iterator[str]:
    """Yield the errors by GPU, kind of model, source and size."""
    for group, members in validation.report.groups.items():
        rows = {key: value[kind] for key, value in members.items()}
        if any(rows.values()):
            yield f"\n### {_TITLES[group]}\n\n" + errors(rows)


def errors(rows: Mapping[str, ErrorSummary | None]) -> str:
    """Return a table of error summaries."""
    head = ("", "rows", "median", "P90", "worst", "bias", "in range", "range")
    lines = (
        (
            name,
            str(summary.rows),
            f"{summary.median_absolute_error:.1%}",
            f"{summary.p90_absolute_error:.1%}",
            f"{summary.max_absolute_error:.1%}",
            f"{summary.median_error:+.1%}",
            f"{summary.coverage:.0%}",
            f"±{summary.median_half_width:.0%}",
        )
        for name, summary in rows.items()
        if summary is not None
    )
    return table(head, lines)


def left_out(calibration: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the errors of each source when the parameters were fitted without it."""
    found = (calibration or {}).get("cross_validation")
    if not found:
        return
    yield "\n## Sources left out\n\nEach source predicted with parameters that were fitted without it.\n\n"
    rows = [(name, found[name]) for name in ("overall", "stated", "assumed") if found.get(name)]
    rows += sorted(found["by_source"].items())
    head = ("", "rows", "median", "P90", "bias")
    yield table(
        head,
        (
            (name, str(entry["runs"]), f"{entry['median']:.1%}", f"{entry['p90']:.1%}", f"{entry['bias']:+.1%}")
            for name, entry in rows
        ),
    )


def chances(validation: Validation) -> Iterator[str]:
    """Yield how often what was called likely came true."""
    yield (
        "\n## Chance to fit\n\n*Ran or ran out*: every run on its own GPU; nearly all of them ran, since failures are "
        "rarely published.\n*Cards*: every measured peak against the memory of the field's GPUs, 16 to 288 GiB: would "
        "it have fitted there?\n"
    )
    for name, reliability in validation.report.reliability.items():
        if reliability is not None:
            yield f"\n{_brier(name, reliability)}\n\n" + _bins(reliability)


def _brier(name: str, reliability: Reliability) -> str:
    return (
        f"{name.capitalize()}: {reliability.events} events, {reliability.base_rate:.1%} came true; Brier score "
        f"{reliability.brier:.4f}, that of always the base rate {reliability.base_rate_brier:.4f}."
    )


def _bins(reliability: Reliability) -> str:
    rows = (
        (f"{entry.low:.0%}–{entry.high:.0%}", str(entry.events), f"{entry.told:.1%}", f"{entry.happened:.1%}")
        for entry in reliability.bins
    )
    return table(("told", "events", "mean told", "came true"), rows)


def worst(validation: Validation, why: Mapping[str, str]) -> Iterator[str]:
    """Yield the rows that miss most, and why."""
    for kind in ("time", "memory"):
        ranked = sorted(((_score(row, kind), row) for row in validation.rows), key=lambda pair: -_miss(pair[0]))
        rows = [_line(score, row, why) for score, row in ranked[:WORST] if score is not None]
        if rows:
            yield f"\n## Worst ten in {kind}\n\n"
            yield table(("run", "model", "GPUs", "plan", "measured", "predicted", "error", "why"), rows)


def _score(row: ScoredRun, kind: str) -> Score | None:
    return row.time if kind == "time" else row.memory


def _miss(score: Score | None) -> float:
    return abs(score.error) if score else -1.0


def _line(score: Score, row: ScoredRun, why: Mapping[str, str]) -> tuple[str, ...]:
    """Return one of the worst rows."""
    run, plan = row.run, row.run.plan
    chunks = f"×{plan.vpp}" if plan.vpp > 1 else ""
    axes = f"TP{plan.tp} PP{plan.pp}{chunks} DP{plan.dp} mbs {plan.micro_batch}, {plan.recompute.value}"
    return (
        run.id,
        run.model.name,
        f"{plan.gpus} {run.gpu}",
        axes + ("" if score.is_stated else " (assumed)"),
        f"{score.measured:.4g}",
        f"{score.predicted:.4g}",
        f"{score.error:+.1%}",
        why.get(run.id, ""),
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, help="table of measured runs")
    parser.add_argument("--calibration", type=Path, help="what opsk calibrate --json printed")
    asked = parser.parse_args()
    calibration = json.loads(asked.calibration.read_text(encoding="utf-8")) if asked.calibration else None
    why = tomllib.loads(WHY.read_text(encoding="utf-8")) if WHY.is_file() else {}
    PAGE.write_text(page(read_runs(asked.runs), calibration, why), encoding="utf-8")


if __name__ == "__main__":
    main()
