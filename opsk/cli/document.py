"""Prints one JSON document on stdout, and messages on stderr."""

from __future__ import annotations

from typing import Any

import click

from opsk.text import escape, format_json


def echo_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    click.echo(format_json(document))


def echo_message(text: str) -> None:
    """Print a message on stderr, as one line that begins with ``opsk:``."""
    click.echo(f"opsk: {escape(text)}", err=True)
