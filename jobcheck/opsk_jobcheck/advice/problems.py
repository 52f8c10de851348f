"""Finds what keeps a job from starting as submitted or from fitting into its host memory, and repairs.

Host memory is reported only where the request is certainly too small. The comparison uses a lower bound: the offloaded
states as the cost model counts them on a GPU, without pinned buffers, gradients, the framework and its data loaders.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from opsk.costmodel.predict import predict_one
from opsk.text import format_bytes, format_duration
from opsk.units import as_gib
from opsk.workload.advice_record import Verdict
from opsk.workload.defaults import Assumption
from opsk.workload.memory_settings import parse_fraction
from opsk.workload.plan import Offload, StatedPlan
from opsk.workload.workload import Problem, Workload
from opsk_jobcheck.advice.advice import Advice, find_guesses
from opsk_jobcheck.advice.rendering.sections import get_prediction, settings_text
from opsk_jobcheck.advice.search import Waste, WasteKind, build_idle_gpus_finding
from opsk_jobcheck.advice.suggestions import MAX_MICRO_BATCH, Question
from opsk_jobcheck.cluster_state.node_constraints import NodeConstraints
from opsk_jobcheck.scripts.launchers.ranks import NODES_OPTION, REQUESTED_GPUS
from opsk_jobcheck.scripts.launchers.ranks import OPTION as RANKS
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
Advise = Callable[[Workload], Advice]
PARTIAL_LAST_BATCH = ("composer", "olmo")
"""Frameworks that cut a GPU's batch with ``Tensor.split``: ``composer/core/data_spec.py``, ``olmo/train.py``."""
_VALUE = re.compile(r"\d+")


def apply_whole_nodes(workload: Workload, gpus_per_node: int) -> tuple[Workload, tuple[Assumption, ...]]:
    """Return a workload that requests whole nodes and no GPUs with all GPUs of its nodes, and what that assumes.

    Source: ``--exclusive`` in sbatch(1): "the job is allocated all CPUs and GRES on all nodes in the allocation", which
    22.05, 24.11 and 26.05 do with and without ``--gres``.
    """
    plan = workload.plan
    if not plan.nodes or plan.gpus is not None or plan.gpus_per_node is not None or workload.gpu is not None:
        return workload, ()
    if any(entry.field in ("plan.gpus", "plan.gpus_per_node", "plan.nodes") for entry in workload.unknown):
        return workload, ()
    gpus = plan.nodes * gpus_per_node
    why = f"--exclusive gives the job all {gpus_per_node} GPUs of a node"
    plan = replace(plan, gpus=gpus, gpus_per_node=gpus_per_node)
    return replace(workload, plan=plan), (Assumption(field="plan.gpus", value=gpus, why=why),)


def apply_launcher_ranks(workload: Workload) -> Workload:
    """Return a workload with the ranks that its launcher starts, which are those that train."""
    plan, options = workload.plan, dict(workload.options)
    stated = options.get(RANKS, "")
    requested = plan.nodes * plan.gpus_per_node if plan.nodes and plan.gpus_per_node else plan.gpus
    if not re.fullmatch(r"[0-9]{1,8}", stated) or not requested or int(stated) in (0, requested):
        return workload
    ranks = int(stated)
    if ranks > requested:
        what = f"the launcher starts {ranks} ranks, and the job asks for {requested} GPUs"
        problem = Problem(what=what, hint=f"ask for {ranks} GPUs, or start {requested} ranks")
        return replace(workload, problems=(*workload.problems, problem))
    stated_nodes = options.get(NODES_OPTION, "")
    nodes = int(stated_nodes) if re.fullmatch(r"[0-9]{1,8}", stated_nodes) else plan.nodes if plan.nodes == 1 else None
    per_node = ranks // nodes if nodes and ranks % nodes == 0 else None
    nodes = nodes if per_node else None
    batch = _scale_batch(workload, ranks, requested)
    return replace(
        workload,
        # the number of replicas, and values derived from it, were computed from the requested GPUs
        plan=replace(plan, gpus=ranks, gpus_per_node=per_node, nodes=nodes, dp=None, global_batch=batch),
        options=tuple(sorted({**options, REQUESTED_GPUS: str(requested)}.items())),
    )


def _scale_batch(workload: Workload, ranks: int, requested: int) -> int | None:
    """Return the global batch of fewer ranks: it changes only where it was computed from the replicas."""
    batch = workload.plan.global_batch
    stated = next((entry.text for entry in workload.evidence if entry.field == "plan.global_batch"), "")
    if batch is None or " × dp " not in stated:
        return batch
    return batch * ranks // requested if batch * ranks % requested == 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A problem that keeps a job from starting; each of ``repairs`` is a setting, and the job with it.

    The first repair is the nearest to the request.
    """

    waste: Waste
    repairs: tuple[tuple[str, Workload], ...] = ()


def find_stops(workload: Workload) -> Iterator[Stop]:
    """Yield the problems that keep a job with a plan from starting."""
    plan = workload.plan
    ranks = (plan.tp or 1) * (plan.pp or 1) * (plan.cp or 1)
    gpus = plan.gpus or (plan.nodes or 0) * (plan.gpus_per_node or 0)
    if plan.dp and gpus and ranks * plan.dp < gpus:
        yield Stop(waste=build_idle_gpus_finding(gpus, ranks * plan.dp))
    dp = _count_replicas(plan)
    micro, batch = plan.micro_batch, plan.global_batch
    if micro and batch and dp and batch % (micro * dp):
        what = f"global batch {batch} is not a multiple of micro batch {micro} × DP {dp}: it would not start"
        larger = -(-batch // (micro * dp)) * micro * dp
        repairs = [_build_repair(workload, "global_batch", replace(plan, global_batch=larger))]
        smaller = [size for size in range(min(micro - 1, MAX_MICRO_BATCH), 0, -1) if batch % (size * dp) == 0]
        repairs += [_build_repair(workload, "micro_batch", replace(plan, micro_batch=size)) for size in smaller]
        yield Stop(waste=Waste(kind=WasteKind.BATCH, what=what, advice=repairs[0][0]), repairs=tuple(repairs))


def _count_replicas(plan: StatedPlan) -> int:
    """Return the number of replicas of a plan, 0 where it is unknown."""
    ranks = (plan.tp or 1) * (plan.pp or 1) * (plan.cp or 1)
    gpus = plan.gpus or (plan.nodes or 0) * (plan.gpus_per_node or 0)
    return plan.dp or (gpus // ranks if gpus and gpus % ranks == 0 else 0)


def round_to_whole_batches(workload: Workload) -> tuple[Workload, tuple[Assumption, ...]]:
    """Return a workload rounded to whole micro-batches where the last one may be smaller, and the assumptions.

    Whole micro-batches take the same memory; the nearest number of them takes nearly the same time.
    """
    plan, framework = workload.plan, workload.framework
    batch, micro, dp = plan.global_batch, plan.micro_batch, _count_replicas(plan)
    if framework not in PARTIAL_LAST_BATCH or not (batch and micro and dp) or batch % dp or batch % (micro * dp) == 0:
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


def _build_repair(workload: Workload, name: str, plan: StatedPlan) -> tuple[str, Workload]:
    """Return one setting of a plan, in the script's own syntax where it states a number, and the repaired job."""
    stated = next((entry for entry in workload.evidence if entry.field == f"plan.{name}"), None)
    text = (stated.text if stated else "").rstrip(",")
    before, after = (str(getattr(version, name)) for version in (workload.plan, plan))
    repaired = replace(workload, plan=plan)
    if len(_VALUE.findall(text)) == 1 and text.endswith(before) and not text.startswith("#"):
        return text.removesuffix(before) + after, repaired
    return f"{name.replace('_', ' ')} {after}", repaired


def choose_repair(stop: Stop, predict: Advise, search: Advise) -> Waste:
    """Return the problem with the repair to make: one that fits, or one with a further change that makes it fit.

    A repair after which the job runs out of memory is not offered.

    Parameters
    ----------
    predict, search
        Functions that give advice on a workload: the verdict alone, and with suggestions.
    """
    predicted = [
        (words, repaired, advice) for words, repaired in stop.repairs if (advice := predict(repaired)).prediction
    ]
    if not predicted:
        return stop.waste
    for verdict in (Verdict.FITS, Verdict.TIGHT):
        for words, _, advice in predicted:
            if advice.verdict is verdict:
                return replace(stop.waste, advice=words + _outcome_text(*_predict_cost(advice), verdict))
        words, repaired, _ = predicted[0]
        if verdict is Verdict.FITS and (suggestions := search(repaired).suggestions):
            suggestion = suggestions[0]
            outcome = _outcome_text(suggestion.memory_bytes, suggestion.step_s, suggestion.verdict)
            text = f"{words} and {settings_text(suggestion)}{outcome}"
            return replace(stop.waste, advice=text)
    words, repaired, advice = predicted[0]
    needed = f"{as_gib(_predict_cost(advice)[0]):.1f} GiB per GPU"
    batch = repaired.plan.global_batch
    why = "no plan on these GPUs is predicted to fit: ask for more GPUs"
    return replace(stop.waste, advice=f"global batch {batch} would run out of memory too ({needed}); {why}")


def _predict_cost(advice: Advice) -> tuple[float, float]:
    """Return the predicted memory of a GPU [bytes] and time of a step [s]."""
    prediction = get_prediction(advice)
    return float(prediction.memory.total_bytes.expected), float(prediction.time.step_s.expected)


def _outcome_text(memory_bytes: float, step_s: float, verdict: Verdict) -> str:
    """Return the prediction for a repaired job as text."""
    fit = "fits" if verdict is Verdict.FITS else "may run out of memory"
    return f": {as_gib(memory_bytes):.1f} GiB per GPU, {fit}; {format_duration(step_s)} a step"


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
    with_offload = question.prediction.memory.components
    without_offload = predict_one(
        question.model, replace(plan, offload=Offload.NONE), question.cluster
    ).memory.components
    offloaded_bytes = sum(float(without_offload[name]) - float(with_offload[name]) for name in _STATES)
    if offloaded_bytes * gpus * (SURE_WHERE_GUESSED if is_guessed else SURE) > max_bytes:
        yield Problem(
            what=f"states in host memory take about {format_bytes(offloaded_bytes * gpus)} a node, and {request.words} "
            f"allows {format_bytes(max_bytes)}",
            hint="ask for more, or for all that a node has: --mem=0",
        )
