"""What do programs get from ``opsk design``: the JSON document, and the table of ``--csv``?"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from opsk.costmodel.network_cost import PartPrices
from opsk.costmodel.uncertainty.verdict import verdict_of
from opsk.network_design.failures import Outcome
from opsk.network_design.figures import Drawn
from opsk.network_design.paper import Compared
from opsk.network_design.rows import Row, Step, reference_of
from opsk.network_design.techniques import Extras
from opsk.workload.plan import Plan

_PLAN = ("tp", "pp", "vpp", "cp", "ep", "dp", "sharding", "shard_gpus", "recompute", "micro_batch", "schedule")


def design_document(
    *,
    rows: Sequence[Row] = (),
    verdict: Sequence[str] = (),
    compared: Sequence[Compared] = (),
    points: Sequence[Drawn] = (),
    failures: Sequence[Outcome] = (),
    assumed: Sequence[Any] = (),
    prices: PartPrices | None = None,
    extras: Extras | None = None,
    interrupted: bool = False,
) -> dict[str, Any]:
    """Return the document that ``opsk design`` prints."""
    return {
        "rows": [row_document(rows, row) for row in rows],
        "verdict": list(verdict),
        "compared": [asdict(entry) for entry in compared],
        "points": [_point_document(point) for point in points],
        "failures": [_failure_document(outcome) for outcome in failures],
        "prices": {**asdict(prices or PartPrices()), **asdict(extras or Extras())},
        "assumed": list(assumed),
        "interrupted": interrupted,
    }


def row_document(rows: Sequence[Row], row: Row) -> dict[str, Any]:
    """Return one network."""
    point, bill = row.point, row.bill
    other = reference_of(rows, row)
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
        "saved": saved(row, other),
        "models": [_step_document(step, _like(other, at)) for at, step in enumerate(row.steps)],
        "assumes": list(row.assumes),
    }


def saved(row: Row, other: Row | None) -> dict[str, Any] | None:
    """Return what a network saves against the one that it is compared with; ``None`` for that one itself."""
    if other is None or other is row or not other.bill.cost_usd:
        return None
    return {
        "against": other.name,
        "cost": 1 - row.bill.cost_usd / other.bill.cost_usd,
        "power": 1 - row.bill.power_w / other.bill.power_w,
    }


def _like(other: Row | None, at: int) -> Step | None:
    """Return the same model on the network that a row is compared with."""
    return other.steps[at] if other is not None and at < len(other.steps) else None


def _step_document(step: Step, other: Step | None) -> dict[str, Any]:
    """Return one model on a network."""
    chosen = step.chosen
    slower = step.step_s / other.step_s - 1 if step.step_s and other is not None and other.step_s else None
    return {
        "model": step.model,
        "global_batch": step.global_batch,
        "step_s": step.step_s,
        "step": _range(step),
        "slower": slower,
        "tokens_per_s_per_gpu": chosen.tokens_per_s_per_gpu if chosen else None,
        "mfu": chosen.mfu if chosen else None,
        "verdict": verdict_of(chosen.fit_probability) if chosen else None,
        "fit_probability": chosen.fit_probability if chosen else None,
        "plan": plan_document(chosen.plan) if chosen else None,
        "components": dict(chosen.components) if chosen else {},
        "space": chosen.space if chosen else 0,
        "why": step.why,
    }


def _range(step: Step) -> dict[str, float] | None:
    """Return a step as the range that it is."""
    if step.step_s is None or step.chosen is None:
        return None
    factor = step.chosen.range_factor
    return {"low": step.step_s / factor, "expected": step.step_s, "high": step.step_s * factor}


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return a plan with its GPUs."""
    return {"gpus": plan.gpus, **{item.name: getattr(plan, item.name) for item in fields(Plan)}}


def _point_document(point: Drawn) -> dict[str, Any]:
    """Return one point of a figure."""
    return {item.name: getattr(point, item.name) for item in fields(Drawn)} | {"plan": plan_document(point.plan)}


def _failure_document(outcome: Outcome) -> dict[str, Any]:
    """Return one failure on one network."""
    return {
        "case": outcome.case,
        "wiring": outcome.wiring,
        "optical": outcome.optical,
        "hb_domain": outcome.hb_domain,
        "failed": outcome.failed,
        "hit": outcome.hit,
        "options": [asdict(choice) for choice in outcome.choices],
        "refused": dict(outcome.refused),
        "says": outcome.says,
    }


def as_csv(document: Mapping[str, Any]) -> str:
    """Return the rows as a table: a line for each network and model; without rows, what was compared."""
    out = io.StringIO()
    lines = list(_csv_rows(document["rows"])) or list(document["compared"])
    if lines:
        names = list(dict.fromkeys(name for line in lines for name in line))
        writer = csv.DictWriter(out, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    return out.getvalue()


def _csv_rows(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
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
