"""Measures what sites teach whose efficiencies nobody knows: ``python -m benchmarks.learning.hidden_sites``.

``--picture FILE`` draws it. Sites are simulated by `opsk.lab.hidden`: 200 jobs of 12 kinds on two node kinds,
frameworks, GPUs and links at 0.6 to 1.4 times what opsk ships, noise, jobs that run badly, owners who invent their step
times. `learn_site`, which ``opsk calibrate`` calls as well, sees what a recorder would have of the first jobs, and the
documents of probes. The jobs among the last hundred that run well are then predicted; how they really run is known to
the simulation alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.found import Found, arguments, run
from opsk.calibration.learning.evidence import MeasuredJob, NodeMeasurement
from opsk.calibration.learning.site_fit import learn_site, predict_times
from opsk.calibration.runs.run_writer import compute_steady_step_s
from opsk.cli.render.chart import Curve, Lines, arrange_chart, render_chart_svg
from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.uncertainty.case_spread import apply_case_spread
from opsk.costmodel.uncertainty.chance import COVERED_SIGMAS
from opsk.lab.hidden.jobs import SimulatedJob, list_clusters, simulate_jobs
from opsk.lab.hidden.probe import measure_probe
from opsk.lab.hidden.site import MISFIT_LOG_SIGMA, draw_site

SITES, JOBS, PREDICTED_FROM = 8, 200, 100
KNOWN = tuple((given, is_probed) for is_probed in (False, True) for given in (0, 3, 10, 30, 100))
"""Jobs that ended before a fit, and whether nodes were probed."""
SHORT_SITES, SHORT_KNOWN = 1, ((30, False), (0, True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How well the other jobs of a site are predicted.

    Parameters
    ----------
    given, is_probed
        Jobs that ended before the fit, and whether nodes were probed.
    error, high_error, coverage
        Median and 90th percentile of the absolute errors, and share of the jobs in their ranges [ratio].
    """

    given: int
    is_probed: bool
    error: float
    high_error: float
    coverage: float


def record(jobs: Sequence[SimulatedJob]) -> list[MeasuredJob]:
    """Return the jobs that a site's store has as steady, without a failure and without a cause of lost time."""
    measured = ((job, compute_steady_step_s(job.intervals)) for job in jobs)
    return [
        MeasuredJob(id=job.id, owner=job.owner, model=job.model, plan=job.plan, cluster=job.cluster, step_s=step_s)
        for job, step_s in measured
        if step_s is not None and not job.has_failure and not job.held_up_by
    ]


def score_site(
    seed: int, known: Sequence[tuple[int, bool]], misfit_log_sigma: float = MISFIT_LOG_SIGMA
) -> Iterator[Score]:
    """Yield how well a site is predicted after each number of jobs, without and with probes of its nodes."""
    clusters = list_clusters()
    site = draw_site(seed, clusters, misfit_log_sigma=misfit_log_sigma)
    jobs = simulate_jobs(site, JOBS)
    others = [job for job in jobs[PREDICTED_FROM:] if not job.fault]
    probes = [NodeMeasurement(document=measure_probe(site, cluster), cluster=cluster) for cluster in clusters]
    for given, is_probed in known:
        fit = learn_site(DEFAULT, record(jobs[:given]), probes if is_probed else ())
        yield score(others, fit.efficiency, given=given, is_probed=is_probed)


def score(jobs: Sequence[SimulatedJob], efficiency: Efficiency, *, given: int, is_probed: bool) -> Score:
    """Return how well jobs are predicted with given efficiencies."""
    asked = [
        MeasuredJob(id=job.id, model=job.model, plan=job.plan, cluster=job.cluster, step_s=job.true_step_s)
        for job in jobs
    ]
    log_errors = np.log(predict_times(asked, efficiency) / [job.true_step_s for job in jobs])
    sigmas = [apply_case_spread(efficiency, (), job.case).spread.time_log_sigma for job in asked]
    errors = np.abs(np.expm1(log_errors))
    return Score(
        given=given,
        is_probed=is_probed,
        error=float(np.median(errors)),
        high_error=float(np.quantile(errors, 0.9)),
        coverage=float(np.mean(np.abs(log_errors) <= COVERED_SIGMAS * np.array(sigmas))),
    )


def average(scores: Sequence[Score]) -> list[Score]:
    """Return the mean over all sites, for each amount of knowledge."""
    keys = dict.fromkeys((item.is_probed, item.given) for item in scores)
    means = []
    for is_probed, given in keys:
        those = [item for item in scores if (item.is_probed, item.given) == (is_probed, given)]
        error, high, coverage = (
            float(np.mean([getattr(item, name) for item in those])) for name in ("error", "high_error", "coverage")
        )
        means.append(Score(given=given, is_probed=is_probed, error=error, high_error=high, coverage=coverage))
    return means


def measure(asked: argparse.Namespace) -> Found:
    """Print and return how well sites are predicted."""
    sites, known = (SHORT_SITES, SHORT_KNOWN) if asked.short else (asked.sites, KNOWN)
    scores = [
        item
        for seed in range(asked.first_seed, asked.first_seed + sites)
        for item in score_site(seed, known, asked.misfit)
    ]
    figures: dict[str, float] = {}
    for mean in average(scores):
        name = f"{mean.given}_jobs" + ("_and_probe" if mean.is_probed else "")
        figures |= {f"error_{name}_share": mean.error, f"covered_{name}_share": mean.coverage}
        errors = [item.error for item in scores if (item.given, item.is_probed) == (mean.given, mean.is_probed)]
        what = f"{mean.given:>3} jobs{' and probes' if mean.is_probed else '           '}"
        print(
            f"{what}: median error {mean.error:5.1%} (worst site {max(errors):5.1%}), nine of ten within "
            f"{mean.high_error:5.1%}, in the range {mean.coverage:4.0%}",
            flush=True,
        )
    if asked.picture:
        asked.picture.write_text(render_picture(average(scores)), encoding="utf-8")
    return Found(figures=figures)


def render_picture(means: Sequence[Score]) -> str:
    """Return error and coverage by the number of jobs, as SVG; no job is drawn where one would be."""
    panels = []
    for title, name in (("Median error [%]", "error"), ("In the printed range [%]", "coverage")):
        lines = [
            Curve(
                name="jobs and probes" if is_probed else "jobs alone",
                points=[
                    (max(mean.given, 1), round(100 * getattr(mean, name), 1))
                    for mean in means
                    if mean.is_probed == is_probed
                ],
                dashed=is_probed,
            )
            for is_probed in (False, True)
        ]
        panels.append(
            Lines(title=title, x_label="jobs that ended (left end: none)", y_label="%", lines=lines, log_x=True)
        )
    return render_chart_svg(arrange_chart(panels))


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--sites", type=int, default=SITES, metavar="N", help="simulated sites")
    parser.add_argument("--first-seed", type=int, default=0, metavar="N", help="of the first site; others follow")
    parser.add_argument(
        "--misfit", type=float, default=MISFIT_LOG_SIGMA, metavar="X", help="what no parameter explains [ln]"
    )
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the figures into this SVG")
    run(measure, parser)
