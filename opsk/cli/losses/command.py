"""Implements ``opsk losses``: attributes the time that a running job loses against its prediction to causes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from opsk.app.inputs.efficiency import load_efficiency
from opsk.app.inputs.plan_file import PlanFile, format_source, read_tables
from opsk.calibration.runs.run_writer import JobRun, append_run
from opsk.cli.document import echo_json
from opsk.cli.losses.log_steps import find_job_log, read_pauses, read_steps
from opsk.cli.losses.scrape_files import read_scrape
from opsk.cli.losses.text import print_losses
from opsk.cli.predict.command import validate_plan
from opsk.costmodel.efficiency.cases import build_case
from opsk.costmodel.uncertainty.case_spread import apply_case_spread
from opsk.diagnosis.losses.predicted import list_unfit_reasons
from opsk.diagnosis.losses.losses import compute_losses
from opsk.diagnosis.losses.observation import Observation, Prediction
from opsk.diagnosis.losses.predicted import assign_stages, predict_plan, read_recorded_prediction
from opsk.diagnosis.losses.scrapes import Activities, compute_activities
from opsk.diagnosis.losses.step_times import MIN_STEPS
from opsk.diagnosis.losses.values import Cause, Losses
from opsk.errors import ExitStatus
from opsk.hardware.spec import ClusterSpec
from opsk.slurm.adapter import slurm_client
from opsk.telemetry.progress.records import EventKind
from opsk.telemetry.progress.runs import Run, merge_logs, read_log
from opsk.text import escape, to_json_values
from opsk.workload.advice_record import AdviceRecord


@click.command()
@click.argument("job", required=False, metavar="[JOB]")
@click.option("--log", "logs", multiple=True, metavar="FILE", help="A log of the job; may be given again.")
@click.option("--plan", "plan_file", metavar="PLAN.toml", help="What the job trains and how, as opsk predict takes it.")
@click.option(
    "--scrape",
    "scrapes",
    multiple=True,
    metavar="NODE=FILE",
    help="What opsk exporter gave on a node, some minutes apart twice or more; without NODE= the file is called so.",
)
@click.option("--efficiency", metavar="FILE", help="Efficiencies that opsk calibrate wrote; left out, those of opsk.")
@click.option(
    "--as-run",
    metavar="RUNS.csv",
    type=click.Path(path_type=Path),
    help="Add the job to a table for opsk calibrate, if nothing holds it up; needs --plan.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def losses(
    job: str | None,
    *,
    logs: tuple[str, ...],
    plan_file: str | None,
    scrapes: tuple[str, ...],
    efficiency: str | None,
    as_run: Path | None,
    as_json: bool,
) -> int:
    """Say where a running training job loses time: measured steps against the prediction, split by what evidence shows.

    Steps are read from the job's logs. What is expected comes from --plan, else from the record that opsk left with
    JOB in Slurm. Scrapes of its nodes' exporters are the evidence: clocks, activity, heat, power, ports, hosts.

    Exit status: 0 no cause found; 1 something holds the job up, or --as-run did not take it; 2 nothing can be read.
    """
    if not logs and job is None:
        raise click.UsageError("give --log FILE, and --plan PLAN.toml or a job number")
    if as_run is not None and plan_file is None:
        raise click.UsageError("--as-run needs --plan: a table of runs has a model and a plan in each row")
    plan_input, cluster, predicted = _predict(plan_file, efficiency)
    record = slurm_client().job(job) if job is not None else None
    if predicted is None and record is not None:
        advice = AdviceRecord.parse(record.admin_comment or "")
        predicted = None if advice is None else read_recorded_prediction(advice)
    paths = [Path(name) for name in logs] if record is None or logs else [find_job_log(record)]
    observation = _observe(
        merge_logs([read_log(path) for path in paths]),
        predicted,
        compute_activities((read_scrape(each) for each in scrapes), job_id=job or ""),
        plan_input,
    )
    result = compute_losses(observation)
    reasons = list_unfit_reasons(observation, result)
    document = _build_document(observation, result, reasons)
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


def _observe(run: Run, predicted: Prediction | None, active: Activities, plan_input: PlanFile | None) -> Observation:
    """Return all observations of the job."""
    steps = read_steps(run)
    gpus = active.gpus if plan_input is None else assign_stages(active.gpus, plan_input.plan)
    return Observation(
        prediction=predicted,
        steps=steps,
        checkpoints=read_pauses(run, EventKind.CHECKPOINT, steps),
        validations=read_pauses(run, EventKind.VALIDATION, steps),
        gpus=gpus,
        ports=active.ports,
        hosts=active.hosts,
    )


def _build_document(observation: Observation, result: Losses, reasons: tuple[str, ...]) -> dict[str, Any]:
    """Return the answer as plain values."""
    predicted = observation.prediction
    document: dict[str, Any] = to_json_values(replace(result, findings=()))
    return {
        **document,
        "expected_range_s": None if predicted is None else [predicted.low_s, predicted.high_s],
        "awaits": _count_awaited(observation),
        "findings": [to_json_values(finding) for finding in result.findings],
        "seen": {
            "steps": sum(step.steps for step in observation.steps),
            "gpus": len(observation.gpus),
            "ports": len(observation.ports),
            "hosts": len(observation.hosts),
        },
        "fit_to_calibrate": not reasons,
        "unfit": list(reasons),
    }


def _count_awaited(observation: Observation) -> dict[str, int] | None:
    """Return the number of step times and the required number; ``None`` where there are enough."""
    if len(observation.steps) >= MIN_STEPS:
        return None
    return {"step_times": len(observation.steps), "needed": MIN_STEPS}


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
