"""Prints nodes for people: their GPUs, the NIC of each, HB domains, and problems."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from rich.console import Console
from rich.text import Text

from opsk.text import escape, to_json_values

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
