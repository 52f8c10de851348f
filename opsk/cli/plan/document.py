"""How does the answer of ``opsk plan`` look as JSON?"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from opsk.cli.plan.request import Asked
from opsk.costmodel.document import prediction_document
from opsk.costmodel.predict import predict
from opsk.costmodel.table import PlanTable
from opsk.frameworks.catalog import FRAMEWORKS
from opsk.planning.search.candidate import Candidate, distinct, why_refused
from opsk.planning.search.found import Found
from opsk.planning.search.front import Front
from opsk.planning.search.groups import groups_of
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.search import best_plans
from opsk.planning.search.space import has_plans
from opsk.workload.plan import Plan


def found_document(asked: Asked, found: Found, *, seconds: float, interrupted: bool) -> dict[str, Any]:
    """Return what a search found: counts, the fastest plans, and what was refused.

    ``feasible`` counts every plan of the space where ``feasible_is_exact``, else those that were evaluated.
    """
    request = asked.request
    return {
        "model": request.model,
        "cluster": {"name": request.cluster.name, "gpu": request.cluster.node.gpu.name},
        "capacity_bytes": float(request.cluster.node.gpu.capacity_bytes),
        "memory_margin_bytes": asked.margin_bytes,
        "gpus": request.gpus,
        "global_batch": request.global_batch,
        "framework": asked.framework,
        "fixed": dict(request.fixed),
        "space": found.space,
        "evaluated": found.evaluated,
        "bounded": found.bounded,
        "feasible": found.feasible,
        "fitting": found.fitting,
        "feasible_is_exact": found.evaluated == found.space,
        "seconds": seconds,
        "interrupted": interrupted,
        "best": [plan_document(asked.case_of(one.plan), one.plan) for one in found.best],
        "best_fitting": [plan_document(asked.case_of(one.plan), one.plan) for one in found.best_fitting],
        "refused": [refused_document(asked.case_of(one.plan), one.plan) for one in distinct(found.refused, asked.most)],
        "assumed": list(asked.assumed),
    }


def plan_document(request: PlanRequest, plan: Plan) -> dict[str, Any]:
    """Return one plan with its prediction, and how its groups lie on the machine."""
    table = predict(request.model, PlanTable.of([plan]), request.cluster, request.efficiency)
    return {
        "plan": fields_of(plan),
        **prediction_document(table, 0),
        "placement": groups_of(plan, request.cluster),
        "frameworks": [name for name, one in FRAMEWORKS.items() if not one.refuses(request.model, plan)],
    }


def fields_of(plan: Plan) -> dict[str, Any]:
    """Return the fields of a plan, with its GPUs first."""
    return {"gpus": plan.gpus, **{item.name: getattr(plan, item.name) for item in fields(Plan)}}


def refused_document(request: PlanRequest, plan: Plan) -> dict[str, Any]:
    """Return a plan that does not fit, with what it lacks and what takes most."""
    table = predict(request.model, PlanTable.of([plan]), request.cluster, request.efficiency)
    return {
        "plan": fields_of(plan),
        "step_s": float(table.time.step_s.expected[0]),
        "needed_bytes": float(table.memory.needed_bytes.expected[0]),
        "capacity_bytes": float(request.cluster.node.gpu.capacity_bytes),
        "fit_probability": float(table.memory.fit_probability[0]),
        "why": why_refused(table.memory, request.cluster),
    }


def pareto_documents(front: Front) -> list[dict[str, Any]]:
    """Return the plans of a front, fastest first."""
    return [candidate_document(one) for one in front.plans]


def candidate_document(one: Candidate) -> dict[str, Any]:
    """Return a plan with the numbers that it is chosen by."""
    return {
        "plan": fields_of(one.plan),
        "step_s": one.step_s,
        "needed_bytes": one.needed_bytes,
        "step_j": one.step_j,
        "gpus": one.plan.gpus,
        "fit_probability": one.fit_probability,
    }


def counts_documents(asked: Asked, found: Found) -> list[dict[str, Any]]:
    """Return of every number of GPUs the plan to take: the fastest that surely fits, else the fastest that may."""
    counts = dict.fromkeys(case.gpus for case in asked.cases)
    best = {gpus: _best_with(asked, found, gpus) for gpus in sorted(counts)}
    return [{"gpus": gpus, "best": candidate_document(one) if one else None} for gpus, one in best.items()]


def _best_with(asked: Asked, found: Found, gpus: int) -> Candidate | None:
    """Return the plan to take with so many GPUs; where the lists of the search have none, it is searched."""
    for listed in (found.best_fitting, found.best):
        if one := next((one for one in listed if one.plan.gpus == gpus), None):
            return one
    lists = [best_plans(replace(case, most=1)) for case in asked.cases if case.gpus == gpus and has_plans(case)]
    for plans in ([one.best_fitting for one in lists], [one.best for one in lists]):
        if one := min((some[0] for some in plans if some), key=lambda one: one.key, default=None):
            return one
    return None
