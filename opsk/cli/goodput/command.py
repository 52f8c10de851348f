"""Implements ``opsk goodput``: computes the cost of failures, the best checkpoint interval, the value of spares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import click

from opsk.app.goodput import (
    SHRINK,
    WAIT,
    FailureOptions,
    build_goodput_document,
    build_input_error,
    format_spares_csv,
    parse_failure_flags,
)
from opsk.app.inputs.named_inputs import load_efficiency
from opsk.app.inputs.plan_file import PlanFile, format_source, read_tables
from opsk.cli.document import echo_json
from opsk.cli.goodput.text import print_goodput
from opsk.cli.plan_flags import SectionedCommand, TableOption, build_tables, table_flags
from opsk.cli.predict.command import FLAGS, build_answer, validate_plan
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.estimates.checkpoint import CheckpointOptions
from opsk.costmodel.uncertainty.verdict import Verdict
from opsk.diagnosis.goodput.goodput import GoodputRequest, compute_goodput
from opsk.diagnosis.goodput.parts import RADIX
from opsk.diagnosis.goodput.spares import format_too_many_inside
from opsk.errors import ExitStatus, OpskError
from opsk.hardware.failure_rates import DEFAULT_RATES, to_hours_field
from opsk.hardware.spec import ClusterSpec

Command = TypeVar("Command", bound=Callable[..., Any])

_WORDS = {
    "gpu_mtbf_s": "Hours between failures of a GPU; or the word never.",
    "host_mtbf_s": "Hours between failures of a node, without its GPUs, NICs and links.",
    "nic_mtbf_s": "Hours between failures of a port on the compute fabric.",
    "link_mtbf_s": "Hours between failures of a cable from NIC to leaf.",
    "switch_mtbf_s": "Hours between failures of a switch of the compute fabric.",
    "hb_domain_mtbf_s": "Hours between failures of a whole HB domain that spans nodes.",
    "software_mtbf_s": "GPU hours between interruptions that a restart fixes.",
    "node_repair_s": "Mean hours until a failed node can be used again.",
    "switch_repair_s": "Mean hours until a failed switch can be used again.",
    "hb_domain_repair_s": "Mean hours until a failed HB domain can be used again.",
}


class FailureOption(TableOption):
    """A flag on failures, shown in a separate section of the help."""

    @property
    def title(self) -> str:
        """Title of the section in which the help shows it."""
        return "Failures and spares"


def failure_flags(command: Command) -> Command:
    """Give a command the flags on failures and spares; all arrive as text, to be checked together."""
    flags = [
        ("--rates", "NAME|FILE", f"Published failure rates, or your own TOML. Default: {DEFAULT_RATES}."),
        *((f"--{to_hours_field(name).replace('_', '-')}", "HOURS", words) for name, words in _WORDS.items()),
        ("--spares", "N", "Maximum number of spare nodes (of HB domains, if these span nodes) to evaluate."),
        ("--hold", "N", "Number of spares that the job holds; by default the best number."),
        ("--spare-trays", "N", "Spare nodes in every HB domain; by default the best number."),
        (
            "--when-out",
            "WORD",
            f"What the job does without enough nodes: {WAIT}, or {SHRINK} by replicas. Default: {WAIT}.",
        ),
        ("--radix", "N", f"Ports of a switch, if the cluster does not define it. Default: {RADIX}."),
    ]
    for name, metavar, words in reversed(flags):
        command = click.option(name, cls=FailureOption, metavar=metavar, default=None, help=words)(command)
    return command


@click.command(cls=SectionedCommand)
@click.argument("plan_file", required=False, metavar="[PLAN.toml]")
@click.option("--efficiency", metavar="FILE", help="Efficiencies that opsk calibrate wrote; by default those of opsk.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the table of spares as CSV on stdout.")
@table_flags
@failure_flags
def goodput(plan_file: str | None, *, efficiency: str | None, as_json: bool, as_csv: bool, **flags: Any) -> int:
    """Compute the goodput of a plan: the share of time that it trains despite failures.

    The answer has the best checkpoint interval, the expected tokens/s, and the gain of each spare node, from published
    failure rates or your own. The plan comes from PLAN.toml, the flags, or both. Formulas and sources are in
    docs/explanation/goodput.md.

    Exit status: 0 an answer; 1 the plan will run out of memory; 2 the plan, the cluster or the rates are invalid.
    """
    stated = build_tables(flags)
    if plan_file is None and not {"model", "plan"} & stated.keys():
        raise click.UsageError("give a PLAN.toml (- is standard input), or the flags of a model and a plan")
    failures, wrong = parse_failure_flags(flags)
    if as_json and as_csv:
        wrong.append("give only one of --json and --csv")
    plan_input, cluster = _read_plan(plan_file, stated, failures, wrong)
    document = _build_answer(plan_input, cluster, failures, load_efficiency(efficiency))
    if as_json:
        echo_json(document)
    elif as_csv:
        click.echo(format_spares_csv(document), nl=False)
    else:
        print_goodput(document)
    return ExitStatus.BAD_NEWS if document["verdict"] == Verdict.OOM else ExitStatus.ANSWER


def _read_plan(
    plan_file: str | None, stated: Mapping[str, Any], failures: FailureOptions, wrong: list[str]
) -> tuple[PlanFile, ClusterSpec]:
    """Return the plan and its cluster, or raise one error with their violations and those found before."""
    try:
        tables = read_tables(plan_file, overrides=stated) if plan_file else dict(stated)
        validated = validate_plan(tables, source=format_source(plan_file) if plan_file else FLAGS)
    except OpskError as error:
        if wrong:
            raise build_input_error([error.message, *wrong]) from error
        raise
    domain = max(validated[1].node.hb_domain_gpus // validated[1].node.gpus, 1)
    if failures.spares_inside is not None and failures.spares_inside >= domain:
        wrong.append(f"--spare-trays: {format_too_many_inside(failures.spares_inside, domain)}")
    if wrong:
        raise build_input_error(wrong)
    return validated


def _build_answer(
    plan_input: PlanFile, cluster: ClusterSpec, failures: FailureOptions, efficiency: Efficiency
) -> dict[str, Any]:
    """Return the document that the command prints."""
    prediction = build_answer(replace(plan_input, checkpoint=None, run=None), cluster, efficiency)
    request = GoodputRequest(
        model=plan_input.model,
        plan=plan_input.plan,
        cluster=cluster,
        rates=failures.rates,
        step_s=prediction["time"]["step_s"]["expected"],
        checkpoint=plan_input.checkpoint or CheckpointOptions(),
        nodes=plan_input.nodes,
        gpus_per_node=plan_input.gpus_per_node,
        shrinks=failures.shrinks,
        max_spares=failures.max_spares,
        held_spares=failures.held_spares,
        spares_inside=failures.spares_inside,
        radix=failures.radix,
    )
    return build_goodput_document(prediction, compute_goodput(request), plan_input, failures, cluster)
