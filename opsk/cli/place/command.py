"""Implements ``opsk place``: maps ranks to GPUs, and predicts the effect on the traffic."""

from __future__ import annotations

from pathlib import Path

import click

from opsk.app.inputs.placement import PlacementInputs, Request, format_inputs, gather_inputs
from opsk.app.interference.document import query_interference
from opsk.cli.document import echo_json
from opsk.cli.fabric.options import fabric_options, interference_options
from opsk.cli.place.document import build_place_document
from opsk.cli.place.launch import build_problem, launch_file_options, print_launch, write_launch_files
from opsk.cli.place.launch_shell import DEADLINE_S, LaunchTarget
from opsk.cli.place.text import print_interference, print_placement
from opsk.cli.render.fabric_svg import STDOUT, render_fabric_svg, svg_options, write_svg
from opsk.errors import ExitStatus
from opsk.planning.placement.placement import DISTRIBUTIONS, Placement
from opsk.planning.placement.placement import place as place_ranks
from opsk.planning.ranks import RankOrder
from opsk.planning.routing.fabric_routes import build_routes
from opsk.slurm.adapter import slurm_client


@click.command()
@click.argument("plan", required=False, metavar="[PLAN.toml]")
@click.option("--nodes", metavar="LIST", help="Candidate nodes, as a host list. Default: all of the fabric.")
@click.option("--job", metavar="ID", help="Place on the nodes that Slurm gave this job.")
@fabric_options
@click.option("--cluster", metavar="NAME|FILE", help="Catalogue name of the cluster, or a cluster TOML.")
@click.option("--gpus-per-node", type=click.IntRange(1, 1024), metavar="N", help="GPUs that the job uses on a node.")
@click.option("--rank-order", type=click.Choice([order.value for order in RankOrder]), show_default=True,
              default=RankOrder.TP_CP_EP_DP_PP.value,
              help="Axes as rank numbers run through them, fastest first.")  # fmt: skip
@click.option("--distribution", type=click.Choice(DISTRIBUTIONS), default="block", show_default=True,
              help="Slurm's own distribution of tasks, to compare with.")  # fmt: skip
@interference_options
@launch_file_options
@click.option(
    "--launch",
    type=click.Choice([launch.value for launch in LaunchTarget]),
    help="Print shell lines instead, for eval in the job's own script; on any trouble they keep Slurm's order.",
)
@click.option(
    "--deadline",
    type=click.FloatRange(0.1, 600),
    default=DEADLINE_S,
    show_default=True,
    metavar="SECONDS",
    help="Longest that --launch may take before it leaves Slurm's order.",
)
@svg_options
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def place(
    plan: str | None, *, nodes: str | None, job: str | None, fabric: tuple[Path, ...], routes: tuple[Path, ...],
    adaptive: bool, node_file: tuple[Path, ...], cluster: str | None, gpus_per_node: int | None, rank_order: str,
    distribution: str, running: bool, rates: Path | None, launch: str | None, deadline: float, as_json: bool,
    svg: Path | None, svg_kind: str, **launch_files: Path | None,
) -> int:  # fmt: skip
    """Map the ranks of the plan in PLAN.toml to GPUs, on the fabric as it is really cabled.

    Without PLAN.toml a job's plan is taken from the advice in its Slurm record, else from its script.

    Exit status: 0 placed; 2 the plan, the nodes or the fabric cannot be used; 3 Slurm does not answer.
    """
    request = Request(
        plan=plan, nodes=nodes, job=job, fabric=fabric, cluster=cluster, gpus_per_node=gpus_per_node, routes=routes,
        adaptive=adaptive, node_files=node_file,
    )  # fmt: skip
    if launch is not None:
        return print_launch(request, LaunchTarget(launch), RankOrder(rank_order), deadline_s=deadline)
    slurm = slurm_client()
    inputs = gather_inputs(request, slurm)
    fabric_routes = build_routes(inputs.fabric, inputs.rails, inputs.tables, adaptive=inputs.adaptive)
    problem = build_problem(inputs, fabric_routes, RankOrder(rank_order), distribution=distribution)
    placement = place_ranks(problem, with_links=svg is not None)
    document = build_place_document(inputs, placement)
    if running or rates is not None:
        document["interference"] = query_interference(
            inputs, placement, fabric_routes, slurm if running else None, rates
        )
    write_launch_files(document, **launch_files)
    if svg is not None:
        svg_text = render_fabric_svg(
            inputs.fabric, inputs.rails, placement.busy, kind=svg_kind, caption=_format_caption(inputs, placement)
        )
        write_svg(svg, svg_text, with_json=as_json)
    if as_json:
        echo_json(document)
    elif svg != STDOUT:
        print_placement(format_inputs(inputs), document)
        if "interference" in document:
            print_interference(document["interference"])
    return ExitStatus.ANSWER


def _format_caption(inputs: PlacementInputs, placement: Placement) -> str:
    """Return the caption that explains the colours."""
    what = "a step" if placement.is_whole_step else "its communication"
    return f"{format_inputs(inputs)}; colours: how much of {what} a link is busy"
