"""Writes the rules that map series of other exporters to those of opsk, or checks that they are up to date.

``python -m deploy.prometheus.foreign`` writes them from the tables in the files beside, ``--check`` compares.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from deploy.prometheus import rule
from deploy.prometheus.from_dcgm import dcgm_rules
from deploy.prometheus.from_node_exporter import node_rules
from deploy.prometheus.from_slurm_exporter import slurm_rules

HERE = Path(__file__).resolve().parent
FILES = {
    "opsk-from-dcgm.yml": (
        "opsk-from-dcgm",
        (
            "Series of dcgm-exporter by the names that the dashboards, the alerts and `opsk top` read.",
            "GPUs that have an opsk exporter are left out, so both may run in one cluster. Blanks are dropped.",
            "What is not here has no counterpart: clock violations count microseconds or nanoseconds by release.",
        ),
        dcgm_rules,
    ),
    "opsk-from-node-exporter.yml": (
        "opsk-from-node-exporter",
        (
            "Series of node_exporter by the names that the dashboards, the alerts and `opsk top` read.",
            "Label node is the target without its port, as in scrape.yml. Rails are not known.",
        ),
        node_rules,
    ),
    "opsk-from-slurm-exporter.yml": (
        "opsk-from-slurm-exporter",
        (
            "Queue, nodes and GPUs of Slurm from other exporters: SckyzO's, vpenso's, rivosinc's, Slurm's own metrics",
            "(25.11 on; GPUs from 26.05 on). Scrape one of them, not two. Counts without a partition stay without.",
        ),
        slurm_rules,
    ),
}


def render(name: str) -> str:
    """Return one file of rules as text."""
    group, head, rules = FILES[name]
    source = f"Written by python -m deploy.prometheus.foreign from {rules.__module__.rpartition('.')[2]}.py."
    return rule.render(group, (*head, source), rules())


def main(arguments: Iterable[str]) -> int:
    """Write the files, or say which differ."""
    check = "--check" in tuple(arguments)
    stale = [name for name in FILES if not (HERE / name).exists() or (HERE / name).read_text("utf-8") != render(name)]
    for name in stale:
        if check:
            print(f"{name} is not what deploy/prometheus/foreign.py makes: run python -m deploy.prometheus.foreign")
        else:
            (HERE / name).write_text(render(name), encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
