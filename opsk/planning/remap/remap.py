"""Lists all options after a failure, evaluated and with their commands, by increasing expected loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from opsk.planning.placement.rank_placement import Verdicts, local_ranks
from opsk.planning.remap.failure import Failure, FailureImpact, assess_impact
from opsk.planning.remap.idle_gpu import idle_gpu, optical
from opsk.planning.remap.other_nodes import hb_domain, spare_node
from opsk.planning.remap.other_plan import replan, shrink_dp
from opsk.planning.remap.proposal import Proposal, build_option, find_affected_ranks
from opsk.planning.remap.situation import Situation
from opsk.planning.remap.values import (
    AffectedRank,
    Answer,
    CostPart,
    Damage,
    Option,
    OptionKind,
    Predicted,
    Refusal,
    Terms,
    Way,
    downtime,
    losses,
    total,
)
from opsk.planning.remap.wait import wait
from opsk.workload.plan import Plan

_STRATEGIES: Mapping[OptionKind, Callable[[Situation, FailureImpact, Terms], Iterator[Proposal | Refusal]]] = {
    OptionKind.IDLE_GPU: idle_gpu,
    OptionKind.OPTICAL: optical,
    OptionKind.HB_DOMAIN: hb_domain,
    OptionKind.SPARE_NODE: spare_node,
    OptionKind.SHRINK_DP: shrink_dp,
    OptionKind.REPLAN: replan,
    OptionKind.WAIT: wait,
}


def remap(situation: Situation, failure: Failure, terms: Terms) -> Answer:
    """Return the damage and every option, best first; ``situation`` is prepared before anything fails."""
    impact = assess_impact(situation, failure)
    today = compare_with_today(situation, situation.plan, situation.verdict, float(situation.verdict.step_s[0]))
    if not find_affected_ranks(situation, impact).size:
        return Answer(
            damage=assess_damage(situation, impact), today=today, nothing_to_do=_explain_nothing(situation, impact)
        )
    options: list[Option] = []
    refused: list[Refusal] = []
    for make in _STRATEGIES.values():
        for proposal in make(situation, impact, terms):
            if isinstance(proposal, Refusal):
                refused.append(proposal)
            else:
                options.append(_build_option(situation, impact, terms, proposal))
    going_on = [option.predicted for option in options if option.kind is OptionKind.WAIT and option.way is Way.RELAUNCH]
    damage = assess_damage(situation, impact, going_on[0] if going_on else None)
    order = {kind: number for number, kind in enumerate(_STRATEGIES)}
    options.sort(key=lambda option: (round(option.lost_s), option.moved, order[option.kind]))
    return Answer(
        damage=damage,
        today=today,
        options=tuple(options),
        refused=tuple(refused),
        notes=tuple(_list_notes(situation, impact)),
    )


def compare_with_today(situation: Situation, plan: Plan, verdict: Verdicts | None, step_s: float) -> Predicted:
    """Return how a plan runs, compared with the job of today.

    Communication alone does not include computation: without a cost model the speed is at most proportional to the
    number of GPUs.
    """
    today_s = float(situation.verdict.step_s[0])
    today = situation.plan.global_batch / today_s if today_s else 0.0
    speed = plan.global_batch / step_s if step_s else 0.0
    known = situation.cluster is not None
    loss = 1.0 - speed / today if today and speed else 0.0
    if not known:
        loss = max(loss, 1.0 - plan.gpus / situation.plan.gpus)
    total_bytes = float(verdict.all_bytes[0]) if verdict is not None else 0.0

    def share(part: float) -> float:
        return 1.0 - part / total_bytes if total_bytes else 1.0

    return Predicted(
        step_s=step_s,
        loss=loss,
        sequences_per_s=speed,
        tokens_per_s=speed * situation.model.seq if known else None,
        gpus=plan.gpus,
        global_batch=plan.global_batch,
        rail_local_fraction=share(float(verdict.off_rail_bytes[0])) if verdict is not None else None,
        leaf_local_fraction=share(float(verdict.off_leaf_bytes[0])) if verdict is not None else None,
        max_link_load=float(verdict.max_link_load[0]) if verdict is not None else None,
        is_on_fabric=verdict is not None,
    )


def _build_option(situation: Situation, impact: FailureImpact, terms: Terms, proposal: Proposal) -> Option:
    """Return one option with its loss."""
    then = compare_with_today(situation, proposal.plan, proposal.verdict, proposal.step_s)
    down = downtime(terms, proposal.way, switches=proposal.switches)

    def sum_losses(when: Terms) -> tuple[CostPart, ...]:
        return proposal.lost(when) if proposal.lost is not None else losses(when, down, then.loss)

    over_s = terms.horizon_s if terms.until_end_s is None else terms.until_end_s
    ahead = total(sum_losses(replace(terms, horizon_s=over_s)))
    goodput = max(1.0 - ahead / over_s, 0.0) if over_s > 0 else None
    return build_option(
        situation, impact, terms, proposal, then, down=down, down_s=total(down), lost=sum_losses(terms),
        goodput=(goodput, over_s),
    )  # fmt: skip


def assess_damage(situation: Situation, impact: FailureImpact, degraded: Predicted | None = None) -> Damage:
    """Return the affected ranks and the working parts; ``degraded`` is the prediction on the remaining parts."""
    rank_placement, ports = situation.rank_placement, situation.job.ports
    dead, fallen = impact.find_affected(situation), impact.find_fallen_back(situation)
    local_rank = local_ranks(rank_placement.node[0])
    ranks = []
    for rank in np.union1d(dead, fallen).tolist():
        node, gpu = int(rank_placement.node[0, rank]), int(rank_placement.gpu[0, rank])
        before, after = ports.hcas[int(rank_placement.port[0, rank])], impact.ports.find_attachment(node, gpu)
        is_dead = bool(impact.dead[node, gpu])
        ranks.append(
            AffectedRank(
                rank=rank,
                node=situation.job.nodes[node],
                local_rank=int(local_rank[rank]),
                gpu=gpu,
                is_dead=is_dead,
                device=before.device if before else None,
                fallback_device=after.device if after and not is_dead and after is not before else None,
            )
        )
    return Damage(
        failed=impact.failure.reported,
        ranks=tuple(ranks),
        nodes=tuple(dict.fromkeys(rank.node for rank in ranks)),
        links=impact.failure.links,
        works=tuple(_describe_remaining(situation, impact, len(dead), len(fallen))),
        degraded=degraded,
    )


def _describe_remaining(situation: Situation, impact: FailureImpact, dead: int, fallen: int) -> Iterator[str]:
    """Yield the parts that still work."""
    ranks = situation.plan.gpus
    yield f"{ranks - dead} of {ranks} GPUs of the job"
    if fallen:
        who = f"{fallen} ranks" if fallen > 1 else "1 rank"
        yield f"the GPUs of {who} whose HCA is gone: another one of the node serves them"
    spares = situation.held & ~situation.used & ~impact.dead.any(axis=1)
    if spares.any():
        count = int(spares.sum())
        yield f"{count} spare {'nodes' if count > 1 else 'node'} of the job"


def _explain_nothing(situation: Situation, impact: FailureImpact) -> str:
    """Return why a failure does not affect the job."""
    reported = ", ".join(impact.failure.reported)
    if impact.failure.remarks:
        return f"{reported}: {'; '.join(impact.failure.remarks)}"
    job_nodes = {situation.job.nodes[number] for number in np.flatnonzero(situation.used)}
    affected_nodes = impact.failure.drain & job_nodes
    if affected_nodes:
        shown = ", ".join(sorted(affected_nodes)[:3])
        return f"{reported}: no rank of the job uses it, though {shown} is one of its nodes"
    return f"{reported}: not part of what the job's ranks use"


def _list_notes(situation: Situation, impact: FailureImpact) -> Iterator[str]:
    """Yield the notes that apply to all options."""
    yield from impact.failure.remarks
    if impact.failure.domains:
        yield "the hosts of a failed HB domain are taken to be up; name those that are down as node:NAME too"
    if impact.failure.gpus - {(node, gpu) for node, gpu in impact.failure.gpus if node in impact.failure.nodes}:
        yield (
            "Slurm cannot take one GPU out of a node (gres.conf names its file): the node is drained, and what runs on "
            "it goes on until it ends"
        )
    if situation.batch_host in impact.failure.nodes:
        yield f"{situation.batch_host} ran the batch script: the job ends with it, a requeue starts it elsewhere"
    if situation.cluster is None:
        yield (
            "without --cluster a step is its communication alone: losses are larger than those of a whole step, and "
            "fewer GPUs are taken to be as much slower as they are fewer"
        )
