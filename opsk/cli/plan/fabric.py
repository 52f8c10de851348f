"""Places the plans of a search on given nodes and cables: options, reading, and output."""

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

from opsk.app.inputs.named_inputs import load_cluster
from opsk.app.inputs.placement import FabricInputs, read_fabric_inputs
from opsk.app.inputs.plan_validation import validate_fields
from opsk.cli.fabric.options import fabric_options
from opsk.cli.place.document import build_traffic_document
from opsk.cli.plan.request import ParsedRequest, PlanOptions
from opsk.cli.plan.run import QUIET_S, SearchRun
from opsk.config import load_site
from opsk.costmodel.predict import prediction_document
from opsk.errors import InputError
from opsk.hardware.spec import ClusterSpec
from opsk.hostlist import expand
from opsk.planning.placement.step_model import as_cabled
from opsk.planning.routing.fabric_routes import build_routes
from opsk.planning.search.choices import Choice
from opsk.planning.search.fabric_search import MESSAGES, FabricSearch
from opsk.planning.search.layout_prices import Cabled
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.result import Candidate, SearchResult
from opsk.text import escape, format_duration
from opsk.workload.defaults import Assumption

_EXCLUSIVE_FLAGS = ("array", "part", "merge")
_EXCLUSIVE_OPTIONS = ("pareto", "what_if", "gpu_counts")
"""Options that cannot be combined with cables."""


def cable_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--node-list`` and the cabling options, with the meaning of ``opsk place``."""
    words = (
        "Nodes that may be used, as a host list. Default: all of the fabric. All their GPUs are used, "
        "unless --gpus gives fewer."
    )
    return click.option("--node-list", metavar="LIST", help=words)(fabric_options(command))


@dataclass(frozen=True, slots=True, kw_only=True)
class CableOptions:
    """The cabling options of the command line."""

    node_list: str | None
    fabric: tuple[Path, ...]
    routes: tuple[Path, ...]
    node_files: tuple[Path, ...]
    adaptive: bool


def parse_cable_flags(flags: Mapping[str, Any], options: PlanOptions) -> CableOptions | None:
    """Return the options; ``None`` where none is given.

    Raises
    ------
    UsageError
        Another option cannot be combined with cables.
    """
    given = {name: flags[name] for name in ("node_list", "fabric", "routes", "node_file", "adaptive")}
    if not any(value not in (None, False, ()) for value in given.values()):
        return None
    others = [name for name in _EXCLUSIVE_FLAGS if flags[name] is not None]
    others += [name for name in _EXCLUSIVE_OPTIONS if getattr(options, name)]
    if others:
        others = [f"--{name.replace('_', '-')}" for name in others]
        raise click.UsageError(f"{', '.join(others)}: only without cables: omit --node-list and --fabric")
    node_files = given.pop("node_file")
    return CableOptions(**given, node_files=node_files)


@dataclass(frozen=True, slots=True, kw_only=True)
class CabledNodes:
    """Nodes and cables, and the GPUs of a node that the job uses."""

    inputs: FabricInputs
    gpus_per_node: int
    node_gpus: int

    def fill_tables(self, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Return a request's tables with the GPUs of all nodes, where it gives none.

        Raises
        ------
        InputError
            It needs more GPUs than these nodes have.
        """
        top = validate_fields(tables).tables[""]
        available = len(self.inputs.nodes) * self.gpus_per_node
        required = top.get("gpus", top.get("nodes", 0) * self.gpus_per_node)
        if required > available:
            raise InputError(
                f"{required} GPUs are wanted, {len(self.inputs.nodes)} nodes of {self.gpus_per_node} have {available}",
                hint="name more nodes with --node-list, or fewer GPUs",
            )
        return dict(tables) if "gpus" in tables or "nodes" in tables else {**tables, "gpus": available}

    def apply_to(self, parsed: ParsedRequest) -> ParsedRequest:
        """Return the request with NICs as they are cabled."""
        rails = self.inputs.rails
        cases = tuple(replace(case, cluster=as_cabled(case.cluster, rails)) for case in parsed.cases)
        return replace(
            parsed,
            request=replace(parsed.request, cluster=as_cabled(parsed.request.cluster, rails)),
            cases=cases,
            assumed=(*parsed.assumed, *self._list_assumptions()),
        )

    def place(
        self, requests: Sequence[PlanRequest], done: SearchRun, *, exhaustive: bool
    ) -> tuple[SearchRun, FabricSearch]:
        """Return the result of a search with its plans placed; Ctrl-C keeps those placed so far."""
        inputs, start = self.inputs, time.monotonic()
        routes = build_routes(inputs.fabric, inputs.rails, inputs.tables, adaptive=inputs.adaptive)
        cabled = Cabled(
            rails=inputs.rails,
            nodes=inputs.nodes,
            gpus_per_node=self.gpus_per_node,
            routes=routes,
            hb_domains=inputs.hb_domains,
            node_gpus=self.node_gpus,
            affinity=inputs.affinity,
        )
        search = FabricSearch(cabled, messages=None if exhaustive else MESSAGES)
        known = deque[SearchResult](maxlen=1)
        interrupted = done.interrupted
        try:
            known.extend(_show_progress(search.place_layouts(requests, done.result)))
        except KeyboardInterrupt:
            if not known or not known[0].best:
                raise
            interrupted = True
        seconds = done.seconds + time.monotonic() - start
        return replace(done, result=known[0], seconds=seconds, interrupted=interrupted), search

    def _list_assumptions(self) -> tuple[Assumption, ...]:
        return tuple(
            Assumption(field=assumption.field, value=assumption.value, why=assumption.why)
            for assumption in self.inputs.assumed
        )


def _show_progress(results: Iterable[SearchResult]) -> Iterable[SearchResult]:
    """Yield the results unchanged, with a status line on stderr after one second."""
    start = time.monotonic()
    status = Console(file=sys.stderr).status("")
    is_shown = False
    try:
        for result in results:
            if time.monotonic() - start > QUIET_S:
                best = f": best {format_duration(result.best[0].step_s)} a step" if result.best else ""
                status.update(f"opsk: placing plans on the fabric{best}")
                if not is_shown:
                    status.start()
                    is_shown = True
            yield result
    finally:
        if is_shown:
            status.stop()


def read_cables(options: CableOptions | None, tables: Mapping[str, Any]) -> CabledNodes | None:
    """Return the cabling; ``None`` without cabling options, or where the request names no cluster.

    Raises
    ------
    InputError
        A file cannot be read, or nothing describes the cabling.
    """
    if options is None:
        return None
    top = validate_fields(tables).tables[""]
    named = top.get("cluster") or load_site().cluster
    if named is None:
        return None
    cluster: ClusterSpec = load_cluster(named)
    nodes = tuple(dict.fromkeys(expand(options.node_list))) if options.node_list is not None else ()
    if options.node_list is not None and not nodes:
        raise InputError("--node-list names no node", hint="write it as n[0-7]")
    per_node = top.get("gpus_per_node", cluster.node.gpus)
    return CabledNodes(
        inputs=read_fabric_inputs(options, cluster, nodes),
        gpus_per_node=per_node,
        node_gpus=max(per_node, cluster.node.gpus),
    )


def add_placements(
    document: dict[str, Any],
    parsed: ParsedRequest,
    result: SearchResult,
    choices: Sequence[Choice],
    cables: CabledNodes,
    search: FabricSearch,
) -> dict[str, Any]:
    """Return the document of a search with times, energy and ``placement`` of its plans as placed."""
    changed: dict[str, list[dict[str, Any]]] = {}
    plans = {
        "best": result.best,
        "best_fitting": result.best_fitting,
        "choices": [choice.candidate for choice in choices],
    }
    for name, candidates in plans.items():
        pairs = zip(document[name], candidates, strict=True)
        changed[name] = [_build_placed_document(entry, parsed, candidate, cables, search) for entry, candidate in pairs]
    fabric = {
        "source": cables.inputs.fabric.source,
        "nodes": len(cables.inputs.nodes),
        "gpus_per_node": cables.gpus_per_node,
        "is_exact": search.is_exact,
        "priced": search.priced,
        "layouts_not_placed": len(search.unplaceable),
    }
    return {**document, **changed, "fabric": fabric}


def _build_placed_document(
    entry: Mapping[str, Any], parsed: ParsedRequest, candidate: Candidate, cables: CabledNodes, search: FabricSearch
) -> dict[str, Any]:
    """Return one plan of the document with its placement."""
    plan = candidate.plan
    request = parsed.build_case(plan)
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
        **build_traffic_document(cables.inputs.fabric, placed.placement),
    }
    return {**entry, **prediction_document(placed.prediction, 0), "placement": placement}


def format_fabric_lines(document: Mapping[str, Any]) -> list[str]:
    """Return the effect of the cables on the recommended plan, for people."""
    fabric, best = document["fabric"], document["choices"]
    lines = [f"on {fabric['nodes']} nodes of {fabric['source']}, {fabric['gpus_per_node']} GPUs each:"]
    if best:
        lines += _format_placed(best[0]["placement"])
    if not fabric["is_exact"]:
        lines.append(
            "  so many plans are slowed that not all were placed: others may be faster (--exhaustive tries all)"
        )
    if document["refused"]:
        lines.append("  plans that do not fit are not placed: their times know no cables")
    if fabric["layouts_not_placed"]:
        lines.append(f"  {fabric['layouts_not_placed']} layouts omitted: experts over tp cannot be placed")
    return [escape(line) for line in lines]


def _format_placed(placed: Mapping[str, Any]) -> list[str]:
    """Return the effect of the cables on one plan."""
    if placed["slower_than_ideal_by"] > MIN_SHOWN_SHARE:
        axes = ", ".join(f"{axis} {format_duration(seconds)}" for axis, seconds in placed["slowed_s"].items())
        words = f"links make a step {100 * placed['slower_than_ideal_by']:.2g} % longer ({axes})"
    else:
        words = "no link makes a step longer"
    rail_share = f"{100 * placed['rail_local_fraction']:.3g} % of the traffic on its rail"
    lines = [f"  {words}; {rail_share}, {100 * placed['leaf_local_fraction']:.3g} % under its leaf"]
    default = placed["predicted"]["default_is_slower_by"]
    if default is not None and default > MIN_SHOWN_SHARE:
        lines.append(f"  Slurm's own order would be {100 * default:.2g} % slower: opsk place writes the rank file")
    return lines


MIN_SHOWN_SHARE = 5e-4
"""Less than 0.05 % of a step is not shown."""
