"""What does a file say that Slurm or topograph was given as topology? ``opsk fabric topology.conf``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from opsk.app.inputs.fabric_dump import STDIN, text_of
from opsk.cli.document import echo_json
from opsk.errors import ExitStatus, InputError
from opsk.fabric.dumps.guid_tables import is_guid_tree
from opsk.fabric.fabric import Fault
from opsk.hostlist import fold
from opsk.slurm.topology.check import topology_faults
from opsk.slurm.topology.conf import topology_summary
from opsk.slurm.topology.yaml_file import NamedTopology, TopologyFile, is_topology, merged, read_topology
from opsk.text import escape

_SHOWN_GROUPS = 40
_HEAD_BYTES = 200_000


def topology_files(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return those of the files that hold a topology for Slurm, or a model of topograph; told by their content."""
    heads = {path: _head(path) for path in paths if path != STDIN and path.is_file()}
    return tuple(path for path, head in heads.items() if is_topology(head) and not is_guid_tree(head))


def show_topologies(paths: Sequence[Path], *, strict: bool, as_json: bool) -> ExitStatus:
    """Print what the files say.

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
    document = topology_document(read_topology(text_of(paths[0]), source=str(paths[0])), source=str(paths[0]))
    if as_json:
        echo_json(document)
    else:
        _show(document)
    return ExitStatus.BAD_NEWS if strict and document["faults"] else ExitStatus.ANSWER


def topology_document(file: TopologyFile, *, source: str) -> dict[str, Any]:
    """Return the answer with the keys of ``opsk fabric``; what no topology for Slurm tells is ``null`` or empty."""
    whole = merged(file)
    numbers = topology_summary(whole)
    unknown = dict.fromkeys(("hcas", "isl_cables", "components"))
    faults = [fault for each in file.topologies for fault in topology_faults(each.conf, source=source)]
    faults += [Fault(kind="damaged_line", where=source, evidence=problem, cost="left out") for problem in file.problems]
    return {
        "source": source,
        "generated": None,
        "summary": {**numbers, **unknown, "leaves": numbers["leaf_switches"], "tiers": numbers["levels"]},
        "topologies": [_described(each) for each in file.topologies],
        "rails": [],
        "units": [{"unit": unit, "nodes": nodes} for unit, nodes in enumerate(_leaf_nodes(file))],
        "leaves": [],
        "hb_domains": [{"name": name, "nodes": nodes} for name, nodes in whole.blocks.items()],
        "nodes": [],
        "oversubscription": None,
        "hosts": {"compute": len(whole.nodes)},
        "faults": faults,
    }


def _described(each: NamedTopology) -> dict[str, Any]:
    return {
        "name": each.name,
        "kind": each.kind,
        "is_default": each.is_default,
        "groups": [{"name": name, "nodes": nodes} for name, nodes in each.conf.groups.items()],
        "above": {name: line.switches for name, line in each.conf.switches.items() if line.switches},
        "block_sizes": each.conf.block_sizes,
    }


def _leaf_nodes(file: TopologyFile) -> list[tuple[str, ...]]:
    """Return the nodes of each leaf switch of the first tree."""
    tree = file.of_kind("tree")
    return [switch.nodes for switch in tree.conf.switches.values() if switch.nodes] if tree else []


def _head(path: Path) -> str:
    """Return the start of a file; empty when it cannot be read, or is packed."""
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _show(document: dict[str, Any]) -> None:
    """Print the topologies for people."""
    click.echo(escape(f"{document['source']}: {document['summary']['nodes']} nodes"))
    for each in document["topologies"]:
        default = ", the cluster's default" if each["is_default"] and len(document["topologies"]) > 1 else ""
        click.echo(escape(f"{each['name']}: {each['kind']}, {len(each['groups'])} groups of nodes{default}"))
        for group in each["groups"][:_SHOWN_GROUPS]:
            click.echo(escape(f"  {group['name']}: {len(group['nodes'])} nodes, {fold(group['nodes'])}"))
        if len(each["groups"]) > _SHOWN_GROUPS:
            click.echo(f"  ... and {len(each['groups']) - _SHOWN_GROUPS} more")
        for name, below in each["above"].items():
            click.echo(escape(f"  {name} joins {len(below)} switches"))
        if each["block_sizes"]:
            click.echo(escape(f"  BlockSizes {each['block_sizes']}"))
    for fault in document["faults"]:
        click.echo(escape(f"{fault.kind}: {fault.where}: {fault.evidence}" + (f"; {fault.cost}" if fault.cost else "")))
    if not document["faults"]:
        click.echo("Nothing wrong was found.")
