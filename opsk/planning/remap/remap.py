"""What can be done after a failure? All options, each judged and written out, the least expected loss first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from opsk.planning.placement.judging import Verdicts
from opsk.planning.placement.seating import local_ranks
from opsk.planning.remap.failure import Failure, Wreck, wreck
from opsk.planning.remap.hb_domain import hb_domain
from opsk.planning.remap.idle_gpu import idle_gpu
from opsk.planning.remap.optical import optical
from opsk.planning.remap.proposal import Proposal, victims
from opsk.planning.remap.replan import replan
from opsk.planning.remap.shrink_dp import shrink_dp
from opsk.planning.remap.situation import Situation
from opsk.planning.remap.spare_node import spare_node
from opsk.planning.remap.terms import Terms, downtime, losses, total
from opsk.planning.remap.values import Answer, Damage, HitRank, Kind, Option, Part, Predicted, Refusal, Way
from opsk.planning.remap.wait import wait
from opsk.planning.remap.written import written
from opsk.workload.plan import Plan

_MAKERS: Mapping[Kind, Callable[[Situation, Wreck, Terms], Iterator[Proposal | Refusal]]] = {
    Kind.IDLE_GPU: idle_gpu,
    Kind.OPTICAL: optical,
    Kind.HB_DOMAIN: hb_domain,
    Kind.SPARE_NODE: spare_node,
    Kind.SHRINK_DP: shrink_dp,
    Kind.REPLAN: replan,
    Kind.WAIT: wait,
}


def remap(situation: Situation, failure: Failure, terms: Terms) -> Answer:
    """Return what the failure hits, and every option, best first; ``situation`` is prepared before anything fails."""
    broken = wreck(situation, failure)
    today = predicted(situation, situation.plan, situation.verdict, float(situation.verdict.step_s[0]))
    if not victims(situation, broken).size:
        return Answer(damage=damage(situation, broken), today=today, nothing_to_do=_why_nothing(situation, broken))
    options: list[Option] = []
    refused: list[Refusal] = []
    for make in _MAKERS.values():
        for found in make(situation, broken, terms):
            if isinstance(found, Refusal):
                refused.append(found)
            else:
                options.append(_option(situation, broken, terms, found))
    going_on = [option.predicted for option in options if option.kind is Kind.WAIT and option.way is Way.RELAUNCH]
    hit = damage(situation, broken, going_on[0] if going_on else None)
    order = {kind: number for number, kind in enumerate(_MAKERS)}
    options.sort(key=lambda option: (round(option.lost_s), option.moved, order[option.kind]))
    return Answer(
        damage=hit, today=today, options=tuple(options), refused=tuple(refused), notes=tuple(_notes(situation, broken))
    )


def predicted(situation: Situation, plan: Plan, verdict: Verdicts | None, step_s: float) -> Predicted:
    """Return how a plan runs, compared with the job of today.

    Communication alone cannot tell what fewer GPUs compute: without a cost model they are as much slower as they are
    fewer, at least.
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


def _option(situation: Situation, broken: Wreck, terms: Terms, proposal: Proposal) -> Option:
    """Write one option out, with its loss."""
    then = predicted(situation, proposal.plan, proposal.verdict, proposal.step_s)
    down = downtime(terms, proposal.way, switches=proposal.switches)

    def lost_over(when: Terms) -> tuple[Part, ...]:
        return proposal.lost(when) if proposal.lost is not None else losses(when, down, then.loss)

    over_s = terms.horizon_s if terms.until_end_s is None else terms.until_end_s
    ahead = total(lost_over(replace(terms, horizon_s=over_s)))
    goodput = max(1.0 - ahead / over_s, 0.0) if over_s > 0 else None
    return written(
        situation, broken, terms, proposal, then, down=down, down_s=total(down), lost=lost_over(terms),
        goodput=(goodput, over_s),
    )  # fmt: skip


def damage(situation: Situation, broken: Wreck, degraded: Predicted | None = None) -> Damage:
    """Return what of the job is hit, and what still works; ``degraded`` is how it runs on what is left."""
    seating, ports = situation.seating, situation.job.ports
    dead, fallen = broken.hit(situation), broken.fallen_back(situation)
    local = local_ranks(seating.node[0])
    ranks = []
    for rank in np.union1d(dead, fallen).tolist():
        node, gpu = int(seating.node[0, rank]), int(seating.gpu[0, rank])
        before, after = ports.hcas[int(seating.port[0, rank])], broken.ports.attached(node, gpu)
        is_dead = bool(broken.dead[node, gpu])
        ranks.append(
            HitRank(
                rank=rank,
                node=situation.job.nodes[node],
                local_rank=int(local[rank]),
                gpu=gpu,
                is_dead=is_dead,
                device=before.device if before else None,
                fallback_device=after.device if after and not is_dead and after is not before else None,
            )
        )
    return Damage(
        failed=broken.failure.said,
        ranks=tuple(ranks),
        nodes=tuple(dict.fromkeys(rank.node for rank in ranks)),
        links=broken.failure.links,
        works=tuple(_works(situation, broken, len(dead), len(fallen))),
        degraded=degraded,
    )


def _works(situation: Situation, broken: Wreck, dead: int, fallen: int) -> Iterator[str]:
    """Say what is left."""
    ranks = situation.plan.gpus
    yield f"{ranks - dead} of {ranks} GPUs of the job"
    if fallen:
        who = f"{fallen} ranks" if fallen > 1 else "1 rank"
        yield f"the GPUs of {who} whose HCA is gone: another one of the node serves them"
    spare = situation.held & ~situation.used & ~broken.dead.any(axis=1)
    if spare.any():
        count = int(spare.sum())
        yield f"{count} spare {'nodes' if count > 1 else 'node'} of the job"


def _why_nothing(situation: Situation, broken: Wreck) -> str:
    """Say why a failure does not concern the job."""
    said = ", ".join(broken.failure.said)
    if broken.failure.remarks:
        return f"{said}: {'; '.join(broken.failure.remarks)}"
    names = {situation.job.nodes[at] for at in np.flatnonzero(situation.used)}
    inside = broken.failure.drain & names
    if inside:
        return f"{said}: no rank of the job uses it, though {', '.join(sorted(inside)[:3])} is one of its nodes"
    return f"{said}: not part of what the job's ranks use"


def _notes(situation: Situation, broken: Wreck) -> Iterator[str]:
    """Say what holds for all options."""
    yield from broken.failure.remarks
    if broken.failure.domains:
        yield "the hosts of a failed HB domain are taken to be up; name those that are down as node:NAME too"
    if broken.failure.gpus - {(node, gpu) for node, gpu in broken.failure.gpus if node in broken.failure.nodes}:
        yield (
            "Slurm cannot take one GPU out of a node (gres.conf names its file): the node is drained, and what runs on "
            "it goes on until it ends"
        )
    if situation.batch_host in broken.failure.nodes:
        yield f"{situation.batch_host} ran the batch script: the job ends with it, a requeue starts it elsewhere"
    if situation.cluster is None:
        yield (
            "without --cluster a step is its communication alone: losses are larger than those of a whole step, and "
            "fewer GPUs are taken to be as much slower as they are fewer"
        )
