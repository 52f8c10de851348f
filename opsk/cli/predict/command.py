"""Implements ``opsk predict``: predicts memory, time and energy of one plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import click

from opsk.app.inputs.named_inputs import find_unmeasured, load_cluster, load_efficiency, resolve_cluster
from opsk.app.inputs.plan_file import PlanFile, format_source, read_tables, require_valid
from opsk.app.inputs.plan_validation import ExaminedPlan, examine_plan
from opsk.cli.document import echo_json
from opsk.cli.plan_flags import SectionedCommand, build_tables, table_flags
from opsk.cli.predict.text import print_prediction
from opsk.config import load_site
from opsk.costmodel.efficiency.cases import build_case
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.energy import JOULES_PER_KWH, apply_pue, count_steps, run_energy, scale_range
from opsk.costmodel.estimates.checkpoint import (
    FILE_SYSTEM_BYTES_PER_S,
    CheckpointOptions,
    compute_checkpoint,
    count_nodes,
)
from opsk.costmodel.predict import energy_document, prediction_document, range_document
from opsk.costmodel.predict import predict as predict_table
from opsk.costmodel.rules import excess_gpus, find_violations, missing_formats
from opsk.costmodel.table import PlanTable, PredictionTable
from opsk.costmodel.uncertainty.case_spread import apply_case_spread
from opsk.costmodel.uncertainty.verdict import Verdict
from opsk.errors import ExitStatus, InputError, OpskError
from opsk.hardware.spec import ClusterSpec
from opsk.workload.defaults import Assumption
from opsk.workload.plan import Plan

FLAGS = "the flags"


@click.command(cls=SectionedCommand)
@click.argument("plan_file", required=False, metavar="[PLAN.toml]")
@click.option("--efficiency", metavar="FILE", help="File that opsk calibrate wrote. Default: opsk's own efficiencies.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@table_flags
def predict(plan_file: str | None, *, efficiency: str | None, as_json: bool, **flags: Any) -> int:
    """Predict memory, time and energy of the plan in PLAN.toml, or of the flags; flags beat the file.

    What neither says is filled in, listed as assumed, and widens the ranges.

    Exit status: 0 fits or tight; 1 will run out of memory; 2 the plan or the cluster cannot be.
    """
    stated = build_tables(flags)
    if plan_file is None and not {"model", "plan"} & stated.keys():
        raise click.UsageError("give a PLAN.toml (- is standard input), or the flags of a model and a plan")
    tables = read_tables(plan_file, overrides=stated) if plan_file else stated
    plan_input, cluster = validate_plan(tables, source=format_source(plan_file) if plan_file else FLAGS)
    document = build_answer(plan_input, cluster, load_efficiency(efficiency))
    if as_json:
        echo_json(document)
    else:
        print_prediction(document)
    return ExitStatus.BAD_NEWS if document["verdict"] == Verdict.OOM else ExitStatus.ANSWER


def validate_plan(tables: Mapping[str, Any], *, source: str) -> tuple[PlanFile, ClusterSpec]:
    """Return the plan of the tables and its cluster, if the plan can run there.

    Raises
    ------
    InputError
        Names ``source`` and every violated rule, with its numbers.
    """
    examination = examine_plan(_fill_gpus_per_node(tables))
    wrong: list[str] = []
    cluster = None if "cluster" in examination.doubtful else resolve_cluster(examination.cluster, wrong)
    plan_input = require_valid(examination, source=source, also=[*wrong, *_find_violations(examination, cluster)])
    if cluster is None:  # then a violation was reported above
        raise InputError(f"{source}: no cluster", hint="give --cluster")
    return plan_input, cluster


def _fill_gpus_per_node(tables: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the tables with the GPUs per node of the cluster where only the number of nodes is given."""
    named = tables.get("cluster") or load_site().cluster
    if "nodes" not in tables or "gpus_per_node" in tables or not isinstance(named, str):
        return tables
    try:
        return {**tables, "gpus_per_node": load_cluster(named).node.gpus}
    except OpskError:  # reported with all other violations
        return tables


def _find_violations(examination: ExaminedPlan, cluster: ClusterSpec | None) -> list[str]:
    """Return every violated rule of frameworks and of the cluster, without doubtful values."""
    wrong: list[str] = []
    if examination.model is not None and examination.plan is not None:
        wrong += find_violations(examination.model, examination.plan)
        if cluster is not None:
            wrong += [*excess_gpus(examination.plan, cluster), *missing_formats(examination.plan, cluster)]
    if cluster is not None and examination.gpus_per_node and examination.gpus_per_node > cluster.node.gpus:
        wrong.append(f"gpus_per_node {examination.gpus_per_node}, a {cluster.node.name} has {cluster.node.gpus}")
    return examination.without_doubt(wrong)


def build_answer(plan_input: PlanFile, cluster: ClusterSpec, efficiency: Efficiency) -> dict[str, Any]:
    """Return the document that ``opsk predict`` prints."""
    assumed = list(plan_input.assumed)
    chosen = apply_case_spread(
        efficiency,
        (entry.field for entry in assumed),
        build_case(plan_input.model, plan_input.plan, cluster),
    )
    assumed += find_unmeasured(efficiency, plan_input.plan.software, cluster)
    table = predict_table(plan_input.model, PlanTable.of([plan_input.plan]), cluster, chosen)
    document = {
        **prediction_document(table, 0),
        "cluster": {"name": cluster.name, "gpu": cluster.node.gpu.name},
        "model": plan_input.model,
        "plan": {
            "gpus": plan_input.plan.gpus,
            **{item.name: getattr(plan_input.plan, item.name) for item in fields(Plan)},
        },
        "assumed": assumed,
    }
    if plan_input.checkpoint is not None:
        checkpoint = compute_checkpoint(plan_input.model, plan_input.plan, cluster, plan_input.checkpoint)
        document["checkpoint"] = {**asdict(checkpoint), "asynchronous": plan_input.checkpoint.asynchronous}
        nodes = count_nodes(plan_input.plan, cluster)
        assumed += _list_checkpoint_assumptions(plan_input.checkpoint, nodes, checkpoint.mtbf_s)
    if plan_input.run is not None:
        lost = document["checkpoint"]["lost_fraction"] if "checkpoint" in document else 0.0
        document |= _build_run(plan_input, table, lost)
    return document


def _build_run(plan_input: PlanFile, table: PredictionTable, lost: float) -> dict[str, Any]:
    """Return the energy with PUE, and time and energy of the whole run where its length is given."""
    run, model, plan = plan_input.run, plan_input.model, plan_input.plan
    assert run is not None
    energy = apply_pue(table.energy, run.pue)
    document: dict[str, Any] = {"energy": {**energy_document(energy, 0), "pue": run.pue}}
    steps: float | None = run.steps
    if run.tokens is not None:
        steps = count_steps(run.tokens, seq=model.seq, global_batch=plan.global_batch)
    if steps is not None and lost < 1:
        run_s = scale_range(table.time.step_s, steps / (1 - lost))
        run_j = run_energy(energy, steps / (1 - lost))
        document["run"] = {
            "steps": float(steps),
            "tokens": float(steps) * model.seq * plan.global_batch,
            "time_s": range_document(run_s, 0),
            "energy_j": range_document(run_j, 0),
            "energy_kwh": range_document(scale_range(run_j, 1 / JOULES_PER_KWH), 0),
            "lost_fraction": lost,
        }
    return document


def _list_checkpoint_assumptions(options: CheckpointOptions, nodes: int, mtbf_s: float) -> list[Assumption]:
    """Return the assumptions for checkpoint options that are not given."""
    assumed = []
    if options.write_bytes_per_s is None:
        why = "a file system that takes 62 GB/s from 32 nodes, as SuperPODs have them"
        rate = nodes * FILE_SYSTEM_BYTES_PER_S
        assumed.append(Assumption(field="checkpoint.write_bytes_per_s", value=rate, why=why))
    if options.mtbf_s is None:
        why = "50,700 GPU hours between failures, as Llama 3 405B had them"
        assumed.append(Assumption(field="checkpoint.mtbf_s", value=mtbf_s, why=why))
    return assumed
