"""Computes what a command prints that counts GPUs, or that prints a text where a test holds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from opsk_jobcheck.scripts.bash.values import Scalar, Text

if TYPE_CHECKING:
    from opsk_jobcheck.scripts.bash.scope import Scope

GPUS = "SLURM_GPUS_ON_NODE"
_LIST = r"nvidia-smi\s+(-L|--list-gpus|--query-gpu=[\w,.]+\s+--format=csv,noheader(,nounits)?)"
_COUNTS = re.compile(
    rf"{_LIST}(\s+2>\s*/dev/null)?\s*\|\s*(grep\s+-c\s+[\"']?(GPU|\^GPU)?[\"']?|wc\s+-l)(\s*\|\s*(tr\s+-d\s+[\"']\s[\"']|xargs))?"
    r"|python3?\s+-c\s+[\"']import torch\s*;\s*print\(torch\.cuda\.device_count\(\)\)[\"']"
)
"""Commands that print how many GPUs the job has on its node: Slurm shows it no others."""
_PRINTS = re.compile(
    r"\[\[?\s+-(?P<sign>[nz])\s+\"?\$\{?(?P<name>[A-Za-z_]\w*)(:-)?\}?\"?\s+\]\]?\s*&&\s*"
    r"(echo|printf)\s+(\"(?P<quoted>[^\"`\\]*)\"|'(?P<plain>[^'\\]*)'|(?P<bare>[\w./=:+-]+))"
)


def count_gpus(command: str, scope: Scope) -> Text | None:
    """Return the number of GPUs of a node where a command prints it and the request tells it."""
    if len(command) > 200 or not _COUNTS.fullmatch(command):
        return None
    number = scope.find(GPUS)
    return number.text if isinstance(number, Scalar) and number.text.known else None


def find_printed(command: str, scope: Scope) -> str | None:
    """Return what ``[ -n "$NAME" ] && echo TEXT`` prints, as it is written; ``None`` where that is not known."""
    match = _PRINTS.fullmatch(command) if len(command) <= 2000 else None
    if match is None:
        return None
    value = scope.find(match["name"])
    is_filled = value.text.is_filled if isinstance(value, Scalar) else False if value is None else None
    if is_filled is None:
        return None
    holds = is_filled == (match["sign"] == "n")
    return next((match[key] for key in ("quoted", "plain", "bare") if match[key] is not None), "") if holds else ""
