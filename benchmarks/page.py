"""Renders docs/performance.md from `benchmarks.results`; measures nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.budgets import BUDGETS, Budget
from benchmarks.catalogue import BENCHMARKS, Benchmark, find_benchmark
from benchmarks.growth import fit_curves
from benchmarks.machine import Machine
from benchmarks.results import Result

NOTHING = "–"
HEAD = """# Performance

`make bench` measures what stands here, and `python -m benchmarks.report` with the name of a benchmark that one alone.
What was measured is kept in `benchmarks/results/`, one file a benchmark, and this page is rendered from those files.
Every figure is of the run whose date and load stand beside it, never of the best of several. The load is the number of
processes that wanted to run when it began: where it is more than the number of processors, other programs ran beside
it, and wall times are upper bounds. CPU times hold better, though two busy threads of one core slow each other. Of
throughput only the ratios of neighbouring blocks count: clients, slurmctld and advisor share this machine's processors,
as they seldom do on a cluster.

Numbers that are not kept stand in the table like all others. The name at the end of a row is what
`python -m benchmarks.report` takes to measure it anew.
"""


def page(results: Mapping[str, Result]) -> str:
    """Return the whole page."""
    parts = [HEAD, machines(results), budgets(results), growth(results)]
    parts += [section(benchmark, results[benchmark.name]) for benchmark in BENCHMARKS if benchmark.name in results]
    return "\n".join(parts)


def machines(results: Mapping[str, Result]) -> str:
    """Return on what was measured: one line a machine, with the benchmarks where there are several."""
    ran: dict[Machine, list[str]] = {}
    for name, result in results.items():
        ran.setdefault(result.machine, []).append(name)
    if len(ran) < 2:
        return "".join(f"Measured on {machine}.\n" for machine in ran)
    return "Measured on\n\n" + "".join(f"- {machine}: {', '.join(names)}\n" for machine, names in ran.items())


def budgets(results: Mapping[str, Result]) -> str:
    """Return the table of all that was asked for."""
    judged = [(budget, verdict(budget, results)) for budget in BUDGETS if budget.limit is not None]
    kept = sum(is_met is True for _, is_met in judged)
    missed = [budget for budget, is_met in judged if is_met is False]
    unknown = [budget for budget, is_met in judged if is_met is None]
    said = f"{kept} of {len(judged)} limits are kept, {len(missed)} are **not**, {len(unknown)} were not measured.\n"
    head = ("what", "asked by", "asked", "measured", "of the limit", "kept", "peer in the same run", "date, load", "by")
    rows = [row(budget, results.get(budget.benchmark)) for budget in BUDGETS]
    return f"## Every number that was asked for\n\n{said}\n{table(head, rows)}"


def verdict(budget: Budget, results: Mapping[str, Result]) -> bool | None:
    """Say whether a limit is kept; ``None`` where it was not measured."""
    result = results.get(budget.benchmark)
    if result is None or budget.key not in result.found.figures:
        return None
    return budget.is_met(result.found.figures[budget.key])


def row(budget: Budget, result: Result | None) -> tuple[str, ...]:
    """Return one row of the table."""
    asked = NOTHING
    if budget.limit is not None:
        asked = f"{'≥' if budget.is_least else '≤'} {amount(budget.key, budget.limit)}"
    command = f"`{find_benchmark(budget.benchmark).name}`"
    if result is None or budget.key not in result.found.figures:
        return (budget.what, budget.source, asked, "not measured", NOTHING, NOTHING, NOTHING, NOTHING, command)
    measured = result.found.figures[budget.key]
    used, is_met = budget.compute_use(measured), budget.is_met(measured)
    peer = NOTHING
    if budget.peer is not None and budget.peer.key in result.found.figures:
        peer = f"{budget.peer.name} {amount(budget.peer.key, result.found.figures[budget.peer.key])}"
    return (
        budget.what,
        budget.source,
        asked,
        amount(budget.key, measured),
        NOTHING if used is None or not budget.limit else f"{used:.2f}",
        {True: "yes", False: "**no**", None: NOTHING}[is_met],
        peer,
        f"{result.date}, {load(result)}",
        command,
    )


def load(result: Result) -> str:
    """Return what else the machine did."""
    return "unknown" if result.load is None else f"{result.load:.1f}"


def amount(key: str, value: float) -> str:
    """Return a figure in words; the end of its key says of what it is."""
    if key.endswith("_per_s"):
        return f"{value:,.0f}/s" if value >= 10 else f"{value:.2g}/s"
    if key.endswith("_s"):
        return _seconds(value)
    if key.endswith("_bytes"):
        return f"{value / 1e6:,.0f} MB"
    if key.endswith("_share") or key == "share":
        return f"{value:.2%}".replace("%", " %")
    if key.endswith("_ratio"):
        return f"{value:,.0f} ×" if value >= 100 else f"{value:.2f} ×"
    return f"{value:,.0f}"


def _seconds(value: float) -> str:
    """Return a time with the digits that count."""
    if abs(value) >= 120:
        return f"{value / 60:.0f} min"
    if abs(value) >= 1:
        return f"{value:.1f} s"
    return f"{value * 1e3:.0f} ms" if abs(value) >= 0.01 else f"{value * 1e3:.2f} ms"


def growth(results: Mapping[str, Result]) -> str:
    """Return the picture, and its curves in words."""
    curves = fit_curves(results)
    if not curves:
        return ""
    rows = [
        (
            panel.title + (f", {name}" if name else ""), f"{points[0][0]:,.0f} to {points[-1][0]:,.0f} {panel.x_label}",
            f"{_seconds(points[0][1])} to {_seconds(points[-1][1])}", f"{law.slope:.2f}", f"`{panel.benchmark}`",
        )
        for panel, name, points, law in curves
    ]  # fmt: skip
    return (
        "## How the cost grows with size\n\n"
        "Both axes are logarithmic; the dashed line is the power law that fits the larger half of the sizes best, "
        "with its exponent: 1 is a cost in proportion to size, 0 one that does not grow.\n\n"
        "![How the cost of each part grows with size, with fitted power laws](images/performance-growth.svg)\n\n"
        + table(("what", "size", "cost", "exponent", "by"), rows)
    )


def section(benchmark: Benchmark, result: Result) -> str:
    """Return what a benchmark printed."""
    took = "" if result.took_s is None else f", took {result.took_s:.0f} s"
    head = f"`python -m {' '.join(benchmark.words)}` ({result.date}, load {load(result)}{took}):"
    said = "\n".join(result.said)
    return f"## {benchmark.title}\n\n{head}\n\n```\n{said}\n```\n"


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
