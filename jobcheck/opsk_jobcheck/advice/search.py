"""Searches near a plan and among all plans for helpful changes, the best plan, and the waste of the requested plan.

Waste is what costs time or GPUs for nothing: idle GPUs, tensor parallelism across nodes, pipeline bubbles, settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from opsk.errors import PlanInfeasibleError
from opsk.planning.alternatives import Alternative, Change
from opsk.text import format_count
from opsk.workload.advice_record import Verdict
from opsk.workload.plan import Plan, Recompute, Sharding
from opsk_jobcheck.advice.suggestions import (
    MIN_GAIN,
    BestPlan,
    Near,
    Question,
    Suggestion,
    build_size_flags,
    find_best_plan,
    find_near_plans,
    find_plan_on_more_nodes,
    find_useful_changes,
    predict_alternatives,
)
from opsk_jobcheck.scripts.launchers.ranks import REQUESTED_GPUS

MAX_BUBBLE = 0.2
"""Share of the step in which stages wait for each other, above which a pipeline is reported as wasteful."""
SPARE_SHARE = 0.25
"""Memory is not saved where a job takes less of a GPU's than this share."""
MIN_SAVED_MEMORY = 0.1
MIN_IDLE = 0.25
"""Half of the GPUs are too many where they would do the same work with at least this share less of GPU time."""
_RECOMPUTES = tuple(Recompute)


class WasteKind(StrEnum):
    """The kind of waste."""

    IDLE_GPUS = "idle-gpus"
    TP_ACROSS_NODES = "tp-across-nodes"
    BUBBLE = "pipeline-bubble"
    BATCH = "batch-not-divisible"
    SHARDING = "no-distributed-optimizer"
    MICRO_BATCH = "small-micro-batch"
    RECOMPUTE = "needless-recompute"
    SEQUENCE_PARALLEL = "no-sequence-parallelism"
    TOO_MANY_GPUS = "too-many-gpus"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waste:
    """One finding.

    Parameters
    ----------
    kind, what
        The kind and a description, for programs and for people.
    cost_share
        Share of the job's GPU time that it costs [ratio]; 0 where it costs memory, ``None`` where it is unknown.
    advice
        The remedy as text; empty where ``change`` is the remedy.
    change
        The change with its prediction, where there is one.
    """

    kind: WasteKind
    what: str
    cost_share: float | None = None
    advice: str = ""
    change: Suggestion | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The result of a search; ``best`` is ``None`` where no plan certainly fits."""

    suggestions: tuple[Suggestion, ...]
    best: BestPlan | None
    waste: tuple[Waste, ...]


def search_improvements(question: Question) -> SearchResult:
    """Search near the requested plan and among all plans.

    Raises
    ------
    OpskError
        When other plans cannot be predicted.
    """
    near = find_near_plans(question)
    best = find_best_plan(question)
    waste = find_waste(question, near, best)
    changes = {entry.plan: entry for entry in find_useful_changes(question, near)}
    if not changes and question.verdict is not Verdict.FITS and (larger := find_plan_on_more_nodes(question)):
        changes = {larger.plan: larger}
    if question.verdict is Verdict.FITS:
        # changes of findings are suggestions as well; where memory is short, only changes that fix it are listed
        more = (entry.change for entry in waste if entry.change and entry.change.plan.gpus == question.plan.gpus)
        changes = {**{entry.plan: entry for entry in more if entry.step_ratio <= 1 - MIN_GAIN}, **changes}
    return SearchResult(
        suggestions=tuple(sorted(changes.values(), key=lambda entry: (entry.step_ratio, len(entry.changes)))),
        best=best,
        waste=waste,
    )


def find_waste(question: Question, near: Near | None, best: BestPlan | None) -> tuple[Waste, ...]:
    """Return the waste of a job, greatest cost first."""
    findings = [
        *find_idle_gpus(question),
        *_find_tp_across_nodes(question, near, best),
        *_find_bubble(question, near, best),
        *_find_too_many_gpus(question),
        *(_find_settings(question, near) if near else ()),
    ]
    return tuple(sorted(findings, key=lambda waste: -(waste.cost_share or 0)))


def find_idle_gpus(question: Question) -> Iterator[Waste]:
    """Yield requested GPUs that no rank runs on."""
    requested, used = count_requested_gpus(question), question.plan.gpus
    if requested and used < requested:
        yield build_idle_gpus_finding(requested, used)


def build_idle_gpus_finding(requested: int, used: int) -> Waste:
    """Return the finding that fewer ranks are started than GPUs are requested."""
    ranks = format_count(used, "rank")
    return Waste(
        kind=WasteKind.IDLE_GPUS,
        what=f"{requested - used} of the {requested} GPUs asked for do nothing: the job starts {ranks}",
        cost_share=1 - used / requested,
        advice=f"start {requested} ranks, or ask for {format_count(used, 'GPU')}",
    )


def count_requested_gpus(question: Question) -> int | None:
    """Return the number of GPUs requested from Slurm."""
    stated = dict(question.workload.options).get(REQUESTED_GPUS, "")
    if stated.isdigit():
        return int(stated)
    plan = question.workload.plan
    return plan.nodes * plan.gpus_per_node if plan.nodes and plan.gpus_per_node else plan.gpus


def _find_tp_across_nodes(question: Question, near: Near | None, best: BestPlan | None) -> Iterator[Waste]:
    """Yield tensor parallelism over links that are slower than those inside an HB domain."""
    limit, tp = question.tp_limit, question.plan.tp
    if tp <= limit:
        return
    change = _select_first(
        near.fastest(near.where(lambda plan: plan.tp <= limit) & (near.step_ratio < 1)) if near else None,
        best.suggestion if best and best.suggestion.step_ratio < 1 else None,
    )
    yield Waste(
        kind=WasteKind.TP_ACROSS_NODES,
        what=f"TP {tp} leaves the {limit} GPUs that fast links join",
        cost_share=_share(question, "tp"),
        change=change,
    )


def _find_bubble(question: Question, near: Near | None, best: BestPlan | None) -> Iterator[Waste]:
    """Yield stages that wait for each other."""
    share = _share(question, "bubble")
    if share <= MAX_BUBBLE:
        return
    change = _select_first(
        near.fastest((near.share("bubble") < share) & (near.step_ratio <= 1 - MIN_GAIN)) if near else None,
        best.suggestion if best and best.suggestion.step_ratio <= 1 - MIN_GAIN else None,
    )
    batches, pp = question.plan.micro_batches, question.plan.pp
    yield Waste(
        kind=WasteKind.BUBBLE,
        what=f"{pp} stages with {batches} micro-batches wait {share:.0%} of the step",
        cost_share=share,
        advice="a larger global batch" if change is None and _is_larger_batch_better(question) else "",
        change=change,
    )


def _is_larger_batch_better(question: Question) -> bool:
    """Return whether twice the batch is predicted to fit, in less than twice the time: more may be held at a time."""
    larger = replace(question.plan, global_batch=2 * question.plan.global_batch)
    near = predict_alternatives(question, [Alternative(plan=larger, changes=())])
    return near is not None and bool(near.fits[0]) and float(near.step_ratio[0]) <= 2 * (1 - MIN_GAIN)


def _find_too_many_gpus(question: Question) -> Iterator[Waste]:
    """Yield replicas that hardly shorten the step."""
    plan, nodes = question.plan, question.workload.plan.nodes
    if plan.dp % 2 or not nodes or nodes % 2 or (count_requested_gpus(question) or plan.gpus) > plan.gpus:
        return
    half = _predict_half(question, plan)
    if half is None or half.verdict is not Verdict.FITS:
        return
    share = 1 - half.step_ratio / 2
    if share >= MIN_IDLE and half.step_ratio >= 1:
        yield Waste(
            kind=WasteKind.TOO_MANY_GPUS,
            what=f"half of the nodes would be only {half.step_ratio - 1:.0%} slower",
            cost_share=share,
            change=replace(half, flags=build_size_flags(question, plan.gpus // 2, half.flags)),
        )


def _predict_half(question: Question, plan: Plan) -> Suggestion | None:
    """Predict the plan on half of the GPUs."""
    try:
        smaller = replace(plan, dp=plan.dp // 2, shard_gpus=0)
    except PlanInfeasibleError:
        return None
    change = Change(axis="dp", what=f"half of the GPUs (DP {plan.dp} → {smaller.dp})")
    near = predict_alternatives(question, [Alternative(plan=smaller, changes=(change,))])
    return near.suggestion(0) if near else None


def _find_settings(question: Question, near: Near) -> Iterator[Waste]:
    """Yield single settings that cost time or memory without a benefit."""
    plan, is_better = question.plan, near.step_ratio <= 1 - MIN_GAIN
    depth = _RECOMPUTES.index(plan.recompute)
    rows: tuple[tuple[WasteKind, str, bool, str, Callable[[Plan], bool]], ...] = (
        (
            WasteKind.RECOMPUTE,
            f"recompute {plan.recompute} without need",
            depth > 0,
            "recompute",
            lambda other: _RECOMPUTES.index(other.recompute) < depth,
        ),
        (
            WasteKind.MICRO_BATCH,
            f"micro batch {plan.micro_batch} is small for these GPUs",
            True,
            "micro_batch",
            lambda other: other.micro_batch > plan.micro_batch,
        ),
    )
    for kind, what, applies, axis, holds in rows:
        change = near.fastest(near.changing(axis) & near.where(holds) & is_better) if applies else None
        if change:
            yield Waste(kind=kind, what=what, cost_share=1 - change.step_ratio, change=change)
    yield from _find_memory_settings(question, near)


def _find_memory_settings(question: Question, near: Near) -> Iterator[Waste]:
    """Yield settings that save memory at no cost."""
    plan = question.plan
    if question.memory_bytes < SPARE_SHARE * float(question.prediction.memory.capacity_bytes):
        return
    saves = (near.memory_ratio <= 1 - MIN_SAVED_MEMORY) | (question.verdict is not Verdict.FITS)
    is_free = near.step_ratio <= 1 + MIN_GAIN
    is_needed = question.verdict is not Verdict.FITS
    # adapters have few states: replicas are then right as long as the base fits
    if plan.sharding is Sharding.NONE and plan.dp > 1 and (is_needed or not plan.lora_rank):
        change = near.fastest(near.changing("sharding") & saves & is_free)
        if change:
            states = "the whole base" if plan.lora_rank else "all optimizer states"
            what = f"{plan.dp} replicas keep {states} each"
            yield Waste(kind=WasteKind.SHARDING, what=what, cost_share=_compute_gain(change), change=change)
    if plan.tp > 1 and not plan.sequence_parallel:
        change = near.fastest(near.changing("sequence_parallel") & saves & is_free)
        if change:
            what = f"no sequence parallelism beside TP {plan.tp}"
            yield Waste(kind=WasteKind.SEQUENCE_PARALLEL, what=what, cost_share=_compute_gain(change), change=change)


def _compute_gain(change: Suggestion) -> float:
    """Return the share of the step that a change saves, 0 where it saves none."""
    return max(1 - change.step_ratio, 0.0)


def _share(question: Question, component: str) -> float:
    """Return the share of the step that one component takes."""
    return float(question.prediction.time.components[component]) / question.step_s


def _select_first(*choices: Suggestion | None) -> Suggestion | None:
    """Return the first suggestion that is not ``None``."""
    return next((choice for choice in choices if choice), None)
