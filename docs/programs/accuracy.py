"""Writes ``docs/accuracy.md``: how far predictions are from measured runs.

    python docs/programs/accuracy.py RUNS.csv [--calibration FILE] [--unseen FILE] [--calculon SEARCHES]

``--calibration FILE`` is what ``opsk calibrate RUNS.csv --from-priors --without nano,prim,atr,lgrt,mlp --json``
printed, with the errors of sources left out; ``--unseen FILE`` what ``opsk validate RUNS.csv --efficiency FIT --json``
printed with that fit, of which only the sources that were put aside are shown.
``--calculon SEARCHES`` adds predictions of Calculon's best plans (``calculon_tables.py``). ``accuracy-why.toml`` says
why the worst rows miss. The page depends on these files and the code alone.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import calculon_tables
from page_table import NOTHING, table
from tables.first_looks import show_looks
from tables.mfu import show_mfu

from opsk.calibration.accuracy.scoring import ErrorSummary, Reliability, Score, ScoredRun, quantile, summarise_errors
from opsk.calibration.accuracy.validation import Validation, validate_runs
from opsk.calibration.runs.runs import Runs, read_runs
from opsk.costmodel.uncertainty.verdict import Verdict

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "accuracy.md"
TEXTS = ROOT / "docs" / "programs" / "accuracy-why.toml"
WORST = 10
KORTHIKANTI = "kor"
"""Prefix of Korthikanti et al. 2022, table 5 and section 6.3: nine runs with one set of efficiencies."""
MAX_UNDER = 0.03
_TITLES = {"gpu": "GPU", "arch": "Kind of model", "source": "Source", "size": "Parameters"}
Document = Mapping[str, Any]
"""What ``opsk calibrate --json`` printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """What people have written about the figures.

    ``parts`` are paragraphs by their name; ``looks`` what each first look is called, by its number; ``why`` has for
    ``time`` and ``memory`` ids and why these rows miss.
    """

    parts: Mapping[str, str]
    looks: Mapping[str, str]
    why: Mapping[str, Sequence[tuple[frozenset[str], str]]]


def read_texts(path: Path) -> Texts:
    """Return the texts of a file; those about rows by ``[[time]]`` and ``[[memory]]``."""
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    why = {kind: [(frozenset(entry["runs"]), _one_line(entry["why"])) for entry in found[kind]] for kind in _KINDS}
    return Texts(parts={name: text.strip() for name, text in found["parts"].items()}, looks=found["looks"], why=why)


_KINDS = ("time", "memory")


def page(
    runs: Runs, calibration: Document | None, aside: Document | None, texts: Texts, searches: Path | None = None
) -> str:
    """Return the page."""
    validation = validate_runs(runs)
    sections = [
        "# How accurate the cost model is\n\n"
        "<!-- Written by docs/programs/accuracy.py from a table of measured runs and from "
        "docs/programs/accuracy-why.toml: change those, not this page. -->\n\n",
        texts.parts["how_to_read"],
        f"\n\n{len(validation.rows)} of {len(runs)} rows predicted. Efficiencies fitted to {validation.fit}.\n",
        f"\n## Sources never seen\n\n{texts.parts['unseen']}\n",
        *show_looks(texts.looks, calibration),
        f"\n{texts.parts['ranges']}\n\n### What the looks were, and what followed\n\n{texts.parts['looks']}\n",
        *list_left_out(calibration),
        "\n## Targets\n\n",
        table(("what", "aim", "reached", "met"), targets(validation, calibration)),
        f"\n{texts.parts['speed']}\n\n## What these numbers are worth\n\n{texts.parts['worth']}\n",
        "\n## Time\n\n",
        errors(validation.report.time),
        *groups(validation, "time"),
        *show_mfu(validation.rows),
        *nine(validation),
        "\n## Memory\n\n",
        errors(validation.report.memory),
        *groups(validation, "memory"),
        *chances(validation, texts),
        *worst(validation, texts),
        f"\n## What the model cannot see\n\n{texts.parts['blind']}\n",
        *list_fitted(calibration, texts),
        f"\n## The sources put aside, since they were looked at\n\n{texts.parts['aside']}\n",
        *unseen(aside),
        *winners(searches, texts),
    ]
    return "".join(sections)


Target = tuple[str, str, str, str]


def targets(validation: Validation, calibration: Document | None) -> Iterator[Target]:
    """Yield what was aimed at, what was reached, and whether that is enough."""
    report, time, memory = validation.report, validation.report.time, validation.report.memory
    kor = summarise_errors([row.time for row in validation.rows if row.time and row.run.source == KORTHIKANTI])
    reached = NOTHING if kor is None else f"mean {kor.mean_absolute_error:.1%}, max {kor.max_absolute_error:.1%}"
    is_met = kor and kor.mean_absolute_error <= 0.03 and kor.max_absolute_error <= 0.06
    yield "Korthikanti et al. 2022, 9 runs", "mean ≤ 3 %, max ≤ 6 %", reached, _yes(is_met)
    yield _within("time, inputs stated", time["stated"], median=0.06, p90=0.18)
    yield _left_out_stated(calibration)
    yield _within("time, inputs assumed", time["assumed"], median=0.12)
    yield from _list_range_targets(calibration)
    device = memory["device, stated"]
    yield _within("device memory, inputs stated", device, median=0.05, p90=0.12)
    under = NOTHING if device is None else f"{device.under:.2%} ({round(device.under * device.rows)} rows)"
    yield "the same, low by more than 5 %", "≤ 3 %", under, _yes(device and device.under <= MAX_UNDER)
    yield _within("torch-allocated memory", memory["allocated"], median=0.1)
    calls = report.out_of_memory
    seen = f"{calls.out_of_memory - len(calls.missed)} of {calls.out_of_memory}"
    yield "runs that ran out of memory", "all called tight or oom", seen, _yes(not calls.missed)
    alarms = f"{len(calls.false_alarms)} of {calls.had_room}"
    yield "measured runs with ≤ 85 % of memory filled", "none called oom", alarms, _yes(not calls.false_alarms)
    yield _chance_target(report.reliability["ran or ran out"])


def _within(name: str, summary: ErrorSummary | None, *, median: float, p90: float | None = None) -> Target:
    """Return a target of a median and perhaps a P90 of absolute errors."""
    aim = f"median ≤ {median * 100:.0f} %" + (f", P90 ≤ {p90 * 100:.0f} %" if p90 else "")
    if summary is None:
        return name, aim, NOTHING, NOTHING
    found = f"median {summary.median_absolute_error:.1%}, P90 {summary.p90_absolute_error:.1%} ({summary.rows} rows)"
    is_met = summary.median_absolute_error <= median and (p90 is None or summary.p90_absolute_error <= p90)
    return name, aim, found, _yes(is_met)


def _left_out_stated(calibration: Document | None) -> Target:
    """Return the target of sources that were left out."""
    name, aim = "the same, source left out", "median ≤ 10 %, P90 ≤ 30 %"
    found = _cross_validation(calibration).get("stated")
    if not found:
        return name, aim, NOTHING, NOTHING
    reached = f"median {found['median']:.1%}, P90 {found['p90']:.1%} ({found['runs']} rows)"
    return name, aim, reached, _yes(found["median"] <= 0.1 and found["p90"] <= 0.3)


def _list_range_targets(calibration: Document | None) -> Iterator[Target]:
    """Yield the targets of ranges: of sources never seen, whose widths were fitted without them, and left out."""
    coverage = ((calibration or {}).get("spread") or {}).get("coverage") or {}
    for quantity in _KINDS:
        held = coverage.get(f"{quantity}_by_class_unseen_widths") or {}
        for inputs in ("stated", "assumed"):
            share, seen = held.get(f"unseen, {inputs}"), held.get(inputs)
            name = f"ranges of {quantity}, inputs {inputs}, source never seen"
            if share is not None:
                yield name, "hold at least 75 %", f"hold {share:.0%}", _yes(share >= 0.75)
            if seen is not None:
                yield "the same, source left out", "hold 80–92 %", f"hold {seen:.0%}", _yes(0.8 <= seen <= 0.92)


def _chance_target(found: Reliability | None) -> Target:
    """Return the target of the chance to fit."""
    name, aim = "chance to fit, of runs with a measured peak or that ran out", "Brier below always the base rate"
    if found is None:
        return name, aim, NOTHING, NOTHING
    return name, aim, f"{found.brier:.4f} against {found.base_rate_brier:.4f}", _yes(found.skill > 0)


def _yes(is_met: object) -> str:
    return "yes" if is_met else "**no**"


def _cross_validation(calibration: Document | None) -> Mapping[str, Any]:
    return (calibration or {}).get("cross_validation") or {}


ASIDE = ("nano", "prim", "atr", "lgrt", "mlp")
"""Sources that were in no fit; see docs/adr/0016-sources-put-aside.md."""


def unseen(document: Document | None) -> Iterator[str]:
    """Yield the errors of the sources that were put aside, under the fit that did not see them."""
    if not document:
        return
    rows = [row for row in document["rows"] if row["id"].partition("-")[0] in ASIDE]
    told = [row for row in rows if "error" in row]
    yield f"\n### Sources put aside\n\n{len(told)} of {len(rows)} rows predicted.\n\n"
    sets = {
        f"{kind}, inputs {'stated' if is_stated else 'assumed'}": (
            kind,
            [row for row in told if row["error"].get(kind) and row["stated"][kind] == is_stated],
        )
        for kind in _KINDS
        for is_stated in (True, False)
    }
    sets |= {
        f"`{source}`, {kind}": (
            kind,
            [row for row in told if row["id"].partition("-")[0] == source and row["error"].get(kind)],
        )
        for source in ASIDE
        for kind in _KINDS
    }
    lines = [
        _unseen_line(name, [row["error"][kind] for row in members]) for name, (kind, members) in sets.items() if members
    ]
    yield table(("", "rows", "median", "P90", "bias", "in range"), lines)


def _unseen_line(name: str, scores: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the figures of some rows of ``opsk validate --json``."""
    signed = sorted(score["error"] for score in scores)
    errors = sorted(map(abs, signed))
    held = sum(score["in_range"] for score in scores) / len(scores)
    figures = (f"{quantile(errors, 0.5):.1%}", f"{quantile(errors, 0.9):.1%}", f"{quantile(signed, 0.5):+.1%}")
    return (name, str(len(scores)), *figures, f"{held:.0%}")


def groups(validation: Validation, kind: str) -> Iterator[str]:
    """Yield the errors by GPU, kind of model, source and size."""
    for group, members in validation.report.groups.items():
        rows = {key: value[kind] for key, value in members.items()}
        if any(rows.values()):
            yield f"\n### {kind.capitalize()} by {_TITLES[group].lower() if group != 'gpu' else 'GPU'}\n\n" + errors(
                rows
            )


def errors(rows: Mapping[str, ErrorSummary | None]) -> str:
    """Return a table of error summaries."""
    head = ("", "rows", "median", "P90", "worst", "bias", "in range", "range")
    lines = (
        (
            name,
            str(summary.rows),
            f"{summary.median_absolute_error:.1%}",
            f"{summary.p90_absolute_error:.1%}",
            f"{summary.max_absolute_error:.1%}",
            f"{summary.median_error:+.1%}",
            f"{summary.coverage:.0%}",
            f"±{summary.median_half_width:.0%}",
        )
        for name, summary in rows.items()
        if summary is not None
    )
    return table(head, lines)


def list_left_out(calibration: Document | None) -> Iterator[str]:
    """Yield the errors of each source when the parameters were fitted without it, beside those of the fit."""
    found = _cross_validation(calibration)
    if not (calibration and found):
        return
    yield "\n### Sources left out\n\nEach source predicted with parameters that were fitted without it.\n"
    held = calibration["spread"]["coverage"]["time_left_out"]
    if held is not None:
        yield f"The shipped ranges hold {held:.0%} of these measurements.\n"
    yield "Errors are those of the step's time, a published rate turned into one.\n\n"
    within = calibration["fit"]
    names = [name for name in ("overall", "stated", "assumed") if found.get(name)]
    rows = [(name, found[name], within.get(name)) for name in names]
    rows += [(name, entry, within["by_source"].get(name)) for name, entry in sorted(found["by_source"].items())]
    head = ("", "rows", "median", "P90", "bias", "median when fitted to")
    lines = (
        (name, str(out["runs"]), *(f"{out[key]:.1%}" for key in ("median", "p90")), f"{out['bias']:+.1%}", _median(own))
        for name, out, own in rows
    )
    yield table(head, lines)


def _median(figures: Mapping[str, float] | None) -> str:
    return NOTHING if not figures else f"{figures['median']:.1%}"


def nine(validation: Validation) -> Iterator[str]:
    """Yield the nine runs of Korthikanti et al., one by one."""
    rows = [(row, row.time) for row in validation.rows if row.time and row.run.source == KORTHIKANTI]
    if rows:
        yield "\n### Korthikanti et al. 2022, run by run\n\n"
        yield table(
            ("run", "model", "GPUs", "plan", "quantity", "measured", "predicted", "error"),
            (
                (
                    *_what(row, score),
                    score.quantity,
                    f"{score.measured:.4g}",
                    f"{score.predicted:.4g}",
                    _percent(score),
                )
                for row, score in rows
            ),
        )


def chances(validation: Validation, texts: Texts) -> Iterator[str]:
    """Yield how often what was called likely came true."""
    yield f"\n## Chance to fit\n\n{texts.parts['chance']}\n"
    called = [
        row.run for row in validation.rows if row.prediction.verdict is Verdict.OOM and not row.run.measured.is_oom
    ]
    stated = sum(run.states_memory_inputs for run in called)
    yield (
        f"\nOf all published runs that were not reported to run out of memory, {len(called)} are called `oom`; "
        f"{stated} of these state every input of their memory.\n"
    )
    for name, reliability in validation.report.reliability.items():
        if reliability is not None:
            yield f"\n{_brier(name, reliability)}\n\n" + _bins(reliability)


def _brier(name: str, reliability: Reliability) -> str:
    return (
        f"**{name.capitalize()}**: {reliability.events} events, {reliability.base_rate:.1%} came true; Brier score "
        f"{reliability.brier:.4f}, that of always the base rate {reliability.base_rate_brier:.4f}."
    )


def _bins(reliability: Reliability) -> str:
    rows = (
        (f"{entry.low:.0%}–{entry.high:.0%}", str(entry.events), f"{entry.told:.1%}", f"{entry.happened:.1%}")
        for entry in reliability.bins
    )
    return table(("predicted chance", "events", "mean", "came true"), rows)


def worst(validation: Validation, texts: Texts) -> Iterator[str]:
    """Yield the rows that miss most, and why."""
    for kind in _KINDS:
        pairs = [(row, score) for row in validation.rows if (score := row.time if kind == "time" else row.memory)]
        chosen = sorted(pairs, key=lambda pair: abs(pair[1].error), reverse=True)[:WORST]
        if not chosen:
            continue
        yield f"\n## Worst ten in {kind}\n\n"
        head = ("run", "model", "GPUs", "plan", "measured", "predicted", "error")
        yield table(
            head,
            (
                (
                    *_what(row, score),
                    _number(score.measured, score),
                    _number(score.predicted, score),
                    _percent(score),
                )
                for row, score in chosen
            ),
        )
        yield "\nWhy:\n\n" + "".join(reasons([row.run.id for row, _ in chosen], texts.why.get(kind, ())))


def reasons(ids: Sequence[str], known: Sequence[tuple[frozenset[str], str]]) -> Iterator[str]:
    """Yield one line for each reason that is known of some rows, and one for the rows of which none is."""
    told: set[str] = set()
    for place, run in enumerate(ids):
        for rows, text in known:
            if run in rows and run not in told:
                alike = [other for other in ids[place:] if other in rows and other not in told]
                told.update(alike)
                yield f"- **{', '.join(alike)}**: {text}\n"
    if missing := [run for run in ids if run not in told]:
        yield f"- **{', '.join(missing)}**: not looked into.\n"


def _what(row: ScoredRun, score: Score) -> tuple[str, str, str, str]:
    """Return which run it is."""
    run, plan = row.run, row.run.plan
    chunks = f"×{plan.vpp}" if plan.vpp > 1 else ""
    sizes = [f"TP{plan.tp} PP{plan.pp}{chunks} DP{plan.dp}"]
    sizes += [f"{name}{size}" for name, size in (("CP", plan.cp), ("EP", plan.ep)) if size > 1]
    axes = f"{' '.join(sizes)} mbs {plan.micro_batch}, {plan.recompute.value}"
    return run.id, run.model.name, f"{plan.gpus} {run.gpu}", axes + ("" if score.is_stated else " (assumed)")


def _number(value: float, score: Score) -> str:
    if score.quantity.endswith("_bytes"):
        return f"{value / 1e9:.1f} GB {score.quantity.removesuffix('_bytes')}"
    return f"{value:.4g} {score.quantity.removesuffix('_per_gpu').replace('_per_', '/').replace('step_s', 's')}"


def _percent(score: Score) -> str:
    return f"{score.error:+.1%}"


def list_fitted(calibration: Document | None, texts: Texts) -> Iterator[str]:
    """Yield the parameters that the runs moved away from what was known before."""
    if not calibration:
        return
    yield f"\n## What was fitted\n\n{texts.parts['fitted']}\n\n"
    known = calibration["parameters"].items()
    yield table(
        ("parameter", "prior", "fitted", "±", "unit", "runs"),
        (
            (f"`{name}`", *(f"{entry[key]:.3g}" for key in ("prior", "value", "standard_error")), entry["unit"], runs)
            for name, entry in known
            if entry["identified"] and (runs := str(entry["runs"])) != "0"
        ),
    )


def winners(searches: Path | None, texts: Texts) -> Iterator[str]:
    """Yield what opsk says of the plans that Calculon's searches found."""
    if searches:
        yield f"\n## Calculon's winners\n\n{texts.parts['winners']}\n\n"
        yield from calculon_tables.sections(searches)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _document(path: Path | None) -> Document | None:
    return json.loads(path.read_text(encoding="utf-8")) if path else None


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, help="table of measured runs")
    parser.add_argument("--calibration", type=Path, help="what opsk calibrate RUNS.csv --from-priors --json printed")
    parser.add_argument("--unseen", type=Path, help="what opsk validate --json printed with that fit")
    parser.add_argument("--calculon", type=Path, help="record of Calculon's searches")
    asked = parser.parse_args()
    documents = _document(asked.calibration), _document(asked.unseen)
    PAGE.write_text(page(read_runs(asked.runs), *documents, read_texts(TEXTS), asked.calculon), encoding="utf-8")


if __name__ == "__main__":
    main()
