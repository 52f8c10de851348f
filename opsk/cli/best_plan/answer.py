"""What does ``opsk plan`` answer: what the search found, and what was asked beyond it?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from opsk.app.inputs.efficiency import load_efficiency
from opsk.cli import predict
from opsk.cli.best_plan.document import counts_documents, fields_of, found_document, pareto_documents, refused_document
from opsk.cli.best_plan.fabric import OnCables, with_placements
from opsk.cli.best_plan.request import Asked, Wishes
from opsk.cli.best_plan.run import Run
from opsk.cli.best_plan.settings import advised, check_script, script_document, settings_document
from opsk.cli.best_plan.spread import Spreading
from opsk.cli.best_plan.what_if import what_if_documents
from opsk.planner.best_plan.fitting import fit_relaxations, least_hungry
from opsk.planner.best_plan.found import Found
from opsk.planner.best_plan.what_if import gpus_that_fit


def answer(asked: Asked, wishes: Wishes, spreading: Spreading, cables: OnCables | None = None) -> dict[str, Any]:
    """Return the document that ``opsk plan`` prints; Ctrl-C leaves what is known until then.

    Raises
    ------
    InputError
        The script cannot be written where it should be.
    """
    if wishes.script:
        check_script(asked, wishes.script)
    done, parts = spreading.found()
    placing = None
    if cables is not None:
        done, placing = cables.place(spreading.requests, done, exhaustive=wishes.exhaustive)
    document = found_document(asked, done.found, seconds=done.seconds, interrupted=done.interrupted)
    if cables is not None and placing is not None:
        document = with_placements(document, asked, done.found, cables, placing)
    if parts is not None:
        document["parts"] = parts
    document["settings"] = settings_document(asked, done.found)
    if done.found.front is not None:
        document["pareto"] = pareto_documents(done.found.front)
    document |= run_document(asked, wishes, done.found)
    if wishes.script:
        document["script"] = script_document(asked, done.found, wishes.script, hosts=_placed_hosts(document))
    try:
        _ask_further(document, asked, wishes, done)
    except KeyboardInterrupt:
        document["interrupted"] = True
    return document


def _placed_hosts(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the nodes of the plan to take in the order of its ranks, where it was placed on some."""
    best = document["best_fitting"] or document["best"]
    return tuple(best[0]["placement"]["nodes"]) if best and "fabric" in document else ()


def _ask_further(document: dict[str, Any], asked: Asked, wishes: Wishes, done: Run) -> None:
    """Add what takes searches of its own, one by one: another Ctrl-C keeps those that are there."""
    if done.interrupted:
        return
    if not done.found.best:
        if not document["refused"] and (lean := least_hungry(asked.request)):
            document["refused"] = [refused_document(asked.request, lean.plan)]
        document["nearest"] = nearest_document(asked)
        document["fits_with"] = []
        for one in fit_relaxations(asked.request, margin_bytes=asked.margin_bytes):
            document["fits_with"].append(asdict(one))
    if len({case.gpus for case in asked.cases}) > 1:
        document["by_gpus"] = counts_documents(asked, done.found)
    if wishes.what_if:
        document["what_if"] = []
        for each in what_if_documents(asked, done.found):
            document["what_if"].append(each)


def run_document(asked: Asked, wishes: Wishes, found: Found) -> dict[str, Any]:
    """Return time, energy and checkpoints of the whole run with the plan to take, where its length was given."""
    plan = advised(found)
    if plan is None or asked.read is None or (asked.read.run is None and asked.read.checkpoint is None):
        return {}
    read = replace(asked.read, plan=plan, assumed=asked.assumed)
    predicted = predict.answer(read, asked.case_of(plan).cluster, load_efficiency(wishes.efficiency))
    found_of_run: dict[str, Any] = {name: predicted[name] for name in ("run", "checkpoint") if name in predicted}
    of_checkpoints = (one for one in predicted["assumed"] if one.field.startswith("checkpoint."))
    return {**found_of_run, "assumed": [*asked.assumed, *of_checkpoints]}


def nearest_document(asked: Asked) -> dict[str, Any] | None:
    """Return the fewest doublings of the GPUs with which some plan surely fits; ``None`` where none do."""
    found = gpus_that_fit(asked.request)
    return {"gpus": found[0], "step_s": found[1].step_s, "plan": fields_of(found[1].plan)} if found else None
