"""Checks whether the states that a job offloads to host memory exceed its Slurm memory request.

A problem is reported only where the request is certainly too small. The comparison uses a lower bound: the offloaded
states as the cost model counts them on a GPU, without pinned buffers, gradients, the framework and its data loaders.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from opsk.costmodel.predict import predict_one
from opsk.text import format_bytes
from opsk.workload.defaults import Assumption
from opsk.workload.memory_settings import parse_fraction
from opsk.workload.plan import Offload
from opsk.workload.workload import Problem
from opsk_jobcheck.advice.advice import find_guesses
from opsk_jobcheck.advice.suggestions import Question
from opsk_jobcheck.cluster_state.node_constraints import NodeConstraints
from opsk_jobcheck.scripts.settings.deepspeed_config import ELSEWHERE, PARTLY

_FRACTION = "optimizer.offload_fraction"
_OPEN = (PARTLY, ELSEWHERE)
"""Options of a workload that offloads only partly, or elsewhere: the host memory that it needs is unknown."""
STATE_INPUTS = frozenset(
    {"model.layers", "model.hidden", "model.ffn", "model.gated_mlp", "model.experts", "model.expert_ffn"}
    | {"model.vocab", "plan.sharding", "plan.states", "plan.precision"}
)
"""Inputs that determine the size of the states most."""
SURE, SURE_WHERE_GUESSED = 0.8, 0.5
"""Shares of the predicted size that count as certain."""
_STATES = ("weights", "optimizer")


def explain_partial_offload(options: Iterable[tuple[str, str]]) -> str | None:
    """Return why the GPU memory of a workload with partial offload cannot be predicted; ``None`` otherwise."""
    given = dict(options)
    fraction = given.get(_FRACTION)
    is_known = fraction is None or parse_fraction(fraction) is not None
    if PARTLY not in given and (is_known or "optimizer.offload" not in given):
        return None
    return "a part of the optimizer is kept in host memory, and opsk predicts all of it there or none"


def find_host_shortage(
    question: Question, constraints: NodeConstraints, assumed: Iterable[Assumption]
) -> Iterator[Problem]:
    """Yield a problem where the states in host memory take more than the job requests on a node.

    Pipelines are not checked, since their stages hold different parts of the model. Only a share of the size counts as
    certain, and a smaller one where the size is guessed.
    """
    request, plan, gpus = constraints.memory, question.plan, question.workload.plan.gpus_per_node
    is_offloaded = plan.offload in (Offload.OPTIMIZER, Offload.OPTIMIZER_AND_WEIGHTS)
    is_open = any(name in _OPEN for name, _ in question.workload.options)
    if request is None or not is_offloaded or plan.pp > 1 or not gpus or is_open:
        return
    max_bytes = request.per_node_bytes(gpus_per_node=gpus, cpus_per_node=constraints.cpus_per_node)
    if max_bytes is None:
        return
    is_guessed = not STATE_INPUTS.isdisjoint(find_guesses(question.workload, assumed))
    kept = question.prediction.memory.components
    on_gpu = predict_one(question.model, replace(plan, offload=Offload.NONE), question.cluster).memory.components
    offloaded_bytes = sum(float(on_gpu[name]) - float(kept[name]) for name in _STATES)
    if offloaded_bytes * gpus * (SURE_WHERE_GUESSED if is_guessed else SURE) > max_bytes:
        yield Problem(
            what=f"states in host memory take about {format_bytes(offloaded_bytes * gpus)} a node, and {request.words} "
            f"allows {format_bytes(max_bytes)}",
            hint="ask for more, or for all that a node has: --mem=0",
        )
