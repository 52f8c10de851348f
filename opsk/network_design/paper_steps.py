"""Computes the quantities of papers that rest on predicted steps, each with the best plan of its network.

Papers state neither the efficiency of a GPU, nor the overlap of communication, nor the latency of messages; the text
states only a few ratios of the figures. Those are compared: their signs and trends should agree, their digits cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from statistics import mean
from typing import Any

import numpy as np

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.predict import predict
from opsk.costmodel.table import PlanTable
from opsk.hardware.spec import ClusterSpec, NodeSpec
from opsk.network_design import short_bubble
from opsk.network_design.papers import Computed, Quantity
from opsk.network_design.plans import BestPlans, ModelRequest
from opsk.network_design.point import Point, Wiring, build_cluster
from opsk.units import gbit_per_s
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

_ALL = "all"
"""The HB domain of a point where one NVLink joins all GPUs."""
_SHORT = "short"
"""The bubble of a figure that counts (p - 1)/(v m) of the step, however few the micro-batches are."""
_SAME = 1e-9
_FORMS: Mapping[str, Callable[[float], float]] = {
    "above": lambda ratio: ratio - 1,
    "below": lambda ratio: 1 - ratio,
    "ratio": lambda ratio: ratio,
}
"""Ways in which a statement gives a ratio of two steps."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class NicStep:
    """One number of NICs a node: the step of each named plan, and that of the best plan there, ``best`` [s]."""

    nics: int
    step_s: Mapping[str, float]


Pass = Callable[[Sequence[dict[str, Any]]], Iterator[dict[str, Any]]]
"""Iterates over a sequence, and may show progress."""


def list_points(paper: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the points of all figures of a paper, with rates in Gbit/s."""
    points = []
    for figure in paper.get("figures", ()):
        for values in product(*figure["vary"].values()):
            point = {
                "figure": figure["figure"],
                "bubble": figure.get("bubble"),
                **paper["figure_defaults"],
                **dict(zip(figure["vary"], values, strict=True)),
            }
            if isinstance(point["global_batch"], Mapping):
                point["global_batch"] = point["global_batch"][point["model"]]
            points.append(point | {"hb_domain": point["gpus"] if point["hb_domain"] == _ALL else point["hb_domain"]})
    return points


def compute_points(
    paper: Mapping[str, Any], plans: BestPlans, node: NodeSpec, requests: Mapping[str, ModelRequest], walk: Pass
) -> Iterator[FigurePoint]:
    """Yield every point when it is computed, rail-only; ``node`` provides the GPUs.

    Parameters
    ----------
    requests
        The request of each model, with the template of its plans.
    walk
        Iterates over the points and shows progress.
    """
    for point in walk(list_points(paper)):
        rates: dict[str, Any] = {f"{name}_bytes_per_s": gbit_per_s(point[f"{name}_gbit"]) for name in ("hb", "nic")}
        sizes: dict[str, Any] = {name: point[name] for name in ("gpus", "hb_domain", "global_batch")}
        network = Point(wiring=Wiring.RAIL_ONLY, gpus_per_node=8, nics=8, radix=64, **sizes, **rates)
        cluster = build_cluster(network, replace(node, gpus=8))
        request = requests[point["model"]]
        gpus, global_batch = network.gpus, network.global_batch
        if point["bubble"] == _SHORT:
            plan, step_s = short_bubble.compute_best(request, cluster, gpus=gpus, global_batch=global_batch)
        else:
            best = plans.best(request, cluster, gpus=gpus, global_batch=global_batch)
            plan, step_s = best.plan, best.step_s
        yield FigurePoint(
            figure=point["figure"],
            model=point["model"],
            step_s=step_s,
            plan=plan,
            is_ideal=network.hb_domain == network.gpus,
            **sizes,
            **rates,
        )


def compute_nic_steps(
    nics: Sequence[int],
    recipes: Mapping[str, Plan],
    plans: BestPlans,
    model: ModelShape,
    cluster: ClusterSpec,
    efficiency: Efficiency = DEFAULT,
    *,
    fixed: Mapping[str, tuple[Any, ...]] | None = None,
) -> Iterator[NicStep]:
    """Yield the steps with every number of NICs a node.

    Parameters
    ----------
    recipes
        Plans by name, each for all numbers of NICs; the best plan has the GPUs, batch and software of the first.
    fixed
        Axes of the best plan that are not searched.
    """
    first = next(iter(recipes.values()))
    request = ModelRequest(
        model=model, template=replace(first, tp=1, pp=1, vpp=1, dp=1, global_batch=1), fixed=fixed or {}
    )
    for count in nics:
        built = replace(cluster, node=replace(cluster.node, nics=count))
        times = predict(model, PlanTable.of(list(recipes.values())), built, efficiency).time.step_s.expected
        best = plans.best(request, built, gpus=first.gpus, global_batch=first.global_batch)
        named = zip(recipes, np.broadcast_to(times, len(recipes)), strict=True)
        yield NicStep(nics=count, step_s={name: float(time_s) for name, time_s in named} | {"best": best.step_s})


def figure_quantities(points: Sequence[FigurePoint]) -> dict[str, Quantity]:
    """Return the quantities that compare points of figures; all points are required."""

    def change(entry: Mapping[str, Any], **more: Any) -> Computed:
        """Compute the mean over the other values of a figure."""
        values = _compare_steps(points, {**entry, **more})
        return Computed(value=mean(values), detail={"values": _format_shares(values)})

    def change_difference(entry: Mapping[str, Any]) -> Computed:
        return Computed(value=change(entry, **entry["first"]).value - change(entry, **entry["second"]).value)

    def smaller_change(entry: Mapping[str, Any]) -> Computed:
        first, second = change(entry, **entry["first"]).value, change(entry, **entry["second"]).value
        return Computed(value=first, detail={"other": second}, agrees=first < second)

    def step_rise(entry: Mapping[str, Any]) -> Computed:
        values = _compare_steps(points, entry)
        return Computed(value=values[-1] - values[0], detail={"values": _format_shares(values)})

    def share_of_falls(entry: Mapping[str, Any]) -> Computed:
        falls = [
            larger.step_s <= smaller.step_s * (1 + _SAME)
            for smaller, larger in pairwise(_select(points, entry))
            if (smaller.model, smaller.gpus) == (larger.model, larger.gpus)
        ]
        return Computed(value=mean(falls))

    return {
        "step_change": change,
        "change_difference": change_difference,
        "smaller_change": smaller_change,
        "step_rise": step_rise,
        "share_of_falls": share_of_falls,
    }


def nic_quantities(steps: Sequence[NicStep]) -> dict[str, Quantity]:
    """Return the quantities that compare numbers of NICs a node, the most first."""

    def read_steps(entry: Mapping[str, Any]) -> dict[int, float]:
        return {step.nics: step.step_s[entry["plan"]] for step in steps}

    def nic_slowdown(entry: Mapping[str, Any]) -> Computed:
        times = read_steps(entry)
        step_s = times[entry["nics"]]
        return Computed(value=step_s / times[steps[0].nics], detail={"step_s": step_s})

    def halving_growth(entry: Mapping[str, Any]) -> Computed:
        times = list(read_steps(entry).values())
        lost_s = [later - earlier for earlier, later in pairwise(times)]
        return Computed(
            value=lost_s[-1] / lost_s[0] if lost_s[0] else float("inf"),
            detail={"values": ", ".join(f"{step_s:.1f} s" for step_s in times)},
            agrees=lost_s == sorted(lost_s) and lost_s[-1] > lost_s[0],
        )

    return {"nic_slowdown": nic_slowdown, "halving_growth": halving_growth}


def _compare_steps(points: Sequence[FigurePoint], entry: Mapping[str, Any]) -> list[float]:
    """Return the step with ``to`` against that with ``from``, for all other values of a figure, as ``form`` says."""
    changed = {key for side in ("from", "to") for key in entry[side]}
    before, after = (
        [point.step_s for point in _select(points, entry, without=changed, **entry[side])] for side in ("from", "to")
    )
    return [_FORMS[entry["form"]](late / early) for early, late in zip(before, after, strict=True)]


def _select(
    points: Sequence[FigurePoint], entry: Mapping[str, Any], *, without: set[str] | None = None, **values: Any
) -> list[FigurePoint]:
    """Return the points of a figure that have the values of a statement, in the order of the figure."""
    named = {key: entry[key] for key in _FIELDS if key in entry and key not in (without or ())}
    return [point for point in points if all(_FIELDS[key](point, value) for key, value in {**named, **values}.items())]


_FIELDS: Mapping[str, Callable[[FigurePoint, Any], bool]] = {
    "figure": lambda point, value: point.figure == value,
    "model": lambda point, value: point.model == value,
    "gpus": lambda point, value: point.gpus == value,
    "hb_domain": lambda point, value: point.is_ideal if value == _ALL else point.hb_domain == value,
    "hb_gbit": lambda point, value: point.hb_bytes_per_s == gbit_per_s(value),
    "nic_gbit": lambda point, value: point.nic_bytes_per_s == gbit_per_s(value),
    "global_batch": lambda point, value: point.global_batch == value,
}
"""Whether a point has a value of a field, rates in Gbit/s."""


def _format_shares(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.1%}" for value in values)
