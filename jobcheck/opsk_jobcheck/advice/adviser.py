"""How does a read script become advice? Completes it, predicts it, places it, and looks for ways out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from opsk.app.inputs.efficiency import unmeasured
from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.efficiency.nearness import case_of
from opsk.costmodel.predict import predict_one
from opsk.costmodel.table import PredictionTable
from opsk.costmodel.uncertainty.verdict import verdict_of
from opsk.costmodel.uncertainty.widening import with_assumed
from opsk.errors import InputError, OpskError
from opsk.fabric.fabric import Fabric
from opsk.fabric.rails import Rails
from opsk.hardware.catalog import resolve_gpu
from opsk.hardware.spec import ClusterSpec
from opsk.planning.interference.wires import Wires
from opsk.planning.placement.step_model import as_cabled, step_model
from opsk.planning.routing.routes import Routes
from opsk.workload.advice_record import Verdict
from opsk.workload.completion import Assumption, Completion, complete
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan
from opsk.workload.workload import Problem, Workload
from opsk_jobcheck.advice.advice import Advice, PlacementAdvice
from opsk_jobcheck.advice.guesses import guesses
from opsk_jobcheck.advice.placing import advise_live_placement, advise_placement
from opsk_jobcheck.advice.repairs import as_launched, in_whole_batches, mended_waste, stops
from opsk_jobcheck.advice.search_cache import SearchCache, recipe_of
from opsk_jobcheck.advice.searching import searched
from opsk_jobcheck.advice.suggestions import Question
from opsk_jobcheck.advice.waste import Waste
from opsk_jobcheck.cluster_state.state import LiveState
from opsk_jobcheck.cluster_state.wanted import ANY_NODES, NodesWanted
from opsk_jobcheck.host_memory import STATE_INPUTS, host_shortage, why_partly
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import why_unknown

NOT_LOOKED = PlacementAdvice()
"""Where nobody looked for a placement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adviser:
    """Gives advice for one cluster; pure, so that a service may call it from any worker.

    Parameters
    ----------
    cluster
        The machine that jobs run on; ``None`` makes every verdict ``unknown``.
    cluster_from
        Where the cluster was named, for people (``--cluster superpod-h100``).
    rails
        The compute fabric as cabled; ``None`` when no dump was given.
    routes
        How traffic runs on the same fabric; without it link loads are estimated from uplinks.
    fabric_from
        Where the fabric was read from, for people.
    efficiency
        What kernels, links and software reach.
    search
        False to leave out ways out, faster plans and the placement, for an answer that cannot wait.
    is_hurried
        True while many wait: what is not kept is not searched or placed either, and the advice says that it is short.
    fabric, wires
        The same fabric, and its links in numbers, for what runs on them.
    live
        What Slurm last said of jobs and nodes; ``None`` where it was not asked.
    default_partition
        Where jobs go that name none; left out, what Slurm says; where that is not known, nodes of all count.
    kept
        What was searched and placed before, for a service that answers for long; it belongs to this cluster, fabric
        and efficiency. ``None`` works everything out anew.
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
    wires: Wires | None = None
    live: LiveState | None = None
    default_partition: str | None = None
    kept: SearchCache | None = None

    def advise(self, workload: Workload, wanted: NodesWanted = ANY_NODES) -> Advice:
        """Return the advice for one workload; whatever cannot be told is said, nothing is raised for it.

        Parameters
        ----------
        wanted
            What the job asks of its nodes.
        """
        workload = as_launched(workload)
        counted, rounded = in_whole_batches(workload)
        completion = complete(counted)
        bare = Advice(
            verdict=Verdict.UNKNOWN,
            workload=workload,
            completion=completion,
            cluster=self.cluster,
            cluster_from=self.cluster_from,
            assumed=(*completion.assumed, *rounded),
            problems=tuple(dict.fromkeys((*workload.problems, *completion.problems))),
        )
        reasons = self._obstacles(workload, completion)
        if self.cluster is None or completion.model is None or completion.plan is None or reasons:
            waste = self._stopped(workload) if self.search and completion.plan is None else ()
            return replace(bare, why_unknown=reasons or ("the workload is incomplete",), waste=waste)
        try:
            cluster, assumed = _with_asked_gpu(self.cluster, workload.gpu)
        except InputError as error:
            why = f"{error.message}{'; ' if error.hint else ''}{error.hint}"
            return replace(bare, is_gpu_known=False, why_unknown=(why,))
        try:
            if cluster is not bare.cluster:
                bare = replace(bare, cluster=cluster, assumed=(*bare.assumed, *assumed))
            return self._predicted(bare, wanted)
        except OpskError as error:
            return replace(bare, why_unknown=(error.message,))

    def _obstacles(self, workload: Workload, completion: Completion) -> tuple[str, ...]:
        """Return what stands in the way of a prediction, in words."""
        why = {entry.field: entry.why for entry in workload.unknown}
        missing: dict[str, list[str]] = {}
        for name in sorted(completion.missing, key=lambda name: name.startswith("plan.")):
            missing.setdefault(why.get(name, "not stated"), []).append(name.partition(".")[2])
        reasons = [f"{', '.join(names)}: {reason}" for reason, names in missing.items()]
        for part in (why_unknown(workload.options), why_partly(workload.options)):
            if part:
                reasons.insert(0, part)
        if self.cluster is None:
            reasons.append("no cluster is named: give --cluster, or set cluster in /etc/opsk/opsk.toml")
        reasons += [problem.what for problem in completion.problems if completion.plan is None]
        return tuple(reasons)

    def _predicted(self, bare: Advice, wanted: NodesWanted) -> Advice:
        """Return the advice for a workload that can be predicted."""
        model, plan, cluster = bare.completion.model, bare.completion.plan, bare.cluster
        if model is None or plan is None or cluster is None:
            raise ValueError("only a complete workload on a known cluster can be predicted")
        efficiency = with_assumed(
            self.efficiency,
            guesses(bare.workload, bare.assumed),
            case_of(model, plan, cluster),
        )
        prediction = self._prediction(model, plan, cluster, efficiency)
        verdict = verdict_of(float(prediction.memory.fit_probability))
        question = Question(
            model=model,
            plan=plan,
            cluster=cluster,
            efficiency=efficiency,
            workload=bare.workload,
            prediction=prediction,
        )
        return self._compared(
            replace(
                bare,
                assumed=(*bare.assumed, *unmeasured(self.efficiency, plan.software, cluster)),
                verdict=verdict,
                prediction=prediction,
                problems=(*bare.problems, *_host_shortage(question, bare.assumed, wanted)),
                placement=self._placed(bare.workload, model, plan, cluster, wanted),
            ),
            question,
        )

    def _prediction(
        self, model: ModelShape, plan: Plan, cluster: ClusterSpec, efficiency: Efficiency
    ) -> PredictionTable:
        """Return what is predicted for one plan, of this adviser's efficiency but for the spread."""
        if self.kept is None:
            return predict_one(model, plan, cluster, efficiency)
        key = (model, plan, cluster.node.gpu.name, efficiency.spread)
        return self.kept.predicted.get(key, lambda: predict_one(model, plan, cluster, efficiency))

    def _compared(self, bare: Advice, question: Question) -> Advice:
        """Return the advice with what other plans would do: changes that help, the best plan, and what is wasted."""
        if not self.search:
            return bare
        try:
            if self.kept is None:
                found = searched(question)
            else:
                recipe = (recipe_of(question.workload), question.model, question.plan)
                key = (*recipe, question.cluster.node.gpu.name, question.efficiency.spread)
                if self.is_hurried and key not in self.kept.searched:
                    return replace(bare, is_short=True)
                found = self.kept.searched.get(key, lambda: searched(question))
        except OpskError:  # what was predicted stands without what else there may be
            return bare
        is_short = self.is_hurried and bare.placement is NOT_LOOKED
        return replace(
            bare, is_searched=True, is_short=is_short, suggestions=found.suggestions, best=found.best, waste=found.waste
        )

    def _stopped(self, workload: Workload) -> tuple[Waste, ...]:
        """Return what keeps a job from starting, with what is predicted once it is put right."""
        searching = replace(self, rails=None)
        quick = replace(searching, search=False)
        return tuple(mended_waste(stop, quick.advise, searching.advise) for stop in stops(workload))

    def _placed(
        self, workload: Workload, model: ModelShape, plan: Plan, cluster: ClusterSpec, wanted: NodesWanted
    ) -> PlacementAdvice:
        """Return where the ranks would go, or why that cannot be said."""
        if not self.search:
            return NOT_LOOKED
        if self.rails is None:
            return PlacementAdvice(why_not="no dump of the fabric: set fabric in opsk.toml or give --fabric")
        gpus_per_node = workload.plan.gpus_per_node or cluster.node.gpus
        try:
            if self.kept is None:
                return self._placed_anew(workload, model, plan, cluster, wanted, gpus_per_node)
            live = self.live
            now = (live.generation, live.is_fresh, live.wire is None) if live is not None else None
            key = (model, plan, cluster.node.gpu.name, gpus_per_node, workload.gpu, self._in_partition(wanted), now)
            if self.is_hurried and key not in self.kept.placed:
                return NOT_LOOKED

            def timeless() -> PlacementAdvice:
                # what is kept must not keep a state: each holds a file open and its links in memory
                return replace(self._placed_anew(workload, model, plan, cluster, wanted, gpus_per_node), live=None)

            placed = self.kept.placed.get(key, timeless)
            return replace(placed, live=live) if self._sees_who_runs else placed
        except OpskError as error:
            return PlacementAdvice(why_not=error.message)

    def _placed_anew(
        self,
        workload: Workload,
        model: ModelShape,
        plan: Plan,
        cluster: ClusterSpec,
        wanted: NodesWanted,
        gpus_per_node: int,
    ) -> PlacementAdvice:
        """Return where the ranks would go.

        Raises
        ------
        OpskError
            When that cannot be said.
        """
        if self.rails is None:
            raise ValueError("ranks are placed on a fabric")
        step = step_model(model, plan, as_cabled(cluster, self.rails), self.efficiency)
        if self.live is not None and self.wires is not None and self.fabric is not None:
            placed = advise_live_placement(
                model,
                plan,
                self.wires,
                self.fabric,
                self.live,
                self._in_partition(wanted),
                gpus_per_node=gpus_per_node,
                node_gpus=max(gpus_per_node, cluster.node.gpus),
                gpu_type=workload.gpu,
                step=step,
            )
        else:
            placed = advise_placement(
                model, plan, self.rails, gpus_per_node=gpus_per_node, routes=self.routes, step=step
            )
        return replace(placed, fabric_from=self.fabric_from)

    @property
    def _sees_who_runs(self) -> bool:
        """Whether ranks are placed among the nodes that are free now."""
        return self.live is not None and self.wires is not None and self.fabric is not None

    def _in_partition(self, wanted: NodesWanted) -> NodesWanted:
        """Return the same, in the default partition where none is named and the site, or else Slurm, says which."""
        default = self.default_partition or (self.live.default_partition if self.live is not None else None)
        return wanted if wanted.partitions or not default else replace(wanted, partitions=(default,))


def _host_shortage(question: Question, assumed: Iterable[Assumption], wanted: NodesWanted) -> Iterator[Problem]:
    """Yield a problem where host memory surely does not hold what is moved there."""
    return host_shortage(
        wanted.memory,
        question.workload,
        question.model,
        question.plan,
        question.cluster,
        question.prediction,
        cpus_per_node=wanted.cpus_per_node,
        is_guessed=not STATE_INPUTS.isdisjoint(guesses(question.workload, assumed)),
    )


def _with_asked_gpu(cluster: ClusterSpec, asked: str | None) -> tuple[ClusterSpec, tuple[Assumption, ...]]:
    """Return the cluster with the GPU type that the job asked of Slurm, and what was assumed for it."""
    if asked is None:
        return cluster, ()
    spec, others = resolve_gpu(asked)
    own = cluster.node.gpu
    if spec.name == own.name or own.name in others:
        return cluster, ()
    assumed: tuple[Assumption, ...] = ()
    if others:
        why = f"{asked} may also be {', '.join(others)}"
        assumed = (Assumption(field="gpu", value=spec.name, why=why),)
    return replace(cluster, node=replace(cluster.node, gpu=spec)), assumed
