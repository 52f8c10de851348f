"""Finds which of the trainings of one script decides whether the job runs out of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from opsk.costmodel.table import PredictionTable
from opsk.workload.advice_record import Verdict
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.separate_runs import list_differences

MAX_SHOWN = 3
"""Settings that are named of the training that decides."""
_NAMES = MappingProxyType(
    {
        **dict(
            zip(("plan.tp", "plan.pp", "plan.vpp", "plan.cp", "plan.ep"), ("TP", "PP", "VPP", "CP", "EP"), strict=True)
        ),
        "model.name": "model",
    }
)
_SEVERITY = (Verdict.FITS, Verdict.TIGHT, Verdict.OOM)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRuns:
    """The trainings of a script, and the one that the advice is on.

    Parameters
    ----------
    count, compared, unpredicted
        How many the script starts, how many of these have settings of their own and were compared, and how many of
        those could not be predicted.
    line
        Where the one that decides starts; 0 where that is not known.
    settings
        What distinguishes it from the others, in words (``TP 4``).
    """

    count: int
    compared: int
    unpredicted: int
    line: int
    settings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict:
    """One training with its verdict; ``prediction`` is ``None`` where that is unknown."""

    workload: Workload
    verdict: Verdict
    prediction: PredictionTable | None


def choose_decisive_run(
    workload: Workload, predict: Callable[[Workload], RunVerdict]
) -> tuple[Workload, ScriptRuns | None]:
    """Return the training that needs the largest share of a GPU's memory, and what to say of the others.

    That is the first one, without a word, where nothing is known of it and no other one is at risk.
    """
    runs = [predict(run) for run in (workload, *workload.other_runs)]
    known = [run for run in runs if run.verdict is not Verdict.UNKNOWN and run.prediction is not None]
    if not known:
        return workload, None
    decisive = max(known, key=_measure_risk)
    if runs[0] not in known and decisive.verdict is Verdict.FITS:
        return workload, None
    chosen = decisive.workload
    others = [run.workload for run in runs if run is not decisive]
    return chosen, ScriptRuns(
        count=max(workload.run_count, len(runs)),
        compared=len(runs),
        unpredicted=len(runs) - len(known),
        line=chosen.command_line,
        settings=tuple(_render_settings(chosen, others)),
    )


def _measure_risk(run: RunVerdict) -> tuple[int, float]:
    """Return how close a predicted training is to running out of memory; larger is closer."""
    if run.prediction is None:
        raise ValueError("only what was predicted has a risk")
    memory = run.prediction.memory
    share = float(memory.total_bytes.expected) / float(memory.capacity_bytes)
    return _SEVERITY.index(run.verdict), share


def _render_settings(workload: Workload, others: Iterable[Workload]) -> list[str]:
    """Return the settings that distinguish a training from the others."""
    words = []
    for name in list_differences(workload, others):
        group, _, key = name.partition(".")
        value = getattr(workload.model if group == "model" else workload.plan, key)
        if value is not None:
            text = value.value if isinstance(value, Enum) else value
            words.append(f"{_NAMES.get(name, key.replace('_', ' '))} {text}")
    return words[:MAX_SHOWN]


def describe_runs(runs: ScriptRuns) -> str:
    """Return which of the trainings decides, in words."""
    where = ", ".join(filter(None, (f"line {runs.line}" if runs.line else "", *runs.settings)))
    compared = f" ({runs.compared} compared)" if runs.compared < runs.count else ""
    unpredicted = f"; {runs.unpredicted} not predicted" if runs.unpredicted else ""
    return f"largest of the {runs.count} trainings of this script{compared}: {where}{unpredicted}"
