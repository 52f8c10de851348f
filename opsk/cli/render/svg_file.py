"""Defines the options ``--svg`` and ``--svg-kind``, and writes the SVG file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from opsk.cli.render.fabric_svg import KINDS
from opsk.errors import InputError
from opsk.text import escape

_Command = TypeVar("_Command", bound=Callable[..., Any])

STDOUT = Path("-")


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
