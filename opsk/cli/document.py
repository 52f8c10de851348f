"""Prints answers for programs as one JSON document."""

from __future__ import annotations

from typing import Any

import click

from opsk.text import format_json


def echo_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    click.echo(format_json(document))
