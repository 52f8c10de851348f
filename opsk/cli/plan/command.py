"""Implements ``opsk plan``: searches the best plan for a model, GPUs and a batch."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import click

from opsk.app.inputs.plan_file import format_source, read_tables
from opsk.cli.document import echo_json
from opsk.cli.plan.answer import build_answer
from opsk.cli.plan.array import apply_stated, split_search
from opsk.cli.plan.fabric import cable_options, format_fabric_lines, parse_cable_flags, read_cables
from opsk.cli.plan.request import ParsedRequest, PlanOptions, parse_request
from opsk.cli.plan.spread import SpreadSearch, parse_spread, spread_flags
from opsk.cli.plan.text import print_answer
from opsk.cli.plan_flags import SectionedCommand, build_tables, table_flags
from opsk.errors import ExitStatus, InputError
from opsk.frameworks.catalog import FRAMEWORKS
from opsk.frameworks.limits import ANYTHING
from opsk.planning.search.relaxations import Relaxation, broken_rules, relaxations
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.space import has_plans
from opsk.text import escape


def build_no_plan_error(parsed: ParsedRequest) -> InputError:
    """Return the error that names the constraint that rules out all plans, and the nearest valid one."""
    request = parsed.request
    what = f"no plan is legal for {request.model.name} on {request.gpus} GPUs with batch {request.global_batch}"
    if broken := broken_rules(request):
        return InputError(
            escape(f"{what}: {'; '.join(broken)}"),
            hint="no axis would change that: ask for something else there",
        )
    suggestions = relaxations(request)
    if not suggestions:
        return InputError(escape(what), hint="leave out some of what is fixed: no one or two of them are to blame")
    blamed = "; ".join(f"{relaxation.constraint} {_format_asked(parsed, relaxation)}" for relaxation in suggestions)
    return InputError(
        escape(f"{what}: ruled out by {blamed}"),
        hint=escape("there are plans with " + _format_offers(suggestions)),
    )


def _format_asked(parsed: ParsedRequest, relaxation: Relaxation) -> str:
    """Return what was asked for; where no framework was, those that are searched."""
    if relaxation.constraint == "framework" and parsed.framework == ANYTHING.name:
        return f"({', '.join(parsed.frameworks)})"
    return relaxation.asked


def _format_offers(suggestions: list[Relaxation]) -> str:
    """Return the nearest valid values of the constraints."""
    return ", or ".join(
        f"{relaxation.constraint} {' or '.join(relaxation.nearest)}"
        if relaxation.nearest
        else f"{relaxation.constraint} {relaxation.asked} left out"
        for relaxation in suggestions
    )


FLAGS = "the flags"


@click.command(cls=SectionedCommand)
@click.argument("plan_file", required=False, metavar="[PLAN.toml]")
@click.option("--framework", type=click.Choice([*FRAMEWORKS, ANYTHING.name]),
              help="What this framework runs, or any plan in theory. Default: what some framework runs.")  # fmt: skip
@click.option("--memory-margin", "margin", metavar="SIZE", help="Memory of each GPU to leave free: 5% or 4GiB.")
@click.option("--keep-batch/--no-keep-batch", default=True, help="Keep the batch, or try others within a tenth.")
@click.option("--gpu-counts", metavar="N,N,...", help="Search these numbers of GPUs as well.")
@click.option("--top", "most", type=click.IntRange(1, 1000), default=5, metavar="N",
              help="How many layouts to show. Default: 5.")  # fmt: skip
@click.option("--pareto", is_flag=True, help="Show the choices between time, memory, energy and GPUs too.")
@click.option("--what-if", is_flag=True, help="Show what other micro-batches, axes, NICs or margins would change.")
@click.option("--sbatch", "script", metavar="FILE", help="Write a script for sbatch that runs the plan to take.")
@click.option("--exhaustive", is_flag=True, help="Evaluate every plan, so that all counts are exact.")
@click.option("--efficiency", metavar="FILE", help="File that opsk calibrate wrote. Default: opsk's own efficiencies.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@cable_options
@spread_flags
@table_flags
def plan(plan_file: str | None, *, as_json: bool, **flags: Any) -> int:
    """Search all legal plans for the fastest that fits: TP, PP, CP, EP, DP, sharding, recompute, micro-batch, schedule.

    What PLAN.toml or a flag gives is kept (--tp 8); every axis that is left out is searched. The model, --gpus or
    --nodes, and --global-batch must be given.

    With --node-list or --fabric every plan has the time of its best placement there, as opsk place finds it.

    --array N searches as a job array of Slurm, --merge DIR joins the results of its tasks.

    Exit status: 0 some plan fits; 1 none does, the script cannot be written, or parts are missing; 2 no plan is legal,
    or the request cannot be.
    """
    spread, stated = parse_spread(flags), build_tables(flags)
    plan_file = spread.plan_file(plan_file, stated)
    if plan_file is None and not stated:
        raise click.UsageError("give a PLAN.toml (- is standard input), or --model, --cluster, --gpus, --global-batch")
    tables, search = split_search(read_tables(plan_file, overrides=stated) if plan_file else stated, plan_file)
    options = apply_stated(PlanOptions(**{item.name: flags[item.name] for item in fields(PlanOptions)}), search)
    cables = read_cables(parse_cable_flags(flags, options), tables)
    tables = cables.fill_tables(tables) if cables else tables
    parsed = parse_request(tables, options, source=format_source(plan_file) if plan_file else FLAGS)
    parsed = cables.apply_to(parsed) if cables else parsed
    spreading = SpreadSearch(
        spread=spread, requests=filter_legal_cases(parsed), tables=tables, options=options, search=search
    )
    if spreading.is_deferred:
        spreading.run_deferred(as_json=as_json)
        return ExitStatus.ANSWER
    document = build_answer(parsed, options, spreading, cables)
    if as_json:
        echo_json(document)
    else:
        print_answer(document)
        click.echo("\n".join(format_fabric_lines(document) if cables else []), nl=cables is not None)
    is_whole = "parts" not in document or not document["interrupted"]
    has_script = document.get("script", {}).get("why") is None
    return ExitStatus.ANSWER if document["best"] and is_whole and has_script else ExitStatus.BAD_NEWS


def filter_legal_cases(parsed: ParsedRequest) -> list[PlanRequest]:
    """Return the requests that have any legal plan.

    Raises
    ------
    InputError
        No plan is legal: names the constraint that rules out all plans, and the nearest valid one.
    """
    cases = [case for case in parsed.cases if has_plans(case)]
    if not cases:
        raise build_no_plan_error(parsed)
    return cases
