"""Parses the failure rates of ``opsk goodput``, and builds its document, spare rows and recommendations."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from opsk.app.inputs.named_inputs import read_text_file
from opsk.app.inputs.plan_file import PlanFile
from opsk.app.inputs.plan_validation import format_value
from opsk.costmodel.energy import JOULES_PER_KWH, count_steps
from opsk.costmodel.estimates.checkpoint import FILE_SYSTEM_BYTES_PER_S, count_nodes
from opsk.costmodel.machine import STATE_FRACTIONS
from opsk.diagnosis.goodput.goodput import Goodput, Saving, SpareRow
from opsk.diagnosis.goodput.parts import RADIX
from opsk.errors import InputError, OpskError
from opsk.hardware.failure_rates import (
    DEFAULT_RATES,
    MAX_BYTES,
    TIMES,
    FailureRates,
    failure_rates,
    parse_rates,
    to_hours_field,
)
from opsk.hardware.spec import ClusterSpec
from opsk.text import escape, format_duration
from opsk.units import hours
from opsk.workload.defaults import Assumption

WAIT, SHRINK = "wait", "shrink"
NEVER = ("never", "inf")
MAX_HOURS = 1e12
"""A hundred million years: a larger number is a typing error."""
MAX_SPARES, MIN_RADIX, MAX_RADIX = 4096, 4, 4096
_HINT = "opsk goodput --help lists every flag; docs/explanation/goodput.md explains them"
ENDS = ("low", "expected", "high")
DAY_S = hours(24.0)
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_MIN_GAIN = 5e-4
"""Gains below this share are not recommended."""
_UNITS = {"node": ("spare node", "spare nodes"), "hb_domain": ("spare HB domain", "spare HB domains")}


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureOptions:
    """The parsed flags on failures, and the assumptions for those that are not given."""

    rates: FailureRates
    max_spares: int | None
    held_spares: int | None
    spares_inside: int | None
    shrinks: bool
    radix: int
    assumed: tuple[Assumption, ...]


def parse_failure_flags(flags: Mapping[str, str | None]) -> tuple[FailureOptions, list[str]]:
    """Return the parsed flags on failures, with defaults for wrong ones, and all violations."""
    wrong: list[str] = []
    base = _load_base_rates(flags.get("rates"), wrong)
    stated: dict[str, Any] = {
        name: _parse_hours(name, text, wrong) for name in TIMES if (text := flags.get(to_hours_field(name))) is not None
    }
    when_out = flags.get("when_out") or WAIT
    if when_out not in (WAIT, SHRINK):
        wrong.append(f"--when-out: {format_value(when_out)} is none of {WAIT}, {SHRINK}")
    radix = _parse_whole("--radix", flags.get("radix"), RADIX, wrong, minimum=MIN_RADIX, maximum=MAX_RADIX)
    if radix is not None and radix % 2:
        wrong.append(f"--radix is {radix}, must be even")
    options = FailureOptions(
        rates=replace(base, **{name: value for name, value in stated.items() if value is not None}),
        max_spares=_parse_whole("--spares", flags.get("spares"), None, wrong, minimum=0, maximum=MAX_SPARES),
        held_spares=_parse_whole("--hold", flags.get("hold"), None, wrong, minimum=0, maximum=MAX_SPARES),
        spares_inside=_parse_whole(
            "--spare-trays", flags.get("spare_trays"), None, wrong, minimum=0, maximum=MAX_SPARES
        ),
        shrinks=when_out == SHRINK,
        radix=radix or RADIX,
        assumed=_list_rate_assumptions(flags.get("rates"), base, set(stated)),
    )
    return options, wrong


def build_input_error(wrong: list[str]) -> InputError:
    """Return one error that names all violations."""
    return InputError(escape("; ".join(dict.fromkeys(wrong))), hint=_HINT)


def _load_base_rates(named: str | None, wrong: list[str]) -> FailureRates:
    """Return the named rates: a file when the name ends in ``.toml`` or has a slash, else published ones."""
    try:
        if named is None or not (named.endswith(".toml") or "/" in named):
            return failure_rates(named or DEFAULT_RATES)
        text = read_text_file(named, max_bytes=MAX_BYTES, hint="")
        return parse_rates(text, origin=escape(named))
    except OpskError as error:
        wrong.append(f"--rates: {error.message} ({error.hint})" if error.hint else f"--rates: {error.message}")
    return failure_rates()


def _parse_hours(name: str, text: str, wrong: list[str]) -> float | None:
    """Return a time in seconds of a flag in hours; ``None`` after reporting a violation."""
    flag = f"--{to_hours_field(name).replace('_', '-')}"
    is_mtbf = name.endswith("_mtbf_s")
    if is_mtbf and text.strip().lower() in NEVER:
        return math.inf
    try:
        value = float(text)
    except ValueError:
        wrong.append(f"{flag}: {format_value(text)} is not a number of hours" + (", nor never" if is_mtbf else ""))
        return None
    if math.isnan(value) or value > MAX_HOURS or value < 0 or (is_mtbf and value == 0):
        wrong.append(
            f"{flag} is {format_value(text)}, must be {'above 0' if is_mtbf else '0 or more'} and at most {MAX_HOURS:g}"
        )
        return None
    return hours(value)


def _parse_whole(
    flag: str, text: str | None, default: int | None, wrong: list[str], *, minimum: int, maximum: int
) -> int | None:
    """Return an integer; the default where none is given, or after reporting a violation."""
    if text is None:
        return default
    try:
        value = int(text) if len(text) <= 20 else None
    except ValueError:
        value = None
    if value is None or not minimum <= value <= maximum:
        wrong.append(f"{flag}: {format_value(text)} is not an integer from {minimum} to {maximum}")
        return default
    return value


def _list_rate_assumptions(named: str | None, base: FailureRates, stated: set[str]) -> tuple[Assumption, ...]:
    """Return the assumptions for rates that are not given."""
    assumed = []
    left = [name for name in TIMES if name not in stated]
    if named is None and left:
        why = "published for 16,384 H100 by cause; use your site's own counts if you have them"
        assumed.append(Assumption(field="rates", value=base.name, why=why))
    if named is None and "node_repair_s" not in stated:
        why = "mean of 583 faults on 400 nodes (InfiniteHBD trace); half of them took less than 21 h"
        assumed.append(Assumption(field="rates.node_repair_s", value=base.node_repair_s, why=why))
    return tuple(assumed)


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
        why = "a file system that takes 62 GB/s from 32 nodes, as in SuperPODs"
        assumed.append(Assumption(field="checkpoint.write_bytes_per_s", value=rate, why=why))
    if options is None or options.restart_s == type(options)().restart_s:
        why = "detection, scheduling, start and load: an estimate; measure it at your site"
        assumed.append(Assumption(field="checkpoint.restart_s", value=goodput.saving.restart_s, why=why))
    if goodput.kind == "hb_domain" and any(cause.name == "hb_domain" and cause.per_s for cause in goodput.causes):
        mtbf_s = next(cause.mtbf_s for cause in goodput.causes if cause.name == "hb_domain")
        why = "failures of a whole HB domain: see rates.sources"
        assumed.append(Assumption(field="rates.hb_domain_mtbf_s", value=mtbf_s, why=why))
    if math.isclose(goodput.scaled_by, 1.0):
        return assumed
    why = f"checkpoint.mtbf_s is stated: all times between failures are scaled by {goodput.scaled_by:.3g}"
    return [*assumed, Assumption(field="rates.scaled_by", value=goodput.scaled_by, why=why)]


def build_recommendation(goodput: Goodput, cluster: ClusterSpec, *, shrinks: bool) -> list[str]:
    """Return recommendations as sentences: how often to save, how many spares to hold, what else would help."""
    sentences = [_format_interval(goodput), *_format_inside(goodput, cluster), _format_spares(goodput, shrinks=shrinks)]
    if goodput.optimum is not goodput.best:
        sentences.append(_format_optimum(goodput))
    if goodput.best.held_nodes > cluster.nodes:
        sentences.append(
            f"that holds {goodput.best.held_nodes:,} nodes, {cluster.name} has {cluster.nodes:,}: "
            f"{goodput.best.held_nodes - cluster.nodes:,} would have to be bought"
        )
    top = next((lever for lever in goodput.levers if lever.gain > _MIN_GAIN), None)
    if top is not None:
        sentences.append(f"what would help most: {_format_lever(top.name, goodput)} ({format_percent(top.gain)} more)")
    return sentences


def format_percent(share: float) -> str:
    """Format a share of the ideal, with enough digits to distinguish it from zero."""
    if abs(share) >= 0.0995:
        return f"{share:.0%}"
    return f"{share:.1%}" if abs(share) >= _MIN_GAIN or not share else "< 0.1%"


def format_ordinal(number: int) -> str:
    """Return an ordinal number: ``third``, ``21st``."""
    if 1 <= number <= len(_ORDINALS):
        return _ORDINALS[number - 1]
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"


def _format_interval(goodput: Goodput) -> str:
    """Return the checkpoint interval and its cost."""
    saving, shares = goodput.saving, goodput.shares
    if saving.interval_steps is None:
        return "nothing fails: no checkpoint is needed"
    steps = "step" if saving.interval_steps == 1 else f"{saving.interval_steps:,} steps"
    return (
        f"save every {steps} ({format_duration(saving.interval_s)}): {format_percent(shares.saving)} of the time goes "
        f"into saving, {format_percent(shares.again)} into work done again, "
        f"{format_percent(shares.restart)} into restarts"
    )


def _format_inside(goodput: Goodput, cluster: ClusterSpec) -> list[str]:
    """Return how many nodes of each HB domain to keep as spares, where a domain spans nodes."""
    best = goodput.best
    if goodput.kind != "hb_domain":
        return []
    node_gpus = cluster.node.gpus
    used, held = best.used_nodes_inside, best.used_nodes_inside + best.spare_nodes_inside
    words = f"use {used * node_gpus} of the {held * node_gpus} GPUs held in each HB domain"
    words += f": {best.spare_nodes_inside} of {held} nodes are spares" if best.spare_nodes_inside else ", no node spare"
    spare_counts = list(dict.fromkeys(row.spare_nodes_inside for row in goodput.rows))
    if len(spare_counts) == 1:
        return [words]
    other = spare_counts[1] if spare_counts[0] == best.spare_nodes_inside else spare_counts[0]
    at_best = max(row.per_held for row in goodput.rows if row.spare_nodes_inside == other)
    return [
        f"{words} ({format_percent(best.per_held)} of the ideal for each GPU held; with {other or 'none'}: "
        f"{format_percent(at_best)})"
    ]


def _format_spares(goodput: Goodput, *, shrinks: bool) -> str:
    """Return the number of spare units that pay for themselves, and the gain of the next one."""
    singular, plural = _UNITS[goodput.kind]
    best, count = goodput.best, goodput.best.spares
    series = [row for row in goodput.rows if row.spare_nodes_inside == best.spare_nodes_inside]
    after = next((row for row in series if row.spares == count + 1), None)
    policy = "training continues with fewer replicas until then" if shrinks else "the job waits until then"
    if not count and goodput.optimum is not best:
        return f"no {singular} is held: goodput {format_percent(best.goodput)}"
    if not count:
        if after is None:
            return f"no {singular} was evaluated: goodput {format_percent(best.goodput)} without"
        return (
            f"no {singular} pays for itself: the first would bring {format_percent(after.gain)} and hold "
            f"{_format_more_gpus(after, best)} more GPUs ({policy})"
        )
    first = series[0]
    words = (
        f"{count} {singular if count == 1 else plural} {'brings' if count == 1 else 'bring'} "
        f"{format_percent(best.goodput - first.goodput)} (goodput {first.goodput:.1%} → {best.goodput:.1%})"
    )
    if after is None:
        return words
    more = f"bring {format_percent(after.gain)} and hold {_format_more_gpus(after, best)} more GPUs"
    return f"{words}; the {format_ordinal(after.spares)} would {more}"


def _format_optimum(goodput: Goodput) -> str:
    """Return the best number of spares per GPU held, where another number is held."""
    singular, plural = _UNITS[goodput.kind]
    row = goodput.optimum
    inside = f" with {row.spare_nodes_inside} spare nodes in each" if goodput.kind == "hb_domain" else ""
    return (
        f"{row.spares or 'no'} {singular if row.spares < 2 else plural}{inside} would give most for each GPU held: "
        f"{row.per_held:.1%} instead of {goodput.best.per_held:.1%}"
    )


def _format_more_gpus(after: SpareRow, best: SpareRow) -> str:
    """Return how many more GPUs a row holds than another."""
    return format_percent(after.held_gpus / best.held_gpus - 1.0)


def _format_lever(name: str, goodput: Goodput) -> str:
    """Return the name of a lever for this job."""
    if not name.startswith("the other way"):
        return name
    return "synchronous checkpoints" if goodput.saving.asynchronous else "asynchronous checkpoints"
