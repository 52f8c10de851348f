"""Builds the JSON documents of ``opsk plan``, and answers its what-if questions with a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import click

from opsk.cli.plan.request import ParsedRequest
from opsk.costmodel.predict import predict, prediction_document
from opsk.costmodel.table import PlanTable
from opsk.frameworks.catalog import FRAMEWORKS, frameworks_that_run
from opsk.frameworks.features import list_features
from opsk.planning.ranks import place_groups
from opsk.planning.search.choices import Choice, find_variants
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.result import Candidate, Front, SearchResult, select_distinct, why_refused
from opsk.planning.search.search import best_plans
from opsk.planning.search.space import has_plans
from opsk.planning.search.what_if import Answer, Question, answer, list_questions
from opsk.workload.plan import Plan


def build_search_document(
    parsed: ParsedRequest, result: SearchResult, *, seconds: float, interrupted: bool
) -> dict[str, Any]:
    """Return the result of a search: counts, the fastest plans, and the refused ones.

    ``feasible`` counts every plan of the space where ``feasible_is_exact``, else those that were evaluated.
    """
    request = parsed.request
    return {
        "model": request.model,
        "cluster": {"name": request.cluster.name, "gpu": request.cluster.node.gpu.name},
        "capacity_bytes": float(request.cluster.node.gpu.capacity_bytes),
        "memory_margin_bytes": parsed.margin_bytes,
        "gpus": request.gpus,
        "global_batch": request.global_batch,
        "framework": parsed.framework,
        "frameworks": list(parsed.frameworks),
        "releases": {name: FRAMEWORKS[name].title for name in parsed.frameworks},
        "fixed": dict(request.fixed),
        "space": result.space,
        "evaluated": result.evaluated,
        "bounded": result.bounded,
        "feasible": result.feasible,
        "fitting": result.fitting,
        "feasible_is_exact": result.evaluated == result.space,
        "seconds": seconds,
        "interrupted": interrupted,
        "best": [build_plan_document(parsed.build_case(candidate.plan), candidate.plan) for candidate in result.best],
        "best_fitting": [
            build_plan_document(parsed.build_case(candidate.plan), candidate.plan) for candidate in result.best_fitting
        ],
        "refused": [
            build_refused_document(parsed.build_case(candidate.plan), candidate.plan)
            for candidate in select_distinct(result.refused, parsed.most)
        ],
        "assumed": list(parsed.assumed),
    }


def build_plan_document(request: PlanRequest, plan: Plan) -> dict[str, Any]:
    """Return one plan with its prediction, and the placement of its groups."""
    table = predict(request.model, PlanTable.of([plan]), request.cluster, request.efficiency)
    return {
        "plan": build_plan_fields(plan),
        **prediction_document(table, 0),
        "placement": place_groups(plan, request.cluster),
        "frameworks": [framework.name for framework in frameworks_that_run(request.model, plan)],
    }


def build_choice_documents(parsed: ParsedRequest, choices: Sequence[Choice]) -> list[dict[str, Any]]:
    """Return the plans to show, the one to take first, with their roles, evidence, variants and features."""
    return [_build_choice_document(parsed.build_case(choice.candidate.plan), choice) for choice in choices]


def _build_choice_document(request: PlanRequest, choice: Choice) -> dict[str, Any]:
    """Return one of the plans to show."""
    plan = choice.candidate.plan
    document = build_plan_document(request, plan)
    variants = find_variants(request, choice.candidate)
    return {
        **document,
        "roles": [role.value for role in choice.roles],
        "slower_by": choice.slower_by,
        "is_tied": choice.is_tied,
        "runs": choice.evidence.runs,
        "runs_elsewhere": choice.evidence.runs_elsewhere,
        "variants": {"count": variants.count, "values": {axis: list(sizes) for axis, sizes in variants.values.items()}},
        "features": [
            {
                "framework": name,
                "name": feature.name,
                "since": feature.since,
                "standing": feature.standing.value,
                "why": feature.why,
                "source": feature.source,
            }
            for name in document["frameworks"]
            for feature in list_features(name, plan, request.cluster)
        ],
    }


def build_plan_fields(plan: Plan) -> dict[str, Any]:
    """Return the fields of a plan, with its GPUs first."""
    return {"gpus": plan.gpus, **{item.name: getattr(plan, item.name) for item in fields(Plan)}}


def build_refused_document(request: PlanRequest, plan: Plan) -> dict[str, Any]:
    """Return a plan that does not fit, with the missing memory and its largest part."""
    table = predict(request.model, PlanTable.of([plan]), request.cluster, request.efficiency)
    return {
        "plan": build_plan_fields(plan),
        "step_s": float(table.time.step_s.expected[0]),
        "needed_bytes": float(table.memory.needed_bytes.expected[0]),
        "capacity_bytes": float(request.cluster.node.gpu.capacity_bytes),
        "fit_probability": float(table.memory.fit_probability[0]),
        "why": why_refused(table.memory, request.cluster),
    }


def build_pareto_documents(front: Front) -> list[dict[str, Any]]:
    """Return the plans of a front, fastest first."""
    return [build_candidate_document(candidate) for candidate in front.plans]


def build_candidate_document(candidate: Candidate) -> dict[str, Any]:
    """Return a plan with the numbers used to rank it."""
    return {
        "plan": build_plan_fields(candidate.plan),
        "step_s": candidate.step_s,
        "needed_bytes": candidate.needed_bytes,
        "step_j": candidate.step_j,
        "gpus": candidate.plan.gpus,
        "fit_probability": candidate.fit_probability,
    }


def build_counts_documents(parsed: ParsedRequest, result: SearchResult) -> list[dict[str, Any]]:
    """Return the best plan for each number of GPUs: the fastest that surely fits, else the fastest that may fit."""
    counts = dict.fromkeys(case.gpus for case in parsed.cases)
    best = {gpus: _find_best(parsed, result, gpus) for gpus in sorted(counts)}
    return [
        {"gpus": gpus, "best": build_candidate_document(candidate) if candidate else None}
        for gpus, candidate in best.items()
    ]


def _find_best(parsed: ParsedRequest, result: SearchResult, gpus: int) -> Candidate | None:
    """Return the best plan for a number of GPUs; it is searched where the lists have none."""
    for listed in (result.best_fitting, result.best):
        if candidate := next((candidate for candidate in listed if candidate.plan.gpus == gpus), None):
            return candidate
    lists = [best_plans(replace(case, most=1)) for case in parsed.cases if case.gpus == gpus and has_plans(case)]
    for plans in ([candidate.best_fitting for candidate in lists], [candidate.best for candidate in lists]):
        if candidate := min((some[0] for some in plans if some), key=lambda candidate: candidate.key, default=None):
            return candidate
    return None


def build_what_if_documents(parsed: ParsedRequest, result: SearchResult) -> Iterator[dict[str, Any]]:
    """Yield the answer to every question: the step of the best plan after the change, relative to that before it.

    Where several numbers of GPUs or batches were searched, the questions use those of the best plan.
    """
    if result.best:
        before = (result.best_fitting or result.best)[0]
        for answered in _answer_questions(list_questions(parsed.build_case(before.plan))):
            yield _build_document(answered, before.step_s)


def _answer_questions(pending: Sequence[Question]) -> Iterator[Answer]:
    """Yield the answers, with a progress bar on terminals."""
    hidden = not sys.stderr.isatty()
    with click.progressbar(pending, label="opsk: asking what if", file=sys.stderr, hidden=hidden) as bar:
        for question in bar:
            yield answer(question)


def _build_document(answered: Answer, before_s: float) -> dict[str, Any]:
    """Return the JSON of one answer; without a plan there is no step."""
    question, best = answered.question, answered.best
    return {
        "what": question.what,
        "value": question.value,
        "step_s": best.step_s if best else None,
        "relative": best.step_s / before_s if best else None,
        "fits": answered.fits,
        "fit_probability": best.fit_probability if best else None,
        "plan": build_plan_fields(best.plan) if best else None,
    }
