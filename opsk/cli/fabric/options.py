"""Defines the options that describe the cabling, shared by all commands that place ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

fabric_option = click.option(
    "--fabric", multiple=True, type=click.Path(path_type=Path, dir_okay=False), metavar="DUMP",
    help="A dump of the fabric, as opsk fabric reads it; repeatable.",
)  # fmt: skip
node_file_option = click.option(
    "--node-file", multiple=True, type=click.Path(path_type=Path), metavar="[HOST=]FILE",
    help="A file that describes a node, as opsk fabric reads it; repeatable.",
)  # fmt: skip
routes_option = click.option(
    "--routes", multiple=True, type=click.Path(path_type=Path, allow_dash=True), metavar="FILE",
    help="Forwarding tables: dump_fts, ibroute, or *.fdbs of opensm or ibdiagnet; repeatable.",
)  # fmt: skip
adaptive_option = click.option(
    "--adaptive", is_flag=True, help="Switches route adaptively: traffic avoids switches that lack cables."
)
_running_option = click.option(
    "--running", is_flag=True, help="Ask Slurm for running jobs, and show which of them share links."
)
_rates_option = click.option(
    "--rates", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Measured rates of ports, as CSV or JSON; see docs/explanation/fabric.md.",
)  # fmt: skip


def fabric_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command all fabric options: ``--fabric``, ``--routes``, ``--adaptive``, ``--node-file``."""
    return fabric_option(routes_option(adaptive_option(node_file_option(command))))


def interference_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--running`` and ``--rates``."""
    wrapped: Callable[..., Any] = _running_option(_rates_option(command))
    return wrapped
