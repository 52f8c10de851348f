"""Shows a topology file of Slurm or topograph: ``opsk fabric topology.conf``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from opsk.app.inputs.fabric_dump import STDIN, read_text
from opsk.cli.document import echo_json
from opsk.errors import ExitStatus, InputError
from opsk.fabric.dumps.guid_tables import is_guid_tree
from opsk.fabric.fabric import Fault
from opsk.hostlist import fold
from opsk.slurm.topology.check import check_topology
from opsk.slurm.topology.conf import summarise_topology
from opsk.slurm.topology.yaml_file import NamedTopology, TopologyFile, is_topology, merge_topologies, read_topology
from opsk.text import escape

_MAX_SHOWN_GROUPS = 40
_HEAD_BYTES = 200_000


def filter_topology_files(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return the files with a topology for Slurm or a model of topograph, recognised by their content."""
    heads = {path: _read_head(path) for path in paths if path != STDIN and path.is_file()}
    return tuple(path for path, head in heads.items() if is_topology(head) and not is_guid_tree(head))


def print_topologies(paths: Sequence[Path], *, strict: bool, as_json: bool) -> ExitStatus:
    """Print the topologies of a file.

    Raises
    ------
    InputError
        When none of them can be read, or there are several: they are alternatives, not parts.
    """
    if len(paths) != 1:
        raise InputError(
            f"{len(paths)} topology files are as many answers, not one",
            hint="give one at a time, or compare with --diff",
        )
    document = build_topology_document(read_topology(read_text(paths[0]), source=str(paths[0])), source=str(paths[0]))
    if as_json:
        echo_json(document)
    else:
        _print_document(document)
    return ExitStatus.BAD_NEWS if strict and document["faults"] else ExitStatus.ANSWER


def build_topology_document(file: TopologyFile, *, source: str) -> dict[str, Any]:
    """Return a document with the keys of ``opsk fabric``; values that a topology lacks are ``null`` or empty."""
    whole = merge_topologies(file)
    numbers = summarise_topology(whole)
    unknown = dict.fromkeys(("hcas", "isl_cables", "components"))
    faults = [fault for topology in file.topologies for fault in check_topology(topology.conf, source=source)]
    faults += [Fault(kind="damaged_line", where=source, evidence=problem, cost="left out") for problem in file.problems]
    return {
        "source": source,
        "generated": None,
        "summary": {**numbers, **unknown, "leaves": numbers["leaf_switches"], "tiers": numbers["levels"]},
        "topologies": [_build_topology(topology) for topology in file.topologies],
        "rails": [],
        "units": [{"unit": unit, "nodes": nodes} for unit, nodes in enumerate(_find_leaf_nodes(file))],
        "leaves": [],
        "hb_domains": [{"name": name, "nodes": nodes} for name, nodes in whole.blocks.items()],
        "nodes": [],
        "oversubscription": None,
        "hosts": {"compute": len(whole.nodes)},
        "faults": faults,
    }


def _build_topology(topology: NamedTopology) -> dict[str, Any]:
    return {
        "name": topology.name,
        "kind": topology.kind,
        "is_default": topology.is_default,
        "groups": [{"name": name, "nodes": nodes} for name, nodes in topology.conf.groups.items()],
        "above": {name: line.switches for name, line in topology.conf.switches.items() if line.switches},
        "block_sizes": topology.conf.block_sizes,
    }


def _find_leaf_nodes(file: TopologyFile) -> list[tuple[str, ...]]:
    """Return the nodes of each leaf switch of the first tree."""
    tree = file.of_kind("tree")
    return [switch.nodes for switch in tree.conf.switches.values() if switch.nodes] if tree else []


def _read_head(path: Path) -> str:
    """Return the start of a file; empty when it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _print_document(document: dict[str, Any]) -> None:
    """Print the topologies for people."""
    click.echo(escape(f"{document['source']}: {document['summary']['nodes']} nodes"))
    for topology in document["topologies"]:
        default = ", the cluster's default" if topology["is_default"] and len(document["topologies"]) > 1 else ""
        click.echo(
            escape(f"{topology['name']}: {topology['kind']}, {len(topology['groups'])} groups of nodes{default}")
        )
        for group in topology["groups"][:_MAX_SHOWN_GROUPS]:
            click.echo(escape(f"  {group['name']}: {len(group['nodes'])} nodes, {fold(group['nodes'])}"))
        if len(topology["groups"]) > _MAX_SHOWN_GROUPS:
            click.echo(f"  ... and {len(topology['groups']) - _MAX_SHOWN_GROUPS} more")
        for name, below in topology["above"].items():
            click.echo(escape(f"  {name} joins {len(below)} switches"))
        if topology["block_sizes"]:
            click.echo(escape(f"  BlockSizes {topology['block_sizes']}"))
    for fault in document["faults"]:
        click.echo(escape(f"{fault.kind}: {fault.where}: {fault.evidence}" + (f"; {fault.cost}" if fault.cost else "")))
    if not document["faults"]:
        click.echo("Nothing wrong was found.")
