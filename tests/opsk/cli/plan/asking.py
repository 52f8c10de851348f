"""How tests ask ``opsk plan``, and what they ask most."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from opsk.cli.main import opsk
from opsk.errors import InputError

JOB = ("--model", "llama-3-8b", "--cluster", "superpod-h100", "--gpus", "16", "--global-batch", "32")
HELD = ("--tp", "2", "--sharding", "zero1", "--recompute", "none")
"""Few plans are left, so that a test takes no time."""


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(opsk, ["plan", *arguments], input=stdin, standalone_mode=False)


def document(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exception is None, result.exception
    return json.loads(result.stdout)


def refusal(*arguments: str) -> InputError:
    result = run(*arguments)
    assert isinstance(result.exception, InputError), (result.exception, result.output)
    assert result.exception.exit_status == 2
    return result.exception
