"""How is a fabric shown to people: a line of numbers, the rails of each unit, the leaves out of line, the findings?"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opsk.cli.document import harmless, plain
from opsk.topology.cabling import short_name
from opsk.units import as_gbit_per_s

_MOST_UNITS = 40
_MOST_OF_A_KIND = 6
_WIDTH_WITHOUT_TERMINAL = 140

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


def picture(document: dict[str, Any]) -> None:
    """Print the answer of ``opsk fabric`` for people."""
    shown = plain(document)
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    _numbers(console, shown)
    _units(console, shown)
    _others(console, shown)
    _faults(console, shown)


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(Text(harmless(text), style=style), soft_wrap=True)


def _numbers(console: Console, shown: dict[str, Any]) -> None:
    numbers = shown["summary"]
    tiers = " / ".join(str(count) for count in numbers["switches_per_tier"].values())
    when = f", {shown['generated']}" if shown["generated"] else ""
    _line(console, f"{shown['source']}{when}", "bold")
    hosts = ", ".join(f"{count} {role}" for role, count in shown["hosts"].items())
    _line(
        console,
        f"{numbers['switches']} switches in {numbers['tiers']} tiers ({tiers}), {numbers['leaves']} leaves, "
        f"{numbers['isl_cables']} cables between switches; {numbers['hcas']} HCAs of {numbers['nodes']} nodes"
        + (f" ({hosts})" if hosts else ""),
    )
    speeds = ", ".join(f"{count} x {rate}" for rate, count in numbers["hca_link_speeds"].items())
    over = shown["oversubscription"]
    ratio = f"; leaves {over['median']:.2f}:1, worst {over['worst']:.2f}:1" if over["worst"] is not None else ""
    _line(console, f"HCA links {speeds or 'none'}{ratio}")
    if len(numbers["components"]) > 1:
        _line(console, f"{len(numbers['components'])} parts of {', '.join(map(str, numbers['components'][:10]))} nodes")


def _units(console: Console, shown: dict[str, Any]) -> None:
    """Print the rails of each unit: leaf and its HCA links and uplinks."""
    labels = _labels(shown["leaves"])
    cells: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
    for leaf in shown["leaves"]:
        for rail in leaf["carries"]:
            label = labels[leaf["guid"]]
            cells[leaf["unit"], rail].append(f"{label}\n{leaf['hca_links']} down, {leaf['uplinks']} up")
    if not cells:
        return
    rails = shown["rails"]
    table = Table(title="Leaves by unit and rail", title_justify="left", show_lines=False, pad_edge=False)
    table.add_column("unit")
    for rail in rails:
        names = ", ".join(harmless(name) for name in list(rail["devices"])[:2])
        table.add_column(Text(f"rail {rail['rail']}\n{names}"), overflow="fold")
    for unit in shown["units"][:_MOST_UNITS]:
        nodes = unit["nodes"]
        label = f"{unit['unit']}: {len(nodes)} nodes\n{harmless(nodes[0])} .. {harmless(nodes[-1])}" if nodes else ""
        row = [Text("\n".join(cells.get((unit["unit"], rail["rail"]), ["-"]))) for rail in rails]
        table.add_row(Text(label), *row)
    console.print(table)
    if len(shown["units"]) > _MOST_UNITS:
        _line(console, f"... and {len(shown['units']) - _MOST_UNITS} more units (--json shows all)")


def _labels(leaves: list[dict[str, Any]]) -> dict[str, str]:
    """Return a short name for each leaf: its guid where several share a description."""
    named = {leaf["guid"]: harmless(short_name(leaf["description"])) for leaf in leaves}
    counts = Counter(named.values())
    return {guid: name if name and counts[name] == 1 else guid for guid, name in named.items()}


def _others(console: Console, shown: dict[str, Any]) -> None:
    """Print the leaves that are on no rail."""
    others = [leaf for leaf in shown["leaves"] if not leaf["carries"]]
    for leaf in others[:_MOST_UNITS]:
        place = "a spine with hosts on it" if leaf["off_tier"] else "a leaf on no rail"
        up = f", {as_gbit_per_s(leaf['up_bytes_per_s']):.0f} Gbit/s up" if leaf["up_bytes_per_s"] else ""
        nodes = ", ".join(leaf["nodes"][:3]) + (" ..." if len(leaf["nodes"]) > 3 else "")
        name = f"{short_name(leaf['description'])} ({leaf['guid']})"
        _line(console, f"{leaf['role']}: {name}, {place}: {leaf['hca_links']} HCAs ({nodes}){up}")
    if len(others) > _MOST_UNITS:
        _line(console, f"... and {len(others) - _MOST_UNITS} more leaves on no rail (--json shows all)")


def _faults(console: Console, shown: dict[str, Any]) -> None:
    """Print the findings by kind, the first few of each."""
    kinds: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for fault in shown["faults"]:
        kinds[fault["kind"]].append(fault)
    if not kinds:
        _line(console, "Nothing wrong was found.", "green")
        return
    order = [*_TITLES, *sorted(kinds.keys() - _TITLES.keys())]
    for kind in order:
        faults = kinds.get(kind)
        if not faults:
            continue
        _line(console, f"{_TITLES.get(kind, kind)}: {len(faults)}", "bold yellow")
        for fault in faults[:_MOST_OF_A_KIND]:
            cost = f"  -> {fault['cost']}" if fault["cost"] else ""
            _line(console, f"  {fault['where']}: {fault['evidence']}{cost}")
        if len(faults) > _MOST_OF_A_KIND:
            _line(console, f"  ... and {len(faults) - _MOST_OF_A_KIND} more (--json shows all)")
