"""Implements ``opsk fabric``: shows the actual cabling, its rails, and what is wrong with it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from opsk.app.inputs.fabric_dump import read_live
from opsk.app.inputs.node_files import build_nodes_document, match_fabric_names, read_files
from opsk.app.inputs.route_files import build_missing_fabric_error, build_routes_document, split_routes
from opsk.cli.document import echo_json
from opsk.cli.fabric.fault_costs import price_faults
from opsk.cli.fabric.options import adaptive_option, routes_option
from opsk.cli.fabric.read_topology import filter_topology_files, print_topologies
from opsk.cli.fabric.snapshots import SnapshotRequest, run_snapshot_request, snapshot_options, store_fabric
from opsk.cli.fabric.text import print_fabric, print_networks
from opsk.cli.fabric.write_topology import build_topology_request, topology_options, write_topology
from opsk.cli.node_text import print_nodes
from opsk.cli.render.fabric_svg import render_fabric_svg
from opsk.cli.render.svg_file import STDOUT, svg_options, write_svg
from opsk.config import load_site
from opsk.errors import ConfigError, ExitStatus, InputError
from opsk.fabric.bandwidth import compute_oversubscription
from opsk.fabric.fabric import Fabric
from opsk.fabric.graph import HcaLink, find_hca_links, summarise_fabric
from opsk.fabric.hb_domains import find_hb_domains
from opsk.fabric.hosts.hosts import COMPUTE
from opsk.fabric.hosts.ports import natural_key
from opsk.fabric.networks import find_networks
from opsk.fabric.node.node_topology import NodeTopology
from opsk.fabric.rails import Attachment, Rails, find_rails
from opsk.hostlist import expand
from opsk.telemetry.network.rails_file import PortPlace, write_rails
from opsk.text import escape

_OUTSIDE_BRACKETS = re.compile(r",(?![^\[]*\])")


def read_site_roles() -> dict[str, frozenset[str]]:
    """Return the names under each role of ``fabric_roles`` in opsk.toml; patterns with ``*`` are not expanded.

    Raises
    ------
    ConfigError
        When one is no host list.
    """
    return {role: _expand_role(role, text) for role, text in load_site().fabric_roles.items()}


def find_site_compute_nodes(fabric: Fabric, roles: Mapping[str, Collection[str]]) -> frozenset[str] | None:
    """Return the hosts of a fabric that the site calls compute nodes; ``None`` when it names none."""
    patterns = roles.get(COMPUTE)
    if patterns is None:
        return None
    hosts = {hca.node for hca in fabric.hcas.values() if hca.node is not None}
    return frozenset(host for host in hosts if any(fnmatchcase(host, pattern) for pattern in patterns))


def _expand_role(role: str, text: str) -> frozenset[str]:
    names: set[str] = set()
    for part in _OUTSIDE_BRACKETS.split(text):
        try:
            names |= {part.strip()} if "*" in part else set(expand(part.strip()))
        except InputError as error:
            raise ConfigError(f"fabric_roles.{role}: {error.message}", hint=error.hint) from error
    return frozenset(names - {""})


rails_file_option = click.option(
    "--rails-file",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Write the rail, leaf and switch port of each HCA port to FILE, for opsk exporter on the nodes.",
)


def save_rails(path: Path, fabric: Fabric, rails: Rails) -> None:
    """Write the rails file of a fabric, and print the number of its ports on stderr."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    count = write_rails(path, build_port_places(fabric, rails), source=fabric.source, generated=now)
    click.echo(f"opsk: {escape(str(path))}: rail, leaf and switch port of {count} HCA ports", err=True)


def build_port_places(fabric: Fabric, rails: Rails) -> Iterator[PortPlace]:
    """Yield the place of each cabled HCA port."""
    attached: dict[str, list[Attachment]] = {}
    for attachments in rails.attachments.values():
        for each in attachments:
            attached.setdefault(each.guid, []).append(each)
    for link in find_hca_links(fabric):
        if not re.fullmatch(r"[0-9a-f]{1,16}", link.hca):
            continue
        node = fabric.hcas[link.hca].node
        leaf = rails.leaves.get(link.switch)
        attachment = _find_attachment(attached.get(link.hca, []), link)
        role = "" if node is None else rails.host_roles.get(node, "")
        if role == "compute" and attachment is None and leaf is not None:
            # A compute node's port outside the compute fabric has the role of its leaf.
            role = leaf.role
        yield PortPlace(
            guid=link.hca.zfill(16),
            port=link.hca_port,
            node=node or "",
            rail=None if attachment is None else attachment.rail,
            leaf=fabric.switches[link.switch].description,
            switch=link.switch,
            switch_port=link.switch_port,
            role=role,
        )


def _find_attachment(attachments: list[Attachment], link: HcaLink) -> Attachment | None:
    """Return the rail attachment of one port; of two ports of one HCA on one leaf, the one with that number."""
    candidates = [attachment for attachment in attachments if attachment.leaf == link.switch]
    if len(candidates) > 1:
        candidates = [each for each in candidates if each.device.endswith(f":{link.hca_port}") == (link.hca_port > 1)]
    return candidates[0] if candidates else None


LIVE_DEADLINE_S = 60.0


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, allow_dash=True), metavar="[[HOST=]FILE]...")
@click.option("--live", is_flag=True, help="Read the running fabric with ibnetdiscover.")
@click.option("--deadline", type=click.FloatRange(min=0.1), default=LIVE_DEADLINE_S, show_default=True,
              metavar="SECONDS", help="How long --live may take.")  # fmt: skip
@click.option("--nodes", metavar="LIST", help="The compute nodes, as a host list; else they are told by their cabling.")
@topology_options
@routes_option
@snapshot_options
@svg_options
@click.option("--cluster", metavar="NAME|FILE", help="Cluster whose jobs findings are priced for; else told by HCAs.")
@adaptive_option
@rails_file_option
@click.option("--strict", is_flag=True, help="Exit with 1 when there are findings.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def fabric(
    files: tuple[Path, ...], *, live: bool, deadline: float, nodes: str | None, cluster: str | None, adaptive: bool,
    strict: bool, as_json: bool, svg: Path | None, svg_kind: str, routes: tuple[Path, ...], snapshot_request:
    SnapshotRequest, rails_file: Path | None,     **topology: Any,
) -> int:  # fmt: skip
    """Show the fabric that the dumps in FILE describe, plain or gzipped.

    These are ibnetdiscover, its -p, iblinkinfo, ibdiagnet2.lst, ibsim's .net, or the guids of sharp_cmd topology with a
    table of hosts and guids beside. Forwarding tables among them are followed, as with --routes.

    A FILE may also describe one node, HOST or the name before the first dot: nvidia-smi topo -m, -q, -q -x or nvlink
    -s, NCCL's topology XML, lstopo XML, or a copy of /sys/class/infiniband as a folder or archive.

    A FILE on its own may be what Slurm is told instead: topology.conf, topology.yaml, or a model of topograph.

    Exit status: 0 the fabric could be read, whatever is wrong with it; 1 with --strict when there are findings, with
    --diff when nodes change place, with --compare when the two differ; 2 no fabric could be read; 3 --live found no
    running fabric, or there is no store.
    """
    if snapshot_request.replaces_dumps and not files and not live:
        return run_snapshot_request(snapshot_request, as_json=as_json)
    if bool(files) == live:
        raise click.UsageError("give one or more FILEs, or --live")
    request = build_topology_request(**topology)
    if files and len(filter_topology_files(files)) == len(files):
        if rails_file is not None:
            raise click.UsageError("--rails-file needs a dump of the fabric: these files tell no cables")
        return print_topologies(files, strict=strict, as_json=as_json)
    dumps, tables = split_routes(files)
    if tables and not dumps:
        raise build_missing_fabric_error(tables)
    dump, node_files = (read_live(deadline), {}) if live else read_files(dumps)
    compute_nodes = expand(nodes) if nodes is not None else None
    rails = find_rails(dump, compute_nodes=compute_nodes or find_site_compute_nodes(dump, read_site_roles()))
    if rails_file is not None:
        save_rails(rails_file, dump, rails)
    if request.form:
        domains, _ = find_hb_domains(rails.attachments, topologies=match_fabric_names(node_files, rails))
        return write_topology(request, rails, domains, node_names=compute_nodes, as_json=as_json)
    document = build_fabric_document(dump, rails, node_files, cluster, (*routes, *tables), adaptive=adaptive)
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


def build_fabric_document(
    dump: Fabric,
    rails: Rails,
    node_files: Mapping[str, NodeTopology] | None = None,
    cluster: str | None = None,
    tables: Sequence[Path] = (),
    *,
    adaptive: bool = False,
) -> dict[str, Any]:
    """Return the JSON document of ``opsk fabric``."""
    nodes = match_fabric_names(node_files or {}, rails)
    domains, domain_faults = find_hb_domains(rails.attachments, topologies=nodes)
    routes, route_faults = build_routes_document(tables, dump)
    faults = [*dump.faults, *rails.faults, *domain_faults, *route_faults]
    priced, assumed = price_faults(dump, rails, faults, cluster, adaptive=adaptive)
    return {
        "source": dump.source,
        "generated": dump.generated or None,
        "summary": summarise_fabric(dump),
        "rails": _build_rails(rails),
        "units": [{"unit": index, "nodes": unit} for index, unit in enumerate(rails.units)],
        "leaves": sorted(rails.leaves.values(), key=_get_leaf_sort_key),
        "hb_domains": domains,
        "nodes": build_nodes_document(nodes, rails),
        "oversubscription": compute_oversubscription(dump, rails),
        "hosts": _count_hosts(rails),
        "fabrics": find_networks(dump, rails, site_roles=read_site_roles(), topologies=nodes),
        "routes": routes,
        "faults": priced,
        "assumed": assumed,
    }


def _get_leaf_sort_key(leaf: Any) -> tuple[Any, ...]:
    """Sort leaves by unit, then by rail; leaves of neither come last."""
    return (
        leaf.unit is None,
        leaf.unit or 0,
        leaf.rail is None,
        leaf.rail or 0,
        natural_key(leaf.description),
        leaf.guid,
    )


def _build_rails(rails: Rails) -> list[dict[str, Any]]:
    """Return each rail with its leaves, device names, number of nodes, and bandwidth."""
    devices: defaultdict[int, Counter[str]] = defaultdict(Counter)
    nodes: defaultdict[int, set[str]] = defaultdict(set)
    total: Counter[int] = Counter()
    for node, ports in rails.attachments.items():
        for port in ports:
            if port.rail is not None:
                devices[port.rail][port.device] += 1
                nodes[port.rail].add(node)
                total[port.rail] += round(port.bytes_per_s)
    by_unit = sorted(rails.leaves.values(), key=_get_leaf_sort_key)
    return [
        {
            "rail": rail,
            "leaves": [leaf.guid for leaf in by_unit if rail in leaf.carries],
            "leaf_of_unit": {str(leaf.unit): leaf.description for leaf in by_unit if rail in leaf.carries},
            "devices": dict(sorted(devices[rail].items(), key=lambda item: (-item[1], item[0]))),
            "nodes": len(nodes[rail]),
            "bytes_per_s": total[rail],
        }
        for rail in range(rails.rail_count)
    ]


def _count_hosts(rails: Rails) -> dict[str, int]:
    """Return how many hosts have each role."""
    return dict(sorted(Counter(rails.host_roles.values()).items()))
