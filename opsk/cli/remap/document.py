"""The answer of ``opsk remap`` with the keys that programs rely on."""

from __future__ import annotations

from typing import Any

from opsk.app.remap.inputs import Gathered
from opsk.planning.remap.failure import Failure, wreck
from opsk.planning.remap.preview import Preview, preview
from opsk.planning.remap.terms import Terms
from opsk.planning.remap.values import Answer, Option
from opsk.remapping.preparation import world_for
from opsk.slurm.commands.remap_commands import Command
from opsk.slurm.topology.release import show_release


def remap_document(found: Gathered, answer: Answer, terms: Terms, failure: Failure) -> dict[str, Any]:
    """Return what is hit, how the job runs today, all options, and those that are not there."""
    broken = wreck(found.situation, failure)
    return {
        "job": terms.job,
        "is_running": terms.is_running,
        "model": found.asked.model.name,
        "plan": found.asked.plan,
        "fabric": found.asked.fabric.source,
        "slurm": {
            "release": show_release(terms.site.release),
            "release_is": found.release_is,
            "topology": terms.site.topology,
        },
        "failed": answer.damage.failed,
        "damage": answer.damage,
        "today": answer.today,
        "what": "step" if found.situation.job.step.is_whole else "communication",
        "nothing_to_do": answer.nothing_to_do,
        "horizon_s": terms.horizon_s,
        "options": [
            {
                **_option(number, option),
                "world": world_for(option, found.job, found.records).hash,
                "preview": _preview(preview(found.situation, broken, option)),
            }
            for number, option in enumerate(answer.options, start=1)
        ],
        "refused": answer.refused,
        "notes": answer.notes,
        "assumed": found.assumed,
    }


def _option(number: int, option: Option) -> dict[str, Any]:
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
        "commands": [_command(command) for command in option.commands],
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


def _preview(found: Preview) -> dict[str, Any]:
    """Return the seats of the nodes where something changes or failed; -1 is a free seat."""
    shown = found.only_changed()
    return {
        "nodes": shown.before.nodes,
        "columns": shown.before.columns,
        "before": shown.before.ranks,
        "after": shown.after.ranks,
        "failed": shown.before.failed,
    }


def _command(command: Command) -> dict[str, Any]:
    """Return one command, as words and as one would type it."""
    return {
        "argv": command.argv,
        "text": command.text,
        "who": command.who,
        "where": command.where,
        "why": command.why,
        "later": command.later,
        "when": command.when,
    }
