"""Implements ``opsk design --paper``: compares the statements of a paper or talk with computed values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from opsk.app.inputs.named_inputs import load_model
from opsk.cli.design.document import build_design_document
from opsk.cli.design.inputs import Request, build_setting, build_template, parse_fixed_axes
from opsk.cli.design.run import ProgressIterator
from opsk.hardware.catalog import cluster as catalogue_cluster
from opsk.hardware.catalog import node as catalogue_node
from opsk.network_design import figures, paper, talks
from opsk.network_design.failures import outcomes
from opsk.network_design.plans import ModelRequest
from opsk.network_design.point import Point, Wiring
from opsk.network_design.rows import Row, Setting, build_row
from opsk.units import gbit_per_s


def build_paper_document(name: str, request: Request) -> dict[str, Any]:
    """Return the document of one paper."""
    return PAPERS[name](request)


def _build_rail_only(request: Request) -> dict[str, Any]:
    """Return table II, the remarks, the figures and the failures of the rail-only paper."""
    setting = replace(build_setting(request, catalogue_node("dgx-h100"), []), model_requests=())
    rows = [
        row for domain in (paper.HEADLINE_DOMAIN, paper.SERVER_DOMAIN) for row in build_table_2_rows(setting, domain)
    ]
    walk = ProgressIterator("points of figures 8, 9 and 10")
    template = build_template(request) if request.software else figures.TEMPLATE
    requests = {
        name: ModelRequest(
            model=load_model(name)[0], template=template, fixed={**figures.SPACE, **parse_fixed_axes(request.fixed)}
        )
        for name in figures.MODELS
    }
    points = walk.collect(figures.compute_points(setting.plans, setting.node, requests, walk))
    compared = list(paper.compare_paper())
    failures = []
    if not walk.interrupted:
        compared += figures.compare_figures(points)
        failures = walk.collect(
            outcomes(setting.node, precision=setting.template.precision, efficiency=setting.efficiency)
        )
    return build_design_document(
        rows=rows,
        verdict=_format_rail_only_verdict(compared),
        compared=compared,
        points=points,
        failures=failures,
        prices=setting.prices,
        extras=setting.extras,
        interrupted=walk.interrupted,
    )


def build_table_2_rows(setting: Setting, hb_domain: int) -> list[Row]:
    """Return the networks of table II with HB domains of ``hb_domain`` GPUs."""
    return [
        build_row(
            setting,
            Point(
                wiring=wiring,
                gpus=gpus,
                hb_domain=hb_domain,
                gpus_per_node=8,
                nics=8,
                radix=radix,
                nic_bytes_per_s=gbit_per_s(400.0),
                hb_bytes_per_s=gbit_per_s(3600.0),
            ),
            sweep={"hb-domain": hb_domain, "gpus": gpus, "radix": radix},
        )
        for gpus, radix, _, _ in paper.TABLE_2
        for wiring in (Wiring.RAIL_OPTIMIZED, Wiring.RAIL_ONLY)
    ]


def _format_rail_only_verdict(compared: list[paper.Compared]) -> list[str]:
    """Return which statements of the paper are confirmed."""
    comparable = [entry for entry in compared if entry.agrees is not None]
    agree = sum(bool(entry.agrees) for entry in comparable)
    small = [entry for entry in compared if entry.section == f"table II, K = {paper.SERVER_DOMAIN}"]
    saved = [entry.computed for entry in small if entry.what.endswith("cost saved")]
    nothing = sum(abs(entry) < 0.005 for entry in saved)
    return [
        f"{agree} of {len(comparable)} statements come out as stated: digits of table II and of ratios, signs of what "
        "the figures show, and their few stated values within five points",
        f"the headline (38 to 77 % of the cost) needs HB domains of {paper.HEADLINE_DOMAIN} GPUs; with the "
        f"{paper.SERVER_DOMAIN} of a server {nothing} of the 6 rows of table II save nothing, the others "
        f"{max(saved):.0%}",
    ]


def _build_titan(request: Request) -> dict[str, Any]:
    """Return the NICs a node of the TITAN talk."""
    cluster = catalogue_cluster("titan")
    setting = replace(build_setting(request, cluster.node, []), model_requests=())
    model = replace(load_model("gpt3-175b")[0], flash_attention=False)
    points = tuple(talks.compute_titan_steps(setting.plans, model, cluster, setting.efficiency))
    compared = list(talks.compare_titan(points))
    agree = sum(bool(entry.agrees) for entry in compared)
    last = points[-1]
    measured, recipe = (getattr(last, of) / getattr(points[0], of) for of in ("measured_s", "recipe_s"))
    nics = f"{last.nics} NIC{'s' if last.nics > 1 else ''}"
    return build_design_document(
        verdict=[
            f"{agree} of {len(compared)} come out as measured; with {nics} a step takes {recipe:.2f} times as long by "
            f"Megatron's recipe, and took {measured:.2f} times: the talk states neither plan nor batch nor GPUs",
        ],
        compared=compared,
    )


def _build_ntt(request: Request) -> dict[str, Any]:
    """Return the statements of the NTT talk."""
    return build_design_document(compared=list(talks.compare_ntt()))


PAPERS: Mapping[str, Callable[[Request], dict[str, Any]]] = {
    "rail-only": _build_rail_only,
    "titan": _build_titan,
    "ntt": _build_ntt,
}
"""Available papers and talks."""
