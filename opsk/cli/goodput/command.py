"""The command ``opsk goodput``: what failures cost a plan, how often to save, and what spare nodes are worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from opsk.app.inputs.efficiency import load_efficiency
from opsk.app.inputs.plan_file import PlanFile, read_tables, source_of
from opsk.cli.document import echo_json
from opsk.cli.goodput.document import goodput_document, spare_rows_csv
from opsk.cli.goodput.inputs import Asked, asked_failures, failure_flags, refused
from opsk.cli.goodput.picture import picture
from opsk.cli.plan_flags import SectionedCommand, table_flags, tables_of
from opsk.cli.predict.command import FLAGS, answer, possible
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.estimates.checkpoint import CheckpointOptions
from opsk.costmodel.uncertainty.verdict import Verdict
from opsk.diagnosis.goodput.goodput import GoodputRequest, goodput_of
from opsk.diagnosis.goodput.spares import too_many_inside
from opsk.errors import ExitStatus, OpskError
from opsk.hardware.spec import ClusterSpec


@click.command(cls=SectionedCommand)
@click.argument("plan_file", required=False, metavar="[PLAN.toml]")
@click.option("--efficiency", metavar="FILE", help="Efficiencies that opsk calibrate wrote; left out, those of opsk.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--csv", "as_csv", is_flag=True, help="The rows on spares as CSV on stdout.")
@table_flags
@failure_flags
def goodput(plan_file: str | None, *, efficiency: str | None, as_json: bool, as_csv: bool, **flags: Any) -> int:
    """Say how much of its time the plan in PLAN.toml, or of the flags, will train in spite of failures.

    Best checkpoint interval, expected tokens/s, and what each spare node (or node inside of an HB domain) brings, from
    published failure rates or your own. docs/explanation/goodput.md has formulas and sources.

    Exit status: 0 an answer; 1 the plan will run out of memory; 2 the plan, the cluster or the rates cannot be.
    """
    stated = tables_of(flags)
    if plan_file is None and not {"model", "plan"} & stated.keys():
        raise click.UsageError("give a PLAN.toml (- is standard input), or the flags of a model and a plan")
    failures, wrong = asked_failures(flags)
    if as_json and as_csv:
        wrong.append("--json and --csv: give one of them")
    asked, cluster = _plan(plan_file, stated, failures, wrong)
    document = _answer(asked, cluster, failures, load_efficiency(efficiency))
    if as_json:
        echo_json(document)
    elif as_csv:
        click.echo(spare_rows_csv(document), nl=False)
    else:
        picture(document)
    return ExitStatus.BAD_NEWS if document["verdict"] == Verdict.OOM else ExitStatus.ANSWER


def _plan(
    plan_file: str | None, stated: Mapping[str, Any], failures: Asked, wrong: list[str]
) -> tuple[PlanFile, ClusterSpec]:
    """Return the plan and its cluster, or tell what is wrong with these together with what is wrong already."""
    try:
        tables = read_tables(plan_file, instead=stated) if plan_file else dict(stated)
        found = possible(tables, source=source_of(plan_file) if plan_file else FLAGS)
    except OpskError as error:
        if wrong:
            raise refused([error.message, *wrong]) from error
        raise
    domain = max(found[1].node.hb_domain_gpus // found[1].node.gpus, 1)
    if failures.spares_inside is not None and failures.spares_inside >= domain:
        wrong.append(f"--spare-trays: {too_many_inside(failures.spares_inside, domain)}")
    if wrong:
        raise refused(wrong)
    return found


def _answer(asked: PlanFile, cluster: ClusterSpec, failures: Asked, efficiency: Efficiency) -> dict[str, Any]:
    """Return the document that the command prints."""
    predicted = answer(replace(asked, checkpoint=None, run=None), cluster, efficiency)
    request = GoodputRequest(
        model=asked.model,
        plan=asked.plan,
        cluster=cluster,
        rates=failures.rates,
        step_s=predicted["time"]["step_s"]["expected"],
        checkpoint=asked.checkpoint or CheckpointOptions(),
        nodes=asked.nodes,
        gpus_per_node=asked.gpus_per_node,
        shrinks=failures.shrinks,
        most_spares=failures.most_spares,
        held_spares=failures.held_spares,
        spares_inside=failures.spares_inside,
        radix=failures.radix,
    )
    return goodput_document(predicted, goodput_of(request), asked, failures, cluster)
