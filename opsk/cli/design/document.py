"""Builds the JSON document and the CSV table of ``opsk design``."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from opsk.costmodel.network_cost import PartPrices
from opsk.costmodel.uncertainty.verdict import compute_verdict
from opsk.network_design.failures import Outcome
from opsk.network_design.figures import FigurePoint
from opsk.network_design.paper import Compared
from opsk.network_design.rows import Row, Step, find_reference
from opsk.network_design.techniques import Extras
from opsk.workload.plan import Plan

_PLAN = ("tp", "pp", "vpp", "cp", "ep", "dp", "sharding", "shard_gpus", "recompute", "micro_batch", "schedule")


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
        "gpus": point.gpus,
        "nodes": point.nodes,
        "gpus_per_node": point.gpus_per_node,
        "hb_domain": point.hb_domain,
        "rails": point.rails,
        "radix": point.radix,
        "nics": point.nics,
        "endpoints": point.endpoints,
        "nic_bytes_per_s": point.nic_bytes_per_s,
        "hb_bytes_per_s": point.hb_bytes_per_s,
        "tiers": row.parts.tiers if bill.switches else 0,
        "switches": bill.switches,
        "transceivers": bill.transceivers,
        "circuit_ports": bill.circuit_ports,
        "servers": bill.servers,
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
    return {
        "case": outcome.case,
        "wiring": outcome.wiring,
        "optical": outcome.optical,
        "hb_domain": outcome.hb_domain,
        "failed": outcome.failed,
        "hit": outcome.affected,
        "options": [asdict(choice) for choice in outcome.choices],
        "refused": dict(outcome.refused),
        "says": outcome.text,
    }


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
