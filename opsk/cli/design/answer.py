"""Computes the answers of ``opsk design``, the comparison of networks or of a paper's statements, as JSON and CSV."""

from __future__ import annotations

import csv
import io
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from opsk.app.inputs.named_inputs import load_model
from opsk.app.inputs.plan_validation import validate_fields
from opsk.cli.design.inputs import USUAL_NODE, Comparison, Request, build_setting, build_template, parse_fixed_axes
from opsk.costmodel.network_cost import PartPrices
from opsk.costmodel.uncertainty.verdict import compute_verdict
from opsk.hardware.catalog import cluster as catalogue_cluster
from opsk.hardware.catalog import node as catalogue_node
from opsk.network_design.failures import Outcome, outcomes
from opsk.network_design.paper_steps import (
    FigurePoint,
    NicStep,
    compute_nic_steps,
    compute_points,
    figure_quantities,
    nic_quantities,
)
from opsk.network_design.papers import Compared, Quantity, compare_statements, format_verdict, load_paper
from opsk.network_design.plans import ModelRequest
from opsk.network_design.point import Point, Wiring
from opsk.network_design.rows import Row, Setting, Step, build_row, find_reference, sentences
from opsk.network_design.techniques import Extras
from opsk.units import gbit_per_s
from opsk.workload.plan import Plan

_SIZES = ("gpus", "nodes", "gpus_per_node", "hb_domain", "rails", "radix", "nics", "endpoints", "nic_bytes_per_s",
          "hb_bytes_per_s")  # fmt: skip
_OUTCOME = {"affected": "hit", "choices": "options", "text": "says"}
"""Fields of an outcome that have another name in JSON."""
_PLAN = ("tp", "pp", "vpp", "cp", "ep", "dp", "sharding", "shard_gpus", "recompute", "micro_batch", "schedule")
Entry = TypeVar("Entry")
QUIET_S = 1.0
"""No bar is shown before."""


class ProgressIterator:
    """Iterates over sequences; ``interrupted`` is set when Ctrl-C ends one of them."""

    def __init__(self, what: str) -> None:
        """``what`` names the counted entries: ``networks``."""
        self.what = what
        self.interrupted = False

    def __call__(self, entries: Sequence[Entry]) -> Iterator[Entry]:
        """Yield the entries, with a progress bar after one second."""
        start = time.monotonic()
        bar: Progress | None = None
        try:
            for number, entry in enumerate(entries):
                if bar is None and time.monotonic() - start > QUIET_S:
                    bar = self._bar(len(entries))
                if bar is not None:
                    bar.update(bar.task_ids[0], completed=number)
                yield entry
        finally:
            if bar is not None:
                bar.stop()

    def _bar(self, total: int) -> Progress:
        bar = Progress(
            TextColumn(f"opsk: {self.what}"),
            BarColumn(),
            TextColumn("{task.completed:g} of {task.total:g}"),
            TimeElapsedColumn(),
            console=Console(file=sys.stderr),
            transient=True,
        )
        bar.add_task("", total=total)
        bar.start()
        return bar

    def collect(self, results: Iterator[Entry]) -> list[Entry]:
        """Return all results, or those until Ctrl-C.

        Raises
        ------
        KeyboardInterrupt
            There is no result yet.
        """
        entries: list[Entry] = []
        try:
            for entry in results:
                entries.append(entry)  # noqa: PERF402 -- what was found before Ctrl-C must stay
        except KeyboardInterrupt:
            if not entries:
                raise
            self.interrupted = True
        return entries


def build_comparison_document(comparison: Comparison, *, failures: bool) -> dict[str, Any]:
    """Return the document of the requested networks; Ctrl-C keeps the rows so far."""
    walk, setting = ProgressIterator("networks"), comparison.setting
    rows = walk.collect(
        build_row(setting, swept.point, swept.technique, sweep=swept.sweep) for swept in walk(comparison.swept_rows)
    )
    failure_rows = []
    if failures and not walk.interrupted:
        kinds = outcomes(setting.node, precision=setting.template.precision, efficiency=setting.efficiency)
        failure_rows = walk.collect(kinds)
    return build_design_document(
        rows=rows,
        verdict=sentences(rows),
        failures=failure_rows,
        assumed=comparison.assumed,
        prices=setting.prices,
        extras=setting.extras,
        interrupted=walk.interrupted,
    )


def build_paper_document(name: str, request: Request) -> dict[str, Any]:
    """Return the document of one paper: its networks, figures and failures, and its statements."""
    paper = load_paper(name)
    node = catalogue_cluster(paper["job"]["cluster"]).node if "job" in paper else catalogue_node(USUAL_NODE)
    setting = replace(build_setting(request, node, []), model_requests=())
    walk = ProgressIterator("points of the figures")
    quantities: dict[str, Quantity] = {}
    points = walk.collect(_compute_points(paper, request, setting, walk)) if "figures" in paper else []
    if points and not walk.interrupted:
        quantities |= figure_quantities(points)
    if "job" in paper:
        quantities |= nic_quantities(_compute_nic_steps(paper["job"], setting))
    failures = []
    if paper.get("failures") and not walk.interrupted:
        kinds = outcomes(setting.node, precision=setting.template.precision, efficiency=setting.efficiency)
        failures = walk.collect(kinds)
    compared = compare_statements(paper, quantities)
    return build_design_document(
        rows=_build_rows(paper["networks"], setting) if "networks" in paper else (),
        verdict=format_verdict(paper, compared),
        compared=compared,
        points=points,
        failures=failures,
        prices=setting.prices,
        extras=setting.extras,
        interrupted=walk.interrupted,
    )


def _compute_points(
    paper: Mapping[str, Any], request: Request, setting: Setting, walk: ProgressIterator
) -> Iterator[FigurePoint]:
    """Yield the points of the figures; what the request fixes comes before what the paper does."""
    template = build_template(replace(request, software=request.software or paper["software"]))
    fixed = parse_fixed_axes([*paper["fix"], *request.fixed])
    models = {name: load_model(name)[0] for figure in paper["figures"] for name in figure["vary"]["model"]}
    requests = {name: ModelRequest(model=model, template=template, fixed=fixed) for name, model in models.items()}
    return compute_points(paper, setting.plans, setting.node, requests, walk)


def _compute_nic_steps(job: Mapping[str, Any], setting: Setting) -> list[NicStep]:
    """Return the steps of a job with each number of NICs a node."""
    recipes = {name: Plan(**validate_fields({"plan": plan}).tables["plan"]) for name, plan in job["recipes"].items()}
    model = replace(load_model(job["model"])[0], flash_attention=job["flash_attention"])
    cluster = catalogue_cluster(job["cluster"])
    fixed = parse_fixed_axes(job["fix"])
    return list(compute_nic_steps(job["nics"], recipes, setting.plans, model, cluster, setting.efficiency, fixed=fixed))


def _build_rows(networks: Mapping[str, Any], setting: Setting) -> list[Row]:
    """Return the networks of a paper, with 8 GPUs and NICs of 400 Gbit/s a node."""
    return [
        build_row(
            setting,
            Point(
                wiring=wiring,
                gpus=gpus,
                hb_domain=domain,
                gpus_per_node=8,
                nics=8,
                radix=radix,
                nic_bytes_per_s=gbit_per_s(400.0),
                hb_bytes_per_s=gbit_per_s(3600.0),
            ),
            sweep={"hb-domain": domain, "gpus": gpus, "radix": radix},
        )
        for domain in networks["hb_domain"]
        for gpus in networks["gpus"]
        for radix in networks["radix"]
        for wiring in (Wiring.RAIL_OPTIMIZED, Wiring.RAIL_ONLY)
    ]


def build_design_document(
    *,
    rows: Sequence[Row] = (),
    verdict: Sequence[str] = (),
    compared: Sequence[Compared] = (),
    points: Sequence[FigurePoint] = (),
    failures: Sequence[Outcome] = (),
    assumed: Sequence[Any] = (),
    prices: PartPrices | None = None,
    extras: Extras | None = None,
    interrupted: bool = False,
) -> dict[str, Any]:
    """Return the document that ``opsk design`` prints."""
    return {
        "rows": [build_row_document(rows, row) for row in rows],
        "verdict": list(verdict),
        "compared": [asdict(entry) for entry in compared],
        "points": [_build_point(point) for point in points],
        "failures": [_build_failure(outcome) for outcome in failures],
        "prices": {**asdict(prices or PartPrices()), **asdict(extras or Extras())},
        "assumed": list(assumed),
        "interrupted": interrupted,
    }


def build_row_document(rows: Sequence[Row], row: Row) -> dict[str, Any]:
    """Return one network."""
    point, bill = row.point, row.bill
    other = find_reference(rows, row)
    return {
        "network": row.name,
        "wiring": point.wiring,
        "oversubscription": point.oversubscription,
        "option": row.technique,
        "sweep": dict(row.sweep),
        **{name: getattr(point, name) for name in _SIZES},
        "tiers": row.parts.tiers if bill.switches else 0,
        **{name: getattr(bill, name) for name in ("switches", "transceivers", "circuit_ports", "servers")},
        "cost_usd": bill.cost_usd,
        "cost_usd_per_gpu": bill.cost_usd / point.gpus,
        "power_w": bill.power_w,
        "power_w_per_gpu": bill.power_w / point.gpus,
        "saved": compute_savings(row, other),
        "models": [_build_step(step, _find_same_model(other, index)) for index, step in enumerate(row.steps)],
        "assumes": list(row.assumes),
    }


def compute_savings(row: Row, other: Row | None) -> dict[str, Any] | None:
    """Return the savings of a network against its reference; ``None`` for the reference itself."""
    if other is None or other is row or not other.bill.cost_usd:
        return None
    return {
        "against": other.name,
        "cost": 1 - row.bill.cost_usd / other.bill.cost_usd,
        "power": 1 - row.bill.power_w / other.bill.power_w,
    }


def _find_same_model(other: Row | None, index: int) -> Step | None:
    """Return the same model on the network that a row is compared with."""
    return other.steps[index] if other is not None and index < len(other.steps) else None


def _build_step(step: Step, other: Step | None) -> dict[str, Any]:
    """Return one model on a network."""
    chosen = step.chosen
    slower = step.step_s / other.step_s - 1 if step.step_s and other is not None and other.step_s else None
    return {
        "model": step.model,
        "global_batch": step.global_batch,
        "step_s": step.step_s,
        "step": _build_range(step),
        "slower": slower,
        "tokens_per_s_per_gpu": chosen.tokens_per_s_per_gpu if chosen else None,
        "mfu": chosen.mfu if chosen else None,
        "verdict": compute_verdict(chosen.fit_probability) if chosen else None,
        "fit_probability": chosen.fit_probability if chosen else None,
        "plan": build_plan_document(chosen.plan) if chosen else None,
        "components": dict(chosen.components) if chosen else {},
        "space": chosen.space if chosen else 0,
        "why": step.why,
    }


def _build_range(step: Step) -> dict[str, float] | None:
    """Return the range of a step."""
    if step.step_s is None or step.chosen is None:
        return None
    factor = step.chosen.range_factor
    return {"low": step.step_s / factor, "expected": step.step_s, "high": step.step_s * factor}


def build_plan_document(plan: Plan) -> dict[str, Any]:
    """Return a plan with its GPUs."""
    return {"gpus": plan.gpus, **{item.name: getattr(plan, item.name) for item in fields(Plan)}}


def _build_point(point: FigurePoint) -> dict[str, Any]:
    """Return one point of a figure."""
    return {item.name: getattr(point, item.name) for item in fields(FigurePoint)} | {
        "plan": build_plan_document(point.plan)
    }


def _build_failure(outcome: Outcome) -> dict[str, Any]:
    """Return one failure on one network."""
    return {_OUTCOME.get(name, name): value for name, value in asdict(outcome).items()}


def format_csv(document: Mapping[str, Any]) -> str:
    """Return the rows as CSV, a line per network and model; without rows, the compared statements."""
    out = io.StringIO()
    lines = list(_build_csv_rows(document["rows"])) or list(document["compared"])
    if lines:
        names = list(dict.fromkeys(name for line in lines for name in line))
        writer = csv.DictWriter(out, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    return out.getvalue()


def _build_csv_rows(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the lines of the table."""
    nested = ("sweep", "models", "assumes", "saved")
    for row in rows:
        flat = {name: value for name, value in row.items() if name not in nested}
        flat |= {f"{name}_saved": (row["saved"] or {}).get(name) for name in ("cost", "power")}
        for step in row["models"] or [{}]:
            plan = step.get("plan") or {}
            yield (
                flat
                | {name: value for name, value in step.items() if name not in ("plan", "components", "step")}
                | {name: plan.get(name) for name in _PLAN}
            )
