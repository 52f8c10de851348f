"""Prints answers for programs as one JSON document."""

from __future__ import annotations

import json
from typing import Any

import click

from opsk.text import to_json_values


def echo_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    click.echo(json.dumps(to_json_values(document), indent=2, ensure_ascii=True))
