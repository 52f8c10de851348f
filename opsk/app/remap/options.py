"""Builds the terms of a remap, and the JSON document of its options."""

from __future__ import annotations

from typing import Any

from opsk.app.remap.inputs import NO_JOB, RemapInputs
from opsk.planning.remap.failure import Failure, assess_impact
from opsk.planning.remap.placement_view import Preview, preview
from opsk.planning.remap.values import Answer, Option, Terms
from opsk.remapping.preparation import build_option_preconditions
from opsk.slurm.commands.remap_commands import UNKNOWN_JOB
from opsk.slurm.topology.release import format_release
from opsk.text import read_fields


def compute_remaining_s(inputs: RemapInputs) -> float | None:
    """Return the time until the job's time limit [s]."""
    job = inputs.job
    if job is None or job.time_limit_s is None or job.run_time_s is None or not job.is_active:
        return None
    return float(max(job.time_limit_s - job.run_time_s, 0))


def build_terms(inputs: RemapInputs, job: str | None, **given: Any) -> Terms:
    """Return the terms: the job and the times of this site."""
    name = str(inputs.job.id) if inputs.job is not None else job if job not in {None, NO_JOB} else UNKNOWN_JOB
    return Terms(job=name or UNKNOWN_JOB, site=inputs.site, is_running=inputs.is_running, **given)


def build_remap_document(inputs: RemapInputs, answer: Answer, terms: Terms, failure: Failure) -> dict[str, Any]:
    """Return the affected ranks, the current step, all options, and the refused ones."""
    impact = assess_impact(inputs.situation, failure)
    return {
        "job": terms.job,
        "is_running": terms.is_running,
        "model": inputs.placement_inputs.model.name,
        "plan": inputs.placement_inputs.plan,
        "fabric": inputs.placement_inputs.fabric.source,
        "slurm": {
            "release": format_release(terms.site.release),
            "release_is": inputs.release_is,
            "topology": terms.site.topology,
        },
        "failed": answer.damage.failed,
        "damage": answer.damage,
        "today": answer.today,
        "what": "step" if inputs.situation.job.step.is_whole else "communication",
        "nothing_to_do": answer.nothing_to_do,
        "horizon_s": terms.horizon_s,
        "options": [
            {
                **_build_option(number, option),
                "world": build_option_preconditions(option, inputs.job, inputs.records).hash,
                "preview": _build_preview(preview(inputs.situation, impact, option).only_changed()),
            }
            for number, option in enumerate(answer.options, start=1)
        ],
        "refused": answer.refused,
        "notes": answer.notes,
        "assumed": inputs.assumed,
    }


def _build_option(number: int, option: Option) -> dict[str, Any]:
    """Return one option."""
    return {
        "number": number,
        **read_fields(option, "moved"),
        "commands": [read_fields(command, "text", without=("action", "environment")) for command in option.commands],
        "rendezvous": read_fields(option.rendezvous, "changes"),
        "gpu_order": dict(option.gpu_order),
    }


def _build_preview(shown: Preview) -> dict[str, Any]:
    """Return the slots of nodes before and after; -1 is a free slot."""
    before, after = shown.before, shown.after
    return {
        "nodes": before.nodes,
        "columns": before.columns,
        "before": before.ranks,
        "after": after.ranks,
        "failed": before.failed,
    }
