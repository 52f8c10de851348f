"""On which nodes and cables does ``opsk plan`` look for the best plan? Options, reading, and what is said of it."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from opsk.app.inputs.cluster import named_cluster
from opsk.app.inputs.placement import Ground, read_ground
from opsk.app.inputs.plan_fields import stated_of
from opsk.cli.fabric.options import fabric_options
from opsk.cli.place.document import traffic_document
from opsk.cli.plan.request import Asked, Wishes
from opsk.cli.plan.run import QUIET_S, Run
from opsk.config import load_site
from opsk.costmodel.document import prediction_document
from opsk.errors import InputError
from opsk.hardware.spec import ClusterSpec
from opsk.hostlist import expand
from opsk.planning.placement.step_model import as_cabled
from opsk.planning.routing.routes_of_fabric import routes_of
from opsk.planning.search.cabled import Cabled
from opsk.planning.search.candidate import Candidate
from opsk.planning.search.found import Found
from opsk.planning.search.on_fabric import MESSAGES, OnFabric
from opsk.planning.search.request import PlanRequest
from opsk.text import escape, format_duration
from opsk.workload.defaults import Assumption

_ALONE = ("array", "part", "merge")
_WISHES_ALONE = ("pareto", "what_if", "gpu_counts")
"""Options whose answers know no cables."""


def cable_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--node-list`` and the options that say what is cabled, with the meaning of ``opsk place``."""
    words = (
        "Nodes that may be used, as a host list; left out, all of the fabric. All their GPUs, unless --gpus says fewer."
    )
    return click.option("--node-list", metavar="LIST", help=words)(fabric_options(command))


@dataclass(frozen=True, slots=True, kw_only=True)
class CableWishes:
    """The options as they were given."""

    node_list: str | None
    fabric: tuple[Path, ...]
    routes: tuple[Path, ...]
    node_files: tuple[Path, ...]
    adaptive: bool


def cable_wishes(flags: Mapping[str, Any], wishes: Wishes) -> CableWishes | None:
    """Return the options, ``None`` where the plan is for no nodes in particular.

    Raises
    ------
    UsageError
        Another option knows no cables.
    """
    given = {name: flags[name] for name in ("node_list", "fabric", "routes", "node_file", "adaptive")}
    if not any(value not in (None, False, ()) for value in given.values()):
        return None
    others = [name for name in _ALONE if flags[name] is not None]
    others += [name for name in _WISHES_ALONE if getattr(wishes, name)]
    if others:
        others = [f"--{name.replace('_', '-')}" for name in others]
        raise click.UsageError(f"{', '.join(others)}: told without cables only: leave --node-list and --fabric out")
    node_files = given.pop("node_file")
    return CableWishes(**given, node_files=node_files)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnCables:
    """The nodes and cables that were read, and the GPUs of a node that the job uses."""

    ground: Ground
    gpus_per_node: int
    node_gpus: int

    def tables(self, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Return a request's tables with the GPUs of all nodes, where it states none.

        Raises
        ------
        InputError
            It wants more than these nodes have.
        """
        top = stated_of(tables).tables[""]
        have = len(self.ground.nodes) * self.gpus_per_node
        wanted = top.get("gpus", top.get("nodes", 0) * self.gpus_per_node)
        if wanted > have:
            raise InputError(
                f"{wanted} GPUs are wanted, {len(self.ground.nodes)} nodes of {self.gpus_per_node} have {have}",
                hint="name more nodes with --node-list, or fewer GPUs",
            )
        return dict(tables) if "gpus" in tables or "nodes" in tables else {**tables, "gpus": have}

    def asked(self, asked: Asked) -> Asked:
        """Return what was asked, with NICs as they are cabled."""
        rails = self.ground.rails
        cases = tuple(replace(case, cluster=as_cabled(case.cluster, rails)) for case in asked.cases)
        return replace(
            asked,
            request=replace(asked.request, cluster=as_cabled(asked.request.cluster, rails)),
            cases=cases,
            assumed=(*asked.assumed, *self._assumed()),
        )

    def place(self, requests: Sequence[PlanRequest], done: Run, *, exhaustive: bool) -> tuple[Run, OnFabric]:
        """Return what a search found with its plans as placed; Ctrl-C leaves those that are placed so far."""
        ground, start = self.ground, time.monotonic()
        routes = routes_of(ground.fabric, ground.rails, ground.tables, adaptive=ground.adaptive)
        cabled = Cabled(
            rails=ground.rails,
            nodes=ground.nodes,
            gpus_per_node=self.gpus_per_node,
            routes=routes,
            hb_domains=ground.hb_domains,
            node_gpus=self.node_gpus,
            affinity=ground.affinity,
        )
        search = OnFabric(cabled, messages=None if exhaustive else MESSAGES)
        known = deque[Found](maxlen=1)
        interrupted = done.interrupted
        try:
            known.extend(_shown(search.placed(requests, done.found)))
        except KeyboardInterrupt:
            if not known or not known[0].best:
                raise
            interrupted = True
        seconds = done.seconds + time.monotonic() - start
        return replace(done, found=known[0], seconds=seconds, interrupted=interrupted), search

    def _assumed(self) -> tuple[Assumption, ...]:
        return tuple(Assumption(field=one.field, value=one.value, why=one.why) for one in self.ground.assumed)


def _shown(founds: Iterable[Found]) -> Iterable[Found]:
    """Pass on what is known, and from the first second on say so on stderr."""
    start = time.monotonic()
    status = Console(file=sys.stderr).status("")
    is_shown = False
    try:
        for found in founds:
            if time.monotonic() - start > QUIET_S:
                best = f": best {format_duration(found.best[0].step_s)} a step" if found.best else ""
                status.update(f"opsk: placing plans on the fabric{best}")
                if not is_shown:
                    status.start()
                    is_shown = True
            yield found
    finally:
        if is_shown:
            status.stop()


def read_cables(wishes: CableWishes | None, tables: Mapping[str, Any]) -> OnCables | None:
    """Return what is cabled; ``None`` where nothing was asked of cables, or the request names no cluster.

    Raises
    ------
    InputError
        A file cannot be read, or nothing says what is cabled.
    """
    if wishes is None:
        return None
    top = stated_of(tables).tables[""]
    named = top.get("cluster") or load_site().cluster
    if named is None:
        return None
    cluster: ClusterSpec = named_cluster(named)
    nodes = tuple(dict.fromkeys(expand(wishes.node_list))) if wishes.node_list is not None else ()
    if wishes.node_list is not None and not nodes:
        raise InputError("--node-list names no node", hint="write it as n[0-7]")
    per_node = top.get("gpus_per_node", cluster.node.gpus)
    return OnCables(
        ground=read_ground(wishes, cluster, nodes),
        gpus_per_node=per_node,
        node_gpus=max(per_node, cluster.node.gpus),
    )


def with_placements(
    document: dict[str, Any], asked: Asked, found: Found, cables: OnCables, search: OnFabric
) -> dict[str, Any]:
    """Return the document of a search with times, energy and ``placement`` of its plans as placed."""
    changed: dict[str, list[dict[str, Any]]] = {}
    for name in ("best", "best_fitting"):
        pairs = zip(document[name], getattr(found, name), strict=True)
        changed[name] = [_placed_document(entry, asked, one, cables, search) for entry, one in pairs]
    fabric = {
        "source": cables.ground.fabric.source,
        "nodes": len(cables.ground.nodes),
        "gpus_per_node": cables.gpus_per_node,
        "is_exact": search.is_exact,
        "priced": search.priced,
        "layouts_not_placed": len(search.unplaceable),
    }
    return {**document, **changed, "fabric": fabric}


def _placed_document(
    entry: Mapping[str, Any], asked: Asked, one: Candidate, cables: OnCables, search: OnFabric
) -> dict[str, Any]:
    """Return one plan of the document as placed."""
    plan = one.plan
    request = next(case for case in asked.cases if (case.gpus, case.global_batch) == (plan.gpus, plan.global_batch))
    placed = search.place(request, plan)
    placement = {
        "groups": entry["placement"],
        "step_s": placed.step_s,
        "ideal_step_s": placed.ideal_s,
        "slower_than_ideal_by": placed.step_s / placed.ideal_s - 1.0,
        "slowed_s": placed.slowed_s,
        "nodes": placed.placement.nodes,
        "spare_nodes": placed.placement.spare_nodes,
        "needs_rank_file": placed.placement.needs_rank_file,
        **traffic_document(cables.ground.fabric, placed.placement),
    }
    return {**entry, **prediction_document(placed.prediction, 0), "placement": placement}


def fabric_lines(document: Mapping[str, Any]) -> list[str]:
    """Return for people what the cables do to the plan to take."""
    fabric, best = document["fabric"], document["best_fitting"] or document["best"]
    lines = [f"on {fabric['nodes']} nodes of {fabric['source']}, {fabric['gpus_per_node']} GPUs each:"]
    if best:
        lines += _told_of(best[0]["placement"])
    if not fabric["is_exact"]:
        lines.append(
            "  so many plans are slowed that not all were placed: others may be faster (--exhaustive tries all)"
        )
    if document["refused"]:
        lines.append("  plans that do not fit are not placed: their times know no cables")
    if fabric["layouts_not_placed"]:
        lines.append(f"  {fabric['layouts_not_placed']} layouts left out: no placement is known of experts over tp")
    return [escape(line) for line in lines]


def _told_of(placed: Mapping[str, Any]) -> list[str]:
    """Return what the cables do to one plan."""
    if placed["slower_than_ideal_by"] > SHOWN_FROM:
        axes = ", ".join(f"{axis} {format_duration(seconds)}" for axis, seconds in placed["slowed_s"].items())
        words = f"links make a step {100 * placed['slower_than_ideal_by']:.2g} % longer ({axes})"
    else:
        words = "no link makes a step longer"
    local = f"{100 * placed['rail_local_fraction']:.3g} % of the traffic on its rail"
    lines = [f"  {words}; {local}, {100 * placed['leaf_local_fraction']:.3g} % under its leaf"]
    default = placed["predicted"]["default_is_slower_by"]
    if default is not None and default > SHOWN_FROM:
        lines.append(f"  Slurm's own order would be {100 * default:.2g} % slower: opsk place writes the rank file")
    return lines


SHOWN_FROM = 5e-4
"""Less than 0.05 % of a step is nothing."""
