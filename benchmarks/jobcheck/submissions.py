"""Measures what the hooks cost sbatch and slurmctld: ``python -m benchmarks.jobcheck.submissions``.

On a real slurmctld. Throughput beside that with hooks that only return, for jobs that train nothing and for a mix with
20 % training jobs, for 1 and 8 clients; and, whatever befalls the advisor, how many jobs are accepted, and what a job
takes longer inside slurmctld, before and after the circuit breaker is open.

Blocks with empty hooks and with opsk's alternate, so that what else the machine does meets both: only the ratios of
neighbouring blocks count. Clients, slurmctld and advisor share this machine, as they need not elsewhere. Of the
mixes with training jobs one submits scripts again, as people and chains of jobs do. In the others every script is new,
of recipes that were submitted before (``--recipes`` says of how many): in one, seed and length differ, as in a sweep,
in the other a name of letters as well, so that each has to be read. Blocks are long: in a short one clients start
together and wait for the last of them, which is no throughput.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from benchmarks.found import Found, NotRunError, arguments, run
from benchmarks.process_use import children_cpu_s
from opsk.config import load_site
from opsk.lab.programs import find_missing
from tests.fakes.storms import CASES, HEALTHY, RECIPES, StormLab, restarted, storm_lab

MIXES = {"other": 0.0, "again": 0.2, "mix": 0.2, "named": 0.2}
"""Shares of training jobs."""
TITLES = {"other": "train nothing", "again": "20 % again", "mix": "20 % new", "named": "20 % named"}
CLIENTS = (1, 8)
IN_STORM = 0.5
"""Share of training jobs in a storm: the others ask nothing."""
SHORT_BLOCK, SHORT_PAIRS = 16, 1
MOST_JOBS, SPARE_JOBS = 10_000, 500
"""That slurmctld keeps in its list (MaxJobCount), and what is left free of it."""
SAMPLED = 24
SHORT_CASES = ("no socket",)
FIRST = 4
"""Training jobs until the breaker is surely open: three failures, and one to spare."""


def measure(asked: argparse.Namespace) -> Found:
    """Print ratios and storms, and return what they were."""
    if absent := find_missing():
        raise NotRunError("not installed: " + ", ".join(absent))
    with tempfile.TemporaryDirectory(prefix="opsk-storm-") as folder:
        Path(folder).chmod(0o755)
        with storm_lab(Path(folder) / "lab") as lab:
            return measure_lab(lab, asked)


def measure_lab(lab: StormLab, asked: argparse.Namespace) -> Found:
    """Measure on this lab."""
    block, pairs = (SHORT_BLOCK, SHORT_PAIRS) if asked.short else (asked.block, asked.pairs)
    found = Found()
    if not asked.no_throughput:
        found.figures |= throughput(lab, block, pairs, asked.recipes)
    if not asked.no_storms:
        storm, cases = (SHORT_BLOCK, SHORT_CASES) if asked.short else (asked.storm, tuple(CASES))
        found.figures |= storms(lab, storm, cases)
    return found


def throughput(lab: StormLab, block: int, pairs: int, recipes: int) -> dict[str, float]:
    """Print the ratios of throughput, by clients and mix; return their medians."""
    lab.start_advisor()
    # one after the other: in a crowd the advice on a new recipe is short, and it would not be known afterwards
    known = lab.scripts(min(recipes, block), training=1, recipes=recipes)
    for scripts in (known, known):
        lab.submit(scripts, 1)
    rates: dict[tuple[str, int, bool], list[float]] = defaultdict(list)
    spent: dict[tuple[str, bool], list[float]] = defaultdict(list)
    print(f"{pairs} pairs of blocks of {block} submissions, {recipes} recipes, {os.cpu_count()} processors", flush=True)
    for pair in range(pairs):
        for is_empty in (True, False) if pair % 2 else (False, True):
            lab.install(empty=is_empty)
            for mix, share in MIXES.items():
                for clients in CLIENTS:
                    scripts = (
                        lab.again(block, training=share, known=known)
                        if mix == "again"
                        else lab.scripts(block, training=share, recipes=recipes, are_named=mix == "named")
                    )
                    before = children_cpu_s()
                    storm = lab.submit(scripts, clients)
                    spent[mix, is_empty].append((children_cpu_s() - before) / block)
                    if len(storm.jobs) != block:
                        raise RuntimeError(f"not all were accepted: {storm.refused}")
                    rates[mix, clients, is_empty].append(storm.per_s)
            lab.cancel()
        make_room(lab, len(MIXES) * len(CLIENTS) * 2 * block)
    figures: dict[str, float] = {}
    for mix, title in TITLES.items():
        for clients in CLIENTS:
            ours, empty = rates[mix, clients, False], rates[mix, clients, True]
            ratios = sorted(mine / other for mine, other in zip(ours, empty, strict=True))
            key = f"{mix}_{clients}"
            figures |= {f"{key}_ratio": statistics.median(ratios), f"{key}_per_s": statistics.median(ours)}
            figures[f"{key}_empty_per_s"] = statistics.median(empty)
            print(
                f"{title:14} {clients} clients: {figures[f'{key}_ratio']:.2f} of empty hooks "
                f"({ratios[0]:.2f} to {ratios[-1]:.2f}); {figures[f'{key}_per_s']:.0f}/s, "
                f"empty {figures[f'{key}_empty_per_s']:.0f}/s",
                flush=True,
            )
    for mix, title in TITLES.items():
        ours_ms, empty_ms = (1e3 * statistics.median(spent[mix, is_empty]) for is_empty in (False, True))
        print(f"{title:14} CPU of a client: {ours_ms:.2f} ms, with empty hooks {empty_ms:.2f} ms", flush=True)
    return figures


def make_room(lab: StormLab, jobs: int) -> None:
    """Wait, if it must be, until slurmctld has room for so many jobs: it forgets cancelled ones once a minute."""
    lab.purge(most=MOST_JOBS - SPARE_JOBS - jobs)


def storms(lab: StormLab, submissions: int, cases: Sequence[str]) -> dict[str, float]:
    """Print what every misfortune costs, and return the worst of it.

    Training jobs alternate with jobs that ask nothing and cost slurmctld what they do with empty hooks: so what else
    this machine does at the time meets both.
    """
    lab.install(empty=False)
    config = load_site(lab.record.folder.site).advisor
    print(f"deadline {1e3 * config.submit_deadline_s:.0f} ms; inside slurmctld, beside jobs that ask nothing:")
    lost, first_ms, open_ms = 0, list[float](), list[float]()
    for name in cases:
        lab.forget()
        with CASES[name](lab):
            training, other = alternating(lab, SAMPLED)
            storm = lab.submit(lab.scripts(submissions, training=IN_STORM), max(CLIENTS))
        usual = statistics.median(other)
        lost += submissions - len(storm.jobs)
        first_ms.append(max(training[:FIRST]) - usual)
        later_ms = statistics.median(training[FIRST:]) - statistics.median(other[FIRST:])
        if name not in HEALTHY:
            open_ms.append(later_ms)
        after = "answers" if name in HEALTHY else "breaker open"
        print(
            f"{name:16} {len(storm.jobs)} of {submissions} accepted, {storm.per_s:.0f}/s; inside slurmctld "
            f"at most {first_ms[-1]:+.2f} ms, {after} {later_ms:+.2f} ms; others {usual:.2f} ms",
            flush=True,
        )
        lab.cancel()
        make_room(lab, submissions)
    storm = restarted(lab, lab.scripts(submissions, training=IN_STORM), max(CLIENTS))
    print(f"{'restarted':16} {len(storm.jobs)} of {submissions} accepted, {storm.per_s:.0f}/s, {storm.advised} advised")
    lost += submissions - len(storm.jobs)
    return {"lost_count": lost, "longest_s": max(first_ms) / 1e3, "breaker_open_s": max(open_ms) / 1e3}


def alternating(lab: StormLab, each: int) -> tuple[list[float], list[float]]:
    """Submit jobs that train and jobs that do not in turn; return what slurmctld took for each of both kinds [ms]."""
    pairs = zip(lab.scripts(each, training=1), lab.scripts(each, training=0), strict=True)
    took = lab.inside_ms([script for pair in pairs for script in pair])
    return took[0::2], took[1::2]


def parser() -> argparse.ArgumentParser:
    """Return what it can be told."""
    told = arguments(__doc__)
    told.add_argument("--block", type=int, default=200, help="submissions, with one kind of hooks")
    told.add_argument("--storm", type=int, default=2000, help="submissions, in each misfortune")
    told.add_argument(
        "--pairs",
        type=int,
        default=17,
        help="of blocks, with and without opsk's hooks: of five the median still wanders by 0.02",
    )
    told.add_argument("--recipes", type=int, default=RECIPES, help="models among the training jobs")
    told.add_argument("--no-storms", action="store_true", help="measure throughput alone")
    told.add_argument("--no-throughput", action="store_true", help="raise storms alone")
    return told


if __name__ == "__main__":
    run(measure, parser())
