"""Draws a simulated site: efficiencies that differ from the shipped ones, by node kind, framework and size of a job.

What runs there follows the site's own numbers; who predicts it may read only what a real site could: job records and
the document of a probe.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from random import Random
from typing import TypeVar

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency, GpuEfficiency, LinkEfficiency, SoftwareEfficiency
from opsk.costmodel.predict import predict_one
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Software

LOW, HIGH = 0.6, 1.4
"""Bounds of every hidden factor on an efficiency [ratio]."""
MAX_SHARE = 0.95
"""No kernel and no link reaches more of its peak [ratio]."""
SIZE_DOUBLINGS = 6.0
"""Doublings of the nodes after which the NICs of a job have the whole factor of its size: 64 nodes."""
MISFIT_LOG_SIGMA = 0.02
"""What no parameter of the model explains, constant for a model with a framework on a node kind."""


_Values = TypeVar("_Values", GpuEfficiency, SoftwareEfficiency, LinkEfficiency)


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenSite:
    """What nobody at the site knows.

    Parameters
    ----------
    efficiencies
        By cluster: what its GPUs, its links and all frameworks reach.
    size_factors
        By cluster: what its NICs reach in a job of 64 nodes over what they reach in a small one [ratio].
    seed
        Of everything that is drawn.
    misfit_log_sigma
        What no parameter of the model explains: the standard deviation of ln.
    """

    efficiencies: Mapping[str, Efficiency]
    size_factors: Mapping[str, float]
    seed: int
    misfit_log_sigma: float = MISFIT_LOG_SIGMA

    def efficiency(self, cluster: ClusterSpec, nodes: float) -> Efficiency:
        """Return what a job of so many nodes of a cluster runs with."""
        whole = self.efficiencies[cluster.name]
        factor = self.size_factors[cluster.name] ** (math.log2(max(nodes, 1.0)) / SIZE_DOUBLINGS)
        links = replace(
            whole.links,
            nic_fraction=min(whole.links.nic_fraction * factor, MAX_SHARE),
            nic_hop_s=whole.links.nic_hop_s / factor,
        )
        return replace(whole, links=links)

    def step_s(self, model: ModelShape, plan: Plan, cluster: ClusterSpec) -> float:
        """Return the time of a step of a job that runs well, without noise [s]."""
        efficiency = self.efficiency(cluster, plan.gpus / cluster.node.gpus)
        kind = Random(f"{self.seed}/{cluster.name}/{plan.software}/{model.name}")
        predicted = predict_one(model, plan, cluster, efficiency).time.step_s.expected
        return float(predicted) * math.exp(kind.gauss(0.0, self.misfit_log_sigma))


def draw_site(
    seed: int,
    clusters: Sequence[ClusterSpec],
    *,
    base: Efficiency = DEFAULT,
    misfit_log_sigma: float = MISFIT_LOG_SIGMA,
) -> HiddenSite:
    """Draw a site with these partitions; each factor is uniform between `LOW` and `HIGH`."""
    random = Random(f"site/{seed}")
    software = {family: _scale(random, base.software.get(family, SoftwareEfficiency())) for family in Software}
    efficiencies: dict[str, Efficiency] = {}
    for cluster in clusters:
        architecture = cluster.node.gpu.architecture
        gpu = _scale(random, base.for_gpu(architecture))
        links: LinkEfficiency = _scale(random, base.links)
        efficiencies[cluster.name] = replace(base, gpu={**base.gpu, architecture: gpu}, software=software, links=links)
    return HiddenSite(
        efficiencies=efficiencies,
        size_factors={cluster.name: random.uniform(LOW, HIGH) for cluster in clusters},
        seed=seed,
        misfit_log_sigma=misfit_log_sigma,
    )


def _scale(random: Random, values: _Values) -> _Values:
    """Return efficiencies with a factor each; what is a share stays one."""
    return replace(
        values, **{item.name: _scale_one(item.name, getattr(values, item.name), random) for item in fields(values)}
    )


def _scale_one(name: str, value: float, random: Random) -> float:
    """Return a value times a hidden factor."""
    scaled = value * random.uniform(LOW, HIGH)
    is_share = name.endswith(("_fraction", "_overlap"))
    return min(scaled, MAX_SHARE) if is_share else scaled
