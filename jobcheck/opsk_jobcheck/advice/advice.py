"""Defines the advice on one submission: the verdict, everything that it was concluded from, and what is uncertain.

A value that nobody stated is always listed as assumed. It is a guess only where it may be something else. Features that
are off unless requested, and the defaults of a framework's argument parser, are certain once the whole command line was
read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from opsk.costmodel.roles import RoleMemory
from opsk.costmodel.table import PredictionTable
from opsk.costmodel.uncertainty.inputs import MEMORY_INPUTS, TIME_INPUTS
from opsk.diagnosis.accuracy.site_error import SiteErrors, build_kind
from opsk.hardware.spec import ClusterSpec
from opsk.text import escape
from opsk.units import as_gib
from opsk.workload.advice_record import Verdict
from opsk.workload.completion import Completion
from opsk.workload.defaults import MEGATRON_DEEPSPEED, MEGATRON_LM, Assumption
from opsk.workload.unstated.open_sizes import OpenSize
from opsk.workload.workload import Problem, Workload
from opsk_jobcheck.advice.missing_values import MissingValue
from opsk_jobcheck.advice.placement import PlacementAdvice
from opsk_jobcheck.advice.role_changes import RoleChange
from opsk_jobcheck.advice.script_runs import ScriptRuns
from opsk_jobcheck.advice.search import Waste
from opsk_jobcheck.advice.serving import ServingAdvice
from opsk_jobcheck.advice.suggestions import BestPlan, Suggestion
from opsk_jobcheck.preflight.facts import PreflightFinding
from opsk_jobcheck.scripts.frameworks.megatron.megatron import ALL_READ, COMMAND

_OFF_UNLESS_ASKED = frozenset({"plan.tp", "plan.pp", "plan.vpp", "plan.cp", "plan.ep", "model.experts"})
_BY_PARSER = frozenset(
    {"plan.global_batch", "plan.sharding", "plan.recompute", "plan.precision", "model.ffn", "model.top_k"}
)
"""Fields whose defaults are those of ``megatron/training/arguments.py``."""
_COUNTED_AS = {"gpu": "cluster.gpu"}
"""Assumptions that the cost model knows under another name."""
BY_FORMULA = "roles"
"""The input that is never certain for a job of several models: their memory is a formula, held against no such job."""
MAX_CHANGE_CHARS = 240
"""Longest change that is named [characters]: nobody pastes more flags from an error message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The largest ``value`` of a ``field`` that a script leaves open with which its job fits for sure.

    ``memory_bytes`` is what it then takes at most. ``seq`` is ``None`` for a model that fixes its length. ``samples``
    are those of a program of which only the data tell their size, in words; ``value`` is then their place among those
    that were tried.
    """

    field: str
    value: int
    seq: int | None
    micro_batch: int
    memory_bytes: float
    assumed: tuple[Assumption, ...] = ()
    samples: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOverRange:
    """The memory of a job with the usual sizes of what is stated nowhere, and with those that are rarely exceeded."""

    low_bytes: float
    high_bytes: float
    sizes: tuple[OpenSize, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The answer to one submission.

    ``prediction`` is that of the requested plan alone (see `predict_one`); it is ``None`` when the verdict is
    ``unknown``, and then ``why_unknown`` lists the reasons, and ``requested`` the one or two values with which there
    would be a verdict. ``preflight`` is what the checks found that need no prediction. ``is_searched`` tells whether
    other plans were evaluated, ``is_short`` that they or the placement were left out because of load; ``is_gpu_known``
    whether the requested GPU is in the catalogue. ``roles`` is the memory of a job of several models, by role and
    phase; ``prediction`` then has the memory of the phase that decides, and the time of the actor's update alone, which
    is not shown. ``serving`` is the answer on an engine of a job that only generates. ``site_errors`` is how far off
    earlier predictions of the same kind of job were at this site. ``runs`` is which of several trainings of the script
    the advice is on, the one that decides. ``is_limit`` tells that ``prediction`` is that of the largest case of what
    the script leaves open, or of the smallest where that runs out: its memory is the limit, its time is not shown.
    ``room`` is up to which batch, length or image a job without a verdict fits. ``over_range`` is the memory over the
    range of sizes that nothing states, where the job fits with all of them.
    """

    verdict: Verdict
    workload: Workload
    completion: Completion
    cluster: ClusterSpec | None = None
    cluster_from: str = ""
    prediction: PredictionTable | None = None
    placement: PlacementAdvice = field(default_factory=PlacementAdvice)
    suggestions: tuple[Suggestion, ...] = ()
    best: BestPlan | None = None
    waste: tuple[Waste, ...] = ()
    assumed: tuple[Assumption, ...] = ()
    problems: tuple[Problem, ...] = ()
    preflight: tuple[PreflightFinding, ...] = ()
    why_unknown: tuple[str, ...] = ()
    requested: tuple[MissingValue, ...] = ()
    is_searched: bool = False
    is_short: bool = False
    is_gpu_known: bool = True
    roles: RoleMemory | None = None
    role_changes: tuple[RoleChange, ...] = ()
    serving: ServingAdvice | None = None
    site_errors: SiteErrors | None = None
    runs: ScriptRuns | None = None
    is_limit: bool = False
    room: Room | None = None
    over_range: MemoryOverRange | None = None


def find_guesses(workload: Workload, assumed: Iterable[Assumption]) -> Iterator[str]:
    """Yield the fields of ``assumed`` that are uncertain, by the names that the cost model uses."""
    is_read = (COMMAND, ALL_READ) in workload.options and workload.framework in (MEGATRON_LM, MEGATRON_DEEPSPEED)
    known = _OFF_UNLESS_ASKED | _BY_PARSER if is_read else _OFF_UNLESS_ASKED
    for entry in assumed:
        if entry.field not in known:
            yield _COUNTED_AS.get(entry.field, entry.field)


def find_kind(advice: Advice) -> str:
    """Return the kind of job by which the site's own errors are looked up; empty where it has no kind of its own."""
    model, plan, cluster = advice.completion.model, advice.completion.plan, advice.cluster
    if model is None or plan is None or cluster is None or not advice.is_gpu_known or advice.roles is not None:
        return ""
    if advice.is_limit:
        return ""
    guessed = set(find_guesses(advice.workload, advice.assumed))
    return build_kind(model, plan, cluster, has_assumed=bool(guessed & (MEMORY_INPUTS | TIME_INPUTS)))


def oom_probability(advice: Advice) -> float | None:
    """Return the probability to run out of memory; ``None`` when nothing was predicted."""
    if advice.prediction is None:
        return None
    fit = float(advice.prediction.memory.fit_probability)
    return 1.0 - fit if 0 <= fit <= 1 else None


def find_memory_guesses(advice: Advice) -> tuple[str, ...]:
    """Return the inputs of the memory prediction that were guessed, sorted."""
    guessed = set(find_guesses(advice.workload, advice.assumed)) & MEMORY_INPUTS
    return tuple(sorted(guessed | ({BY_FORMULA} if advice.roles is not None else set())))


def explain_oom(advice: Advice) -> str:
    """Return the memory that is needed, and the capacity, for a job that will run out; else nothing."""
    if advice.prediction is None or advice.verdict is not Verdict.OOM:
        return ""
    memory = advice.prediction.memory
    needed, capacity = float(memory.total_bytes.expected), float(memory.capacity_bytes)
    return f"will run out of GPU memory: {as_gib(needed):.1f} GiB of {as_gib(capacity):.1f} GiB per GPU"


def would_fit(advice: Advice) -> str:
    """Return the first change that makes it fit, for a job that will run out; empty where there is none."""
    if advice.verdict is not Verdict.OOM:
        return ""
    for entry in advice.suggestions:
        if entry.verdict is Verdict.FITS:
            text = " ".join(entry.flags) or entry.what
            return escape(f"{text}: {as_gib(entry.memory_bytes):.1f} GiB") if len(text) <= MAX_CHANGE_CHARS else ""
    return ""
