"""Compares opsk's predictions of the plans that Calculon's search calls the best.

    python docs/programs/calculon_tables.py SEARCHES

SEARCHES is the record of Calculon's searches (``calculon_searches.json``). Prints the tables; ``accuracy.py`` puts them
into its page.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from calculon_winners import CLUSTER, THEIR_TIMES, Judged, judge, read_winners
from page_table import NOTHING, gib, seconds, table
from recipe_search import OF_ITS_TIME

from opsk.hardware.catalog import cluster
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.result import SearchResult
from opsk.planning.search.search import best_plans
from opsk.workload.plan import Offload, Plan, Sharding, Software

_STATES = {"weights": "weight_space", "gradients": "weight_grad_space", "optimizer": "optimizer_space"}
_THEIR_ACTIVATIONS = ("act_space", "act_checkpoint_size", "act_grad_space")
_INSTEAD = """The fastest plan that surely fits, and the fastest that is not expected to run out of memory, of
Megatron-LM of 2022, without overlap of tensor-parallel communication.

"""


def format_axes(plan: Plan) -> str:
    """Return a plan in a few words."""
    chunks = f"×{plan.vpp}" if plan.vpp > 1 else ""
    words = [f"TP{plan.tp} PP{plan.pp}{chunks} DP{plan.dp} mbs {plan.micro_batch}, {plan.recompute.value}"]
    words += ["ZeRO-1"] if plan.sharding is Sharding.ZERO1 else []
    words += ["SP"] if plan.sequence_parallel else []
    words += ["activations offloaded"] if plan.offload is Offload.ACTIVATIONS else []
    return ", ".join(words)


def sections(path: Path) -> Iterator[str]:
    """Yield the tables."""
    judged = judge(read_winners(path))
    best = [entry for entry in judged if entry.winner.rank == 1]
    yield summary(best)
    yield from (
        "\n",
        overview(best),
        "\n### What opsk takes instead\n\n",
        _INSTEAD,
        instead(best),
        "\n### Where the memory differs\n\n",
        memory(best),
    )
    yield from ("\n### Where the time differs\n\n", times(best), "\n### The rest of its top five\n\n")
    yield runners_up([entry for entry in judged if entry.winner.rank > 1])


def instead(best: Sequence[Judged]) -> str:
    """Return what opsk's own search takes for the same models, GPUs and batches, in software of 2022."""
    machine, limits = cluster(CLUSTER), OF_ITS_TIME[Software.MEGATRON]
    rows = {}
    for winner in (entry.winner for entry in best):
        gpus, batch = winner.plan.gpus, winner.plan.global_batch
        template = replace(winner.plan, tp_overlap=False, offload=Offload.NONE)
        request = PlanRequest(
            model=winner.model, cluster=machine, template=template, gpus=gpus, global_batch=batch, limits=limits, most=1
        )
        rows[f"{winner.case.partition(',')[0]}"] = (str(batch), *_found_row(best_plans(request)))
    head = ("model / GPUs", "batch", "fits", "s", "GiB", "tight", "s", "GiB", "chance to fit")
    return table(head, ((name, *row) for name, row in rows.items()))


def _found_row(found: SearchResult) -> tuple[str, ...]:
    """Return the best plan that surely fits, and the best of those that may."""
    cells: list[str] = []
    for candidates in (found.best_fitting, found.best):
        if not candidates:
            cells += [NOTHING] * 3
            continue
        one = candidates[0]
        cells += [format_axes(one.plan), seconds(one.step_s), gib(one.device_bytes)]
    return (*cells, f"{found.best[0].fit_probability:.0%}" if found.best else NOTHING)


def summary(best: Sequence[Judged]) -> str:
    """Return how many fit, and which are not legal."""
    count = {kind: sum(entry.ours["verdict"] == kind for entry in best) for kind in ("fits", "tight", "oom")}
    text = (
        f"Of {len(best)} winners {count['fits']} fit, {count['tight']} are tight and {count['oom']} run out of memory "
        "(chance to fit at least 95 %, between, at most 10 %). "
    )
    broken = [f"{entry.winner.case}: {'; '.join(entry.broken)}" for entry in best if entry.broken]
    return text + (f"Rules broken: {'. '.join(broken)}.\n" if broken else "None breaks a rule of opsk's.\n")


def overview(best: Sequence[Judged]) -> str:
    """Return what both say of the winners."""
    head = ("model / GPUs", "plan", "TP overlap", "Calculon s", "opsk s", "TP exposed s", "Calculon GiB", "opsk GiB")
    return table(
        (*head, "chance to fit", "verdict"),
        (
            (
                entry.winner.case,
                format_axes(entry.winner.plan) + "".join(f", {ask}" for ask in entry.winner.asks),
                entry.winner.overlap,
                seconds(entry.winner.step_s),
                *_both(entry),
                gib(entry.winner.total_bytes),
                gib(entry.ours["memory"]["total_bytes"]["expected"]),
                f"{entry.ours['memory']['fit_probability']:.0%}",
                entry.ours["verdict"],
            )
            for entry in best
        ),
    )


def _both(entry: Judged) -> tuple[str, str]:
    """Return our step with tensor-parallel communication hidden as asked, and with all of it exposed."""
    hidden, exposed = (document["time"]["step_s"]["expected"] for document in (entry.ours, entry.exposed))
    return seconds(hidden), NOTHING if not entry.winner.plan.tp_overlap else seconds(exposed)


def memory(best: Sequence[Judged]) -> str:
    """Return the parts of the memory of both [GiB]: Calculon's → ours."""
    head = ("model / GPUs", *_STATES, "of which vocabulary", "activations", "logits", "buffers, workspace", "NCCL")
    return table((*head, "context", "slack"), (_memory_row(entry) for entry in best))


def _memory_row(entry: Judged) -> tuple[str, ...]:
    parts, bare = entry.ours["memory"]["components"], entry.without_vocab["memory"]["components"]
    theirs = entry.winner.memory_bytes
    alone = (
        parts["logits"],
        parts["buffers"] + parts["workspace"],
        parts["communication"],
        parts["context"],
        parts["slack"] + parts["fragmentation"],
    )
    return (
        entry.winner.case,
        *(f"{gib(theirs[name])} → {gib(parts[ours])}" for ours, name in _STATES.items()),
        gib(sum(parts[name] - bare[name] for name in _STATES)),
        f"{gib(sum(theirs[name] for name in _THEIR_ACTIVATIONS))} → {gib(parts['activations'])}",
        *(gib(value) for value in alone),
    )


def times(best: Sequence[Judged]) -> str:
    """Return the parts of the step of both [s]: Calculon's → ours."""
    return table(("model / GPUs", *THEIR_TIMES), (_times_row(entry) for entry in best))


def _times_row(entry: Judged) -> tuple[str, ...]:
    ours = dict(entry.ours["time"]["components"])
    told = {name: ours.pop(name) for name in THEIR_TIMES if name != "rest"}
    told["rest"] = sum(ours.values())
    return (entry.winner.case, *(f"{entry.winner.times_s[name]:.2f} → {told[name]:.2f}" for name in THEIR_TIMES))


def runners_up(judged: Sequence[Judged]) -> str:
    """Return the other plans that a search kept."""
    head = (
        "model / GPUs",
        "rank",
        "plan",
        "Calculon s",
        "opsk s",
        "TP exposed s",
        "Calculon GiB",
        "opsk GiB",
        "verdict",
    )
    return table(
        head,
        (
            (
                entry.winner.case,
                str(entry.winner.rank),
                format_axes(entry.winner.plan),
                seconds(entry.winner.step_s),
                *_both(entry),
                gib(entry.winner.total_bytes),
                gib(entry.ours["memory"]["total_bytes"]["expected"]),
                entry.ours["verdict"],
            )
            for entry in judged
        ),
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("searches", type=Path)
    print("".join(sections(parser.parse_args().searches)))


if __name__ == "__main__":
    main()
