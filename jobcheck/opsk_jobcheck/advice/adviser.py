"""Turns a parsed script into advice: completes the workload, predicts it, places it, and searches for improvements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from opsk.app.inputs.fabric_files import read_dumps
from opsk.app.inputs.named_inputs import find_unmeasured, load_cluster, load_efficiency
from opsk.config import SiteConfig
from opsk.costmodel.efficiency.cases import build_case
from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.predict import predict_one
from opsk.costmodel.table import PredictionTable
from opsk.costmodel.uncertainty.case_spread import apply_case_spread
from opsk.costmodel.uncertainty.verdict import compute_verdict
from opsk.errors import InputError, OpskError
from opsk.fabric.fabric import Fabric
from opsk.fabric.rails import Rails, find_rails
from opsk.hardware.catalog import gpu, resolve_gpu
from opsk.hardware.mig import SEPARATOR
from opsk.hardware.spec import ClusterSpec
from opsk.planning.interference.links import FabricLinks, build_links
from opsk.planning.placement.step_model import as_cabled, step_model
from opsk.planning.routing.fabric_routes import build_routes
from opsk.planning.routing.routes import Routes
from opsk.slurm.records import PartitionRecord
from opsk.workload.advice_record import Verdict
from opsk.workload.completion import Assumption, Completion, complete
from opsk.workload.roles import complete_roles
from opsk.workload.serving import Serving, complete_serving
from opsk.workload.workload import Workload
from opsk_jobcheck.advice.advice import Advice, find_guesses
from opsk_jobcheck.advice.missing_values import MissingValue, find_missing_values, state_values
from opsk_jobcheck.advice.placement import PlacementAdvice, PlacementRequest, advise_live_placement, advise_placement
from opsk_jobcheck.advice.problems import (
    apply_launcher_ranks,
    apply_whole_nodes,
    choose_repair,
    explain_partial_offload,
    find_host_shortage,
    find_stops,
    round_to_whole_batches,
)
from opsk_jobcheck.advice.recipe_cache import RecipeCache, RecipeKey, build_recipe
from opsk_jobcheck.advice.roles import advise_roles
from opsk_jobcheck.advice.room import find_room
from opsk_jobcheck.advice.script_runs import RunVerdict, ScriptRuns, choose_decisive_run
from opsk_jobcheck.advice.search import SearchResult, Waste, WasteKind, find_idle_gpus, search_improvements
from opsk_jobcheck.advice.serving import advise_serving
from opsk_jobcheck.advice.suggestions import Question
from opsk_jobcheck.advice.unstated.long_texts import doubt_long_texts
from opsk_jobcheck.advice.unstated.open_models import advise_open_models
from opsk_jobcheck.advice.unstated.size_ranges import advise_open_input, advise_over_range
from opsk_jobcheck.advice.worst_case import advise_smallest_case, advise_tight_case, advise_worst_case
from opsk_jobcheck.cluster_state.node_constraints import ANY_NODES, NodeConstraints
from opsk_jobcheck.cluster_state.state import LiveState
from opsk_jobcheck.preflight.checks import find_mistakes
from opsk_jobcheck.preflight.facts import JobFacts
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import find_unknown_reason

Result = TypeVar("Result")

NOT_PLACED = PlacementAdvice()
"""The placement where none was searched for."""
OF_OPEN_VALUES = (advise_worst_case, advise_smallest_case, advise_over_range, advise_open_models, advise_tight_case)
"""What gives a verdict on a job whose script leaves values open, the surest first."""
SMALL_SHARE = 0.25
"""A job that takes less of a GPU's memory than this is not asked for values: it fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adviser:
    """Gives advice for one cluster; pure, so that a service may call it from any worker.

    Parameters
    ----------
    cluster
        The machine that jobs run on; ``None`` makes every verdict ``unknown``.
    cluster_from
        Source of the cluster, for display (``--cluster superpod-h100``).
    rails
        The compute fabric as cabled; ``None`` when no dump was given.
    routes
        The routes on the same fabric; without them link loads are estimated from uplinks.
    fabric_from
        Source of the fabric, for display.
    efficiency
        The efficiencies of kernels, links and software.
    search
        False to leave out suggestions, faster plans and the placement, for an answer with a short deadline.
    is_hurried
        True under load: only cached searches and placements are used, and the advice says that it is short.
    fabric, fabric_links
        The same fabric, and its links in numbers, for what runs on them.
    live
        Slurm's last answer on jobs and nodes; ``None`` where it was not asked.
    default_partition
        The partition of jobs that name none; by default Slurm's own; where that is unknown, the nodes of all partitions
        count.
    cache
        Earlier results by recipe, for a long-running service; it belongs to this cluster, fabric and efficiency.
        ``None`` computes everything each time.
    advises_inference
        True where the site wants answers for jobs that only generate.
    """

    cluster: ClusterSpec | None = None
    cluster_from: str = ""
    rails: Rails | None = None
    routes: Routes | None = None
    fabric_from: str = ""
    efficiency: Efficiency = DEFAULT
    search: bool = field(default=True)
    is_hurried: bool = False
    fabric: Fabric | None = None
    fabric_links: FabricLinks | None = None
    live: LiveState | None = None
    default_partition: str | None = None
    cache: RecipeCache | None = None
    advises_inference: bool = False

    def advise(self, workload: Workload, constraints: NodeConstraints = ANY_NODES) -> Advice:
        """Return the advice for one workload; unknowns are reported in it, and nothing is raised for them.

        Parameters
        ----------
        constraints
            The job's node constraints.
        """
        runs: ScriptRuns | None = None
        if workload.other_runs:
            quick = replace(self, search=False)
            workload, runs = choose_decisive_run(workload, lambda run: quick.judge_run(run, constraints))
        advice = replace(self._analyze(workload, constraints), runs=runs)
        findings = find_mistakes(
            JobFacts(
                workload=advice.workload,
                cluster=advice.cluster,
                has_site_nodes=advice.cluster is self.cluster and advice.is_gpu_known,
                is_gpu_known=advice.is_gpu_known,
                prediction=advice.prediction,
                completion=advice.completion,
                memory=constraints.memory,
                cpus_per_node=constraints.cpus_per_node,
                partition=self._find_partition(constraints),
                leaves_memory=constraints.leaves_memory,
                time_limit_s=constraints.time_limit_s,
                is_exclusive=constraints.is_exclusive,
                reports_idle_gpus=any(entry.kind is WasteKind.IDLE_GPUS for entry in advice.waste),
                stated={entry.field: entry for entry in workload.facts},
            )
        )
        return replace(advice, preflight=findings) if findings else advice

    def judge_run(self, workload: Workload, constraints: NodeConstraints) -> RunVerdict:
        """Return the verdict on one of the trainings of a script."""
        advice = self._analyze(workload, constraints)
        return RunVerdict(workload=workload, verdict=advice.verdict, prediction=advice.prediction)

    def _analyze(self, workload: Workload, constraints: NodeConstraints) -> Advice:
        """Return the advice for one workload without the checks that need no prediction."""
        if (serving := self._find_serving(workload)) is not None:
            return self._advise_serving(workload, serving)
        workload, whole = self._apply_whole_nodes(workload, constraints)
        workload = apply_launcher_ranks(workload)
        counted, rounded = round_to_whole_batches(workload)
        completion = complete(counted)
        bare = Advice(
            verdict=Verdict.UNKNOWN,
            workload=workload,
            completion=completion,
            cluster=self.cluster,
            cluster_from=self.cluster_from,
            assumed=(*completion.assumed, *rounded, *whole),
            problems=tuple(dict.fromkeys((*workload.problems, *completion.problems))),
        )
        reasons = self._find_obstacles(workload, completion)
        try:
            bare = self._apply_requested_gpu(bare)
        except InputError as error:
            why = f"{error.message}{'; ' if error.hint else ''}{error.hint}"
            bare = replace(bare, is_gpu_known=False)
            reasons = reasons or (why,)
        if self.cluster is None or completion.model is None or completion.plan is None or reasons:
            for advise in OF_OPEN_VALUES:
                if (limited := advise(bare, self.efficiency)) is not None:
                    return limited
            waste = self._explain_stops(workload) if self.search and completion.plan is None else ()
            return replace(
                bare,
                why_unknown=reasons or ("the workload is incomplete",),
                requested=self._find_decisive_values(bare),
                waste=waste,
                room=find_room(bare, self.efficiency) if self.search else None,
            )
        try:
            predicted = doubt_long_texts(self._predict(bare, constraints), self.efficiency)
            return advise_open_input(predicted, self.efficiency)
        except OpskError as error:  # a GPU without bf16, above all
            limited = advise_worst_case(bare, self.efficiency)
            return limited if limited is not None else replace(bare, why_unknown=(error.message,))

    def _apply_requested_gpu(self, advice: Advice) -> Advice:
        """Return the advice with the GPU type that the job requests.

        Raises
        ------
        InputError
            When the catalogue has no such GPU.
        """
        if advice.cluster is None:
            return advice
        cluster, assumed = _with_requested_gpu(advice.cluster, advice.workload.gpu)
        if cluster is advice.cluster:
            return advice
        return replace(advice, cluster=cluster, assumed=(*advice.assumed, *assumed))

    def _find_decisive_values(self, advice: Advice) -> tuple[MissingValue, ...]:
        """Return the one or two values with which there would be a verdict; none where it is no surprise.

        With the examples, the job has to get a prediction, and one that takes a fair part of the memory.
        """
        workload, cluster = advice.workload, advice.cluster
        values = find_missing_values(workload, advice.completion)
        if not values or cluster is None or not advice.is_gpu_known or _explain_special_memory(workload):
            return ()
        completion = complete(state_values(workload, values))
        if completion.model is None or completion.plan is None:
            return ()
        try:
            memory = predict_one(completion.model, completion.plan, cluster, self.efficiency).memory
        except OpskError:
            return ()
        is_small = float(memory.total_bytes.expected) < SMALL_SHARE * float(memory.capacity_bytes)
        return () if is_small else values

    def leaves_alone(self, workload: Workload) -> bool:
        """Return whether there is nothing to say on a job: it does not train, and no engine of it is to be advised."""
        return not workload.is_training and self._find_serving(workload) is None

    def _find_serving(self, workload: Workload) -> Serving | None:
        """Return what a job serves, where the site wants an answer on it and there is one."""
        serving = complete_serving(workload) if self.advises_inference else None
        is_known = serving is not None and self.cluster is not None and not serving.why_unknown
        return serving if is_known else None

    def _advise_serving(self, workload: Workload, serving: Serving) -> Advice:
        """Return the answer on an engine of a job that only generates."""
        bare = Advice(
            verdict=Verdict.UNKNOWN,
            workload=replace(workload, model=replace(workload.model, name=serving.model), evidence=()),
            completion=complete(workload),
            cluster=self.cluster,
            cluster_from=self.cluster_from,
            problems=workload.problems,
        )
        if self.cluster is None or serving.shape is None:
            return bare
        try:
            cluster, _ = _with_requested_gpu(self.cluster, workload.gpu)
        except InputError as error:
            return replace(bare, is_gpu_known=False, why_unknown=(error.message,))
        answer = advise_serving(serving, serving.shape, cluster, gpus_per_node=cluster.node.gpus)
        return replace(bare, cluster=cluster, verdict=answer.verdict, serving=answer)

    def _find_obstacles(self, workload: Workload, completion: Completion) -> tuple[str, ...]:
        """Return the reasons why no prediction is possible."""
        why = {entry.field: entry.why for entry in workload.unknown}
        missing: dict[str, list[str]] = {}
        for name in sorted(completion.missing, key=lambda name: name.startswith("plan.")):
            missing.setdefault(why.get(name, "not stated"), []).append(name.partition(".")[2])
        reasons = [f"{', '.join(names)}: {reason}" for reason, names in missing.items()]
        reasons[:0] = _explain_special_memory(workload)
        if self.cluster is None:
            reasons.append("no cluster is named: give --cluster, or set cluster in /etc/opsk/opsk.toml")
        reasons += [problem.what for problem in completion.problems if completion.plan is None]
        return tuple(reasons)

    def _predict(self, bare: Advice, constraints: NodeConstraints) -> Advice:
        """Return the advice for a workload that can be predicted."""
        model, plan, cluster = bare.completion.model, bare.completion.plan, bare.cluster
        if model is None or plan is None or cluster is None:
            raise ValueError("only a complete workload on a known cluster can be predicted")
        roles = complete_roles(bare.workload, model, plan)
        if roles is not None:
            return advise_roles(bare, roles, cluster, self.efficiency, is_searched=self.search)
        efficiency = apply_case_spread(
            self.efficiency,
            find_guesses(bare.workload, bare.assumed),
            build_case(model, plan, cluster),
        )
        key = None
        if self.cache is not None:
            key = RecipeKey(
                recipe=build_recipe(bare.workload),
                model=model,
                plan=plan,
                gpu=cluster.node.gpu.name,
                spread=efficiency.spread,
            )
        prediction = self._compute(PredictionTable, key, lambda: predict_one(model, plan, cluster, efficiency))
        verdict = compute_verdict(float(prediction.memory.fit_probability))
        question = Question(
            model=model,
            plan=plan,
            cluster=cluster,
            efficiency=efficiency,
            workload=bare.workload,
            prediction=prediction,
        )
        return self._compare(
            replace(
                bare,
                assumed=(*bare.assumed, *find_unmeasured(self.efficiency, plan.software, cluster)),
                verdict=verdict,
                prediction=prediction,
                problems=(*bare.problems, *find_host_shortage(question, constraints, bare.assumed)),
                placement=self._place(question, constraints, key),
            ),
            question,
            key,
        )

    def _compute(self, kind: type[Result], key: RecipeKey | None, compute: Callable[[], Result]) -> Result:
        """Return a result of this kind, from the cache where there is one."""
        return compute() if self.cache is None or key is None else self.cache.get(kind, key, compute)

    def _is_left_out(self, kind: type, key: RecipeKey | None) -> bool:
        """Return whether there is no time to compute a result of this kind."""
        return self.is_hurried and self.cache is not None and key is not None and not self.cache.holds(kind, key)

    def _compare(self, bare: Advice, question: Question, key: RecipeKey | None) -> Advice:
        """Return the advice with the results of other plans: helpful changes, the best plan, and the waste."""
        if not self.search:
            return bare
        if question.model.measured is not None and question.verdict is Verdict.FITS:
            # how fast a measured model is in other plans is not known well enough to advise
            return replace(bare, waste=tuple(find_idle_gpus(question)))
        if self._is_left_out(SearchResult, key):
            return replace(bare, is_short=True)
        try:
            result = self._compute(SearchResult, key, lambda: search_improvements(question))
        except OpskError:  # the prediction is valid without the search
            return bare
        return replace(
            bare,
            is_searched=True,
            is_short=self.is_hurried and bare.placement is NOT_PLACED,
            suggestions=result.suggestions,
            best=result.best,
            waste=result.waste,
        )

    def _explain_stops(self, workload: Workload) -> tuple[Waste, ...]:
        """Return the problems that keep a job from starting, with the prediction for each repaired job."""
        searching = replace(self, rails=None)
        quick = replace(searching, search=False)
        return tuple(choose_repair(stop, quick.advise, searching.advise) for stop in find_stops(workload))

    def _place(self, question: Question, constraints: NodeConstraints, key: RecipeKey | None) -> PlacementAdvice:
        """Return where the ranks would go, or why that is unknown."""
        if not self.search:
            return NOT_PLACED
        if self.rails is None:
            return PlacementAdvice(why_not="no dump of the fabric: set fabric in opsk.toml or give --fabric")
        workload, node = question.workload, question.cluster.node
        gpus_per_node, live = workload.plan.gpus_per_node or node.gpus, self.live
        request = PlacementRequest(
            model=question.model,
            plan=question.plan,
            gpus_per_node=gpus_per_node,
            node_gpus=max(gpus_per_node, node.gpus),
            gpu_type=workload.gpu,
            constraints=self._apply_default_partition(constraints),
        )
        if key is not None:
            nodes = (gpus_per_node, request.gpu_type, request.constraints)
            state = (live.generation, live.is_fresh, live.wire is None) if live is not None else None
            key = replace(key, nodes=nodes, state=state)
        if self._is_left_out(PlacementAdvice, key):
            return NOT_PLACED
        try:
            # a cached placement must not hold a state: each keeps a file open and its links in memory
            placed = self._compute(
                PlacementAdvice,
                key,
                lambda: replace(self._compute_placement(request, question.cluster), live=None),
            )
        except OpskError as error:
            return PlacementAdvice(why_not=error.message)
        return replace(placed, live=live) if self._has_live_fabric else placed

    def _compute_placement(self, request: PlacementRequest, cluster: ClusterSpec) -> PlacementAdvice:
        """Return where the ranks would go.

        Raises
        ------
        OpskError
            When that cannot be determined.
        """
        if self.rails is None:
            raise ValueError("ranks are placed on a fabric")
        step = step_model(request.model, request.plan, as_cabled(cluster, self.rails), self.efficiency)
        request = replace(request, step=step)
        if self.live is not None and self.fabric_links is not None and self.fabric is not None:
            placed = advise_live_placement(request, self.live, self.fabric_links, self.fabric)
        else:
            placed = advise_placement(request, self.rails, self.routes)
        return replace(placed, fabric_from=self.fabric_from)

    @property
    def _has_live_fabric(self) -> bool:
        """Whether ranks are placed among the nodes that are free now."""
        return self.live is not None and self.fabric_links is not None and self.fabric is not None

    def _apply_whole_nodes(
        self, workload: Workload, constraints: NodeConstraints
    ) -> tuple[Workload, tuple[Assumption, ...]]:
        """Return the workload with all GPUs of its nodes, where it asks for whole nodes and they have GPUs."""
        if self.cluster is None or not constraints.is_exclusive:
            return workload, ()
        nodes = self.live.possible(self._apply_default_partition(constraints)) if self.live is not None else ()
        if nodes and not any(node.gpus for node in nodes):
            return workload, ()
        return apply_whole_nodes(workload, self.cluster.node.gpus)

    def _find_partition(self, constraints: NodeConstraints) -> PartitionRecord | None:
        """Return the one partition that a job can be in, where Slurm was queried; a QOS may override its limits."""
        names = self._apply_default_partition(constraints).partitions
        if self.live is None or len(names) != 1 or constraints.names_qos or constraints.unclear:
            return None
        return self.live.partitions.get(names[0])

    def _apply_default_partition(self, constraints: NodeConstraints) -> NodeConstraints:
        """Return the constraints with the default partition of the site, or else of Slurm, where none is named."""
        default = self.default_partition or (self.live.default_partition if self.live is not None else None)
        return constraints if constraints.partitions or not default else replace(constraints, partitions=(default,))


def _explain_special_memory(workload: Workload) -> tuple[str, ...]:
    """Return why the memory of a workload cannot be predicted, whatever the script states about its model and plan."""
    parts = (explain_partial_offload(workload.options), find_unknown_reason(workload.options))
    return tuple(filter(None, parts))


def _with_requested_gpu(cluster: ClusterSpec, requested: str | None) -> tuple[ClusterSpec, tuple[Assumption, ...]]:
    """Return the cluster with the GPU type that the job requests from Slurm, and the assumptions made for it."""
    if requested is None:
        return cluster, ()
    spec, alternatives = resolve_gpu(requested)
    current = cluster.node.gpu
    if spec.name == current.name or current.name in alternatives:
        return cluster, ()
    own = next((name for name in (spec.name, *alternatives) if name.startswith(current.name + SEPARATOR)), "")
    if own:
        spec, alternatives = gpu(own), ()
    assumed: tuple[Assumption, ...] = ()
    if alternatives:
        why = f"{requested} may also be {', '.join(alternatives)}"
        assumed = (Assumption(field="gpu", value=spec.name, why=why),)
    return replace(cluster, node=replace(cluster.node, gpu=spec)), assumed


def build_site_adviser(
    site: SiteConfig, *, cluster: str | None = None, fabric: Sequence[Path] = (), with_fabric_links: bool = False
) -> Adviser:
    """Return the adviser of this site; ``cluster`` and ``fabric`` of the command line override the configuration.

    Parameters
    ----------
    with_fabric_links
        Number the links of the fabric too, for the load on them.

    Raises
    ------
    InputError
        When the cluster or a dump of the fabric cannot be read; names the file and what to do.
    """
    named = cluster or site.cluster
    dumps = tuple(fabric) or site.fabric
    with _name_config_key("cluster", is_from_config=not cluster):
        spec = load_cluster(named) if named else None
    with _name_config_key("fabric", is_from_config=not fabric):
        fabric_dump = read_dumps(dumps) if dumps else None
    with _name_config_key("efficiency", is_from_config=True):
        efficiency = load_efficiency(site.find_efficiency_file())
    rails = find_rails(fabric_dump) if fabric_dump else None
    routes = build_routes(fabric_dump, rails, adaptive=site.adaptive_routing) if rails else None
    return Adviser(
        cluster=spec,
        cluster_from=named or "",
        rails=rails,
        routes=routes,
        fabric=fabric_dump if with_fabric_links else None,
        fabric_links=build_links(fabric_dump, rails, routes) if with_fabric_links and rails and routes else None,
        fabric_from=", ".join(str(dump) for dump in dumps),
        efficiency=efficiency,
        default_partition=site.advisor.default_partition,
        advises_inference=site.advisor.advise_inference,
    )


@contextmanager
def _name_config_key(key: str, *, is_from_config: bool) -> Iterator[None]:
    """Name the key of the site configuration in an error, where no option of the command names it."""
    try:
        yield
    except InputError as error:
        if not is_from_config:
            raise
        raise InputError(f"{key} in the site configuration: {error.message}", hint=error.hint) from error
