"""What does a job need that cannot start as it is, or that starts other ranks than it asks GPUs for?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from opsk.text import format_duration
from opsk.units import as_gib
from opsk.workload.advice_record import Verdict
from opsk.workload.defaults import Assumption
from opsk.workload.plan import StatedPlan
from opsk.workload.workload import Problem, Workload
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.suggestions import ASKED_GPUS, MOST_MICRO_BATCH
from opsk_jobcheck.advice.text.figures import prediction_of, words_of
from opsk_jobcheck.advice.waste import Waste, WasteKind, idle_gpus
from opsk_jobcheck.scripts.launchers.ranks import NODES_OPTION
from opsk_jobcheck.scripts.launchers.ranks import OPTION as RANKS

Advise = Callable[[Workload], Advice]

LAST_SMALLER = ("composer", "olmo")
"""Frameworks that cut a GPU's batch with ``Tensor.split``: ``composer/core/data_spec.py``, ``olmo/train.py``."""
_VALUE = re.compile(r"\d+")


def as_launched(workload: Workload) -> Workload:
    """Return a workload with the ranks that its launcher starts, which are what is trained on."""
    plan, options = workload.plan, dict(workload.options)
    stated = options.get(RANKS, "")
    asked = plan.nodes * plan.gpus_per_node if plan.nodes and plan.gpus_per_node else plan.gpus
    if not re.fullmatch(r"[0-9]{1,8}", stated) or not asked or int(stated) in (0, asked):
        return workload
    ranks = int(stated)
    if ranks > asked:
        what = f"the launcher starts {ranks} ranks, and the job asks for {asked} GPUs"
        problem = Problem(what=what, hint=f"ask for {ranks} GPUs, or start {asked} ranks")
        return replace(workload, problems=(*workload.problems, problem))
    told = options.get(NODES_OPTION, "")
    nodes = int(told) if re.fullmatch(r"[0-9]{1,8}", told) else plan.nodes if plan.nodes == 1 else None
    per_node = ranks // nodes if nodes and ranks % nodes == 0 else None
    nodes = nodes if per_node else None
    batch = _batch(workload, ranks, asked)
    return replace(
        workload,
        # the number of replicas, and what is counted in them, were worked out from the GPUs asked for
        plan=replace(plan, gpus=ranks, gpus_per_node=per_node, nodes=nodes, dp=None, global_batch=batch),
        options=tuple(sorted({**options, ASKED_GPUS: str(asked)}.items())),
    )


def _batch(workload: Workload, ranks: int, asked: int) -> int | None:
    """Return the global batch of fewer ranks: another one only where it was worked out from the replicas."""
    batch = workload.plan.global_batch
    stated = next((entry.text for entry in workload.evidence if entry.field == "plan.global_batch"), "")
    if batch is None or " × dp " not in stated:
        return batch
    return batch * ranks // asked if batch * ranks % asked == 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """What keeps a job from starting; each of ``repairs`` is how it is put right, in words, and what would start then.

    The first repair is the nearest to what was asked.
    """

    waste: Waste
    repairs: tuple[tuple[str, Workload], ...] = ()


def stops(workload: Workload) -> Iterator[Stop]:
    """Yield what keeps a job from starting that has a plan."""
    plan = workload.plan
    ranks = (plan.tp or 1) * (plan.pp or 1) * (plan.cp or 1)
    gpus = plan.gpus or (plan.nodes or 0) * (plan.gpus_per_node or 0)
    if plan.dp and gpus and ranks * plan.dp < gpus:
        yield Stop(waste=idle_gpus(gpus, ranks * plan.dp))
    dp = _replicas(plan)
    micro, batch = plan.micro_batch, plan.global_batch
    if micro and batch and dp and batch % (micro * dp):
        what = f"global batch {batch} is not a multiple of micro batch {micro} × DP {dp}: it would not start"
        larger = -(-batch // (micro * dp)) * micro * dp
        repairs = [_repair(workload, "global_batch", replace(plan, global_batch=larger))]
        smaller = [size for size in range(min(micro - 1, MOST_MICRO_BATCH), 0, -1) if batch % (size * dp) == 0]
        repairs += [_repair(workload, "micro_batch", replace(plan, micro_batch=size)) for size in smaller]
        yield Stop(waste=Waste(kind=WasteKind.BATCH, what=what, advice=repairs[0][0]), repairs=tuple(repairs))


def _replicas(plan: StatedPlan) -> int:
    """Return how many replicas a plan has, 0 where that cannot be told."""
    ranks = (plan.tp or 1) * (plan.pp or 1) * (plan.cp or 1)
    gpus = plan.gpus or (plan.nodes or 0) * (plan.gpus_per_node or 0)
    return plan.dp or (gpus // ranks if gpus and gpus % ranks == 0 else 0)


def in_whole_batches(workload: Workload) -> tuple[Workload, tuple[Assumption, ...]]:
    """Return a workload as it is predicted where the last micro-batch may be smaller, and what was assumed for it.

    Whole micro-batches take as much memory; the nearest number of them takes nearly as long.
    """
    plan, framework = workload.plan, workload.framework
    batch, micro, dp = plan.global_batch, plan.micro_batch, _replicas(plan)
    if framework not in LAST_SMALLER or not (batch and micro and dp) or batch % dp or batch % (micro * dp) == 0:
        return workload, ()
    share = batch // dp
    if micro > share:
        why = f"{framework} takes all {share} of a GPU at once: less than {micro}"
        assumed = Assumption(field="plan.micro_batch", value=share, why=why)
        return replace(workload, plan=replace(plan, micro_batch=share)), (assumed,)
    counted = (2 * share + micro) // (2 * micro) * micro * dp
    why = f"of {batch}, each GPU's last micro-batch has {share % micro}, and is counted as a whole one or as none"
    assumed = Assumption(field="plan.global_batch", value=counted, why=why)
    return replace(workload, plan=replace(plan, global_batch=counted)), (assumed,)


def _repair(workload: Workload, name: str, plan: StatedPlan) -> tuple[str, Workload]:
    """Return how one size of a plan is set, in the words of the script where those state a number, and the result."""
    stated = next((entry for entry in workload.evidence if entry.field == f"plan.{name}"), None)
    text = (stated.text if stated else "").rstrip(",")
    before, after = (str(getattr(one, name)) for one in (workload.plan, plan))
    mended = replace(workload, plan=plan)
    if len(_VALUE.findall(text)) == 1 and text.endswith(before) and not text.startswith("#"):
        return text.removesuffix(before) + after, mended
    return f"{name.replace('_', ' ')} {after}", mended


def mended_waste(stop: Stop, predict: Advise, search: Advise) -> Waste:
    """Return what keeps a job from starting with the repair to make: one that fits, or with what else makes it fit.

    A repair after which the job runs out of memory is not offered.

    Parameters
    ----------
    predict, search
        Give advice on a workload: the verdict alone, and with what would make it fit.
    """
    predicted = [(words, mended, advice) for words, mended in stop.repairs if (advice := predict(mended)).prediction]
    if not predicted:
        return stop.waste
    for verdict in (Verdict.FITS, Verdict.TIGHT):
        for words, _, advice in predicted:
            if advice.verdict is verdict:
                return replace(stop.waste, advice=words + _outcome(*_figures(advice), verdict))
        words, mended, _ = predicted[0]
        if verdict is Verdict.FITS and (ways := search(mended).suggestions):
            way = ways[0]
            told = f"{words} and {words_of(way)}{_outcome(way.memory_bytes, way.step_s, way.verdict)}"
            return replace(stop.waste, advice=told)
    words, mended, advice = predicted[0]
    needed = f"{as_gib(_figures(advice)[0]):.1f} GiB per GPU"
    batch = mended.plan.global_batch
    why = "no plan on these GPUs is predicted to fit: ask for more GPUs"
    return replace(stop.waste, advice=f"global batch {batch} would run out of memory too ({needed}); {why}")


def _figures(advice: Advice) -> tuple[float, float]:
    """Return the memory of a GPU [bytes] and the time of a step [s] that are predicted."""
    found = prediction_of(advice)
    return float(found.memory.total_bytes.expected), float(found.time.step_s.expected)


def _outcome(memory_bytes: float, step_s: float, verdict: Verdict) -> str:
    """Say what is predicted for a job that was put right."""
    fit = "fits" if verdict is Verdict.FITS else "may run out of memory"
    return f": {as_gib(memory_bytes):.1f} GiB per GPU, {fit}; {format_duration(step_s)} a step"
