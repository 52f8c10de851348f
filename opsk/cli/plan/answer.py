"""Builds the answer of ``opsk plan``: the result of the search, and the further questions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from opsk.app.inputs.named_inputs import load_efficiency
from opsk.cli.plan.document import (
    build_choice_documents,
    build_counts_documents,
    build_pareto_documents,
    build_plan_fields,
    build_refused_document,
    build_search_document,
    build_what_if_documents,
)
from opsk.cli.plan.fabric import CabledNodes, add_placements
from opsk.cli.plan.request import ParsedRequest, PlanOptions
from opsk.cli.plan.run import SearchRun
from opsk.cli.plan.spread import SpreadSearch
from opsk.cli.predict import command as predict
from opsk.errors import InputError, OpskError
from opsk.frameworks.catalog import FRAMEWORKS, Framework, frameworks_that_run
from opsk.frameworks.limits import ANYTHING
from opsk.frameworks.script import job_for
from opsk.planning.search.choices import Choice, list_choices
from opsk.planning.search.what_if import fit_relaxations, gpus_that_fit, least_hungry
from opsk.text import escape
from opsk.workload.plan import Plan


def choose_plan(choices: Sequence[Choice]) -> Plan | None:
    """Return the plan to take: the first of the choices."""
    return choices[0].candidate.plan if choices else None


def choose_framework(parsed: ParsedRequest, plan: Plan) -> Framework | None:
    """Return the requested framework, or one that can run the plan; ``None`` if none can.

    A framework that can express all of model and plan comes first.
    """
    if parsed.framework != ANYTHING.name:
        return FRAMEWORKS[parsed.framework]
    model = parsed.request.model
    able = frameworks_that_run(model, plan) or [
        framework for framework in FRAMEWORKS.values() if not framework.refuses(model, plan)
    ]
    return min(able, key=lambda framework: len(framework.settings(model, plan).missing), default=None)


def build_settings(parsed: ParsedRequest, choices: Sequence[Choice]) -> Mapping[str, Any] | None:
    """Return the settings of the advised plan, or why no framework can run it; ``None`` where there is no plan."""
    plan = choose_plan(choices)
    if plan is None:
        return None
    framework = choose_framework(parsed, plan)
    if framework is None:
        reasons = [candidate.refuses(parsed.request.model, plan)[0] for candidate in FRAMEWORKS.values()]
        return {"framework": None, "refused": reasons}
    if refusals := framework.refuses(parsed.request.model, plan):
        return {"framework": framework.name, "refused": list(refusals)}
    settings = framework.settings(parsed.request.model, plan)
    return {
        "framework": framework.name,
        "release": settings.release,
        "refused": [],
        "pasted": settings.pasted,
        "options": [list(option.words) for option in settings.options],
        "files": {file.name: file.text for file in settings.files},
        "env": {setting.name: setting.value for setting in settings.env},
        "notes": list(settings.notes),
        "missing": list(settings.missing),
    }


def check_script(parsed: ParsedRequest, path: str) -> None:
    """Refuse, before a long search, a script that could not be written after it.

    Raises
    ------
    InputError
        A file at ``path`` would be overwritten, it cannot be written, or the GPUs do not fill nodes.
    """
    file = Path(path)
    if file.is_file() and file.stat().st_size:
        raise InputError(escape(f"{path} is there already"), hint="move it away, or name another file")
    if file.is_dir():
        raise InputError(escape(f"{path} is a folder"), hint="name a file in it")
    if not file.absolute().parent.is_dir():
        raise InputError(escape(f"{path}: there is no folder {file.parent}"), hint="create it first")
    if not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
        raise InputError(escape(f"{path}: no right to write it"), hint="name a file that can be written")
    if len({case.gpus for case in parsed.cases}) == 1:
        plan = parsed.request.plan(dp=parsed.request.gpus)
        job_for(plan, parsed.request.cluster)


def write_script(
    parsed: ParsedRequest, choices: Sequence[Choice], path: str, *, hosts: Sequence[str] = ()
) -> dict[str, Any]:
    """Write an sbatch script for the advised plan; return its framework, or ``why`` there is no script.

    ``hosts`` are the nodes of its placement, in rank order; without any Slurm chooses.
    """
    plan = choose_plan(choices)
    if plan is None:
        return _build_unwritten("no plan can run")
    framework = choose_framework(parsed, plan)
    if framework is None:
        names = "|".join(FRAMEWORKS)
        return _build_unwritten(f"no framework can run the first plan: --framework {names} searches what it can run")
    if refusals := framework.refuses(parsed.request.model, plan):
        return _build_unwritten("; ".join(refusals))
    try:
        job = job_for(plan, parsed.request.cluster, name=parsed.request.model.name)
        if hosts:
            job = replace(job, nodes=len(hosts), gpus_per_node=plan.gpus // len(hosts), hosts=tuple(hosts))
        Path(path).write_text(framework.script(parsed.request.model, plan, job), encoding="utf-8")
    except OpskError as error:
        return _build_unwritten(error.message)
    except OSError as error:
        return _build_unwritten(f"{path}: {error.strerror}")
    return {"file": path, "framework": framework.name, "why": None}


def _build_unwritten(why: str) -> dict[str, Any]:
    """Return the document of a script that was not written."""
    return {"file": None, "framework": None, "why": why}


def build_answer(
    parsed: ParsedRequest, options: PlanOptions, spreading: SpreadSearch, cables: CabledNodes | None = None
) -> dict[str, Any]:
    """Return the document that ``opsk plan`` prints; Ctrl-C keeps the results so far.

    Raises
    ------
    InputError
        The script cannot be written where it should be.
    """
    if options.script:
        check_script(parsed, options.script)
    done, parts = spreading.run()
    placing = None
    if cables is not None:
        done, placing = cables.place(spreading.requests, done, exhaustive=options.exhaustive)
    choices, done = _choose(parsed, spreading, done)
    document = build_search_document(parsed, done.result, seconds=done.seconds, interrupted=done.interrupted)
    document["choices"] = build_choice_documents(parsed, choices)
    if cables is not None and placing is not None:
        document = add_placements(document, parsed, done.result, choices, cables, placing)
    if parts is not None:
        document["parts"] = parts
    document["settings"] = build_settings(parsed, choices)
    if done.result.front is not None:
        document["pareto"] = build_pareto_documents(done.result.front)
    document |= build_run_document(parsed, options, choices)
    if options.script:
        document["script"] = write_script(parsed, choices, options.script, hosts=_find_placed_hosts(document))
    try:
        _add_further_answers(document, parsed, options, done)
    except KeyboardInterrupt:
        document["interrupted"] = True
    return document


def _choose(parsed: ParsedRequest, spreading: SpreadSearch, done: SearchRun) -> tuple[tuple[Choice, ...], SearchRun]:
    """Return the plans to show; Ctrl-C gives those that were found until then."""
    try:
        return list_choices(spreading.requests, done.result, parsed.most, searches=not done.interrupted), done
    except KeyboardInterrupt:
        return list_choices(spreading.requests, done.result, parsed.most, searches=False), replace(
            done, interrupted=True
        )


def _find_placed_hosts(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the nodes of the recommended plan in rank order, where it was placed."""
    choices = document["choices"]
    return tuple(choices[0]["placement"]["nodes"]) if choices and "fabric" in document else ()


def _add_further_answers(
    document: dict[str, Any], parsed: ParsedRequest, options: PlanOptions, done: SearchRun
) -> None:
    """Add the answers that need further searches, one by one; Ctrl-C keeps those that are done."""
    if done.interrupted:
        return
    if not done.result.best:
        if not document["refused"] and (lean := least_hungry(parsed.request)):
            document["refused"] = [build_refused_document(parsed.request, lean.plan)]
        document["nearest"] = build_nearest_document(parsed)
        document["fits_with"] = []
        for relaxation in fit_relaxations(parsed.request, margin_bytes=parsed.margin_bytes):
            if relaxation.constraint != "framework" or parsed.framework != ANYTHING.name:
                document["fits_with"].append(asdict(relaxation))
    if len({case.gpus for case in parsed.cases}) > 1:
        document["by_gpus"] = build_counts_documents(parsed, done.result)
    if options.what_if:
        document["what_if"] = []
        for item in build_what_if_documents(parsed, done.result):
            document["what_if"].append(item)


def build_run_document(parsed: ParsedRequest, options: PlanOptions, choices: Sequence[Choice]) -> dict[str, Any]:
    """Return time, energy and checkpoints of the whole run with the recommended plan, where its length is given."""
    plan = choose_plan(choices)
    if plan is None or parsed.read is None or (parsed.read.run is None and parsed.read.checkpoint is None):
        return {}
    read = replace(parsed.read, plan=plan, assumed=parsed.assumed)
    predicted = predict.build_answer(read, parsed.build_case(plan).cluster, load_efficiency(options.efficiency))
    document: dict[str, Any] = {name: predicted[name] for name in ("run", "checkpoint") if name in predicted}
    of_checkpoints = (assumption for assumption in predicted["assumed"] if assumption.field.startswith("checkpoint."))
    return {**document, "assumed": [*parsed.assumed, *of_checkpoints]}


def build_nearest_document(parsed: ParsedRequest) -> dict[str, Any] | None:
    """Return the fewest doublings of the GPUs for which some plan surely fits; ``None`` where there are none."""
    nearest = gpus_that_fit(parsed.request)
    return (
        {"gpus": nearest[0], "step_s": nearest[1].step_s, "plan": build_plan_fields(nearest[1].plan)}
        if nearest
        else None
    )
