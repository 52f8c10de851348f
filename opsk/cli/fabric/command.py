"""Implements ``opsk fabric``: shows the actual cabling, its rails, and what is wrong with it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from opsk.app.fabric import (
    FabricRequest,
    build_fabric_document,
    find_site_compute_nodes,
    read_site_roles,
)
from opsk.app.inputs.fabric_files import build_missing_fabric_error, read_live, split_routes
from opsk.app.inputs.node_files import match_fabric_names, read_files
from opsk.cli.document import echo_json
from opsk.cli.fabric.options import adaptive_option, routes_option
from opsk.cli.fabric.snapshots import SnapshotRequest, run_snapshot_request, snapshot_options, store_fabric
from opsk.cli.fabric.text import print_fabric, print_networks, print_nodes
from opsk.cli.fabric.topology import (
    TopologyRequest,
    filter_topology_files,
    print_topologies,
    topology_options,
    write_topology,
)
from opsk.cli.render.fabric_svg import STDOUT, render_fabric_svg, svg_options, write_svg
from opsk.errors import ExitStatus
from opsk.fabric.fabric import Fabric, Fault
from opsk.fabric.hb_domains import find_hb_domains
from opsk.fabric.rails import Rails, find_rails
from opsk.hostlist import expand
from opsk.telemetry.network.port_places import build_port_places
from opsk.telemetry.network.rails_file import write_rails
from opsk.text import escape

rails_file_option = click.option(
    "--rails-file",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Write the rail, leaf and switch port of each HCA port to FILE, for opsk exporter.",
)
LIVE_DEADLINE_S = 60.0
_MIN_FOR_PROGRESS = 20


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, allow_dash=True), metavar="[[HOST=]FILE]...")
@click.option("--live", is_flag=True, help="Read the running fabric with ibnetdiscover.")
@click.option("--deadline", type=click.FloatRange(min=0.1), default=LIVE_DEADLINE_S, show_default=True,
              metavar="SECONDS", help="Time limit of --live.")  # fmt: skip
@click.option("--nodes", metavar="LIST", help="Compute nodes, as a host list; by default recognised by their cabling.")
@topology_options
@routes_option
@snapshot_options
@svg_options
@click.option(
    "--cluster",
    metavar="NAME|FILE",
    help="Cluster for whose jobs findings are priced; by default recognised by its HCAs.",
)
@adaptive_option
@rails_file_option
@click.option("--strict", is_flag=True, help="Exit with status 1 if there are findings.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
def fabric(
    files: tuple[Path, ...], *, live: bool, deadline: float, nodes: str | None, cluster: str | None, adaptive: bool,
    strict: bool, as_json: bool, svg: Path | None, svg_kind: str, routes: tuple[Path, ...], snapshot_request:
    SnapshotRequest, rails_file: Path | None, topology: TopologyRequest,
) -> int:  # fmt: skip
    """Show the fabric that the dumps in FILE describe, plain or gzipped.

    Dumps are outputs of ibnetdiscover (also with -p) and iblinkinfo, ibdiagnet2.lst, .net files of ibsim, and sharp_cmd
    topology together with a table of hosts and GUIDs. Forwarding tables among the files are checked, as with --routes.

    A FILE can also describe one node, named HOST or by the part before the first dot: nvidia-smi topo -m, -q, -q -x or
    nvlink -s, NCCL's topology XML, lstopo XML, or a copy of /sys/class/infiniband as a folder or an archive.

    Instead of dumps, FILE can be a topology for Slurm: topology.conf, topology.yaml, or a model of topograph.

    Exit status: 0 the fabric was read, whatever is wrong with it; 1 with --strict there are findings, with --diff nodes
    move, with --compare the fabrics differ; 2 no fabric could be read; 3 --live found no running fabric, or there is no
    store.
    """
    if snapshot_request.replaces_dumps and not files and not live:
        return run_snapshot_request(snapshot_request, as_json=as_json)
    if bool(files) == live:
        raise click.UsageError("give one or more FILEs, or --live")
    topology.check()
    if files and len(filter_topology_files(files)) == len(files):
        if rails_file is not None:
            raise click.UsageError("--rails-file needs a dump of the fabric: these files contain no cables")
        return print_topologies(files, strict=strict, as_json=as_json)
    dumps, tables = split_routes(files)
    if tables and not dumps:
        raise build_missing_fabric_error(tables)
    dump, node_files = (read_live(deadline), {}) if live else read_files(dumps)
    compute_nodes = expand(nodes) if nodes is not None else None
    rails = find_rails(dump, compute_nodes=compute_nodes or find_site_compute_nodes(dump, read_site_roles()))
    if rails_file is not None:
        save_rails(rails_file, dump, rails)
    if topology.form:
        domains, _ = find_hb_domains(rails.attachments, topologies=match_fabric_names(node_files, rails))
        return write_topology(topology, rails, domains, node_names=compute_nodes, as_json=as_json)
    details = FabricRequest(
        node_files=node_files, tables=(*routes, *tables), cluster=cluster, adaptive=adaptive,
        show_progress=_show_progress,
    )  # fmt: skip
    document = build_fabric_document(dump, rails, details)
    if snapshot_request.save:
        document["snapshot"] = store_fabric(snapshot_request, dump, document["hb_domains"])
    if svg is not None:
        write_svg(svg, render_fabric_svg(dump, rails, kind=svg_kind), with_json=as_json)
    if as_json:
        echo_json(document)
    elif svg != STDOUT:
        if dump.switches or dump.faults or not node_files:
            print_fabric(document, dump, rails)
            print_networks(document)
        if node_files:
            print_nodes(document)
    return ExitStatus.BAD_NEWS if strict and document["faults"] else ExitStatus.ANSWER


def save_rails(path: Path, fabric: Fabric, rails: Rails) -> None:
    """Write the rails file of a fabric, and print the number of its ports on stderr."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    count = write_rails(path, build_port_places(fabric, rails), source=fabric.source, generated=now)
    click.echo(f"opsk: {escape(str(path))}: rail, leaf and switch port of {count} HCA ports", err=True)


def _show_progress(faults: Sequence[Fault]) -> Iterator[Fault]:
    """Yield the findings, with a progress bar on terminals when there are many."""
    if len(faults) < _MIN_FOR_PROGRESS or not sys.stderr.isatty():
        yield from faults
        return
    with click.progressbar(faults, label="pricing findings", file=sys.stderr) as bar:
        yield from bar
