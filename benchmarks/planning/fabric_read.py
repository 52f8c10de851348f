"""Measures how long a fabric of 10,000 nodes x 8 HCAs takes to read: ``python -m benchmarks.planning.fabric_read``.

Describes a fabric of three tiers, writes it as ibnetdiscover does, and times reading that text and finding its rails:
both together are what every command that needs a fabric waits for. CPU time of this process, which does not depend on
what else the machine does. Smaller fabrics before show how it grows.
"""

from __future__ import annotations

import argparse

from benchmarks.found import Found, arguments, run
from benchmarks.planning.large_fabric import NODES, large_fabric
from benchmarks.process_use import own_peak_bytes, time_call
from opsk.fabric.dumps.dialects import read_fabric
from opsk.fabric.dumps.render import render_ibnetdiscover
from opsk.fabric.graph import summarise_fabric
from opsk.fabric.rails import find_rails

SHORT_NODES = 64
SMALLER = (16, 8, 4, 2, 1)
"""The fabrics measured have the asked for number of nodes over these."""


def measure(asked: argparse.Namespace) -> Found:
    """Print and return the figures."""
    nodes = SHORT_NODES if asked.short else asked.nodes
    found = Found(curves={"nodes": [(nodes // part, read_s(nodes // part)) for part in SMALLER]})
    found.figures["read_s"] = found.curves["nodes"][-1][1]
    found.figures["rss_bytes"] = own_peak_bytes()
    print(f"memory      {found.figures['rss_bytes'] / 1e6:.0f} MB")
    return found


def read_s(nodes: int) -> float:
    """Read a fabric of so many nodes; print and return the CPU seconds."""
    text = render_ibnetdiscover(large_fabric(nodes, cores_per_spine=32))
    fabric, _, read_cpu_s = time_call(lambda: read_fabric(text, source="benchmark"))
    rails, _, rails_cpu_s = time_call(lambda: find_rails(fabric))
    numbers = summarise_fabric(fabric)
    print(
        f"{nodes:6,} nodes  {len(text) / 1e6:5.1f} MB, {numbers.hcas:6,} HCAs, {numbers.isl_cables:6,} cables between "
        f"switches: read {read_cpu_s:.2f} s, find {rails.rail_count} rails of {len(rails.units)} units "
        f"{rails_cpu_s:.2f} s of CPU; {len(rails.faults) + len(fabric.faults)} faults"
    )
    return read_cpu_s + rails_cpu_s


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    run(measure, parser)
