"""The command ``opsk predict``: memory, time and energy of one plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import click

from opsk.app.inputs.cluster import chosen_cluster, named_cluster
from opsk.app.inputs.efficiency import load_efficiency, unmeasured
from opsk.app.inputs.plan_examination import Examined, examined
from opsk.app.inputs.plan_file import PlanFile, accepted, read_tables, source_of
from opsk.cli.document import echo_json
from opsk.cli.plan_flags import SectionedCommand, table_flags, tables_of
from opsk.cli.predict.picture import picture
from opsk.config import load_site
from opsk.costmodel.document import energy_document, prediction_document, range_document
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.efficiency.nearness import case_of
from opsk.costmodel.energy import JOULES_PER_KWH, at_pue, run_energy, scaled, steps_of
from opsk.costmodel.estimates.checkpoint import FILE_SYSTEM_BYTES_PER_S, CheckpointOptions, checkpoint_of, nodes_of
from opsk.costmodel.predict import predict as predict_table
from opsk.costmodel.rules import excess_gpus, missing_formats, violations
from opsk.costmodel.table import PlanTable, PredictionTable
from opsk.costmodel.uncertainty.verdict import Verdict
from opsk.costmodel.uncertainty.widening import with_assumed
from opsk.errors import ExitStatus, InputError, OpskError
from opsk.hardware.spec import ClusterSpec
from opsk.workload.defaults import Assumption
from opsk.workload.plan import Plan

FLAGS = "the flags"


@click.command(cls=SectionedCommand)
@click.argument("plan_file", required=False, metavar="[PLAN.toml]")
@click.option("--efficiency", metavar="FILE", help="Efficiencies that opsk calibrate wrote; left out, those of opsk.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@table_flags
def predict(plan_file: str | None, *, efficiency: str | None, as_json: bool, **flags: Any) -> int:
    """Predict memory, time and energy of the plan in PLAN.toml, or of the flags; flags beat the file.

    What neither says is filled in, listed as assumed, and widens the ranges.

    Exit status: 0 fits or tight; 1 will run out of memory; 2 the plan or the cluster cannot be.
    """
    stated = tables_of(flags)
    if plan_file is None and not {"model", "plan"} & stated.keys():
        raise click.UsageError("give a PLAN.toml (- is standard input), or the flags of a model and a plan")
    tables = read_tables(plan_file, instead=stated) if plan_file else stated
    asked, cluster = possible(tables, source=source_of(plan_file) if plan_file else FLAGS)
    document = answer(asked, cluster, load_efficiency(efficiency))
    if as_json:
        echo_json(document)
    else:
        picture(document)
    return ExitStatus.BAD_NEWS if document["verdict"] == Verdict.OOM else ExitStatus.ANSWER


def possible(tables: Mapping[str, Any], *, source: str) -> tuple[PlanFile, ClusterSpec]:
    """Return the plan of the tables and its cluster, if a framework would start the one on the other.

    Raises
    ------
    InputError
        Names ``source`` and every rule that is broken, with its numbers.
    """
    found = examined(_with_whole_nodes(tables))
    wrong: list[str] = []
    cluster = None if "cluster" in found.doubtful else chosen_cluster(found.cluster, wrong)
    asked = accepted(found, source=source, also=[*wrong, *_impossible(found, cluster)])
    if cluster is None:  # then something else was wrong, and told
        raise InputError(f"{source}: no cluster", hint="give --cluster")
    return asked, cluster


def _with_whole_nodes(tables: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the tables with all GPUs of the cluster's nodes where only the number of nodes is given."""
    named = tables.get("cluster") or load_site().cluster
    if "nodes" not in tables or "gpus_per_node" in tables or not isinstance(named, str):
        return tables
    try:
        return {**tables, "gpus_per_node": named_cluster(named).node.gpus}
    except OpskError:  # told with all else that is wrong
        return tables


def _impossible(found: Examined, cluster: ClusterSpec | None) -> list[str]:
    """Return every rule of frameworks and of the cluster that is broken, values in doubt left out."""
    wrong: list[str] = []
    if found.model is not None and found.plan is not None:
        wrong += violations(found.model, found.plan)
        if cluster is not None:
            wrong += [*excess_gpus(found.plan, cluster), *missing_formats(found.plan, cluster)]
    if cluster is not None and found.gpus_per_node and found.gpus_per_node > cluster.node.gpus:
        wrong.append(f"gpus_per_node {found.gpus_per_node}, a {cluster.node.name} has {cluster.node.gpus}")
    return found.without_doubt(wrong)


def answer(asked: PlanFile, cluster: ClusterSpec, efficiency: Efficiency) -> dict[str, Any]:
    """Return the document that ``opsk predict`` prints."""
    assumed = list(asked.assumed)
    chosen = with_assumed(
        efficiency,
        (entry.field for entry in assumed),
        case_of(asked.model, asked.plan, cluster),
    )
    assumed += unmeasured(efficiency, asked.plan.software, cluster)
    table = predict_table(asked.model, PlanTable.of([asked.plan]), cluster, chosen)
    document = {
        **prediction_document(table, 0),
        "cluster": {"name": cluster.name, "gpu": cluster.node.gpu.name},
        "model": asked.model,
        "plan": {"gpus": asked.plan.gpus, **{item.name: getattr(asked.plan, item.name) for item in fields(Plan)}},
        "assumed": assumed,
    }
    if asked.checkpoint is not None:
        checkpoint = checkpoint_of(asked.model, asked.plan, cluster, asked.checkpoint)
        document["checkpoint"] = {**asdict(checkpoint), "asynchronous": asked.checkpoint.asynchronous}
        nodes = nodes_of(asked.plan, cluster)
        assumed += _assumed_of_checkpoints(asked.checkpoint, nodes, checkpoint.mtbf_s)
    if asked.run is not None:
        lost = document["checkpoint"]["lost_fraction"] if "checkpoint" in document else 0.0
        document |= _run(asked, table, lost)
    return document


def _run(asked: PlanFile, table: PredictionTable, lost: float) -> dict[str, Any]:
    """Return the energy in its building, and time and energy of the whole run where its length is given."""
    run, model, plan = asked.run, asked.model, asked.plan
    assert run is not None
    energy = at_pue(table.energy, run.pue)
    found: dict[str, Any] = {"energy": {**energy_document(energy, 0), "pue": run.pue}}
    steps: float | None = run.steps
    if run.tokens is not None:
        steps = steps_of(run.tokens, seq=model.seq, global_batch=plan.global_batch)
    if steps is not None and lost < 1:
        run_s = scaled(table.time.step_s, steps / (1 - lost))
        run_j = run_energy(energy, steps / (1 - lost))
        found["run"] = {
            "steps": float(steps),
            "tokens": float(steps) * model.seq * plan.global_batch,
            "time_s": range_document(run_s, 0),
            "energy_j": range_document(run_j, 0),
            "energy_kwh": range_document(scaled(run_j, 1 / JOULES_PER_KWH), 0),
            "lost_fraction": lost,
        }
    return found


def _assumed_of_checkpoints(options: CheckpointOptions, nodes: int, mtbf_s: float) -> list[Assumption]:
    """Return what was taken for options of checkpoints that nobody gave."""
    assumed = []
    if options.write_bytes_per_s is None:
        why = "a file system that takes 62 GB/s from 32 nodes, as SuperPODs have them"
        rate = nodes * FILE_SYSTEM_BYTES_PER_S
        assumed.append(Assumption(field="checkpoint.write_bytes_per_s", value=rate, why=why))
    if options.mtbf_s is None:
        why = "50,700 GPU hours between failures, as Llama 3 405B had them"
        assumed.append(Assumption(field="checkpoint.mtbf_s", value=mtbf_s, why=why))
    return assumed
