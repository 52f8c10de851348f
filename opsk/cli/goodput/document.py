"""How does the answer of ``opsk goodput`` look as one document, and as rows for a spreadsheet?"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from opsk.app.inputs.plan_file import PlanFile
from opsk.cli.goodput.inputs import Asked
from opsk.cli.goodput.words import recommendation
from opsk.costmodel.energy import JOULES_PER_KWH, steps_of
from opsk.costmodel.estimates.checkpoint import FILE_SYSTEM_BYTES_PER_S, nodes_of
from opsk.costmodel.power import STATE_FRACTIONS
from opsk.diagnosis.goodput.goodput import Goodput, SpareRow
from opsk.diagnosis.goodput.running import Saving
from opsk.hardware.failure_rates import TIMES
from opsk.hardware.spec import ClusterSpec
from opsk.units import hours
from opsk.workload.defaults import Assumption

ENDS = ("low", "expected", "high")
DAY_S = hours(24.0)


def goodput_document(
    predicted: Mapping[str, Any], found: Goodput, asked: PlanFile, failures: Asked, cluster: ClusterSpec
) -> dict[str, Any]:
    """Return the answer: what ``opsk predict`` says of the plan, and goodput, checkpoints and spares beside it."""
    time = predicted["time"]
    gpus = asked.plan.gpus
    ideal = {end: time["tokens_per_s_per_gpu"][end] * gpus for end in ENDS}
    document: dict[str, Any] = {
        "verdict": predicted["verdict"],
        "goodput": {
            "share": found.best.goodput,
            "tokens_per_s": _times(ideal, found.best.goodput),
            "ideal_tokens_per_s": ideal,
            "step_s": time["step_s"],
            "per_held_gpu": found.best.per_held,
        },
        "time_shares": asdict(found.shares),
        "mtbf_s": found.mtbf_s,
        "causes": _causes(found),
        "switches_from": found.switches_from,
        "checkpoint": _saving(found.saving, found.useful)
        | {
            "other": _saving(found.other_saving, found.other_useful),
            "intervals": [{"interval_s": time_s, "useful": useful} for time_s, useful in found.intervals],
        },
        "spares": {
            "kind": found.kind,
            "when_out": "shrink" if failures.shrinks else "wait",
            "cluster_nodes": cluster.nodes,
            "held": failures.held_spares,
            "best": _row(found.best, found, cluster),
            "optimum": _row(found.optimum, found, cluster),
            "rows": [_row(row, found, cluster) for row in found.rows],
        },
        "levers": [asdict(lever) for lever in found.levers],
        "recommendation": recommendation(found, cluster, shrinks=failures.shrinks),
        "rates": _rates(failures, found.scaled_by),
        **{key: predicted[key] for key in ("cluster", "model", "plan")},
        "assumed": [*predicted["assumed"], *failures.assumed, *_assumed(asked, found, cluster)],
    }
    run = _run(predicted, found, asked, cluster)
    return {**document, "run": run} if run else document


def spare_rows_csv(document: Mapping[str, Any]) -> str:
    """Return the rows on spares as CSV."""
    rows = document["spares"]["rows"]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _times(values: Mapping[str, float], factor: float) -> dict[str, float]:
    """Return a range times a number."""
    return {end: values[end] * factor for end in ENDS}


def _causes(found: Goodput) -> list[dict[str, Any]]:
    """Return what interrupts the job, the most frequent first; what never does is left out."""
    all_per_s = sum(cause.per_s for cause in found.causes)
    told = [cause for cause in found.causes if cause.per_s > 0]
    return [
        {
            "name": cause.name,
            "count": cause.count,
            "mtbf_s": cause.mtbf_s,
            "per_day": cause.per_s * DAY_S,
            "share": cause.per_s / all_per_s,
        }
        for cause in sorted(told, key=lambda cause: -cause.per_s)
    ]


def _saving(saving: Saving, useful: float) -> dict[str, Any]:
    """Return how state is saved, and the share of useful time while there are enough nodes."""
    return {**asdict(saving), "useful": useful}


def _row(row: SpareRow, found: Goodput, cluster: ClusterSpec) -> dict[str, Any]:
    """Return one number of spares."""
    return {**asdict(row), "is_best": row is found.best, "in_cluster": row.held_nodes <= cluster.nodes}


def _rates(failures: Asked, factor: float) -> dict[str, Any]:
    """Return the failure rates that were used, each with its source; times to failure as scaled."""
    rates = failures.rates
    scale = {name: factor if name.endswith("_mtbf_s") else 1.0 for name in TIMES}
    return {
        "name": rates.name,
        "scaled_by": factor,
        **{name: getattr(rates, name) * scale[name] for name in TIMES},
        "sources": rates.sources,
    }


def _run(predicted: Mapping[str, Any], found: Goodput, asked: PlanFile, cluster: ClusterSpec) -> dict[str, Any] | None:
    """Return time and energy of the whole run where its length is given, and where it ever ends.

    Steps that are done again, saving and restarts draw what training does; waiting nodes and spares idle.
    """
    run, model, plan = asked.run, asked.model, asked.plan
    if run is None or (run.steps is None and run.tokens is None) or not found.best.goodput:
        return None
    steps = float(run.steps or 0)
    if run.tokens is not None:
        steps = steps_of(run.tokens, seq=model.seq, global_batch=plan.global_batch)
    energy, step_s = predicted["energy"], predicted["time"]["step_s"]
    time_s = {end: steps * step_s[end] / found.best.goodput for end in ENDS}
    idle_w = STATE_FRACTIONS.idle * cluster.node.gpu.tdp_w + energy["host_w"] + energy["network_w"]
    idle_gpus = found.shares.waiting * plan.gpus + found.best.held_gpus - plan.gpus
    busy_steps = steps * (1.0 - found.shares.waiting) / found.best.goodput
    energy_j = {end: run.pue * (busy_steps * energy["step_j"][end] + idle_gpus * idle_w * time_s[end]) for end in ENDS}
    return {
        "steps": steps,
        "tokens": steps * model.seq * plan.global_batch,
        "time_s": time_s,
        "ideal_time_s": {end: steps * step_s[end] for end in ENDS},
        "energy_j": energy_j,
        "energy_kwh": _times(energy_j, 1.0 / JOULES_PER_KWH),
        "interruptions": time_s["expected"] * (1.0 - found.shares.waiting) / found.mtbf_s,
        "pue": run.pue,
    }


def _assumed(asked: PlanFile, found: Goodput, cluster: ClusterSpec) -> list[Assumption]:
    """Return what was taken for options of checkpoints and of HB domains that nobody gave."""
    assumed, options = [], asked.checkpoint
    if options is None or options.write_bytes_per_s is None:
        rate = nodes_of(asked.plan, cluster) * FILE_SYSTEM_BYTES_PER_S
        why = "a file system that takes 62 GB/s from 32 nodes, as SuperPODs have them"
        assumed.append(Assumption(field="checkpoint.write_bytes_per_s", value=rate, why=why))
    if options is None or options.restart_s == type(options)().restart_s:
        why = "noticed, scheduled, started, loaded: chosen by hand, a site measures its own"
        assumed.append(Assumption(field="checkpoint.restart_s", value=found.saving.restart_s, why=why))
    if found.kind == "hb_domain" and any(cause.name == "hb_domain" and cause.per_s for cause in found.causes):
        mtbf_s = next(cause.mtbf_s for cause in found.causes if cause.name == "hb_domain")
        why = "how often all of an HB domain fails at once: see rates.sources"
        assumed.append(Assumption(field="rates.hb_domain_mtbf_s", value=mtbf_s, why=why))
    if math.isclose(found.scaled_by, 1.0):
        return assumed
    why = f"checkpoint.mtbf_s is stated: every time between failures is taken {found.scaled_by:.3g} times as long"
    return [*assumed, Assumption(field="rates.scaled_by", value=found.scaled_by, why=why)]
