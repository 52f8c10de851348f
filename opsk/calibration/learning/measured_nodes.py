"""Computes how much better times are known on measured nodes, for families of software without jobs there.

What was measured takes from the spread of a prediction what was unknown of GPUs and links, for usual jobs of a family;
what the framework adds to it stays as unknown as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from opsk.calibration.fitting.problem import FitProblem
from opsk.calibration.learning.joint_rows import INITIAL_NOISE, JointRows, NodeRows
from opsk.calibration.learning.left_out import Solution
from opsk.calibration.learning.next_jobs import LeftOutGroup, estimate_without_jobs
from opsk.calibration.learning.probe_steps import ProbeSteps
from opsk.calibration.learning.reference_jobs import list_reference_jobs
from opsk.costmodel.efficiency.cases import SoftwareOffset, find_offset
from opsk.costmodel.table import FloatColumn
from opsk.costmodel.uncertainty.case_spread import narrow_log_sigma
from opsk.hardware.spec import ClusterSpec
from opsk.workload.plan import Software

_MIN_LOG_SIGMA = 0.01
"""No time is known better by measurements of other work."""


def narrow_by_measurements(
    nodes: NodeRows,
    problem: FitProblem,
    solution: Solution,
    tables: Mapping[str, SoftwareOffset],
    groups: Sequence[LeftOutGroup],
) -> dict[str, SoftwareOffset]:
    """Return the offsets of families that have no jobs, on each chip generation that was measured."""
    base = problem.space.base
    clusters = {item.cluster.node.gpu.architecture: item.cluster for item in nodes.measurements}
    result: dict[str, SoftwareOffset] = {}
    for architecture, cluster in clusters.items():
        for software in Software:
            family = software.value
            known = tables.get(family) or find_offset(base.offset, family) or SoftwareOffset()
            if known.time_jobs:
                continue
            learned = float(np.mean(_compute_learned_variances(cluster, software, problem, solution)))
            usual = min(base.spread.time_offset_log_sigma, known.time_log_sigma)
            log_sigma = max(usual**2 - max(learned, 0.0), _MIN_LOG_SIGMA**2) ** 0.5
            expected = narrow_log_sigma(base.spread.time_log_sigma, base.spread.time_offset_log_sigma, log_sigma)
            next_log_sigma = estimate_without_jobs(expected, groups, base.spread)
            result[f"{family}/{architecture}"] = replace(
                known, time_log_sigma=log_sigma, time_run_log_sigma=next_log_sigma
            )
    return result


def _compute_learned_variances(
    cluster: ClusterSpec, software: Software, problem: FitProblem, solution: Solution
) -> FloatColumn:
    """Return how much of the variance of the ln of the time of each usual job the parameters have lost."""
    jobs, empty = list_reference_jobs(cluster, software), ProbeSteps.of(())
    rows = JointRows(jobs, empty, np.ones(len(jobs)), NodeRows((), problem.space.base), noise=INITIAL_NOISE)
    usual = FitProblem(rows, problem.parameters, np.zeros((len(jobs), 0)))
    slopes = usual.sensitivity(problem.split(solution.vector)[0])
    size = len(problem.space)
    priors = np.array([item.prior.width for item in problem.space.parameters])
    learned = np.diag(priors**2) - solution.covariance[:size, :size]
    result: FloatColumn = np.einsum("ij,jk,ik->i", slopes, learned, slopes)
    return result
