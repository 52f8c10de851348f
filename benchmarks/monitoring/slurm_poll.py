"""Compares opsk's poll of Slurm's jobs with ``squeue --json``: ``python -m benchmarks.monitoring.slurm_poll``.

On a real slurmctld of its own with more and more held jobs: opsk asks for all jobs and reads the answer, then
``squeue --json`` is asked and its JSON parsed, in turn, blocks of one run. Counted is the CPU time of who asks (this
process and the command) and that of slurmctld, each a question.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.found import Found, NotRunError, arguments, run
from benchmarks.process_use import cpu_s, family_cpu_s
from opsk.lab.programs import find_missing
from opsk.slurm.commands.command import CommandClient
from tests.fakes.storms import StormLab, storm_lab

SIZES, SHORT_SIZES = (125, 250, 500, 1000), (2, 4)
"""Jobs that wait."""
PAIRS, SHORT_PAIRS = 5, 1
QUESTIONS = 5
"""In a block: the kernel counts slurmctld's time in hundredths."""
CLIENTS = 8


def measure(asked: argparse.Namespace) -> Found:
    """Print and return the figures."""
    if absent := find_missing():
        raise NotRunError("not installed: " + ", ".join(absent))
    with tempfile.TemporaryDirectory(prefix="opsk-poll-") as folder:
        Path(folder).chmod(0o755)
        with storm_lab(Path(folder) / "lab") as lab:
            lab.install(empty=True)
            return measure_lab(lab, asked)


def measure_lab(lab: StormLab, asked: argparse.Namespace) -> Found:
    """Measure on this lab."""
    found = Found(curves={"opsk": [], "squeue_json": []})
    here = len(CommandClient(environment=lab.environ).jobs())
    for size in SHORT_SIZES if asked.short else SIZES:
        here += len(lab.submit(lab.scripts(max(size - here, 0), training=0), CLIENTS).jobs)
        found.figures = measure_in_turn(lab, here, SHORT_PAIRS if asked.short else PAIRS)
        found.curves["opsk"].append((here, found.figures["opsk_s"]))
        found.curves["squeue_json"].append((here, found.figures["squeue_json_s"]))
    return found


def measure_in_turn(lab: StormLab, jobs: int, pairs: int) -> dict[str, float]:
    """Ask both ways in turn; print and return what each cost."""
    client, controller = CommandClient(environment=lab.environ), slurmctld_pid(lab)
    ways: dict[str, Callable[[], int]] = {
        "opsk": lambda: len(client.jobs()),
        "squeue_json": lambda: len(json.loads(by_json(lab))["jobs"]),
    }
    spent: dict[str, list[float]] = {name: [] for name in ways}
    served: dict[str, list[float]] = {name: [] for name in ways}
    for name, ask in ways.items():
        if (answered := ask()) < jobs:
            raise RuntimeError(f"{name} tells of {answered} jobs, {jobs} were submitted")
    for _ in range(pairs):
        for name, ask in ways.items():
            before, serving = family_cpu_s(), cpu_s(controller)
            for _ in range(QUESTIONS):
                ask()
            spent[name].append((family_cpu_s() - before) / QUESTIONS)
            served[name].append((cpu_s(controller) - serving) / QUESTIONS)
    figures = {}
    for name in ways:
        figures[f"{name}_s"] = statistics.median(spent[name])
        figures[f"{name}_slurmctld_s"] = statistics.mean(served[name])
        print(
            f"{jobs:5,} jobs  {name:12} {1e3 * figures[f'{name}_s']:8.1f} ms of CPU a question, slurmctld "
            f"{1e3 * figures[f'{name}_slurmctld_s']:6.1f} ms",
            flush=True,
        )
    figures["opsk_ratio"] = figures["opsk_s"] / max(figures["squeue_json_s"], 1e-6)
    return figures


def slurmctld_pid(lab: StormLab) -> int:
    """Return the process of the lab's slurmctld."""
    (process,) = (each.process for each in lab.record.daemons if each.name == "slurmctld")
    if process is None:
        raise RuntimeError("slurmctld has not started")
    return process.pid


def by_json(lab: StormLab) -> bytes:
    """Return what ``squeue --json`` says."""
    return subprocess.run(["squeue", "--json"], env=lab.environ, timeout=120, check=True, capture_output=True).stdout


if __name__ == "__main__":
    run(measure, arguments(__doc__))
