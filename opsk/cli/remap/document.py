"""Builds the JSON document of ``opsk remap``."""

from __future__ import annotations

from typing import Any

from opsk.app.remap.inputs import RemapInputs
from opsk.planning.remap.failure import Failure, assess_impact
from opsk.planning.remap.placement_view import Preview, preview
from opsk.planning.remap.terms import Terms
from opsk.planning.remap.values import Answer, Option
from opsk.remapping.preparation import build_option_preconditions
from opsk.slurm.commands.remap_commands import Command
from opsk.slurm.topology.release import format_release


def build_remap_document(inputs: RemapInputs, answer: Answer, terms: Terms, failure: Failure) -> dict[str, Any]:
    """Return the affected ranks, the current step, all options, and the refused ones."""
    broken = assess_impact(inputs.situation, failure)
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
                "preview": _build_preview(preview(inputs.situation, broken, option)),
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
        "kind": option.kind,
        "title": option.title,
        "way": option.way,
        "moves": option.moves,
        "moved": option.moved,
        "renumbered": option.renumbered,
        "predicted": option.predicted,
        "downtime_s": option.downtime_s,
        "downtime": option.downtime,
        "lost_s": option.lost_s,
        "lost": option.lost,
        "goodput": option.goodput,
        "goodput_over_s": option.goodput_over_s,
        "commands": [_build_command(command) for command in option.commands],
        "needs": option.needs,
        "why": option.why,
        "changes": option.changes,
        "plan": option.plan,
        "nodes": option.nodes,
        "rendezvous": {
            "before": option.rendezvous.before,
            "after": option.rendezvous.after,
            "changes": option.rendezvous.changes,
        },
        "rank_file": option.rank_file,
        "gpu_order": dict(option.gpu_order),
    }


def _build_preview(found: Preview) -> dict[str, Any]:
    """Return the slots of the nodes where something changes or failed; -1 is a free slot."""
    shown = found.only_changed()
    return {
        "nodes": shown.before.nodes,
        "columns": shown.before.columns,
        "before": shown.before.ranks,
        "after": shown.after.ranks,
        "failed": shown.before.failed,
    }


def _build_command(command: Command) -> dict[str, Any]:
    """Return one command, as argument vector and as shell text."""
    return {
        "argv": command.argv,
        "text": command.text,
        "who": command.who,
        "where": command.where,
        "why": command.why,
        "later": command.later,
        "when": command.when,
    }
