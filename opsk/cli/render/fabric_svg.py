"""Renders a fabric as one SVG, the matrix, the tree or both, and defines the options that write it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from opsk.cli.render.matrix_svg import draw_matrix
from opsk.cli.render.svg import LEFT, Drawing, build_style_sheet, element, escape_xml, fit, fit_bold, text
from opsk.cli.render.tree_svg import draw_tree
from opsk.errors import InputError
from opsk.fabric.fabric import Fabric
from opsk.fabric.rails import Rails
from opsk.fabric.views.marks import Loads
from opsk.fabric.views.matrix import build_matrix
from opsk.fabric.views.names import build_switch_labels
from opsk.fabric.views.tree import build_tree
from opsk.text import escape

KINDS = ("matrix", "tree", "both")
_MIN_WIDTH = 760.0
_Command = TypeVar("_Command", bound=Callable[..., Any])
STDOUT = Path("-")


def render_fabric_svg(
    fabric: Fabric, rails: Rails, loads: Loads | None = None, *, kind: str = "both", title: str = "", caption: str = ""
) -> str:
    """Return a fabric as a self-contained SVG document.

    Parameters
    ----------
    loads
        Utilisation of links by directed pair of guids: two switches, or an HCA and its leaf; 1 is full utilisation.
    kind
        One of ``KINDS``.
    title
        The heading; by default the source of the fabric.
    caption
        A line below the heading, for example the job of the loads.
    """
    labels = build_switch_labels(fabric)
    heading = title or fabric.source or "fabric"
    lines = [line for line in (caption, _format_numbers(fabric, rails)) if line]
    y = 34 + 18.0 * len(lines) + 18
    drawings: list[Drawing] = []
    if kind in ("matrix", "both"):
        drawings.append(draw_matrix(build_matrix(fabric, rails, loads, fold=False), labels, y))
        y = drawings[-1].bottom + 24
    if kind in ("tree", "both"):
        drawings.append(draw_tree(build_tree(fabric, rails, loads), labels, y))
    width = max(max(drawing.right for drawing in drawings) + LEFT, _MIN_WIDTH)
    height = drawings[-1].bottom + 16
    return _build_document(heading, lines, drawings, width, height)


def _format_numbers(fabric: Fabric, rails: Rails) -> str:
    """Return the fabric in numbers."""
    counts = (
        (len(fabric.switches), "switch", "es"),
        (len(rails.attachments), "compute node", "s"),
        (rails.rail_count, "rail", "s"),
        (len(rails.units), "unit", "s"),
        (len(fabric.faults) + len(rails.faults), "finding", "s"),
    )
    counted = ", ".join(f"{count} {word}{'' if count == 1 else plural}" for count, word, plural in counts)
    return f"{counted}; {fabric.generated}" if fabric.generated else counted


def _build_document(heading: str, lines: list[str], drawings: list[Drawing], width: float, height: float) -> str:
    parts = [
        element("title", escape_xml(f"Fabric {heading}")),
        element("desc", escape_xml("; ".join(lines))),
        build_style_sheet(),
        element("rect", x=0, y=0, width=width, height=height, class_="ground"),
        text(LEFT, 34, fit_bold(heading, width - 2 * LEFT, 15, keep_end=True), "h"),
        *(text(LEFT, 54 + 18 * row, fit(escape(line), width - 2 * LEFT, 12), "d") for row, line in enumerate(lines)),
        *(part for drawing in drawings for part in drawing.parts),
    ]
    root = element(
        "svg", "\n", "\n".join(parts), "\n", xmlns="http://www.w3.org/2000/svg", width=width, height=height,
        viewBox=f"0 0 {width:g} {height:g}", role="img", class_="f",
    )  # fmt: skip
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{root}\n'


def svg_options(command: _Command) -> _Command:
    """Give a command ``--svg FILE`` and ``--svg-kind``, as parameters ``svg`` and ``svg_kind``."""
    kind = click.option("--svg-kind", type=click.Choice(KINDS), default="both", show_default=True,
                        help="What --svg draws: the rail × node matrix, the tree of tiers, or both.")  # fmt: skip
    path = click.option("--svg", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True), metavar="OUT",
                        help="Draw the fabric as SVG into this file; - is stdout, instead of text.")  # fmt: skip
    return path(kind(command))


def write_svg(path: Path, content: str, *, with_json: bool = False) -> None:
    """Write an SVG document; ``with_json`` when JSON goes to stdout.

    Raises
    ------
    InputError
        The file cannot be written.
    UsageError
        Both want stdout.
    """
    if path == STDOUT and with_json:
        raise click.UsageError("--svg - and --json both print on stdout: name a file for one")
    if path == STDOUT:
        click.echo(content, nl=False)
        return
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise InputError(escape(f"{path}: {error.strerror}"), hint="name another file for --svg") from error
