"""Chooses from a search the plans that differ in kind: the one to take, and those that are better in one respect.

The fastest plans of a search differ in little: context parallelism instead of a larger micro-batch, one recomputed
layer more. Of each kind of plan (tp, pp, ep) one is shown. Plans are compared by their expected speed, that is speed
times the chance to fit: a plan that fits with 88 % is shown with its chance. Further searches add what a person
compares these with: the best plan on measured ground, the plain one, the one without context parallelism.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from opsk.costmodel.efficiency.cases import classify_kind
from opsk.costmodel.efficiency.evidence import AXES, STATES, WEIGHTS, WIDE_TP, Evidence, find_evidence, list_measured
from opsk.costmodel.predict import predict
from opsk.costmodel.table import SCHEDULES, SHARDINGS, BoolColumn
from opsk.costmodel.uncertainty.case_spread import find_plan_log_sigma
from opsk.costmodel.uncertainty.verdict import FITS_FROM
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.result import Candidate, SearchResult
from opsk.planning.search.search import search_space
from opsk.planning.search.space import Space, build_space
from opsk.workload.plan import Plan, Schedule, Sharding, Software

SIMPLER_WITHIN = 0.03
"""A simpler plan that loses no more than this of the expected speed is worth its simplicity."""
SURER_WITHIN = 0.05
"""Predictions miss by more than this (``docs/recipes.md``): within it, runs on the same generation of GPUs decide."""
ROOMIER_WITHIN = 0.1
"""Of plans that lose no more than this, the one that leaves the most memory free is shown."""
LIKE_WITHIN = 0.01
"""Plans of one kind within this of each other's expected speed are variants of one plan."""
MAX_VARIANTS = 30_000
"""Plans that are evaluated at most to count the variants of one: a few hundredths of a second."""
TRY_FROM = 0.5
"""A plan that is likelier to run out of memory than to fit is not the first while another one fits."""
DEEP_PIPELINE = 32
"""Stages beyond which few pipelines run: two of 27 published ones in ``docs/recipes.md`` have more (35 and 64)."""
_OF_STATES = (Sharding.NONE, Sharding.ZERO1)
_OF_WEIGHTS = (Sharding.ZERO2, Sharding.ZERO3)
_ONE_BY_ONE = (SCHEDULES.index(Schedule.ONE_F_ONE_B),)
_STATE_CODES, _WEIGHT_CODES = (
    tuple(SHARDINGS.index(sharding) for sharding in some) for some in (_OF_STATES, _OF_WEIGHTS)
)
_PLAIN: Mapping[str, tuple[int, ...]] = {
    "cp": (1,),
    "shard_gpus": (0,),
    "recompute_layers": (0,),
    "schedule": _ONE_BY_ONE,
}
"""Axes of a plan without exotic features."""
_CONVENTIONAL: Mapping[str, tuple[int, ...]] = {**_PLAIN, "sharding": _STATE_CODES}
"""Axes of a plan of tensor, pipeline, expert and data parallelism, whose replicas share optimizer states or nothing;
tensor parallelism stays within an HB domain."""


class Role(StrEnum):
    """In what respect a plan is the best of those that are shown."""

    TAKE = "take"
    FASTEST = "fastest"
    SIMPLEST = "simplest"
    CONVENTIONAL = "conventional"
    ROOMIEST = "roomiest"
    WITHOUT_CP = "without-cp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One plan of an answer.

    Parameters
    ----------
    candidate, roles
        The plan, and in what it is the best; ``TAKE`` is the first.
    slower_by
        By how much its expected time of a sequence is longer than that of the first [ratio].
    evidence
        How many runs of its kind were measured.
    is_tied
        Whether the difference from the first is smaller than the range of its predicted time.
    """

    candidate: Candidate
    roles: tuple[Role, ...]
    slower_by: float
    evidence: Evidence
    is_tied: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Variants:
    """Plans that differ from one in what hardly matters: their number, and the values that each axis takes."""

    count: int = 0
    values: Mapping[str, tuple[int, ...]]


def list_choices(
    cases: Sequence[PlanRequest], result: SearchResult, most: int, *, searches: bool = True
) -> tuple[Choice, ...]:
    """Return the plans to show, the one to take first: those that have a role, and others up to ``most``.

    Parameters
    ----------
    cases
        What was searched: parts of it are searched again, unless ``searches`` is false.
    result
        What the search came to; without ``likely`` plans (placed on a fabric), its lists are all that is chosen from.
    """
    selection = _Selection(cases, result, searches=searches)
    if not selection.pool:
        return ()
    take = selection.select_first()
    roles = selection.assign_roles(take)
    others = [candidate for candidate in selection.likely if not any(_is_twin(candidate, other) for other in roles)]
    shown = [*roles, *others][: max(most, len(roles))]
    rest = sorted((candidate for candidate in shown if candidate is not take), key=lambda one: one.likely_key)
    return tuple(selection.build_choice(candidate, take, roles.get(candidate, ())) for candidate in (take, *rest))


class _Selection:
    """The plans that a search, and searches of parts of its space, came to."""

    def __init__(self, cases: Sequence[PlanRequest], result: SearchResult, *, searches: bool) -> None:
        self.cases = cases
        self.likely = result.likely or _sort((*result.best_fitting, *result.best))
        spaces = [build_space(case) for case in cases] if result.likely and searches else []
        self.measured = _search_parts(part for space in spaces for part in select_measured(space))
        self.plain = _search_parts(space.holding(_PLAIN) for space in spaces)
        self.conventional = _search_parts(hold_in_domains(space).holding(_CONVENTIONAL) for space in spaces)
        self.pool = _sort((*self.likely, *self.measured, *self.plain, *self.conventional))

    def select_first(self) -> Candidate:
        """Return the plan to take: on measured ground where any is, of nearly equal ones the simplest."""
        fitting = [candidate for candidate in self.pool if candidate.fit_probability >= TRY_FROM] or self.pool
        measured = [candidate for candidate in fitting if self.find_evidence(candidate).is_measured] or fitting
        limit_s = measured[0].likely_s * (1.0 + SURER_WITHIN)
        near = [candidate for candidate in measured if candidate.likely_s <= limit_s]
        return self._select_simplest([one for one in near if self.find_evidence(one).runs] or measured)

    def assign_roles(self, take: Candidate) -> dict[Candidate, list[Role]]:
        """Return the plans that are the best in some respect, with these roles; a twin of one is not added."""
        near = [candidate for candidate in self.pool if candidate.likely_s <= take.likely_s * (1.0 + ROOMIER_WITHIN)]
        simple = [candidate for candidate in self.pool if candidate.likely_s <= take.likely_s * (1.0 + SIMPLER_WITHIN)]
        named = [
            (Role.TAKE, take),
            (Role.FASTEST, self.pool[0]),
            (Role.SIMPLEST, min(simple, key=lambda one: (self._count_features(one), one.likely_key))),
            (Role.CONVENTIONAL, next(iter(self.conventional), None)),
            (Role.ROOMIEST, min(near, key=lambda one: (one.needed_bytes, one.likely_key))),
        ]
        if take.plan.cp > 1 or self.pool[0].plan.cp > 1:
            named.append((Role.WITHOUT_CP, next((one for one in self.pool if one.plan.cp == 1), None)))
        roles: dict[Candidate, list[Role]] = {}
        for role, candidate in named:
            if candidate is not None:
                twin = next((other for other in roles if _is_twin(candidate, other)), candidate)
                roles.setdefault(twin, []).append(role)
        return roles

    def build_choice(self, candidate: Candidate, take: Candidate, roles: Iterable[Role]) -> Choice:
        """Return a plan of the answer."""
        slower_by = candidate.likely_s / take.likely_s - 1.0
        return Choice(
            candidate=candidate,
            roles=tuple(roles),
            slower_by=slower_by,
            evidence=self.find_evidence(candidate),
            is_tied=abs(slower_by) <= self._find_range(candidate),
        )

    def find_evidence(self, candidate: Candidate) -> Evidence:
        """Return the measured runs of a plan's kind."""
        case = select_case(self.cases, candidate.plan)
        return find_evidence(case.model, candidate.plan, case.cluster)

    def _select_simplest(self, candidates: Sequence[Candidate]) -> Candidate:
        """Return the plan with the fewest features of those nearly as fast as the first; one that fits, if any.

        Of equally simple ones it is that of whose kind the most runs were measured.
        """
        limit_s = candidates[0].likely_s * (1.0 + SIMPLER_WITHIN)
        near = [candidate for candidate in candidates if candidate.likely_s <= limit_s]
        return min(near, key=self._rank_by_simplicity)

    def _rank_by_simplicity(self, candidate: Candidate) -> tuple[object, ...]:
        """Return what puts the simplest plan first."""
        evidence = self.find_evidence(candidate)
        is_risky = candidate.fit_probability < FITS_FROM
        runs = (-evidence.runs, -evidence.runs_elsewhere)
        return (is_risky, self._count_features(candidate), *runs, candidate.likely_key)

    def _count_features(self, candidate: Candidate) -> int:
        """Return how many features a plan needs on its cluster."""
        cluster = select_case(self.cases, candidate.plan).cluster
        return count_features(candidate.plan, cluster.node.hb_domain_gpus)

    def _find_range(self, candidate: Candidate) -> float:
        """Return by how much a step may be longer than predicted beside that of another plan [ratio]."""
        return find_plan_log_sigma(select_case(self.cases, candidate.plan).efficiency.spread)


def _sort(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Return each plan once, that of the greatest expected speed first."""
    return tuple(sorted(dict.fromkeys(candidates), key=lambda candidate: candidate.likely_key))


def _is_twin(candidate: Candidate, other: Candidate) -> bool:
    """Return whether a person would call two plans one: of a kind, with the same sharing, and as fast."""
    plan, other_plan = candidate.plan, other.plan
    is_same = (candidate.kind, plan.cp > 1) == (other.kind, other_plan.cp > 1)
    shares_same = (plan.sharding in _OF_WEIGHTS) == (other_plan.sharding in _OF_WEIGHTS)
    return is_same and shares_same and abs(candidate.likely_s / other.likely_s - 1.0) <= SIMPLER_WITHIN


def hold_in_domains(space: Space) -> Space:
    """Return the plans whose tensor parallelism stays within an HB domain."""
    domain_gpus = space.request.cluster.node.hb_domain_gpus
    return space.only(np.flatnonzero(space.nodes["tp"] <= domain_gpus))


def count_features(plan: Plan, hb_domain_gpus: int) -> int:
    """Return how many features a plan needs: one for each axis, two for each that few runs use.

    Few runs of Megatron share weights: 2 of the 26 in ``docs/recipes.md``, on GB300 and MI325X.
    """
    axes = sum(size > 1 for size in (plan.tp, plan.pp, plan.ep, plan.vpp))
    odd_batch = plan.micro_batch & (plan.micro_batch - 1) != 0
    rare = (
        plan.cp > 1,
        plan.pp > DEEP_PIPELINE,
        plan.tp > hb_domain_gpus,
        plan.recompute_layers > 0,
        plan.first_stage_layers + plan.last_stage_layers > 0,
        plan.shard_gpus > 0,
        plan.schedule is not Schedule.ONE_F_ONE_B,
        plan.etp > 0,
        plan.sharding in _OF_WEIGHTS and plan.tp > 1,
        plan.sharding in _OF_WEIGHTS and plan.software is Software.MEGATRON_CORE,
    )
    return axes + odd_batch + 2 * sum(rare)


def select_case(cases: Sequence[PlanRequest], plan: Plan) -> PlanRequest:
    """Return the request of a plan: that with its GPUs, batch and software, of a framework that runs it."""
    size = (plan.gpus, plan.global_batch, plan.software)
    same = [case for case in cases if (case.gpus, case.global_batch, case.template.software) == size]
    return next((case for case in same if case.accepts(plan)), (same or [cases[0]])[0])


def select_measured(space: Space) -> Iterator[Space]:
    """Yield the parts of a space that hold plans of kinds of which runs were measured."""
    request = space.request
    names = list_measured(request.template.software.value, classify_kind(request.model, request.template))
    for shared, shardings in ((STATES, _STATE_CODES), (WEIGHTS, _WEIGHT_CODES)):
        combinations = {tuple(name.split(",")[0].split()) for name in names if name.endswith(shared)}
        part = space.holding({"sharding": shardings, "schedule": _ONE_BY_ONE})
        yield part.only(np.flatnonzero(_has_axes(part, combinations)))


def _has_axes(space: Space, combinations: set[tuple[str, ...]]) -> BoolColumn:
    """Return which nodes have, above 1, the axes of one of some combinations and no others."""
    names = (*AXES, WIDE_TP)
    are_above = [
        *(space.nodes[axis] > 1 for axis in AXES),
        space.nodes["tp"] > space.request.cluster.node.hb_domain_gpus,
    ]
    code = sum(is_above << place for place, is_above in enumerate(are_above))
    codes = [sum(1 << names.index(axis) for axis in axes if axis in names) for axes in combinations]
    has_axes: BoolColumn = np.isin(code, codes)
    return has_axes


def _search_parts(spaces: Iterable[Space]) -> tuple[Candidate, ...]:
    """Return the plans of the greatest expected speed of some spaces."""
    done: SearchResult | None = None
    for space in spaces:
        if len(space):
            (result,) = deque(search_space(space), maxlen=1)
            done = done.merge(result) if done else result
    return done.likely if done else ()


def find_variants(case: PlanRequest, candidate: Candidate) -> Variants:
    """Return the plans that differ from one in cp against micro-batch, chunks or recomputed layers, and are as fast."""
    plan = candidate.plan
    held = ("tp", "pp", "ep", "etp", "sharding", "shard_gpus", "sequence_parallel", "schedule", "recompute")
    space = build_space(replace(case, fixed={**case.fixed, **{axis: (getattr(plan, axis),) for axis in held}}, most=1))
    if space.size > MAX_VARIANTS:
        return Variants(values={})
    like: list[Plan] = []
    for table in space.list_tables(rows=MAX_VARIANTS):
        predicted = predict(case.model, table, case.cluster, case.efficiency)
        likely_s = predicted.time.step_s.expected / predicted.memory.fit_probability / table.global_batch
        rows = np.flatnonzero(np.abs(likely_s / candidate.likely_s - 1.0) <= LIKE_WITHIN)
        like += [other for row in rows if (other := table.row(int(row))) != plan and case.accepts(other)]
    values = {
        axis: tuple(sorted({getattr(other, axis) for other in (*like, plan)}))
        for axis in ("cp", "micro_batch", "vpp", "recompute_layers")
    }
    return Variants(count=len(like), values={axis: sizes for axis, sizes in values.items() if len(sizes) > 1})
