"""Measures what a site learns from three runs: ``python -m benchmarks.learning.site_learning RUNS.csv``.

``--without SOURCE,...`` leaves sources out. Every source of six timed runs or more is a new site once: left out of
everything, then three of its runs are given at random, twenty times, and the others are predicted. The fit to the given
runs is `opsk.calibration`'s own, on slopes that are taken once for a source: parameters of the model move by a few
percent. How wide a site's priors are, and the noise of its runs, were chosen by this benchmark among some 45 variants
(`opsk.calibration.fitting.parameters.SITE_WIDENING`), so its figures flatter. What given runs teach is kept only where
they predict one another better than before."""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.found import Found, NotRunError, arguments, run
from opsk.calibration.calibration import select_timed_runs
from opsk.calibration.fitting.fit import FitSettings, LinearSite, NearFit, TimedRun, build_linear_site, fit_time
from opsk.calibration.runs.runs import read_runs
from opsk.costmodel.table import FloatColumn

GIVEN, DRAWS, FEWEST_RUNS = 3, 20, 6
SHORT_DRAWS, LONGEST_SHORT = 2, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """Median absolute errors of a source's other runs, before and after three were given, one entry a draw [ratio]."""

    source: str
    runs: int
    before: Sequence[float]
    after: Sequence[float]

    @property
    def worse(self) -> float:
        """Share of the draws that made predictions worse."""
        pairs = zip(self.before, self.after, strict=True)
        return sum(after > before for before, after in pairs) / len(self.before)


def learn_sources(runs: Sequence[TimedRun], near: NearFit, draws: int) -> Iterator[Learned]:
    """Yield what every source of many runs learns from a few."""
    sizes = Counter(item.source for item in runs)
    for source in sorted(name for name, size in sizes.items() if size >= FEWEST_RUNS):
        own = [item for item in runs if item.source == source]
        rest = fit_time([item for item in runs if item.source != source], near=near)
        site = build_linear_site(own, rest.efficiency, log_sigma=rest.offset_log_sigma)
        generator = np.random.default_rng(len(own))
        pairs = [_draw(site, generator.permutation(len(own))) for _ in range(draws)]
        yield Learned(
            source=source, runs=len(own), before=[pair[0] for pair in pairs], after=[pair[1] for pair in pairs]
        )


def _draw(site: LinearSite, order: FloatColumn) -> tuple[float, float]:
    """Return the median error of the runs that were not given, before and after."""
    given, others = order[:GIVEN], order[GIVEN:]
    errors = (site.log_errors, site.learnt_log_errors(given))
    before, after = (float(np.median(np.abs(np.expm1(each[others])))) for each in errors)
    return before, after


def measure(asked: argparse.Namespace) -> Found:
    """Print and return what every source learns, and all together."""
    if asked.runs is None:
        raise NotRunError("no table of runs is named")
    aside = {name.strip() for name in asked.without.split(",")}
    table = read_runs(asked.runs)
    runs = [item for item in select_timed_runs(table.runs) if item.source not in aside]
    if asked.short:
        runs = [replace(item, source=str(place % 2)) for place, item in enumerate(runs[:LONGEST_SHORT])]
    fit = fit_time(runs, FitSettings())
    found = list(learn_sources(runs, fit.near, SHORT_DRAWS if asked.short else DRAWS))
    for each in found:
        before, after = statistics.median(each.before), statistics.median(each.after)
        print(f"{each.source:>8} {each.runs:>4} runs: {before:6.1%} to {after:6.1%}, worse in {each.worse:.0%}")
    before = statistics.fmean(statistics.median(each.before) for each in found)
    after = statistics.fmean(statistics.median(each.after) for each in found)
    worse = statistics.fmean(each.worse for each in found)
    print(f"all: {before:.1%} to {after:.1%}, {after / before:.2f} of it; worse in {worse:.0%} of the draws")
    return Found(figures={"before": before, "after": after, "share_left": after / before, "share_worse": worse})


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("runs", type=Path, nargs="?")
    parser.add_argument("--without", default="", help="sources that are left out of everything")
    run(measure, parser)
