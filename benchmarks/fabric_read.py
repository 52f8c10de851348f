"""How long does a fabric of 10,000 nodes x 8 HCAs take to read? Budget: < 5 s, < 2 GB.

``python benchmarks/fabric_read.py [--nodes N]`` describes a fabric of three tiers, writes it as ibnetdiscover does,
and times reading that text and finding its rails: both together are what every command that needs a fabric waits for.
The budget is held against the process's own CPU time, since the machine may have other work.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

from opsk.topology.design import rail_optimized_fabric
from opsk.topology.dialects import read_fabric
from opsk.topology.graph import summary
from opsk.topology.rails import find_rails
from opsk.topology.render import as_ibnetdiscover

NODES_OF_A_UNIT = 32
UNITS_OF_A_POD = 8
HCAS = 8
READ_BUDGET_S = 5.0
RSS_BUDGET_BYTES = 2e9


def main() -> int:
    """Measure, print one line a quantity, and say whether the budgets hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    nodes = parser.parse_args().nodes
    pods = -(-nodes // (NODES_OF_A_UNIT * UNITS_OF_A_POD))
    text = as_ibnetdiscover(
        rail_optimized_fabric(
            nodes=nodes, hcas=HCAS, leaves=pods * UNITS_OF_A_POD * HCAS, spines=32, pods=pods, cores_per_spine=32
        )
    )
    clock, cpu = time.perf_counter(), time.process_time()
    fabric = read_fabric(text, source="benchmark")
    read_s, read_cpu_s = time.perf_counter() - clock, time.process_time() - cpu
    clock, cpu = time.perf_counter(), time.process_time()
    rails = find_rails(fabric)
    rails_s, rails_cpu_s = time.perf_counter() - clock, time.process_time() - cpu
    rss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    numbers = summary(fabric)
    total_s, total_cpu_s = read_s + rails_s, read_cpu_s + rails_cpu_s
    print(f"dump        {len(text) / 1e6:.1f} MB, {numbers.hcas} HCAs, {numbers.isl_cables} cables between switches")
    print(f"read        {read_s:.2f} s, {read_cpu_s:.2f} s of CPU")
    print(
        f"find rails  {rails_s:.2f} s, {rails_cpu_s:.2f} s of CPU: {len(rails.units)} units, {rails.rail_count} rails"
    )
    print(f"together    {total_s:.2f} s, {total_cpu_s:.2f} s of CPU (budget {READ_BUDGET_S:g} s)")
    print(f"memory      {rss_bytes / 1e6:.0f} MB (budget {RSS_BUDGET_BYTES / 1e6:.0f} MB)")
    print(f"faults      {len(rails.faults) + len(fabric.faults)}")
    return 0 if total_cpu_s < READ_BUDGET_S and rss_bytes < RSS_BUDGET_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
