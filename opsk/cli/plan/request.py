"""What does ``opsk plan`` ask for? The tables of a plan file, or flags, with every axis that they name held fixed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from opsk.app.inputs.cluster import chosen_cluster
from opsk.app.inputs.efficiency import load_efficiency, unmeasured
from opsk.app.inputs.plan_examination import examined
from opsk.app.inputs.plan_fields import shown, stated_of
from opsk.app.inputs.plan_file import PlanFile, accepted, refused
from opsk.costmodel.efficiency.nearness import case_of
from opsk.costmodel.rules import missing_formats
from opsk.costmodel.uncertainty.widening import with_assumed
from opsk.errors import InputError
from opsk.frameworks.catalog import FRAMEWORKS
from opsk.frameworks.limits import ANYTHING, Limits
from opsk.hardware.spec import ClusterSpec
from opsk.planning.search.cases import cases_of, with_gpus
from opsk.planning.search.request import AXES, MOST_GPUS, PlanRequest
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
"""Stands for the axes while the rest of a plan is read: nothing is assumed of what is searched."""
_MARGIN = re.compile(r"([0-9.]+)\s*(%|gib|gb)?", re.IGNORECASE | re.ASCII)
_COUNT = re.compile(r"[0-9]{1,12}")
_SHOWN = 20
"""So many signs of a word that is wrong, and so many such words, are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as it was read: ``assumed`` is what nobody gave, ``framework`` the one asked for, ``any`` if none.

    ``cases`` are the request with every number of GPUs and every batch that is searched, ``most`` the number of plans
    to show, ``margin_bytes`` what of a GPU's memory is left free, ``read`` what was read, for the length of the run.
    """

    request: PlanRequest
    cases: tuple[PlanRequest, ...]
    most: int = 5
    assumed: tuple[Assumption, ...] = ()
    framework: str = ANYTHING.name
    margin_bytes: float = 0.0
    read: PlanFile | None = None

    def case_of(self, plan: Plan) -> PlanRequest:
        """Return the request that a plan answers: that with its GPUs and its batch."""
        same = (one for one in self.cases if (one.gpus, one.global_batch) == (plan.gpus, plan.global_batch))
        return next(same, self.request)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """Options beside the plan's own fields: ``margin`` is text like ``5%`` or ``4GiB``, ``gpu_counts`` ``8,16``."""

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


def asked_of(tables: Mapping[str, Any], wishes: Wishes, *, source: str) -> Asked:
    """Return the request that tables and wishes make.

    Raises
    ------
    InputError
        Names ``source`` and everything that is wrong.
    """
    limits = FRAMEWORKS[wishes.framework].limits if wishes.framework else ANYTHING
    wrong: list[str] = []
    tables = _with_software(tables, limits, wrong)
    stated = stated_of(tables)
    top, plan = stated.tables[""], stated.tables["plan"]
    found = examined(_with_neutral_axes(tables))
    wrong += [line for line in stated.wrong if line not in found.wrong]
    cluster = chosen_cluster(top.get("cluster"), wrong)
    gpus = None if "gpus" in stated.doubtful else _gpus(top, cluster, wrong)
    batch = plan.get("global_batch")
    if batch is None and "global_batch" not in stated.doubtful:
        wrong.append("plan.global_batch: missing, sequences of one step of the whole job: give --global-batch")
    wrong += [f"plan: {name} is {plan[name]}, must be at least 1" for name in _POSITIVE if plan.get(name, 1) < 1]
    margin_bytes = _margin(wishes.margin, cluster, wrong)
    counts = _gpu_counts(wishes.gpu_counts, wrong)
    read = accepted(found, source=source, also=wrong)
    if cluster is None or gpus is None or batch is None:  # then something was wrong, and told
        raise refused(source, ["nothing to plan for"])
    if lacking := missing_formats(read.plan, cluster):
        known = [one for one in Precision if not missing_formats(replace(read.plan, precision=one), cluster)]
        raise InputError(escape(f"{source}: {'; '.join(lacking)}"), hint=f"give --precision {'|'.join(known)}")
    assumed = [*read.assumed, *_larger_cluster(cluster, gpus)]
    efficiency = load_efficiency(wishes.efficiency)
    widened = with_assumed(efficiency, (entry.field for entry in assumed), case_of(read.model, read.plan, cluster))
    assumed += unmeasured(efficiency, read.plan.software, cluster)
    request = PlanRequest(
        model=read.model,
        cluster=less_memory(cluster, margin_bytes),
        template=read.plan,
        gpus=gpus,
        global_batch=batch,
        efficiency=widened,
        fixed={axis: (plan[axis],) for axis in AXES if axis in plan},
        limits=FRAMEWORKS[wishes.framework].limits_for(read.model) if wishes.framework else limits,
        refuses=FRAMEWORKS[wishes.framework].refuses if wishes.framework else None,
        most=wishes.most,
    )
    request = with_gpus(request, gpus)
    cases = tuple(cases_of(request, gpu_counts=counts, keep_batch=wishes.keep_batch))
    return Asked(
        request=request,
        cases=cases,
        most=wishes.most,
        assumed=tuple(assumed),
        framework=limits.name,
        margin_bytes=margin_bytes,
        read=read,
    )


_POSITIVE = ("tp", "pp", "vpp", "cp", "ep", "dp", "micro_batch", "global_batch")


def margin_bytes_of(text: str, capacity_bytes: float) -> float | None:
    """Return the bytes that ``5%``, ``4GiB``, ``4GB`` or ``4`` (GiB) mean of a GPU; ``None`` if it means nothing."""
    matched = _MARGIN.fullmatch(text.strip())
    try:
        number = float(matched[1]) if matched else -1.0
    except ValueError:
        return None
    unit = (matched[2] or "gib").lower() if matched else ""
    size = number * {"%": capacity_bytes / 100.0, "gb": GB, "gib": GIB}[unit] if unit else -1.0
    return size if 0.0 <= size < capacity_bytes else None


def _margin(text: str | None, cluster: ClusterSpec | None, wrong: list[str]) -> float:
    """Return the margin of a GPU's memory, or say what is wrong with it [bytes]."""
    if text is None or cluster is None:
        return 0.0
    capacity = float(cluster.node.gpu.capacity_bytes)
    size = margin_bytes_of(text, capacity)
    if size is None:
        wrong.append(f"memory-margin {text[:_SHOWN]!r} is no part of a GPU's memory: give 5% or 4GiB")
    return size or 0.0


def _gpu_counts(text: str | None, wrong: list[str]) -> list[int]:
    """Return the numbers of GPUs of a list like ``8,16,32``, or say what is wrong with it."""
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    if text is not None and not words:
        wrong.append(f"gpu-counts: {text!r} names no number of GPUs")
    bad = [word for word in words if not _COUNT.fullmatch(word) or not 1 <= int(word) <= MOST_GPUS]
    wrong += [f"gpu-counts: {word[:_SHOWN]!r} is no number of GPUs from 1 to {MOST_GPUS}" for word in bad[:_SHOWN]]
    return [] if bad else [int(word) for word in words]


def _with_software(tables: Mapping[str, Any], limits: Limits, wrong: list[str]) -> Mapping[str, Any]:
    """Return the tables with the software of the framework that was asked for."""
    plan = tables.get("plan", {})
    if limits.software is None or not isinstance(plan, Mapping):
        return tables
    if limits.software is Software.MEGATRON_CORE and plan.get("software") == Software.MEGATRON:
        return tables  # an older release of the same framework
    if plan.get("software", limits.software.value) != limits.software.value:
        wrong.append(
            f"plan.software is {shown(plan['software'])}, but --framework {limits.name} means {limits.software}: "
            "give one of them"
        )
    return {**tables, "plan": {**plan, "software": limits.software.value}}


def _with_neutral_axes(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables without what is searched, and for one GPU."""
    plan = tables.get("plan", {})
    kept = {key: value for key, value in tables.items() if key not in ("gpus", "nodes", "gpus_per_node")}
    if not isinstance(plan, Mapping):
        return kept
    others = {key: value for key, value in plan.items() if key not in AXES}
    return {**kept, "plan": {**others, **_NEUTRAL}}


def _gpus(top: Mapping[str, Any], cluster: ClusterSpec | None, wrong: list[str]) -> int | None:
    """Return the GPUs of the job, or say what is wrong with them."""
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


def _larger_cluster(cluster: ClusterSpec, gpus: int) -> list[Assumption]:
    """Return the note that the cluster was taken larger than it is, where it was."""
    if gpus <= cluster.gpus:
        return []
    why = f"{cluster.name} has {cluster.gpus} GPUs: planned as if it had more of the same nodes on a fabric of its kind"
    return [Assumption(field="cluster.nodes", value=-(-gpus // cluster.node.gpus), why=why)]
