"""Recomputes figures 8, 9 and 10 of the rail-only paper: step times of GPT models with the best plan of each point.

The paper does not state the efficiency of a GPU, the overlap of communication, or the latency of messages; its text
states only a few ratios of its figures. Those are compared: their signs and trends should agree, their digits cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

from opsk.hardware.spec import NodeSpec
from opsk.network_design.paper import Compared
from opsk.network_design.plans import BestPlans, Chosen, ModelRequest
from opsk.network_design.point import Point, Wiring, build_cluster
from opsk.units import gbit_per_s
from opsk.workload.plan import Plan, Schedule, Sharding, Software

_GPUS = (16_384, 32_768, 65_536)
_MIDDLE = 32_768
"""Number of GPUs where the text states none: that of figure 10."""
_DOMAINS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_HB_GBIT, _NIC_GBIT = (2400.0, 4800.0, 7200.0, 9600.0), (100.0, 200.0, 300.0, 400.0)
_BATCHES = (256, 512, 1024, 2048, 4096)
_GH200 = (3600.0, 400.0)
"""HB and NIC rate of a DGX GH200 [Gbit/s, one direction]."""
UNSTATED = "the paper states no efficiencies, overlap or latency; opsk's are fitted to published runs"


MODELS: Mapping[str, int] = {"gpt-1t": 4_096, "gpt-146b": 1_024}
"""Public models of figure 8 (table 1 of Narayanan et al. 2021) and the global batch of each."""
SPACE: Mapping[str, tuple[Any, ...]] = {
    "cp": (1,),
    "sharding": (Sharding.NONE, Sharding.ZERO1),
    "shard_gpus": (0,),
    "schedule": (Schedule.ONE_F_ONE_B,),
    "first_stage_layers": (0,),
    "last_stage_layers": (0,),
}
"""The paper's search space: tensor, pipeline and data parallelism; else ZeRO-3 wins where NVLink joins all."""
TEMPLATE = Plan(global_batch=1, software=Software.PYTORCH)
"""Interleaved stages take any number of micro-batches in PyTorch, as in the formulas that the paper follows (Calculon).
Megatron wants whole groups of them, which leaves small batches to the pipeline's bubble: no network shortens that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigurePoint:
    """One point of a figure: ``is_ideal`` where one NVLink domain joins all GPUs."""

    figure: str
    model: str
    gpus: int
    hb_domain: int
    hb_bytes_per_s: float
    nic_bytes_per_s: float
    global_batch: int
    step_s: float
    plan: Plan
    is_ideal: bool


Pass = Callable[[Sequence["PlannedPoint"]], Iterator["PlannedPoint"]]
"""Iterates over a sequence, and may show progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPoint:
    """A point before it is predicted."""

    figure: str
    model: str
    gpus: int
    hb_domain: int
    global_batch: int
    hb_gbit: float = _GH200[0]
    nic_gbit: float = _GH200[1]


def list_points() -> tuple[PlannedPoint, ...]:
    """Return all points of the three figures."""
    eight = [
        PlannedPoint(figure="8", model=name, gpus=gpus, hb_domain=domain, global_batch=batch)
        for name, batch in MODELS.items()
        for gpus in _GPUS
        for domain in (*_DOMAINS, gpus)
    ]
    nine = [
        PlannedPoint(figure="9", model="gpt-1t", gpus=_MIDDLE, hb_domain=domain, global_batch=4_096,
               hb_gbit=hb, nic_gbit=nic)
        for domain in (8, 256) for hb in _HB_GBIT for nic in _NIC_GBIT
    ]  # fmt: skip
    ten = [
        PlannedPoint(figure="10", model="gpt-1t", gpus=_MIDDLE, hb_domain=domain, global_batch=batch)
        for batch in _BATCHES
        for domain in (8, 256, _MIDDLE)
    ]
    return (*eight, *nine, *ten)


def compute_points(
    plans: BestPlans, node: NodeSpec, request: Mapping[str, ModelRequest], walk: Pass
) -> Iterator[FigurePoint]:
    """Yield every point when it is computed, rail-only; ``node`` provides the GPUs.

    Parameters
    ----------
    asked
        The request of each of ``MODELS``, with the template of its plans.
    walk
        Iterates over the points and shows progress.
    """
    for point in walk(list_points()):
        best = find_best_plan(plans, node, request[point.model], point)
        yield FigurePoint(
            figure=point.figure,
            model=point.model,
            gpus=point.gpus,
            hb_domain=point.hb_domain,
            hb_bytes_per_s=gbit_per_s(point.hb_gbit),
            nic_bytes_per_s=gbit_per_s(point.nic_gbit),
            global_batch=point.global_batch,
            step_s=best.step_s,
            plan=best.plan,
            is_ideal=point.hb_domain == point.gpus,
        )


def find_best_plan(plans: BestPlans, node: NodeSpec, request: ModelRequest, point: PlannedPoint) -> Chosen:
    """Return the best plan of a point; nodes have 8 GPUs with a NIC each."""
    built = Point(
        wiring=Wiring.RAIL_ONLY,
        gpus=point.gpus,
        hb_domain=point.hb_domain,
        gpus_per_node=8,
        nics=8,
        radix=64,
        nic_bytes_per_s=gbit_per_s(point.nic_gbit),
        hb_bytes_per_s=gbit_per_s(point.hb_gbit),
        global_batch=point.global_batch,
    )
    cluster = build_cluster(built, replace(node, gpus=8))
    return plans.best(request, cluster, gpus=point.gpus, global_batch=point.global_batch)


class _Times:
    """Step times of the computed points, by their parameters."""

    def __init__(self, points: Sequence[FigurePoint]) -> None:
        self._by_key = {
            (p.figure, p.model, p.gpus, p.hb_domain, p.hb_bytes_per_s, p.nic_bytes_per_s, p.global_batch): p.step_s
            for p in points
        }

    def eight(self, model: str, gpus: int, domain: int) -> float:
        """Return a point of figure 8 [s]."""
        return self._of("8", model, gpus, domain, *_GH200, MODELS[model])

    def nine(self, domain: int, hb: float, nic: float) -> float:
        """Return a point of figure 9 [s]."""
        return self._of("9", "gpt-1t", _MIDDLE, domain, hb, nic, 4_096)

    def ten(self, domain: int, batch: int) -> float:
        """Return a point of figure 10 [s]."""
        return self._of("10", "gpt-1t", _MIDDLE, domain, *_GH200, batch)

    def _of(self, figure: str, model: str, gpus: int, domain: int, hb: float, nic: float, batch: int) -> float:
        return self._by_key[(figure, model, gpus, domain, gbit_per_s(hb), gbit_per_s(nic), batch)]


def compare_figures(points: Sequence[FigurePoint]) -> tuple[Compared, ...]:
    """Compare the text's statements on the figures with the computed points; all points are required."""
    times = _Times(points)
    return (*_figure_8(times), *_figure_9(times), *_figure_10(times))


def _figure_8(times: _Times) -> Iterator[Compared]:
    """Yield the effect of the size of HB domains."""
    for model, stated in (("gpt-1t", 0.009), ("gpt-146b", 0.041)):
        above = [times.eight(model, gpus, 256) / times.eight(model, gpus, gpus) - 1 for gpus in _GPUS]
        yield _trend("figure 8", f"{model}: K = 256 above all-NVLink", stated, mean(above), _spread(above))
    for model, first, last, stated in (("gpt-146b", 1, 8, 0.433), ("gpt-146b", 8, 256, 0.306)):
        below = [1 - times.eight(model, gpus, last) / times.eight(model, gpus, first) for gpus in _GPUS]
        yield _trend("figure 8", f"{model}: K = {last} below K = {first}", stated, mean(below), _spread(below))
    gains = {
        model: mean(1 - times.eight(model, gpus, 256) / times.eight(model, gpus, 32) for gpus in _GPUS)
        for model in MODELS
    }
    yield Compared(
        section="figure 8",
        what="gpt-1t: K = 256 below K = 32 (flat beyond 32), gpt-146b gains more",
        stated=None,
        computed=gains["gpt-1t"],
        agrees=gains["gpt-1t"] < gains["gpt-146b"],
        by="sign",
        why=f"gpt-146b: {gains['gpt-146b']:.1%}",
    )
    steps = [
        (times.eight(model, gpus, smaller), times.eight(model, gpus, larger))
        for model in MODELS
        for gpus in _GPUS
        for smaller, larger in zip(_DOMAINS, (*_DOMAINS[1:], gpus), strict=True)
    ]
    falls = sum(larger <= smaller * (1 + 1e-9) for smaller, larger in steps)
    yield Compared(
        section="figure 8",
        what="a larger HB domain never makes a step longer: share of doublings",
        stated=1.0,
        computed=falls / len(steps),
        agrees=falls == len(steps),
        by="sign",
        why="both models, all sizes",
    )


def _figure_9(times: _Times) -> Iterator[Compared]:
    """Yield the effect of rates."""
    gains: dict[tuple[str, int], float] = {}
    for domain, stated in ((8, 0.080), (256, 0.133)):
        savings = [
            1 - times.nine(domain, _HB_GBIT[-1], nic) / times.nine(domain, _HB_GBIT[0], nic) for nic in _NIC_GBIT
        ]
        gains["hb", domain] = mean(savings)
        what = f"gpt-1t, K = {domain}: HB 2.4 to 9.6 Tbit/s shortens the step by"
        yield _trend("figure 9", what, stated, mean(savings), _spread(savings))
    for domain, stated in ((8, 0.359), (256, 0.080)):
        savings = [1 - times.nine(domain, hb, _NIC_GBIT[-1]) / times.nine(domain, hb, _NIC_GBIT[0]) for hb in _HB_GBIT]
        gains["nic", domain] = mean(savings)
        what = f"gpt-1t, K = {domain}: NIC 100 to 400 Gbit/s shortens the step by"
        yield _trend("figure 9", what, stated, mean(savings), _spread(savings))
    for rate, larger, smaller in (("hb", 256, 8), ("nic", 8, 256)):
        word = "HB" if rate == "hb" else "NIC"
        yield Compared(
            section="figure 9",
            what=f"{word} bandwidth helps K = {larger} more than K = {smaller}, by",
            stated=0.053 if rate == "hb" else 0.279,
            computed=gains[rate, larger] - gains[rate, smaller],
            agrees=gains[rate, larger] > gains[rate, smaller],
            by="sign",
            why="difference of the two averages",
        )


def _figure_10(times: _Times) -> Iterator[Compared]:
    """Yield the effect of the batch."""
    for domain, first, last in ((256, 0.95, 0.99), (8, 0.65, 0.85)):
        for batch, stated in ((_BATCHES[0], first), (_BATCHES[-1], last)):
            relative = times.ten(_MIDDLE, batch) / times.ten(domain, batch)
            what = f"gpt-1t, K = {domain}, batch {batch}: all-NVLink step over this one"
            yield Compared(
                section="figure 10", what=what, stated=stated, computed=relative,
                agrees=abs(relative - stated) < 0.05, by="near", why=UNSTATED,
            )  # fmt: skip
        curve = [times.ten(_MIDDLE, batch) / times.ten(domain, batch) for batch in _BATCHES]
        yield Compared(
            section="figure 10",
            what=f"gpt-1t, K = {domain}: larger batches come nearer to all-NVLink, by",
            stated=last - first,
            computed=curve[-1] - curve[0],
            agrees=curve[-1] > curve[0],
            by="sign",
            why="batches 256 to 4,096: " + ", ".join(f"{entry:.1%}" for entry in curve),
        )


def _trend(section: str, what: str, stated: float, computed: float, why: str) -> Compared:
    """Return a comparison in which the sign decides."""
    return Compared(
        section=section, what=what, stated=stated, computed=computed, agrees=computed * stated > 0, by="sign", why=why
    )


def _spread(values: Sequence[float]) -> str:
    """Return the values of a mean as text."""
    return f"mean of {', '.join(f'{value:.1%}' for value in values)}"
