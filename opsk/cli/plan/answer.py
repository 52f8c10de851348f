"""What does ``opsk plan`` answer: what the search found, and what was asked beyond it?"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from opsk.app.inputs.efficiency import load_efficiency
from opsk.cli.plan.document import counts_documents, fields_of, found_document, pareto_documents, refused_document
from opsk.cli.plan.fabric import OnCables, with_placements
from opsk.cli.plan.request import Asked, Wishes
from opsk.cli.plan.run import Run
from opsk.cli.plan.spread import Spreading
from opsk.cli.plan.what_if import what_if_documents
from opsk.cli.predict import command as predict
from opsk.errors import InputError, OpskError
from opsk.frameworks.catalog import FRAMEWORKS, Framework
from opsk.frameworks.job import job_for
from opsk.frameworks.limits import ANYTHING
from opsk.planning.search.fitting import fit_relaxations, least_hungry
from opsk.planning.search.found import Found
from opsk.planning.search.what_if import gpus_that_fit
from opsk.text import escape
from opsk.workload.plan import Plan


def advised(found: Found) -> Plan | None:
    """Return the plan that a person should take: the fastest that surely fits, else the fastest that may."""
    best = found.best_fitting or found.best
    return best[0].plan if best else None


def framework_for(asked: Asked, plan: Plan) -> Framework | None:
    """Return the framework that was asked for, or one that can run the plan; ``None`` if none can.

    One that has options for all of model and plan comes first.
    """
    if asked.framework != ANYTHING.name:
        return FRAMEWORKS[asked.framework]
    model = asked.request.model
    able = [one for one in FRAMEWORKS.values() if not one.refuses(model, plan)]
    return min(able, key=lambda one: len(one.settings(model, plan).missing), default=None)


def settings_document(asked: Asked, found: Found) -> Mapping[str, Any] | None:
    """Return the settings of the advised plan, or why no framework can run it; ``None`` where there is no plan."""
    plan = advised(found)
    if plan is None:
        return None
    framework = framework_for(asked, plan)
    if framework is None:
        reasons = [one.refuses(asked.request.model, plan)[0] for one in FRAMEWORKS.values()]
        return {"framework": None, "refused": reasons}
    if refusals := framework.refuses(asked.request.model, plan):
        return {"framework": framework.name, "refused": list(refusals)}
    settings = framework.settings(asked.request.model, plan)
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


def check_script(asked: Asked, path: str) -> None:
    """Refuse, before a long search, a script that could not be written after it.

    Raises
    ------
    InputError
        There is something at ``path`` that would be lost, it cannot be written, or the GPUs do not fill nodes.
    """
    file = Path(path)
    if file.is_file() and file.stat().st_size:
        raise InputError(escape(f"{path} is there already"), hint="move it away, or name another file")
    if file.is_dir():
        raise InputError(escape(f"{path} is a folder"), hint="name a file in it")
    if not file.absolute().parent.is_dir():
        raise InputError(escape(f"{path}: there is no folder {file.parent}"), hint="make it first")
    if not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
        raise InputError(escape(f"{path}: no right to write it"), hint="name a file that can be written")
    if len({case.gpus for case in asked.cases}) == 1:
        one = asked.request.plan(dp=asked.request.gpus)
        job_for(one, asked.request.cluster)


def script_document(asked: Asked, found: Found, path: str, *, hosts: Sequence[str] = ()) -> dict[str, Any]:
    """Write an sbatch script for the advised plan; return its framework, or ``why`` there is no script.

    ``hosts`` are the nodes that it was placed on, in the order of its ranks; without any Slurm chooses.
    """
    plan = advised(found)
    if plan is None:
        return _unwritten("no plan can run")
    framework = framework_for(asked, plan)
    if framework is None:
        names = "|".join(FRAMEWORKS)
        return _unwritten(f"no framework can run the first plan: --framework {names} searches what it can run")
    if refusals := framework.refuses(asked.request.model, plan):
        return _unwritten("; ".join(refusals))
    try:
        job = job_for(plan, asked.request.cluster, name=asked.request.model.name)
        if hosts:
            job = replace(job, nodes=len(hosts), gpus_per_node=plan.gpus // len(hosts), hosts=tuple(hosts))
        Path(path).write_text(framework.script(asked.request.model, plan, job), encoding="utf-8")
    except OpskError as error:
        return _unwritten(error.message)
    except OSError as error:
        return _unwritten(f"{path}: {error.strerror}")
    return {"file": path, "framework": framework.name, "why": None}


def _unwritten(why: str) -> dict[str, Any]:
    """Return the document of a script that was not written."""
    return {"file": None, "framework": None, "why": why}


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
