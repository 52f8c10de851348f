"""Implements ``opsk fabric --write`` and ``--diff``, and ``opsk fabric topology.conf``: topology files of Slurm."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from opsk.app.inputs.fabric_files import STDIN, read_text
from opsk.cli.document import echo_json
from opsk.cli.option_groups import option_group
from opsk.errors import ExitStatus, InputError, SlurmError
from opsk.fabric.dumps.guid_tables import is_guid_tree
from opsk.fabric.fabric import Fault
from opsk.fabric.hb_domains import HbDomain
from opsk.fabric.rails import Rails
from opsk.hostlist import fold
from opsk.slurm.commands.command import CommandClient
from opsk.slurm.topology.block import build_blocks
from opsk.slurm.topology.check import check_topology
from opsk.slurm.topology.conf import SlurmTopology, TopologyConf, render_conf, render_yaml, summarise_topology
from opsk.slurm.topology.difference import Difference, compare_topologies, diff_texts
from opsk.slurm.topology.release import FORMS, NEWEST, Release, check_form, format_release, parse_release
from opsk.slurm.topology.tree import TREE_HEADING, build_topology_tree
from opsk.slurm.topology.yaml_file import NamedTopology, TopologyFile, is_topology, merge_topologies, read_topology
from opsk.text import escape

_MAX_SHOWN_GROUPS = 40
_HEAD_BYTES = 200_000
LIVE = "live"
"""Means the file that the running Slurm reads."""
_FOLDER = Path("/etc/slurm")
_MAX_SHOWN_MOVES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyRequest:
    """The options of ``opsk fabric --write``; ``form`` is ``None`` when nothing is written."""

    form: str | None
    slurm_release: str | None
    spares_per_block: int
    partitions: tuple[str, ...]
    against: str | None

    def check(self) -> None:
        """Check that the options go together.

        Raises
        ------
        click.UsageError
            An option is given without the one that it belongs to.
        """
        if self.form is None and (self.against is not None or self.slurm_release or self.partitions):
            raise click.UsageError("--diff, --slurm-release and --partition need --write")
        if self.partitions and self.form != "yaml":
            raise click.UsageError(
                "--partition needs --write yaml: a topology.conf has one topology for all partitions"
            )


_OPTIONS = (
    click.option("--write", "form", type=click.Choice(FORMS),
                 help="Print a topology for Slurm instead: topology.conf with a tree or blocks, or topology.yaml."),
    click.option("--slurm-release", metavar="X.Y",
                 help="Slurm release to write for; by default the installed or the newest known one."),
    click.option("--spares-per-block", type=click.IntRange(min=0), default=0, show_default=True, metavar="K",
                 help="Spare nodes in each block; the recommended --segment leaves them out."),
    click.option("--partition", "partitions", multiple=True, metavar="NAME=tree|block",
                 help="Topology of a partition in a topology.yaml; repeatable."),
    click.option("--diff", "against", is_flag=False, flag_value=LIVE, metavar="[FILE]",
                 help="With --write: show what changes for nodes compared with FILE, by default with the file that "
                      "Slurm reads. Exit status 1 if anything changes."),
)  # fmt: skip
topology_options = option_group("topology", TopologyRequest, _OPTIONS)


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
            f"{len(paths)} topology files: opsk fabric shows one at a time",
            hint="give one file, or compare with --diff",
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
        "topologies": [_build_read_topology(topology) for topology in file.topologies],
        "rails": [],
        "units": [{"unit": unit, "nodes": nodes} for unit, nodes in enumerate(_find_leaf_nodes(file))],
        "leaves": [],
        "hb_domains": [{"name": name, "nodes": nodes} for name, nodes in whole.blocks.items()],
        "nodes": [],
        "oversubscription": None,
        "hosts": {"compute": len(whole.nodes)},
        "faults": faults,
    }


def _build_read_topology(topology: NamedTopology) -> dict[str, Any]:
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
        click.echo("No problems found.")


def write_topology(
    request: TopologyRequest,
    rails: Rails,
    domains: Sequence[HbDomain] = (),
    *,
    node_names: Collection[str] | None = None,
    as_json: bool = False,
) -> ExitStatus:
    """Print the requested topology, or its difference from Slurm's."""
    release, release_source = _resolve_release(request)
    topologies, partitions = _build_topologies(request, rails, domains, node_names, release)
    text = _format_text(request, topologies, partitions, release, release_source)
    document = {
        "form": request.form,
        "release": format_release(release),
        "release_is": release_source,
        "text": text,
        "topologies": [_build_topology(name, written) for name, written in topologies],
        "partitions": partitions,
    }
    if request.against is None:
        if as_json:
            echo_json(document)
        else:
            click.echo(text, nl=False)
        return ExitStatus.ANSWER
    path = _find_live_path(request) if request.against == LIVE else Path(request.against)
    live_text = _read_topology_text(path)
    live = read_topology(live_text, source=str(path))
    changes = _compare_topologies(topologies, live)
    unified = diff_texts(live_text, text, before_name=str(path), after_name="opsk")
    is_same = all(change["is_same"] for change in changes)
    answer = {"file": path, "is_same": is_same, "topologies": changes, "problems": live.problems, "unified": unified}
    if as_json:
        echo_json(document | {"difference": answer})
    else:
        _print_difference(answer)
    return ExitStatus.ANSWER if is_same else ExitStatus.BAD_NEWS


def _resolve_release(request: TopologyRequest) -> tuple[Release, str]:
    """Return the release to write for, and its source: ``given``, ``installed``, ``any`` or ``assumed``."""
    if request.slurm_release:
        return parse_release(request.slurm_release), "given"
    if request.form == "tree":
        return NEWEST, "any"
    try:
        return CommandClient().release(), "installed"
    except SlurmError:
        return NEWEST, "assumed"


def _build_topologies(
    request: TopologyRequest,
    rails: Rails,
    domains: Sequence[HbDomain],
    node_names: Collection[str] | None,
    release: Release,
) -> tuple[list[tuple[str, SlurmTopology]], dict[str, str]]:
    """Return the topologies to write by name, the default first, and which one each partition uses."""
    form = request.form or "tree"
    check_form(form, release)
    partitions = dict(_parse_partition(text) for text in request.partitions)
    multi_node = any(len(domain.nodes) > 1 for domain in domains)
    topologies: list[tuple[str, SlurmTopology]] = []
    if form != "tree" and (form == "block" or multi_node or "block" in partitions.values()):
        blocks = build_blocks(
            rails, domains, node_names=node_names, release=release, spares_per_block=request.spares_per_block
        )
        topologies.append(("block", blocks))
    if form != "block":
        topologies.append(("tree", build_topology_tree(rails, node_names=node_names)))
    if not multi_node:
        topologies.reverse()
    return topologies, partitions


def _parse_partition(text: str) -> tuple[str, str]:
    """Return a partition and its topology."""
    name, sign, topology = text.partition("=")
    if not (name and sign and topology in ("tree", "block") and name.isprintable() and " " not in name):
        raise InputError(
            f"--partition {text[:60]!r} does not name a topology", hint="write it as NAME=tree or NAME=block"
        )
    return name, topology


def _format_text(
    request: TopologyRequest,
    topologies: Sequence[tuple[str, SlurmTopology]],
    partitions: dict[str, str],
    release: Release,
    release_source: str,
) -> str:
    """Return the text of the topology file."""
    if request.form == "tree":
        return render_conf(topologies[0][1], heading=(TREE_HEADING,))
    known = "" if release_source != "assumed" else ", the newest that opsk knows: no Slurm answers here"
    heading = [f"written by opsk from the cabling of the fabric, for Slurm {format_release(release)}{known}"]
    if request.form == "block":
        return render_conf(topologies[0][1], heading=(f"topology/block, {heading[0]}",))
    heading.append("slurm.conf names the topology of a partition; the others use the first one here:")
    heading += [f"  PartitionName={name} ... Topology={topology}" for name, topology in partitions.items()]
    if not partitions:
        heading.append(f"  PartitionName=... Topology={topologies[0][0]}")
    return render_yaml(topologies, heading=heading)


def _build_topology(name: str, written: SlurmTopology) -> dict[str, Any]:
    """Return one topology for programs."""
    return {
        "name": name,
        "kind": written.kind,
        "groups": [{"name": entry.name, "nodes": entry.nodes} for entry in written.entries if not entry.children],
        "block_sizes": written.block_sizes or None,
        "segment": written.segment or None,
        "left_out": written.left_out,
        "notes": written.notes,
    }


def _find_live_path(request: TopologyRequest) -> Path:
    """Return the topology file of the running Slurm: next to slurm.conf, else in /etc/slurm."""
    name = "topology.yaml" if request.form == "yaml" else "topology.conf"
    try:
        conf = CommandClient().config().get("SLURM_CONF", "")
    except SlurmError:
        conf = ""
    path = (Path(conf).parent if conf.startswith("/") else _FOLDER) / name
    if not path.exists():
        raise InputError(f"{path}: no such file to compare with", hint="give the file: --diff FILE")
    return path


def _read_topology_text(path: Path) -> str:
    """Return the text of the file to compare with."""
    try:
        return read_text(path)
    except InputError as error:
        raise InputError(error.message, hint="give a topology.conf or topology.yaml: --diff FILE") from error


def _compare_topologies(topologies: Sequence[tuple[str, SlurmTopology]], live: TopologyFile) -> list[dict[str, Any]]:
    """Return the changes of each written topology against one of the same kind; without one, all nodes are new."""
    changes = []
    for name, written in topologies:
        old = live.of_kind(written.kind)
        if old is None and len(topologies) == 1:
            old = live.default
        changed = compare_topologies(old.conf if old else TopologyConf(), written.conf)
        other_kind = old is None or old.kind != written.kind
        changes.append(
            {
                "name": name,
                "kind": written.kind,
                "kind_before": old.kind if old else None,
                "is_same": changed.is_same and not other_kind,
                **_build_difference(changed),
            }
        )
    return changes


def _build_difference(changed: Difference) -> dict[str, Any]:
    """Return a difference for programs."""
    return {
        "moves": changed.moves,
        "appear": changed.appear,
        "vanish": changed.vanish,
        "upper_levels": changed.upper_levels,
        "block_sizes": {"before": changed.sizes[0], "after": changed.sizes[1]} if changed.sizes else None,
    }


def _print_difference(answer: dict[str, Any]) -> None:
    """Print the changes of nodes, then the changed lines."""
    for change in answer["topologies"]:
        for line in _format_change(change):
            click.echo(escape(f"{change['name']}: {line}"))
    for problem in answer["problems"]:
        click.echo(escape(f"cannot be read: {problem}"))
    if not answer["unified"]:
        click.echo("The file is identical.")
    elif answer["is_same"]:
        click.echo("Nothing changes for any node; only names, order or comments differ:")
    for line in answer["unified"].splitlines():
        click.echo(escape(line))


def _format_change(change: dict[str, Any]) -> list[str]:
    """Return the changes of one topology as sentences."""
    sentences = []
    if change["kind_before"] != change["kind"]:
        sentences.append(f"a {change['kind']} topology replaces {change['kind_before'] or 'none'}")
    moves = change["moves"]
    sentences += [f"{move.node} moves from {move.before} to {move.after}" for move in moves[:_MAX_SHOWN_MOVES]]
    if len(moves) > _MAX_SHOWN_MOVES:
        sentences.append(f"... and {len(moves) - _MAX_SHOWN_MOVES} more nodes move")
    for key, words in (("appear", "new"), ("vanish", "removed")):
        if change[key]:
            sentences.append(f"{len(change[key])} nodes are {words}: {', '.join(change[key][:_MAX_SHOWN_MOVES])}")
    if change["upper_levels"]:
        sentences.append("the levels above the leaf groups change" if change["kind"] == "tree"
                    else "the order of the blocks changes, and so do the larger blocks")  # fmt: skip
    if change["block_sizes"]:
        sentences.append(f"BlockSizes {change['block_sizes']['before']} becomes {change['block_sizes']['after']}")
    return sentences
