"""Implements ``opsk losses``: attributes the time that a running job loses against its prediction to causes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from opsk.app.inputs.named_inputs import load_efficiency
from opsk.app.inputs.plan_file import PlanFile, format_source, read_tables
from opsk.app.losses import build_losses_document, find_job_log, observe_job, read_scrape
from opsk.calibration.runs.run_writer import JobRun, append_run
from opsk.cli.document import echo_json
from opsk.cli.predict.command import validate_plan
from opsk.costmodel.efficiency.cases import build_case
from opsk.costmodel.uncertainty.case_spread import apply_case_spread
from opsk.diagnosis.losses.losses import compute_losses
from opsk.diagnosis.losses.observation import Prediction
from opsk.diagnosis.losses.predicted import list_unfit_reasons, predict_plan, read_recorded_prediction
from opsk.diagnosis.losses.scrapes import compute_activities
from opsk.diagnosis.losses.values import Cause, Losses
from opsk.errors import ExitStatus
from opsk.hardware.spec import ClusterSpec
from opsk.slurm.adapter import slurm_client
from opsk.telemetry.progress.runs import merge_logs, read_log
from opsk.text import escape, format_duration, to_json_values
from opsk.workload.advice_record import AdviceRecord

_WIDTH_WITHOUT_TERMINAL = 110
_BAR = 60
_SYMBOLS = {
    Cause.STRAGGLER: ("S", "red"),
    Cause.THERMAL_CAP: ("T", "bright_red"),
    Cause.POWER_CAP: ("P", "yellow"),
    Cause.CONGESTED_LINK: ("N", "magenta"),
    Cause.WRONG_PLAN: ("W", "blue"),
    Cause.DATA_LOADING: ("D", "bright_yellow"),
    Cause.CHECKPOINTING: ("C", "bright_blue"),
    Cause.RECOMPUTE: ("R", "bright_magenta"),
    Cause.UNKNOWN: ("?", "bright_black"),
}


@click.command()
@click.argument("job", required=False, metavar="[JOB]")
@click.option("--log", "logs", multiple=True, metavar="FILE", help="A log of the job; repeatable.")
@click.option("--plan", "plan_file", metavar="PLAN.toml", help="Plan of the job, as opsk predict reads it.")
@click.option("--scrape", "scrapes", multiple=True, metavar="NODE=FILE",
              help="Output of opsk exporter on a node, twice or more, minutes apart; without NODE=, the file is named "
              "after it.")  # fmt: skip
@click.option("--efficiency", metavar="FILE", help="Efficiencies that opsk calibrate wrote; by default those of opsk.")
@click.option("--as-run", metavar="RUNS.csv", type=click.Path(path_type=Path),
              help="Add the job to a table for opsk calibrate, if nothing slows it down; needs --plan.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
def losses(
    job: str | None, *, logs: tuple[str, ...], plan_file: str | None, scrapes: tuple[str, ...], efficiency: str | None,
    as_run: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Show where a running training job loses time: the gap between measured and predicted steps, split by cause.

    Steps come from the job's logs. The prediction comes from --plan, or from the record that opsk stored with JOB in
    Slurm. The evidence comes from the exporters of its nodes: clocks, activity, heat, power, ports, hosts.

    Exit status: 0 no cause found; 1 something slows the job down, or --as-run did not add it; 2 nothing could be read.
    """
    if not logs and job is None:
        raise click.UsageError("give --log FILE, and --plan PLAN.toml or a job number")
    if as_run is not None and plan_file is None:
        raise click.UsageError("--as-run needs --plan: each row of a table of runs has a model and a plan")
    plan_input, cluster, predicted = _predict(plan_file, efficiency)
    record = slurm_client().job(job) if job is not None else None
    if predicted is None and record is not None:
        advice = AdviceRecord.parse(record.admin_comment or "")
        predicted = None if advice is None else read_recorded_prediction(advice)
    paths = [Path(name) for name in logs] if record is None or logs else [find_job_log(record)]
    observation = observe_job(
        merge_logs([read_log(path) for path in paths]),
        predicted,
        compute_activities((read_scrape(each) for each in scrapes), job_id=job or ""),
        plan_input,
    )
    result = compute_losses(observation)
    reasons = list_unfit_reasons(observation, result)
    document = build_losses_document(observation, result, reasons)
    if as_json:
        echo_json(document)
    else:
        print_losses(to_json_values(document))
    if as_run is not None and plan_input is not None and cluster is not None:
        return _append_job(as_run, plan_input, cluster, result, reasons, name=job or paths[0].stem)
    is_held_up = any(finding.cause is not Cause.UNKNOWN for finding in result.findings)
    return ExitStatus.BAD_NEWS if is_held_up else ExitStatus.ANSWER


def _predict(
    plan_file: str | None, efficiency: str | None
) -> tuple[PlanFile | None, ClusterSpec | None, Prediction | None]:
    """Return the plan file, its cluster and the prediction; ``None`` without a plan file."""
    if plan_file is None:
        return None, None, None
    plan_input, cluster = validate_plan(read_tables(plan_file), source=format_source(plan_file))
    chosen = apply_case_spread(
        load_efficiency(efficiency),
        (entry.field for entry in plan_input.assumed),
        build_case(plan_input.model, plan_input.plan, cluster),
    )
    return plan_input, cluster, predict_plan(plan_input.model, plan_input.plan, cluster, chosen)


def _append_job(
    path: Path, plan_input: PlanFile, cluster: ClusterSpec, result: Losses, reasons: tuple[str, ...], *, name: str
) -> int:
    """Append the job to a table of runs, unless it is unsuitable."""
    if reasons or result.measured_step_s is None:
        reason = "; ".join(reasons) or "no step time"
        click.echo(f"opsk: {escape(f'not added to {path}: {reason}')}", err=True)
        return ExitStatus.BAD_NEWS
    append_run(
        path,
        JobRun(
            name=f"own-{name}",
            model=plan_input.model,
            plan=plan_input.plan,
            cluster=cluster,
            step_s=result.measured_step_s,
        ),
    )
    return ExitStatus.ANSWER


def print_losses(document: Mapping[str, Any]) -> None:
    """Print the answer of ``opsk losses`` for people."""
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(Text("measured", style="bold"), Text(_format_measured(document)))
    table.add_row(Text("expected", style="bold"), Text(_format_expected(document)))
    if document["gap"] is not None:
        table.add_row(Text("gap", style="bold"), Text(_format_gap(document)))
        table.add_row(Text("step", style="bold"), _render_bar(document, console))
    for finding in document["findings"]:
        symbol, colour = _SYMBOLS[Cause(finding["cause"])]
        table.add_row(Text(f"  {symbol}", style=f"bold {colour}"), Text(escape(_format_finding(finding))))
    table.add_row(Text("seen with", style="bold"), Text(escape(_format_sources(document["seen"]))))
    console.print(table)


def _format_measured(document: Mapping[str, Any]) -> str:
    if document["measured_step_s"] is None:
        return _format_awaited(document["awaits"])
    typical, mean = document["measured_step_s"], document["mean_step_s"]
    text = f"{format_duration(typical)} a step"
    if mean > 1.005 * typical:
        text += f", {format_duration(mean)} with what happens between steps"
    return text + _format_mfu(document["measured_mfu"])


def _format_awaited(awaits: Mapping[str, int] | None) -> str:
    """Return the progress of the measurement."""
    if awaits is None or not awaits["step_times"]:
        return "waiting for the first progress line: no log has a step yet"
    return f"measuring: {awaits['step_times']} of {awaits['needed']} step times"


def _format_expected(document: Mapping[str, Any]) -> str:
    expected = document["expected_step_s"]
    if expected is None:
        return "no prediction: give --plan, or the number of a job with advice in its record"
    low, high = document["expected_range_s"]
    between = f"{format_duration(low)}–{format_duration(high)}"
    return f"{format_duration(expected)} a step ({between}){_format_mfu(document['expected_mfu'])}"


def _format_mfu(ratio: float | None) -> str:
    return "" if ratio is None else f" · MFU {ratio:.1%}"


def _format_gap(document: Mapping[str, Any]) -> str:
    """Return the share of a step that could be saved, against the prediction's error."""
    gap = document["gap"]
    if gap < 0.005:
        if document["expected_step_s"] is None:
            return "unknown: no cause was found, and there is no prediction"
        return "none: as fast as predicted, and nothing found"
    text = f"{gap:.1%} of the step could be saved"
    if document["expected_step_s"] is not None:
        where = "within" if document["is_within_error"] else "beyond"
        text += f"; the measured time is {where} the prediction's error"
    return text


def _render_bar(document: Mapping[str, Any], console: Console) -> Text:
    """Return the measured step as a bar: the useful time, and the share of each cause."""
    text, width = Text(), min(_BAR, max(console.width - 12, 20))
    cells = [(finding["cause"], round(finding["share"] * width)) for finding in document["findings"]]
    lost = sum(count for _, count in cells)
    text.append(_choose_block(console.encoding) * max(width - lost, 0), style="green")
    for cause, count in cells:
        symbol, colour = _SYMBOLS[Cause(cause)]
        text.append(symbol * count, style=f"bold {colour}")
    return text


def _choose_block(encoding: str) -> str:
    """Return a block character that the terminal's encoding has."""
    try:
        "█".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return "#"
    return "█"


def _format_finding(finding: Mapping[str, Any]) -> str:
    """Return one finding as a line."""
    words = f"{finding['share']:6.1%}  {finding['cause'].replace('_', ' ')}"
    if finding["where"]:
        words += f"  {finding['where']}"
    if finding["cause"] != Cause.UNKNOWN:
        words += f"  ({finding['confidence']:.0%} sure)"
    return f"{words}: {finding['text']}"


def _format_sources(seen: Mapping[str, int]) -> str:
    """Return the available and the missing sources of evidence."""
    present = [f"{count:,} {name}" for name, count in seen.items() if count]
    missing = [name for name, count in seen.items() if not count]
    return ", ".join(present or ["nothing"]) + (f"; not seen: {', '.join(missing)}" if missing else "")
