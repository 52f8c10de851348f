"""The command ``opsk losses``: where does a running job lose time against its prediction?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from opsk.app.inputs.efficiency import load_efficiency
from opsk.app.inputs.plan_file import PlanFile, read_tables, source_of
from opsk.calibration.runs.written_runs import RunOfJob, append_run
from opsk.cli.document import echo_json
from opsk.cli.losses.logged import log_of_job, logged_pauses, logged_steps
from opsk.cli.losses.picture import picture
from opsk.cli.losses.scraped import read_scrape
from opsk.cli.predict.command import possible
from opsk.costmodel.efficiency.nearness import case_of
from opsk.costmodel.uncertainty.widening import with_assumed
from opsk.diagnosis.losses.clean import unfit
from opsk.diagnosis.losses.losses import losses_of
from opsk.diagnosis.losses.observation import Observation, Prediction
from opsk.diagnosis.losses.predicted import prediction_of, recorded_prediction, with_stages
from opsk.diagnosis.losses.scrapes import Activities, activities
from opsk.diagnosis.losses.step_times import FEWEST_STEPS
from opsk.diagnosis.losses.values import Cause, Losses
from opsk.errors import ExitStatus
from opsk.hardware.spec import ClusterSpec
from opsk.slurm.choice import slurm_client
from opsk.telemetry.progress.records import EventKind
from opsk.telemetry.progress.runs import Run, joined, read_log
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
    asked, cluster, predicted = _expected(plan_file, efficiency)
    record = slurm_client().job(job) if job is not None else None
    if predicted is None and record is not None:
        advice = AdviceRecord.parse(record.admin_comment or "")
        predicted = None if advice is None else recorded_prediction(advice)
    paths = [Path(name) for name in logs] if record is None or logs else [log_of_job(record)]
    seen = _observed(
        joined([read_log(path) for path in paths]),
        predicted,
        activities((read_scrape(each) for each in scrapes), job_id=job or ""),
        asked,
    )
    found = losses_of(seen)
    why = unfit(seen, found)
    document = _document(seen, found, why)
    if as_json:
        echo_json(document)
    else:
        picture(to_json_values(document))
    if as_run is not None and asked is not None and cluster is not None:
        return _take(as_run, asked, cluster, found, why, name=job or paths[0].stem)
    is_held_up = any(finding.cause is not Cause.UNKNOWN for finding in found.findings)
    return ExitStatus.BAD_NEWS if is_held_up else ExitStatus.ANSWER


def _expected(
    plan_file: str | None, efficiency: str | None
) -> tuple[PlanFile | None, ClusterSpec | None, Prediction | None]:
    """Return the plan file, its cluster and what is predicted of them, where there is one."""
    if plan_file is None:
        return None, None, None
    asked, cluster = possible(read_tables(plan_file), source=source_of(plan_file))
    chosen = with_assumed(
        load_efficiency(efficiency),
        (entry.field for entry in asked.assumed),
        case_of(asked.model, asked.plan, cluster),
    )
    return asked, cluster, prediction_of(asked.model, asked.plan, cluster, chosen)


def _observed(run: Run, predicted: Prediction | None, active: Activities, asked: PlanFile | None) -> Observation:
    """Return all that is seen of the job."""
    steps = logged_steps(run)
    gpus = active.gpus if asked is None else with_stages(active.gpus, asked.plan)
    return Observation(
        prediction=predicted,
        steps=steps,
        checkpoints=logged_pauses(run, EventKind.CHECKPOINT, steps),
        validations=logged_pauses(run, EventKind.VALIDATION, steps),
        gpus=gpus,
        ports=active.ports,
        hosts=active.hosts,
    )


def _document(seen: Observation, found: Losses, why: tuple[str, ...]) -> dict[str, Any]:
    """Return the answer as plain values."""
    predicted = seen.prediction
    document: dict[str, Any] = to_json_values(replace(found, findings=()))
    return {
        **document,
        "expected_range_s": None if predicted is None else [predicted.low_s, predicted.high_s],
        "awaits": _awaits(seen),
        "findings": [to_json_values(finding) for finding in found.findings],
        "seen": {
            "steps": sum(step.steps for step in seen.steps),
            "gpus": len(seen.gpus),
            "ports": len(seen.ports),
            "hosts": len(seen.hosts),
        },
        "fit_to_calibrate": not why,
        "unfit": list(why),
    }


def _awaits(seen: Observation) -> dict[str, int] | None:
    """Return how many step times there are of those that an answer takes; ``None`` where there are enough."""
    if len(seen.steps) >= FEWEST_STEPS:
        return None
    return {"step_times": len(seen.steps), "needed": FEWEST_STEPS}


def _take(path: Path, asked: PlanFile, cluster: ClusterSpec, found: Losses, why: tuple[str, ...], *, name: str) -> int:
    """Add the job to a table of runs, unless something is wrong with it."""
    if why or found.measured_step_s is None:
        reason = "; ".join(why) or "no step time"
        click.echo(f"opsk: {escape(f'not added to {path}: {reason}')}", err=True)
        return ExitStatus.BAD_NEWS
    append_run(
        path,
        RunOfJob(name=f"own-{name}", model=asked.model, plan=asked.plan, cluster=cluster, step_s=found.measured_step_s),
    )
    return ExitStatus.ANSWER
