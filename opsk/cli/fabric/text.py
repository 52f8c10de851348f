"""Prints a fabric for people: numbers, rails by node, tiers, leaves on no rail, and findings."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape as escape_markup
from rich.text import Text

from opsk.cli.render.fabric_text import MAX_BLOCKS, MAX_LEAVES, build_branches, build_matrix_tables
from opsk.fabric.cabling import shorten_name
from opsk.fabric.fabric import Fabric
from opsk.fabric.networks import Network
from opsk.fabric.rails import Rails
from opsk.fabric.views.marks import Loads
from opsk.fabric.views.matrix import build_matrix
from opsk.fabric.views.names import build_switch_labels
from opsk.fabric.views.tree import build_tree
from opsk.text import escape, to_json_values
from opsk.units import as_gbit_per_s

_MAX_NODES = 20
_MAX_PROBLEMS = 6
_MAX_DOMAINS = 20
_WIDTH_WITHOUT_TERMINAL = 140
_KINDS = {"node": "inside a node", "multi_node": "over several nodes", "none": "without NVLink"}


def print_nodes(document: dict[str, Any]) -> None:
    """Print the nodes of an answer of ``opsk fabric`` for people."""
    shown = to_json_values({"nodes": document["nodes"], "hb_domains": document["hb_domains"]})
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    for node in shown["nodes"][:_MAX_NODES]:
        _print_node(console, node)
    if len(shown["nodes"]) > _MAX_NODES:
        _print_line(console, f"... and {len(shown['nodes']) - _MAX_NODES} more nodes (--json shows all)")
    _print_domains(console, shown["hb_domains"])


def _print_line(console: Console, text: str, style: str = "") -> None:
    console.print(Text(escape(text), style=style), soft_wrap=True)


def _print_node(console: Console, node: dict[str, Any]) -> None:
    """Print one node: a summary line, a line per NIC with its GPUs, and its problems."""
    models = Counter(gpu["model"] or "GPU" for gpu in node["gpus"])
    what = ", ".join(f"{count} x {model}" for model, count in models.items()) or "no GPU"
    paths = Counter(node["gpu_paths"].values())
    joined = f", joined by {', '.join(f'{path} ({count} pairs)' for path, count in paths.items())}" if paths else ""
    _print_line(console, f"{node['node']}: {what}, {len(node['nics'])} NICs{joined}", "bold")
    if node["fabric_domain"]:
        _print_line(console, f"  NVLink domain {node['fabric_domain']}")
    served: defaultdict[str, list[str]] = defaultdict(list)
    for gpu, nic in node["affinity"].items():
        served[nic].append(f"GPU {gpu} ({node['affinity_paths'][gpu]})")
    for nic, gpus in served.items():
        _print_line(console, f"  {nic} serves {', '.join(gpus)}")
    for problem in node["problems"][:_MAX_PROBLEMS]:
        _print_line(console, f"  {problem}", "yellow")
    if len(node["problems"]) > _MAX_PROBLEMS:
        _print_line(console, f"  ... and {len(node['problems']) - _MAX_PROBLEMS} more (--json shows all)", "yellow")


def _print_domains(console: Console, domains: list[dict[str, Any]]) -> None:
    """Print the number of HB domains by kind and size, and the names of those over several nodes."""
    sizes = Counter((domain["kind"], domain["gpus"]) for domain in domains)
    for (kind, gpus), count in sizes.items():
        size = f" of {gpus} GPUs" if gpus is not None else ""
        _print_line(console, f"HB domains {_KINDS.get(kind, kind)}: {count}{size}")
    several = [domain for domain in domains if domain["kind"] == "multi_node"]
    for domain in several[:_MAX_DOMAINS]:
        _print_line(console, f"  {domain['name']}: {len(domain['nodes'])} nodes")
    if len(several) > _MAX_DOMAINS:
        _print_line(console, f"  ... and {len(several) - _MAX_DOMAINS} more (--json shows all)")


def print_networks(document: Mapping[str, Any]) -> None:
    """Print the fabrics, where there are several or one is shared, and the result of the route check."""
    console = Console(highlight=False, soft_wrap=True)
    networks: Sequence[Network] = document["fabrics"]
    if len(networks) > 1 or any(network.shared for network in networks):
        console.print("Fabrics")
        for network in networks:
            role = network.role or "of unknown use"
            shared = f", shared with {' and '.join(network.shared)}" if network.shared else ""
            counts = f"{len(network.switches)} switches, {len(network.hosts)} hosts"
            console.print(escape_markup(f"  {role}{shared} ({network.link_layer}): {counts}; {escape(network.why)}"))
    routes = document["routes"]
    if routes is not None:
        lost = f"{routes['unreachable']} pairs of leaf and HCA port without a route, {routes['loops']} in a loop"
        console.print(f"Routes: tables of {routes['switches']} switches, {routes['destinations']} HCA ports; {lost}")


_MAX_PER_KIND = 6

_TITLES = {
    "swapped_hcas": "HCAs cabled crosswise",
    "misplaced_hca": "HCAs on a leaf of another rail or unit",
    "missing_leaf": "units without a leaf for a rail",
    "missing_rail": "nodes without an HCA on a rail",
    "names_follow_no_rail": "units whose device names follow no rail",
    "host_off_tier": "hosts on a spine or director chip",
    "generic_host_name": "hosts with an installer's name",
    "duplicate_host_name": "one name for several machines",
    "unnamed_hca": "HCAs without a host name",
    "two_cables_on_one_hca": "HCAs with two cables",
    "leaf_short_of_uplinks": "leaves short of uplinks",
    "spine_short_of_uplinks": "spines short of uplinks",
    "spine_short_of_cables": "spines that leaves lack cables to",
    "missing_spine": "tiers that lack a spine",
    "uneven_uplinks": "uplinks spread unevenly",
    "oversubscribed_leaf": "oversubscribed leaves",
    "oversubscribed_tier": "oversubscribed tiers",
    "fewer_hcas": "nodes with fewer HCAs than their like",
    "thin_leaf": "leaves with hardly any HCA",
    "slow_link": "slow links",
    "narrow_link": "narrow links",
    "loop_cable": "cables from a switch to itself",
    "cables_inside_a_tier": "cables between switches of one tier",
    "isolated_part": "parts without a cable to the rest",
    "no_cable": "without any cable",
    "damaged_line": "lines that could not be read",
    "empty_lid": "without LID",
    "bad_lid": "LIDs that no port can have",
    "duplicate_guid": "one guid, two descriptions",
    "port_named_twice": "ports that the dump names twice",
    "one_sided_link": "links that one end only names",
    "ends_contradict": "ends that contradict each other",
    "ends_disagree_on_speed": "ends that disagree on the speed",
    "switch_only_named": "switches known by name only",
    "hca_only_named": "adapters known by name only",
    "unreadable_file": "files that could not be read",
}


def print_fabric(document: dict[str, Any], fabric: Fabric, rails: Rails, loads: Loads | None = None) -> None:
    """Print the answer of ``opsk fabric`` for people; ``loads`` of links are shown where they are known."""
    shown = to_json_values(document)
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    _print_numbers(console, shown)
    print_views(console, fabric, rails, loads)
    _print_other_leaves(console, shown)
    _print_faults(console, shown)


def _print_numbers(console: Console, shown: dict[str, Any]) -> None:
    numbers = shown["summary"]
    tiers = " / ".join(str(count) for count in numbers["switches_per_tier"].values())
    when = f", {shown['generated']}" if shown["generated"] else ""
    _print_line(console, f"{shown['source']}{when}", "bold")
    hosts = ", ".join(f"{count} {role}" for role, count in shown["hosts"].items())
    _print_line(
        console,
        f"{numbers['switches']} switches in {numbers['tiers']} tiers ({tiers}), {numbers['leaves']} leaves, "
        f"{numbers['isl_cables']} cables between switches; {numbers['hcas']} HCAs of {numbers['nodes']} nodes"
        + (f" ({hosts})" if hosts else ""),
    )
    speeds = ", ".join(f"{count} x {rate}" for rate, count in numbers["hca_link_speeds"].items())
    over = shown["oversubscription"]
    ratio = f"; leaves {over['median']:.2f}:1, worst {over['worst']:.2f}:1" if over["worst"] is not None else ""
    _print_line(console, f"HCA links {speeds or 'none'}{ratio}")
    if len(numbers["components"]) > 1:
        _print_line(
            console, f"{len(numbers['components'])} parts of {', '.join(map(str, numbers['components'][:10]))} nodes"
        )


def print_views(console: Console, fabric: Fabric, rails: Rails, loads: Loads | None = None) -> None:
    """Print the rail × node matrix and the tree of tiers; ``loads`` of links are shown where they are known."""
    labels = build_switch_labels(fabric)
    matrix = build_matrix(fabric, rails, loads)
    for table in build_matrix_tables(matrix, labels, console.width):
        console.print(table)
    if len(matrix.blocks) > MAX_BLOCKS:
        _print_line(console, f"... and {len(matrix.blocks) - MAX_BLOCKS} more units (--json shows all)")
    if matrix.apart:
        _print_line(console, f"on no unit: {', '.join(matrix.apart[:_MAX_PER_KIND])}")
    tree = build_branches(build_tree(fabric, rails, loads, max_leaves=MAX_LEAVES, max_above=1), labels)
    if tree is not None:
        console.print(tree)


def _print_other_leaves(console: Console, shown: dict[str, Any]) -> None:
    """Print the leaves that are on no rail."""
    others = [leaf for leaf in shown["leaves"] if not leaf["carries"]]
    for leaf in others[:MAX_BLOCKS]:
        place = "a spine with hosts on it" if leaf["off_tier"] else "a leaf on no rail"
        up = f", {as_gbit_per_s(leaf['up_bytes_per_s']):.0f} Gbit/s up" if leaf["up_bytes_per_s"] else ""
        nodes = ", ".join(leaf["nodes"][:3]) + (" ..." if len(leaf["nodes"]) > 3 else "")
        name = f"{shorten_name(leaf['description'])} ({leaf['guid']})"
        _print_line(console, f"{leaf['role']}: {name}, {place}: {leaf['hca_links']} HCAs ({nodes}){up}")
    if len(others) > MAX_BLOCKS:
        _print_line(console, f"... and {len(others) - MAX_BLOCKS} more leaves on no rail (--json shows all)")


def _print_faults(console: Console, shown: dict[str, Any]) -> None:
    """Print the findings by kind, the first few of each."""
    kinds: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for fault in shown["faults"]:
        kinds[fault["kind"]].append(fault)
    if not kinds:
        _print_line(console, "No problems found.", "green")
        return
    order = [*_TITLES, *sorted(kinds.keys() - _TITLES.keys())]
    for kind in order:
        faults = kinds.get(kind)
        if not faults:
            continue
        _print_line(console, f"{_TITLES.get(kind, kind)}: {len(faults)}", "bold yellow")
        for fault in faults[:_MAX_PER_KIND]:
            cost = f"  -> {fault['cost']}" if fault["cost"] else ""
            _print_line(console, f"  {fault['where']}: {fault['evidence']}{cost}")
        if len(faults) > _MAX_PER_KIND:
            _print_line(console, f"  ... and {len(faults) - _MAX_PER_KIND} more (--json shows all)")
