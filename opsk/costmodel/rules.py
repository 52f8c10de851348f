"""Which rules of model and plan together does a plan break? What no framework would start is not predicted."""

from __future__ import annotations

from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan


def violations(model: ModelShape, plan: Plan) -> tuple[str, ...]:
    """Return every rule that the plan breaks for this model, with its numbers; empty when it can run.

    Source: argument checks of Megatron-LM (megatron/training/arguments.py, megatron/core/transformer_config.py).
    Embedding and head may count as two more layers of the pipeline's split.
    """
    return (
        *_head_rules(model, plan),
        *_layer_rules(model, plan),
        *_token_rules(model, plan),
        *_expert_rules(model, plan),
    )


def excess_gpus(plan: Plan, cluster: ClusterSpec) -> tuple[str, ...]:
    """Return a violation when the plan needs more GPUs than the cluster has."""
    have = cluster.nodes * cluster.node.gpus
    if plan.gpus <= have:
        return ()
    product = f"tp {plan.tp} x pp {plan.pp} x cp {plan.cp} x dp {plan.dp}"
    return (f"{product} = {plan.gpus} GPUs, cluster {cluster.name} has {have}",)


def _head_rules(model: ModelShape, plan: Plan) -> list[str]:
    """Return what is wrong with heads and widths split over tp."""
    wrong = []
    if model.heads % plan.tp:
        wrong.append(f"heads {model.heads} is not a multiple of tp {plan.tp}")
    if model.kv_heads % plan.tp and plan.tp % model.kv_heads:
        wrong.append(f"kv_heads {model.kv_heads} and tp {plan.tp}: neither is a multiple of the other")
    inner = model.expert_ffn if model.experts else model.ffn
    if inner % plan.tp:
        wrong.append(f"{'expert_ffn' if model.experts else 'ffn'} {inner} is not a multiple of tp {plan.tp}")
    return wrong


def _layer_rules(model: ModelShape, plan: Plan) -> list[str]:
    """Return what is wrong with layers split over stages and chunks."""
    wrong = []
    chunks = plan.pp * plan.vpp
    if all((model.layers + ends) % chunks for ends in (0, 1, 2)):
        wrong.append(
            f"layers {model.layers} is not a multiple of pp {plan.pp} x vpp {plan.vpp} = {chunks}, "
            "nor with embedding or head counted as layers"
        )
    if plan.vpp > 1 and plan.pp == 1:
        wrong.append(f"vpp {plan.vpp} needs pp of at least 2")
    if plan.vpp > 1 and plan.micro_batches % plan.pp:
        wrong.append(f"vpp {plan.vpp} needs micro-batches ({plan.micro_batches}) that are a multiple of pp {plan.pp}")
    return wrong


def _token_rules(model: ModelShape, plan: Plan) -> list[str]:
    """Return what is wrong with the sequence split over cp and tp."""
    wrong = []
    if plan.cp > 1 and model.seq % (2 * plan.cp):
        wrong.append(f"seq {model.seq} is not a multiple of 2 x cp {plan.cp}")
    elif plan.sequence_parallel and model.seq % (plan.cp * plan.tp):
        wrong.append(f"sequence parallelism: seq {model.seq} is not a multiple of cp {plan.cp} x tp {plan.tp}")
    return wrong


def _expert_rules(model: ModelShape, plan: Plan) -> list[str]:
    """Return what is wrong with experts split over ep."""
    if plan.ep == 1:
        return []
    if not model.experts:
        return [f"ep {plan.ep}, but the model has no experts"]
    wrong = []
    if model.experts % plan.ep:
        wrong.append(f"experts {model.experts} is not a multiple of ep {plan.ep}")
    if (plan.dp * plan.cp * plan.tp) % plan.ep:
        wrong.append(f"dp {plan.dp} x cp {plan.cp} x tp {plan.tp} is not a multiple of ep {plan.ep}")
    return wrong
