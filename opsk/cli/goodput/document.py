"""Builds the JSON document and the CSV rows of ``opsk goodput``."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from opsk.app.inputs.plan_file import PlanFile
from opsk.cli.goodput.inputs import FailureOptions
from opsk.cli.goodput.recommendation import build_recommendation
from opsk.costmodel.energy import JOULES_PER_KWH, count_steps
from opsk.costmodel.estimates.checkpoint import FILE_SYSTEM_BYTES_PER_S, count_nodes
from opsk.costmodel.machine import STATE_FRACTIONS
from opsk.diagnosis.goodput.goodput import Goodput, SpareRow
from opsk.diagnosis.goodput.goodput import Saving
from opsk.hardware.failure_rates import TIMES
from opsk.hardware.spec import ClusterSpec
from opsk.units import hours
from opsk.workload.defaults import Assumption

ENDS = ("low", "expected", "high")
DAY_S = hours(24.0)


def build_goodput_document(
    predicted: Mapping[str, Any], goodput: Goodput, plan_input: PlanFile, failures: FailureOptions, cluster: ClusterSpec
) -> dict[str, Any]:
    """Return the document: the prediction of the plan, and goodput, checkpoints and spares."""
    time = predicted["time"]
    gpus = plan_input.plan.gpus
    ideal = {end: time["tokens_per_s_per_gpu"][end] * gpus for end in ENDS}
    document: dict[str, Any] = {
        "verdict": predicted["verdict"],
        "goodput": {
            "share": goodput.best.goodput,
            "tokens_per_s": _scale(ideal, goodput.best.goodput),
            "ideal_tokens_per_s": ideal,
            "step_s": time["step_s"],
            "per_held_gpu": goodput.best.per_held,
        },
        "time_shares": asdict(goodput.shares),
        "mtbf_s": goodput.mtbf_s,
        "causes": _build_causes(goodput),
        "switches_from": goodput.switches_from,
        "checkpoint": _build_saving(goodput.saving, goodput.useful)
        | {
            "other": _build_saving(goodput.other_saving, goodput.other_useful),
            "intervals": [{"interval_s": time_s, "useful": useful} for time_s, useful in goodput.intervals],
        },
        "spares": {
            "kind": goodput.kind,
            "when_out": "shrink" if failures.shrinks else "wait",
            "cluster_nodes": cluster.nodes,
            "held": failures.held_spares,
            "best": _build_row(goodput.best, goodput, cluster),
            "optimum": _build_row(goodput.optimum, goodput, cluster),
            "rows": [_build_row(row, goodput, cluster) for row in goodput.rows],
        },
        "levers": [asdict(lever) for lever in goodput.levers],
        "recommendation": build_recommendation(goodput, cluster, shrinks=failures.shrinks),
        "rates": _build_rates(failures, goodput.scaled_by),
        **{key: predicted[key] for key in ("cluster", "model", "plan")},
        "assumed": [*predicted["assumed"], *failures.assumed, *_list_assumptions(plan_input, goodput, cluster)],
    }
    run = _build_run(predicted, goodput, plan_input, cluster)
    return {**document, "run": run} if run else document


def format_spares_csv(document: Mapping[str, Any]) -> str:
    """Return the rows on spares as CSV."""
    rows = document["spares"]["rows"]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _scale(values: Mapping[str, float], factor: float) -> dict[str, float]:
    """Return a range times a number."""
    return {end: values[end] * factor for end in ENDS}


def _build_causes(goodput: Goodput) -> list[dict[str, Any]]:
    """Return the causes of interruptions, the most frequent first; causes that never occur are left out."""
    all_per_s = sum(cause.per_s for cause in goodput.causes)
    occurring = [cause for cause in goodput.causes if cause.per_s > 0]
    return [
        {
            "name": cause.name,
            "count": cause.count,
            "mtbf_s": cause.mtbf_s,
            "per_day": cause.per_s * DAY_S,
            "share": cause.per_s / all_per_s,
        }
        for cause in sorted(occurring, key=lambda cause: -cause.per_s)
    ]


def _build_saving(saving: Saving, useful: float) -> dict[str, Any]:
    """Return the checkpointing, and the share of useful time while there are enough nodes."""
    return {**asdict(saving), "useful": useful}


def _build_row(row: SpareRow, goodput: Goodput, cluster: ClusterSpec) -> dict[str, Any]:
    """Return one row on spares."""
    return {**asdict(row), "is_best": row is goodput.best, "in_cluster": row.held_nodes <= cluster.nodes}


def _build_rates(failures: FailureOptions, factor: float) -> dict[str, Any]:
    """Return the failure rates that were used, each with its source; times to failure as scaled."""
    rates = failures.rates
    scale = {name: factor if name.endswith("_mtbf_s") else 1.0 for name in TIMES}
    return {
        "name": rates.name,
        "scaled_by": factor,
        **{name: getattr(rates, name) * scale[name] for name in TIMES},
        "sources": rates.sources,
    }


def _build_run(
    predicted: Mapping[str, Any], goodput: Goodput, plan_input: PlanFile, cluster: ClusterSpec
) -> dict[str, Any] | None:
    """Return time and energy of the whole run where its length is given and it ends at all.

    Repeated steps, saving and restarts draw the power of training; waiting nodes and spares idle.
    """
    run, model, plan = plan_input.run, plan_input.model, plan_input.plan
    if run is None or (run.steps is None and run.tokens is None) or not goodput.best.goodput:
        return None
    steps = float(run.steps or 0)
    if run.tokens is not None:
        steps = count_steps(run.tokens, seq=model.seq, global_batch=plan.global_batch)
    energy, step_s = predicted["energy"], predicted["time"]["step_s"]
    time_s = {end: steps * step_s[end] / goodput.best.goodput for end in ENDS}
    idle_w = STATE_FRACTIONS.idle * cluster.node.gpu.tdp_w + energy["host_w"] + energy["network_w"]
    idle_gpus = goodput.shares.waiting * plan.gpus + goodput.best.held_gpus - plan.gpus
    busy_steps = steps * (1.0 - goodput.shares.waiting) / goodput.best.goodput
    energy_j = {end: run.pue * (busy_steps * energy["step_j"][end] + idle_gpus * idle_w * time_s[end]) for end in ENDS}
    return {
        "steps": steps,
        "tokens": steps * model.seq * plan.global_batch,
        "time_s": time_s,
        "ideal_time_s": {end: steps * step_s[end] for end in ENDS},
        "energy_j": energy_j,
        "energy_kwh": _scale(energy_j, 1.0 / JOULES_PER_KWH),
        "interruptions": time_s["expected"] * (1.0 - goodput.shares.waiting) / goodput.mtbf_s,
        "pue": run.pue,
    }


def _list_assumptions(plan_input: PlanFile, goodput: Goodput, cluster: ClusterSpec) -> list[Assumption]:
    """Return the assumptions for options of checkpoints and HB domains that are not given."""
    assumed, options = [], plan_input.checkpoint
    if options is None or options.write_bytes_per_s is None:
        rate = count_nodes(plan_input.plan, cluster) * FILE_SYSTEM_BYTES_PER_S
        why = "a file system that takes 62 GB/s from 32 nodes, as SuperPODs have them"
        assumed.append(Assumption(field="checkpoint.write_bytes_per_s", value=rate, why=why))
    if options is None or options.restart_s == type(options)().restart_s:
        why = "noticed, scheduled, started, loaded: chosen by hand, a site measures its own"
        assumed.append(Assumption(field="checkpoint.restart_s", value=goodput.saving.restart_s, why=why))
    if goodput.kind == "hb_domain" and any(cause.name == "hb_domain" and cause.per_s for cause in goodput.causes):
        mtbf_s = next(cause.mtbf_s for cause in goodput.causes if cause.name == "hb_domain")
        why = "how often all of an HB domain fails at once: see rates.sources"
        assumed.append(Assumption(field="rates.hb_domain_mtbf_s", value=mtbf_s, why=why))
    if math.isclose(goodput.scaled_by, 1.0):
        return assumed
    why = f"checkpoint.mtbf_s is stated: every time between failures is taken {goodput.scaled_by:.3g} times as long"
    return [*assumed, Assumption(field="rates.scaled_by", value=goodput.scaled_by, why=why)]
