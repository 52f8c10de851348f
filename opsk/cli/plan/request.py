"""Builds the request of ``opsk plan`` from a plan file or flags; every axis that they name is fixed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from opsk.app.inputs.named_inputs import find_unmeasured, load_efficiency, resolve_cluster
from opsk.app.inputs.plan_file import PlanFile, build_input_error, require_valid
from opsk.app.inputs.plan_validation import examine_plan, format_value, validate_fields
from opsk.costmodel.efficiency.cases import build_case
from opsk.costmodel.rules import missing_formats
from opsk.costmodel.uncertainty.case_spread import apply_case_spread
from opsk.errors import InputError
from opsk.frameworks.catalog import FRAMEWORKS, Framework, frameworks_for
from opsk.frameworks.limits import ANYTHING, Limits
from opsk.hardware.spec import ClusterSpec
from opsk.planning.search.choices import select_case
from opsk.planning.search.request import AXES, MAX_GPUS, PlanRequest
from opsk.planning.search.search import list_cases, with_gpus
from opsk.planning.search.space import has_plans, unknown_words
from opsk.planning.search.what_if import less_memory
from opsk.text import escape
from opsk.units import GB, GIB
from opsk.workload.defaults import Assumption
from opsk.workload.plan import Plan, Precision, Recompute, Sharding, Software

_NEUTRAL: Mapping[str, Any] = {
    "dp": 1,
    "micro_batch": 1,
    "global_batch": 1,
    "recompute": Recompute.NONE.value,
    "sharding": Sharding.NONE.value,
    "sequence_parallel": False,
}
"""Neutral values of the axes while the rest of a plan is read, so that nothing is assumed of them."""
_MARGIN = re.compile(r"([0-9.]+)\s*(%|gib|gb)?", re.IGNORECASE | re.ASCII)
_COUNT = re.compile(r"[0-9]{1,12}")
_MAX_SHOWN = 20
"""Maximum characters of a wrong word, and maximum number of such words, in messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRequest:
    """A parsed request: ``assumed`` lists the assumptions, ``framework`` is the requested one, ``any`` if none.

    ``frameworks`` are those whose plans are searched; none where all plans are that no rule forbids. ``cases`` are the
    request with every framework, number of GPUs and batch that is searched, ``most`` the number of plans to show,
    ``margin_bytes`` the memory of a GPU left free, ``read`` the plan file, for the length of the run.
    """

    request: PlanRequest
    cases: tuple[PlanRequest, ...]
    most: int = 5
    assumed: tuple[Assumption, ...] = ()
    framework: str = ANYTHING.name
    frameworks: tuple[str, ...] = ()
    margin_bytes: float = 0.0
    read: PlanFile | None = None

    def build_case(self, plan: Plan) -> PlanRequest:
        """Return the case of a plan: that with its GPUs, its batch and its software, of a framework that runs it."""
        return select_case(self.cases or (self.request,), plan)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Options that are not fields of the plan: ``margin`` is text like ``5%`` or ``4GiB``, ``gpu_counts`` ``8,16``."""

    framework: str | None = None
    margin: str | None = None
    most: int = 5
    efficiency: str | None = None
    gpu_counts: str | None = None
    keep_batch: bool = True
    pareto: bool = False
    what_if: bool = False
    script: str | None = None
    exhaustive: bool = False


def parse_request(tables: Mapping[str, Any], options: PlanOptions, *, source: str) -> ParsedRequest:
    """Return the request of tables and options.

    Without a requested framework, it is one for the plans of every framework that can train the model as stated.

    Raises
    ------
    InputError
        Names ``source`` and every violation, or what of the request no framework can express.
    """
    if options.framework is not None:
        return _parse_for(tables, options, FRAMEWORKS.get(options.framework), source=source)
    unlimited = _parse_for(tables, options, None, source=source)
    parsed = [*_parse_for_frameworks(tables, options, unlimited, source=source)]
    able = [one for one in parsed if not unknown_words(one.request)]
    if not able:
        raise _build_no_framework_error(unlimited, parsed)
    first = next((one for one in able if has_plans(one.request)), able[0])
    return replace(
        first,
        framework=ANYTHING.name,
        frameworks=tuple(name for one in able for name in one.frameworks),
        cases=tuple(case for one in able for case in one.cases),
    )


def _parse_for_frameworks(
    tables: Mapping[str, Any], options: PlanOptions, unlimited: ParsedRequest, *, source: str
) -> Iterator[ParsedRequest]:
    """Yield the request for each framework that has the model, and the software where that is stated."""
    plan = tables.get("plan", {})
    stated = isinstance(plan, Mapping) and "software" in plan
    for framework in frameworks_for(unlimited.request.model):
        if not stated or framework.is_for(unlimited.request.template.software):
            with suppress(InputError):  # what is wrong whatever the framework was reported for all plans
                yield _parse_for(tables, options, framework, source=source)


def _build_no_framework_error(unlimited: ParsedRequest, parsed: Sequence[ParsedRequest]) -> InputError:
    """Return the error of a request that no framework can express, with what each of them lacks."""
    lacks = [words for one in parsed for words in unknown_words(one.request)]
    model = unlimited.request.model.name
    return InputError(
        escape(f"no framework of a current release trains {model} so: {'; '.join(lacks) or 'none has such software'}"),
        hint=f"--framework {ANYTHING.name} searches all plans that can be predicted",
    )


def _parse_for(
    tables: Mapping[str, Any], options: PlanOptions, framework: Framework | None, *, source: str
) -> ParsedRequest:
    """Return the request for the plans of one framework, or for all that no rule forbids.

    Raises
    ------
    InputError
        Names ``source`` and every violation.
    """
    limits = framework.limits if framework else ANYTHING
    wrong: list[str] = []
    tables = _set_software(tables, limits, wrong)
    stated = validate_fields(tables)
    top, plan = stated.tables[""], stated.tables["plan"]
    examination = examine_plan(_neutralise_axes(tables))
    wrong += [line for line in stated.wrong if line not in examination.wrong]
    cluster = resolve_cluster(top.get("cluster"), wrong)
    gpus = None if "gpus" in stated.doubtful else _resolve_gpus(top, cluster, wrong)
    batch = plan.get("global_batch")
    if batch is None and "global_batch" not in stated.doubtful:
        wrong.append("plan.global_batch: missing, sequences of one step of the whole job: give --global-batch")
    wrong += [f"plan: {name} is {plan[name]}, must be at least 1" for name in _POSITIVE if plan.get(name, 1) < 1]
    margin_bytes = _resolve_margin(options.margin, cluster, wrong)
    counts = _parse_gpu_counts(options.gpu_counts, wrong)
    read = require_valid(examination, source=source, also=wrong)
    if cluster is None or gpus is None or batch is None:  # then a violation was reported above
        raise build_input_error(source, ["nothing to plan for"])
    if missing := missing_formats(read.plan, cluster):
        known = [
            precision
            for precision in Precision
            if not missing_formats(replace(read.plan, precision=precision), cluster)
        ]
        raise InputError(escape(f"{source}: {'; '.join(missing)}"), hint=f"give --precision {'|'.join(known)}")
    assumed = [*read.assumed, *_note_larger_cluster(cluster, gpus)]
    efficiency = load_efficiency(options.efficiency)
    widened = apply_case_spread(
        efficiency, (entry.field for entry in assumed), build_case(read.model, read.plan, cluster)
    )
    assumed += find_unmeasured(efficiency, read.plan.software, cluster)
    request = PlanRequest(
        model=read.model,
        cluster=less_memory(cluster, margin_bytes),
        template=read.plan,
        gpus=gpus,
        global_batch=batch,
        efficiency=widened,
        fixed={axis: (plan[axis],) for axis in AXES if axis in plan},
        limits=framework.limits_for(read.model) if framework else limits,
        refuses=framework.refuses if framework else None,
        most=options.most,
    )
    request = with_gpus(request, gpus)
    cases = tuple(list_cases(request, gpu_counts=counts, keep_batch=options.keep_batch))
    return ParsedRequest(
        request=request,
        cases=cases,
        most=options.most,
        assumed=tuple(assumed),
        framework=limits.name,
        frameworks=(framework.name,) if framework else (),
        margin_bytes=margin_bytes,
        read=read,
    )


_POSITIVE = ("tp", "pp", "vpp", "cp", "ep", "dp", "micro_batch", "global_batch")


def parse_margin(text: str, capacity_bytes: float) -> float | None:
    """Return the bytes of ``5%``, ``4GiB``, ``4GB`` or ``4`` (GiB) of a GPU; ``None`` if the text is invalid."""
    matched = _MARGIN.fullmatch(text.strip())
    try:
        number = float(matched[1]) if matched else -1.0
    except ValueError:
        return None
    unit = (matched[2] or "gib").lower() if matched else ""
    size = number * {"%": capacity_bytes / 100.0, "gb": GB, "gib": GIB}[unit] if unit else -1.0
    return size if 0.0 <= size < capacity_bytes else None


def _resolve_margin(text: str | None, cluster: ClusterSpec | None, wrong: list[str]) -> float:
    """Return the margin of a GPU's memory, or report a violation [bytes]."""
    if text is None or cluster is None:
        return 0.0
    capacity = float(cluster.node.gpu.capacity_bytes)
    size = parse_margin(text, capacity)
    if size is None:
        wrong.append(f"memory-margin {text[:_MAX_SHOWN]!r} is not a part of a GPU's memory: give 5% or 4GiB")
    return size or 0.0


def _parse_gpu_counts(text: str | None, wrong: list[str]) -> list[int]:
    """Return the numbers of GPUs of a list like ``8,16,32``, or report violations."""
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    if text is not None and not words:
        wrong.append(f"gpu-counts: {text!r} names no number of GPUs")
    bad = [word for word in words if not _COUNT.fullmatch(word) or not 1 <= int(word) <= MAX_GPUS]
    wrong += [
        f"gpu-counts: {word[:_MAX_SHOWN]!r} is not a number of GPUs from 1 to {MAX_GPUS}" for word in bad[:_MAX_SHOWN]
    ]
    return [] if bad else [int(word) for word in words]


def _set_software(tables: Mapping[str, Any], limits: Limits, wrong: list[str]) -> Mapping[str, Any]:
    """Return the tables with the software of the requested framework."""
    plan = tables.get("plan", {})
    if limits.software is None or not isinstance(plan, Mapping):
        return tables
    if limits.software is Software.MEGATRON_CORE and plan.get("software") == Software.MEGATRON:
        return tables  # an older release of the same framework
    if plan.get("software", limits.software.value) != limits.software.value:
        wrong.append(
            f"plan.software is {format_value(plan['software'])}, but --framework {limits.name} means "
            f"{limits.software}: give one of them"
        )
    return {**tables, "plan": {**plan, "software": limits.software.value}}


def _neutralise_axes(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables with neutral axes, for one GPU."""
    plan = tables.get("plan", {})
    remaining = {key: value for key, value in tables.items() if key not in ("gpus", "nodes", "gpus_per_node")}
    if not isinstance(plan, Mapping):
        return remaining
    others = {key: value for key, value in plan.items() if key not in AXES}
    return {**remaining, "plan": {**others, **_NEUTRAL}}


def _resolve_gpus(top: Mapping[str, Any], cluster: ClusterSpec | None, wrong: list[str]) -> int | None:
    """Return the GPUs of the job, or report violations."""
    low = [key for key in ("gpus", "nodes", "gpus_per_node") if top.get(key, 1) < 1]
    wrong += [f"{key} is {top[key]}, must be at least 1" for key in low]
    if low:
        return None
    gpus: int | None = top.get("gpus")
    if "nodes" in top and cluster is not None:
        per_node = top.get("gpus_per_node", cluster.node.gpus)
        if per_node > cluster.node.gpus:
            wrong.append(f"gpus_per_node is {per_node}, a {cluster.node.name} has {cluster.node.gpus}")
        of_nodes: int = top["nodes"] * per_node
        if gpus is not None and gpus != of_nodes:
            wrong.append(f"gpus is {gpus}, nodes {top['nodes']} have {of_nodes}")
        return of_nodes
    if gpus is None and "nodes" not in top:
        wrong.append("gpus: missing: give --gpus or --nodes")
    return gpus


def _note_larger_cluster(cluster: ClusterSpec, gpus: int) -> list[Assumption]:
    """Return the assumption of a larger cluster, where more GPUs are requested than it has."""
    if gpus <= cluster.gpus:
        return []
    why = f"{cluster.name} has {cluster.gpus} GPUs: planned as if it had more of the same nodes on a fabric of its kind"
    return [Assumption(field="cluster.nodes", value=-(-gpus // cluster.node.gpus), why=why)]
