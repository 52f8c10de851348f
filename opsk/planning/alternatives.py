"""Lists the plans that are one or two launch-script changes away from a given plan.

The model, the number of GPUs, the global batch and the training itself do not change. `opsk.planning.search` searches
all other plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

from opsk.costmodel.rules import Rule, find_violations
from opsk.errors import PlanInfeasibleError
from opsk.frameworks.limits import ANYTHING, Limits, SequenceParallel, expresses
from opsk.planning.search.layouts import divisors, list_light_ends
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Recompute, Sharding

MAX_MICRO_BATCHES = 8
"""Smaller micro-batches that are tried near a plan, largest first."""
MAX_CHUNKS = 8
"""Chunks a stage that are tried where a pipeline has one."""
FACTORS = (2, 4)

RefusalCheck = Callable[[ModelShape, Plan], tuple[str, ...]]
"""Returns why a framework would not start a plan, for reasons that its limits cannot express."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change: ``what`` describes it (``TP 4 → 8``), ``axis`` is the kind of change."""

    axis: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A plan that differs from the requested one by ``changes``."""

    plan: Plan
    changes: tuple[Change, ...]


def is_legal(model: ModelShape, plan: Plan, *, hb_domain_gpus: int, layer_slack: int = 0) -> bool:
    """Return whether a framework would start this plan.

    Parameters
    ----------
    hb_domain_gpus
        Tensor parallelism stays inside one HB domain of this many GPUs.
    layer_slack
        Layers that may be missing or extra in an even split over stages: 2 where embedding and head count as layers.
        Stages that are laid out by hand have all layers.
    """
    stages = plan.pp * plan.vpp
    if plan.first_stage_layers or plan.last_stage_layers:
        is_split = not find_violations(model, plan, (Rule.LAYERS,))
    else:
        is_filled = stages <= model.layers + model.encoder_layers
        is_split = is_filled and any((model.layers + extra) % stages == 0 for extra in range(layer_slack + 1))
    return (
        plan.tp <= hb_domain_gpus
        and model.heads % plan.tp == 0
        and (model.kv_heads % plan.tp == 0 or plan.tp % model.kv_heads == 0)
        and (plan.vpp == 1 or (plan.pp > 1 and plan.micro_batches % plan.pp == 0))
        and is_split
        and model.seq % (2 * plan.cp if plan.cp > 1 else 1) == 0
        and (plan.ep == 1 or (model.experts % plan.ep == 0 and (plan.dp * plan.tp * plan.cp) % plan.ep == 0))
    )


def find_new_refusals(
    model: ModelShape, requested: Plan, plan: Plan, *, limits: Limits, refuses: RefusalCheck | None
) -> tuple[str, ...]:
    """Return why a framework would not run a plan that is near a requested one, in the order of its rules.

    Refusals that hold for the requested plan too are left out: its user may know the framework better.
    """
    find_refusals = refuses or (lambda *_: ())
    reasons = dict.fromkeys((*expresses(limits, plan, model), *find_refusals(model, plan)))
    if not reasons:
        return ()
    known = {*expresses(limits, requested, model), *find_refusals(model, requested)}
    return tuple(reason for reason in reasons if reason not in known)


def neighbours(
    model: ModelShape,
    plan: Plan,
    *,
    hb_domain_gpus: int,
    layer_slack: int = 0,
    limits: Limits = ANYTHING,
    refuses: RefusalCheck | None = None,
) -> list[Alternative]:
    """Return the plans one or two changes away that a framework would start, single changes first.

    Of two changes at least one saves memory: two that only make the step faster are for a search to find.
    """
    alternatives: dict[Plan, Alternative] = {}
    saving = [*_list_saving(plan, limits)]
    faster = [*_list_faster(model, plan, limits)]
    second = [
        Alternative(plan=further.plan, changes=(*near.changes, *further.changes))
        for near in saving
        for further in chain(_list_saving(near.plan, limits), _list_faster(model, near.plan, limits))
        if further.changes[0].axis != near.changes[0].axis
    ]
    for proposed in (*saving, *faster, *second):
        alternative = _split_recomputed_again(model, plan, _split_stages_again(model, plan, proposed))
        is_new = (
            alternative.plan != plan and alternative.plan not in alternatives and alternative.plan.gpus == plan.gpus
        )
        has_effect = alternative.plan.tp > 1 or alternative.plan.sequence_parallel == plan.sequence_parallel
        if (
            is_new
            and has_effect
            and is_legal(model, alternative.plan, hb_domain_gpus=hb_domain_gpus, layer_slack=layer_slack)
            and not find_new_refusals(model, plan, alternative.plan, limits=limits, refuses=refuses)
        ):
            alternatives[alternative.plan] = alternative
    return list(alternatives.values())


def _split_stages_again(model: ModelShape, requested: Plan, alternative: Alternative) -> Alternative:
    """Return an alternative with ends for its own number of stages, where the requested plan has ends by hand."""
    plan = alternative.plan
    if plan.pp == requested.pp or not requested.first_stage_layers + requested.last_stage_layers:
        return alternative
    layers = model.layers + model.encoder_layers
    ends = sorted(list_light_ends(layers, plan.pp) if plan.pp > 1 else (), reverse=requested.first_stage_layers > 0)
    for first, last in ((0, 0), *ends):
        changed = replace(plan, first_stage_layers=first, last_stage_layers=last)
        if not find_violations(model, changed, (Rule.LAYERS,)):
            return replace(alternative, plan=changed)
    return alternative


def _split_recomputed_again(model: ModelShape, requested: Plan, alternative: Alternative) -> Alternative:
    """Return an alternative with as many recomputed layers of a chunk as requested; 0 where these are all of them."""
    plan = alternative.plan
    if not plan.recompute_layers:
        return alternative
    layers = -(-requested.recompute_layers // requested.vpp) * plan.vpp
    is_all = layers >= -(-(model.layers + model.encoder_layers) // plan.pp)
    return replace(alternative, plan=replace(plan, recompute_layers=0 if is_all else layers))


def _list_saving(plan: Plan, limits: Limits) -> Iterator[Alternative]:
    """Yield the plans one memory-saving change away, cheapest for the user first; legality is checked by the caller."""
    if plan.tp > 1 and not plan.sequence_parallel and limits.sequence_parallel is not SequenceParallel.NEVER:
        yield from _change_plan(plan, "sequence_parallel", "sequence parallelism on", sequence_parallel=True)
    if plan.dp > 1:
        order = list(Sharding)
        for kind in order[order.index(plan.sharding) + 1 :]:
            if kind in limits.shardings:
                what = "distributed optimizer" if kind is Sharding.ZERO1 else f"sharding {plan.sharding} → {kind}"
                yield from _change_plan(plan, "sharding", what, sharding=kind)
    for mode in (Recompute.SELECTIVE, Recompute.FULL):
        if mode is not plan.recompute and mode in limits.recomputes:
            yield from _change_plan(plan, "recompute", f"recompute {mode.value}", recompute=mode)
    if plan.recompute is Recompute.FULL and plan.recompute_layers:
        what = f"recomputed layers of a stage {plan.recompute_layers} → all"
        yield from _change_plan(plan, "recompute", what, recompute_layers=0)
    for size in [size for size in reversed(divisors(plan.micro_batch)) if size < plan.micro_batch][:MAX_MICRO_BATCHES]:
        yield from _change_plan(plan, "micro_batch", f"micro batch {plan.micro_batch} → {size}", micro_batch=size)
    for factor in FACTORS:
        if plan.dp % factor == 0:
            tp, pp, dp = plan.tp * factor, plan.pp * factor, plan.dp // factor
            split = limits.sequence_parallel is not SequenceParallel.NEVER
            yield from _change_plan(plan, "tp", f"TP {plan.tp} → {tp}", tp=tp, dp=dp, sequence_parallel=split)
            yield from _change_plan(plan, "pp", f"PP {plan.pp} → {pp}", pp=pp, dp=dp)
    if plan.vpp > 1:
        yield from _change_plan(plan, "vpp", f"no interleaving (VPP {plan.vpp} → 1)", vpp=1)


def _list_faster(model: ModelShape, plan: Plan, limits: Limits) -> Iterator[Alternative]:
    """Yield the plans one change away that costs memory and may save time."""
    if plan.recompute is not Recompute.NONE and Recompute.NONE in limits.recomputes:
        yield from _change_plan(
            plan, "recompute", f"recompute {plan.recompute.value} → none", recompute=Recompute.NONE, recompute_layers=0
        )
    for factor in FACTORS:
        size = plan.micro_batch * factor
        yield from _change_plan(plan, "micro_batch", f"micro batch {plan.micro_batch} → {size}", micro_batch=size)
        if plan.tp % factor == 0:
            tp = plan.tp // factor
            yield from _change_plan(plan, "tp", f"TP {plan.tp} → {tp}", tp=tp, dp=plan.dp * factor)
        if plan.pp % factor == 0:
            pp = plan.pp // factor
            vpp = plan.vpp if pp > 1 else 1
            yield from _change_plan(plan, "pp", f"PP {plan.pp} → {pp}", pp=pp, dp=plan.dp * factor, vpp=vpp)
    if plan.pp > 1 and plan.vpp == 1 and limits.interleaved and model.layers % plan.pp == 0:
        for chunks in divisors(model.layers // plan.pp):
            if 1 < chunks <= MAX_CHUNKS:
                yield from _change_plan(plan, "vpp", f"interleaving (VPP 1 → {chunks})", vpp=chunks)
    order = list(Sharding)
    for kind in order[: order.index(plan.sharding)]:
        if kind in limits.shardings:
            yield from _change_plan(plan, "sharding", f"sharding {plan.sharding} → {kind}", sharding=kind)


def _change_plan(plan: Plan, axis: str, what: str, **fields: object) -> Iterator[Alternative]:
    """Yield ``plan`` with ``fields`` replaced, or nothing when the result breaks arithmetic."""
    try:
        yield Alternative(plan=replace(plan, **fields), changes=(Change(axis=axis, what=what),))  # type: ignore[arg-type]
    except PlanInfeasibleError:
        return
