"""Finds changes that make a job fit or make it clearly faster; each change is predicted before it is suggested."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.predict import predict
from opsk.costmodel.table import PlanTable, PredictionTable
from opsk.costmodel.uncertainty.verdict import FITS_FROM, Verdict, compute_verdict
from opsk.errors import OpskError
from opsk.frameworks.limits import Limits, SequenceParallel
from opsk.hardware.spec import ClusterSpec
from opsk.planning.alternatives import Alternative, Change, neighbours
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.result import SearchResult
from opsk.planning.search.search import best_plans
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Recompute
from opsk.workload.settings import adapt_to_sharding
from opsk.workload.workload import Workload
from opsk_jobcheck.advice.abilities import Abilities, find_abilities
from opsk_jobcheck.advice.flags import build_flags
from opsk_jobcheck.scripts.launchers.ranks import OPTION as RANKS
from opsk_jobcheck.scripts.launchers.ranks import REQUESTED_GPUS

MAX_SUGGESTIONS = 3
MAX_OTHERS = 12
"""Number of layouts that are evaluated where no small change helps; few of them are of different kinds."""
MAX_CHUNKS, MAX_MICRO_BATCH = 8, 8
"""Chunks a stage, and sequences of a micro-batch, up to which other plans are searched."""
MORE_NODES = (2, 4, 8)
MAX_SPARE_LAYERS = 2
MIN_GAIN = 0.05
"""A faster plan is only suggested when it saves at least this share of the step: less is within the model's error."""

Floats = npt.NDArray[np.float64]
Choice = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The requested plan and its prediction: the base of each comparison; ``prediction`` is that of ``plan`` alone."""

    model: ModelShape
    plan: Plan
    cluster: ClusterSpec
    efficiency: Efficiency
    workload: Workload
    prediction: PredictionTable

    @property
    def step_s(self) -> float:
        """Predicted time of a step [s]."""
        return float(self.prediction.time.step_s.expected)

    @property
    def memory_bytes(self) -> float:
        """Predicted memory of a GPU [bytes]."""
        return float(self.prediction.memory.total_bytes.expected)

    @property
    def verdict(self) -> Verdict:
        """Whether the requested plan fits."""
        return compute_verdict(float(self.prediction.memory.fit_probability))

    @property
    def abilities(self) -> Abilities:
        """The other plans that the framework can run."""
        return find_abilities(self.workload, self.model, self.plan)

    @property
    def tp_limit(self) -> int:
        """The largest tensor-parallel degree: one HB domain; one node's requested GPUs where a node is the domain."""
        node = self.cluster.node
        domain = max(node.hb_domain_gpus, node.gpus if node.hb_domain_gpus == 1 else 1)
        requested = self.workload.plan.gpus_per_node or domain
        return domain if domain > node.gpus else min(domain, requested)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A change with its own prediction.

    ``step_ratio`` and ``memory_ratio`` are the predicted step time and memory over those of the requested plan: above
    1 is slower, or takes more; NaN where nothing could be predicted for the requested plan.
    """

    changes: tuple[Change, ...]
    flags: tuple[str, ...]
    plan: Plan
    verdict: Verdict
    memory_bytes: float
    memory_ratio: float
    step_s: float
    step_ratio: float
    tflops_per_gpu: float
    fit_probability: float

    @property
    def what(self) -> str:
        """The change as text."""
        return " + ".join(change.what for change in self.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class BestPlan:
    """The fastest plan that fits among ``considered`` plans on the same GPUs."""

    suggestion: Suggestion
    considered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """Plans near the requested one, all predicted in one table: ``alternatives[i]`` is row ``i``."""

    question: Question
    alternatives: tuple[Alternative, ...]
    table: PredictionTable
    fits: Choice
    step_ratio: Floats
    memory_ratio: Floats

    def share(self, component: str) -> Floats:
        """Return the share of the step that one component of the time takes."""
        step = self.table.time.step_s.expected
        return np.broadcast_to(self.table.time.components[component], step.shape) / step

    def changing(self, *axes: str) -> Choice:
        """Return the mask of the alternatives that change exactly these axes."""
        return np.array([{change.axis for change in entry.changes} == set(axes) for entry in self.alternatives])

    def where(self, holds: Callable[[Plan], bool]) -> Choice:
        """Return the mask of the alternatives whose plans meet a condition."""
        return np.array([holds(entry.plan) for entry in self.alternatives])

    def fastest(self, chosen: Choice) -> Suggestion | None:
        """Return the fastest of some alternatives that fits, with the fewest changes among equals."""
        rows = np.flatnonzero(chosen & self.fits)
        if not rows.size:
            return None
        row = min(rows, key=lambda row: (self.step_ratio[row], len(self.alternatives[row].changes)))
        return self.suggestion(int(row))

    def suggestion(self, row: int) -> Suggestion:
        """Return one alternative with its prediction."""
        alternative, question, memory, time = self.alternatives[row], self.question, self.table.memory, self.table.time
        return Suggestion(
            changes=alternative.changes,
            flags=build_flags(question.workload, question.plan, alternative.plan, model=question.model),
            plan=alternative.plan,
            verdict=compute_verdict(float(memory.fit_probability[row])),
            memory_bytes=float(memory.total_bytes.expected[row]),
            memory_ratio=float(self.memory_ratio[row]),
            step_s=float(time.step_s.expected[row]),
            step_ratio=float(self.step_ratio[row]),
            tflops_per_gpu=float(time.tflops_per_gpu.expected[row]),
            fit_probability=float(memory.fit_probability[row]),
        )


def find_near_plans(question: Question) -> Near | None:
    """Return the plans one or two changes away with their predictions, ``None`` where there is none.

    The stages of the requested plan may lack layers (embedding and head, as a rule); so may those of its neighbours.
    """
    abilities = question.abilities
    spare = -question.model.layers % (question.plan.pp * question.plan.vpp)
    return predict_alternatives(
        question,
        neighbours(
            question.model,
            question.plan,
            hb_domain_gpus=question.tp_limit,
            layer_slack=spare if spare <= MAX_SPARE_LAYERS else 0,
            limits=abilities.limits,
            refuses=abilities.refuses,
        ),
    )


def predict_alternatives(question: Question, alternatives: Iterable[Alternative]) -> Near | None:
    """Predict alternatives in one table, each with what the framework does for its sharding."""
    framework = question.workload.framework or ""
    rows = tuple(replace(row, plan=adapt_to_sharding(framework, question.plan, row.plan)) for row in alternatives)
    if not rows:
        return None
    table = predict(question.model, PlanTable.of([row.plan for row in rows]), question.cluster, question.efficiency)
    return Near(
        question=question,
        alternatives=rows,
        table=table,
        fits=np.asarray(table.memory.fit_probability) >= FITS_FROM,
        step_ratio=np.asarray(table.time.step_s.expected) / question.step_s,
        memory_ratio=np.asarray(table.memory.total_bytes.expected) / question.memory_bytes,
    )


def find_useful_changes(question: Question, near: Near | None) -> tuple[Suggestion, ...]:
    """Return the helpful changes, greatest effect first, each of a different kind.

    Where the requested plan does not certainly fit, these make it fit; where it does, these are clearly faster. When no
    change of one or two settings fits, the fastest fitting plans of all plans on the same GPUs are returned.
    """
    max_ratio = 1 - MIN_GAIN if question.verdict is Verdict.FITS else np.inf
    if near is None or not (near.fits & (near.step_ratio <= max_ratio)).any():
        if question.verdict is Verdict.FITS:
            return ()
        near = _predict_results(_search_plans(question, most=MAX_OTHERS), question)
    return _select_different_kinds(near, max_ratio) if near else ()


def find_best_plan(question: Question) -> BestPlan | None:
    """Return the fastest plan that certainly fits on the same GPUs, or ``None`` when none does."""
    results = _search_plans(question, most=1)
    near = _predict_results(results, question)
    fastest = near.fastest(near.fits) if near else None
    return BestPlan(suggestion=fastest, considered=results.space) if fastest else None


def find_plan_on_more_nodes(question: Question) -> Suggestion | None:
    """Return the fastest plan that certainly fits on two, four or eight times the nodes: the fewest that do."""
    nodes, plan = question.workload.plan.nodes, question.plan
    if not nodes:
        return None
    for factor in MORE_NODES:
        try:
            results = _search_plans(question, most=1, factor=factor)
        except OpskError:
            return None
        near = _predict_results(results, question)
        fastest = near.fastest(near.fits) if near else None
        if fastest:
            node_count = _count_nodes_for(question, plan.gpus * factor)
            size = (
                f"ranks {plan.gpus} → {plan.gpus * factor}" if node_count == nodes else f"nodes {nodes} → {node_count}"
            )
            change = Change(axis="nodes", what=size)
            others = tuple(entry for entry in fastest.changes if entry.axis != "dp")
            flags = build_flags(question.workload, plan, fastest.plan, model=question.model)
            is_spelled = bool(flags) or not others
            flags = build_size_flags(question, plan.gpus * factor, flags) if is_spelled else ()
            return replace(fastest, changes=(change, *others), flags=flags)
    return None


def build_size_flags(question: Question, ranks: int, others: tuple[str, ...]) -> tuple[str, ...]:
    """Return the settings of another number of ranks, before the other settings of a change.

    Where the launcher gets a number of ranks, it has to follow. Launchers differ, so it is named in brackets unless one
    of ``others`` sets it already.
    """
    nodes = _count_nodes_for(question, ranks)
    size = (f"--nodes={nodes}",) if nodes != question.workload.plan.nodes else ()
    is_set = any(f"{name} {ranks}" in flag for flag in others for name in ("--num_processes", "--num-processes"))
    is_counted = RANKS in dict(question.workload.options)
    return (*size, *((f"(start {ranks} ranks)",) if is_counted and not is_set else ()), *others)


def _count_nodes_for(question: Question, ranks: int) -> int:
    """Return the number of nodes for so many ranks, with the GPUs per node of the request: none stays idle."""
    plan = question.workload.plan
    requested = dict(question.workload.options).get(REQUESTED_GPUS, "")
    gpus = int(requested) if requested.isdigit() else question.plan.gpus
    per_node = max(1, gpus // (plan.nodes or 1))
    return -(-ranks // per_node)


def _search_plans(question: Question, *, most: int, factor: int = 1) -> SearchResult:
    """Search the plans that a launch script changes easily: all but cp, ep, partial sharding and recomputation.

    ``factor`` is the number of GPUs over that of the requested plan.
    """
    plan, abilities = question.plan, question.abilities
    return best_plans(
        PlanRequest(
            model=question.model,
            cluster=question.cluster,
            efficiency=question.efficiency,
            template=plan,
            gpus=plan.gpus * factor,
            global_batch=plan.global_batch,
            fixed={
                "cp": (plan.cp,),
                "ep": (plan.ep,),
                "etp": (plan.etp,),
                "schedule": (plan.schedule,),
                "shard_gpus": (0,),
                "recompute_layers": (0,),
                "vpp": tuple(range(1, MAX_CHUNKS + 1)),
                "micro_batch": tuple(range(1, max(MAX_MICRO_BATCH, plan.micro_batch) + 1)),
            },
            limits=_limit_search(abilities.limits, question),
            refuses=abilities.refuses,
            most=most,
        )
    )


def _limit_search(limits: Limits, question: Question) -> Limits:
    """Return the limits of a search: norms are split wherever possible, tp stays inside its domain."""
    either = limits.sequence_parallel is SequenceParallel.EITHER
    tp = question.tp_limit
    return replace(
        limits,
        sequence_parallel=SequenceParallel.WITH_TP if either else limits.sequence_parallel,
        largest_tp=min(tp, limits.largest_tp) if limits.largest_tp else tp,
        recompute_layers=False,
        recomputes=limits.recomputes | {Recompute.NONE},
    )


def _predict_results(results: SearchResult, question: Question) -> Near | None:
    """Return the plans of a search as alternatives, with their predictions."""
    return predict_alternatives(
        question,
        [
            Alternative(plan=candidate.plan, changes=_list_changes(question.plan, candidate.plan))
            for candidate in results.best_fitting
        ],
    )


def _select_different_kinds(near: Near, max_ratio: float) -> tuple[Suggestion, ...]:
    """Return the fastest of each kind of change; a second change must gain speed beyond the first alone."""
    chosen: dict[frozenset[str], int] = {}
    rows = np.flatnonzero(near.fits & (near.step_ratio <= max_ratio))
    for row in sorted(rows, key=lambda row: (len(near.alternatives[row].changes), near.step_ratio[row])):
        kinds = frozenset(change.axis for change in near.alternatives[row].changes)
        simpler = [other for known, other in chosen.items() if known <= kinds]
        if not kinds or any(near.step_ratio[other] <= near.step_ratio[row] * (1 + MIN_GAIN) for other in simpler):
            continue
        chosen[kinds] = int(row)
    ranked = sorted(chosen.values(), key=lambda row: (near.step_ratio[row], len(near.alternatives[row].changes)))
    return tuple(near.suggestion(row) for row in ranked[:MAX_SUGGESTIONS])


def _list_changes(requested: Plan, other: Plan) -> tuple[Change, ...]:
    """Return the differences between two plans as changes."""
    words = {
        "tp": "TP {} → {}",
        "pp": "PP {} → {}",
        "vpp": "VPP {} → {}",
        "dp": "DP {} → {}",
        "micro_batch": "micro batch {} → {}",
        "recompute": "recompute {} → {}",
        "recompute_layers": "recomputed layers of a stage {} → {}",
        "sharding": "sharding {} → {}",
        "sequence_parallel": "sequence parallelism {} → {}",
    }
    return tuple(
        Change(axis=axis, what=pattern.format(_format_value(axis, before), _format_value(axis, after)))
        for axis, pattern in words.items()
        if (before := getattr(requested, axis)) != (after := getattr(other, axis))
        and (axis != "recompute_layers" or requested.recompute == other.recompute)
    )


def _format_value(axis: str, value: object) -> str:
    """Return a setting's value for display."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if axis == "recompute_layers" and value == 0:
        return "all"
    return str(value)
