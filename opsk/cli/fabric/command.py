"""The command ``opsk fabric``: what is really cabled, on which rails, and what is wrong with it."""

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
from opsk.app.inputs.node_files import nodes_document, on_fabric, read_files
from opsk.app.inputs.route_files import routes_document, split_routes, without_fabric
from opsk.cli.document import echo_json
from opsk.cli.fabric.fault_costs import priced_faults
from opsk.cli.fabric.options import adaptive_option, routes_option
from opsk.cli.fabric.picture import networks_picture, picture
from opsk.cli.fabric.snapshots import SnapshotRequest, answer, save, snapshot_options
from opsk.cli.fabric.topology_in import show_topologies, topology_files
from opsk.cli.fabric.topology_out import checked_request, topology_options, write_topology
from opsk.cli.node_picture import node_picture
from opsk.cli.render.fabric_svg import fabric_svg
from opsk.cli.render.svg_file import STDOUT, svg_options, write_svg
from opsk.config import load_site
from opsk.errors import ConfigError, ExitStatus, InputError
from opsk.fabric.bandwidth import oversubscription
from opsk.fabric.fabric import Fabric
from opsk.fabric.graph import HcaLink, hca_links, summary
from opsk.fabric.hb_domains import hb_domains
from opsk.fabric.hosts.hosts import COMPUTE
from opsk.fabric.hosts.ports import natural
from opsk.fabric.networks import find_networks
from opsk.fabric.node.node_topology import NodeTopology
from opsk.fabric.rails import Attachment, Rails, find_rails
from opsk.hostlist import expand
from opsk.telemetry.network.rails_file import PortPlace, write_rails
from opsk.text import escape

_OUTSIDE_BRACKETS = re.compile(r",(?![^\[]*\])")


def site_roles() -> dict[str, frozenset[str]]:
    """Return the names under each role of ``fabric_roles`` in opsk.toml; those with ``*`` as they are written.

    Raises
    ------
    ConfigError
        When one is no host list.
    """
    return {role: _names(role, text) for role, text in load_site().fabric_roles.items()}


def site_compute_nodes(fabric: Fabric, roles: Mapping[str, Collection[str]]) -> frozenset[str] | None:
    """Return the hosts of a fabric that the site calls compute nodes; ``None`` when it says nothing of them."""
    patterns = roles.get(COMPUTE)
    if patterns is None:
        return None
    hosts = {hca.node for hca in fabric.hcas.values() if hca.node is not None}
    return frozenset(host for host in hosts if any(fnmatchcase(host, pattern) for pattern in patterns))


def _names(role: str, text: str) -> frozenset[str]:
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
    """Write the rails file of a fabric, and say on stderr how many ports it tells about."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    count = write_rails(path, port_places(fabric, rails), source=fabric.source, generated=now)
    click.echo(f"opsk: {escape(str(path))}: rail, leaf and switch port of {count} HCA ports", err=True)


def port_places(fabric: Fabric, rails: Rails) -> Iterator[PortPlace]:
    """Return where each cabled port of each HCA leads."""
    attached: dict[str, list[Attachment]] = {}
    for attachments in rails.attachments.values():
        for each in attachments:
            attached.setdefault(each.guid, []).append(each)
    for link in hca_links(fabric):
        if not re.fullmatch(r"[0-9a-f]{1,16}", link.hca):
            continue
        node = fabric.hcas[link.hca].node
        leaf = rails.leaves.get(link.switch)
        attachment = _attachment(attached.get(link.hca, []), link)
        role = "" if node is None else rails.host_roles.get(node, "")
        if role == "compute" and attachment is None and leaf is not None:
            # A compute node's port beside the compute fabric is for what its leaf is for.
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


def _attachment(attachments: list[Attachment], link: HcaLink) -> Attachment | None:
    """Return what the rails say of one port; of two ports of one HCA on one leaf, the one with that number."""
    here = [attachment for attachment in attachments if attachment.leaf == link.switch]
    if len(here) > 1:
        here = [each for each in here if each.device.endswith(f":{link.hca_port}") == (link.hca_port > 1)]
    return here[0] if here else None


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
    strict: bool, as_json: bool, svg: Path | None, svg_kind: str, routes: tuple[Path, ...], kept: SnapshotRequest,
    rails_file: Path | None,     **topology: Any,
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
    if kept.instead and not files and not live:
        return answer(kept, as_json=as_json)
    if bool(files) == live:
        raise click.UsageError("give one or more FILEs, or --live")
    request = checked_request(**topology)
    if files and len(topology_files(files)) == len(files):
        if rails_file is not None:
            raise click.UsageError("--rails-file needs a dump of the fabric: these files tell no cables")
        return show_topologies(files, strict=strict, as_json=as_json)
    dumps, tables = split_routes(files)
    if tables and not dumps:
        raise without_fabric(tables)
    found, node_files = (read_live(deadline), {}) if live else read_files(dumps)
    compute_nodes = expand(nodes) if nodes is not None else None
    rails = find_rails(found, compute_nodes=compute_nodes or site_compute_nodes(found, site_roles()))
    if rails_file is not None:
        save_rails(rails_file, found, rails)
    if request.form:
        domains, _ = hb_domains(rails.attachments, topologies=on_fabric(node_files, rails))
        return write_topology(request, rails, domains, node_names=compute_nodes, as_json=as_json)
    document = fabric_document(found, rails, node_files, cluster, (*routes, *tables), adaptive=adaptive)
    if kept.save:
        document["snapshot"] = save(kept, found, document["hb_domains"])
    if svg is not None:
        write_svg(svg, fabric_svg(found, rails, kind=svg_kind), with_json=as_json)
    if as_json:
        echo_json(document)
    elif svg != STDOUT:
        if found.switches or found.faults or not node_files:
            picture(document, found, rails)
            networks_picture(document)
        if node_files:
            node_picture(document)
    return ExitStatus.BAD_NEWS if strict and document["faults"] else ExitStatus.ANSWER


def fabric_document(
    found: Fabric,
    rails: Rails,
    node_files: Mapping[str, NodeTopology] | None = None,
    cluster: str | None = None,
    tables: Sequence[Path] = (),
    *,
    adaptive: bool = False,
) -> dict[str, Any]:
    """Return the answer of ``opsk fabric`` with the keys that programs rely on."""
    nodes = on_fabric(node_files or {}, rails)
    domains, domain_faults = hb_domains(rails.attachments, topologies=nodes)
    routes, route_faults = routes_document(tables, found)
    faults = [*found.faults, *rails.faults, *domain_faults, *route_faults]
    priced, assumed = priced_faults(found, rails, faults, cluster, adaptive=adaptive)
    return {
        "source": found.source,
        "generated": found.generated or None,
        "summary": summary(found),
        "rails": _rails(rails),
        "units": [{"unit": index, "nodes": unit} for index, unit in enumerate(rails.units)],
        "leaves": sorted(rails.leaves.values(), key=_leaf_order),
        "hb_domains": domains,
        "nodes": nodes_document(nodes, rails),
        "oversubscription": oversubscription(found, rails),
        "hosts": _hosts(rails),
        "fabrics": find_networks(found, rails, site_roles=site_roles(), topologies=nodes),
        "routes": routes,
        "faults": priced,
        "assumed": assumed,
    }


def _leaf_order(leaf: Any) -> tuple[Any, ...]:
    """Units in order, rails within them, then the leaves of neither."""
    return leaf.unit is None, leaf.unit or 0, leaf.rail is None, leaf.rail or 0, natural(leaf.description), leaf.guid


def _rails(rails: Rails) -> list[dict[str, Any]]:
    """Return each rail with its leaves, how its HCAs are called, how many nodes have it, and its bandwidth."""
    devices: defaultdict[int, Counter[str]] = defaultdict(Counter)
    nodes: defaultdict[int, set[str]] = defaultdict(set)
    total: Counter[int] = Counter()
    for node, ports in rails.attachments.items():
        for port in ports:
            if port.rail is not None:
                devices[port.rail][port.device] += 1
                nodes[port.rail].add(node)
                total[port.rail] += round(port.bytes_per_s)
    by_unit = sorted(rails.leaves.values(), key=_leaf_order)
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


def _hosts(rails: Rails) -> dict[str, int]:
    """Return how many hosts have each role."""
    return dict(sorted(Counter(rails.host_roles.values()).items()))
