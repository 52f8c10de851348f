"""Does a program load only what it needs? Static checks cannot see imports inside functions; a subprocess can."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("textual", "sqlmodel", "sqlalchemy", "numpy", "prometheus_client", "psutil", "rustworkx", "pynvml")


def loaded_by(statement: str) -> set[str]:
    """Return the top-level names of all modules that a fresh Python has after ``statement``."""
    code = (
        f"import sys, json\n{statement}\nprint(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("import opsk", ()),
        ("import opsk.cli.main", ()),
        ("import opsk.slurm.commands.command", ()),
        ("import opsk.telemetry.network.infiniband", ()),
        ("import opsk.telemetry.host.usage", ("psutil",)),
        ("import opsk_exporters.cli", ("prometheus_client",)),
        # The table and the JSON of `opsk top` must work on a node that has no Textual.
        ("import opsk_tui.cli", ()),
    ],
)
def test_nothing_heavy_is_loaded_without_need(statement: str, allowed: tuple[str, ...]) -> None:
    assert loaded_by(statement).intersection(HEAVY) == set(allowed)


def test_the_exporter_does_not_carry_what_only_the_advisor_needs() -> None:
    # It stays on every node for ever, within 60 MB.
    assert not loaded_by("import opsk_exporters.cli").intersection({"pydantic", "pydantic_core", "rich"})


def test_no_command_needs_a_database_until_it_asks_the_store() -> None:
    statement = (
        "from importlib import import_module; from opsk.cli.main import CORE_COMMANDS; "
        "[import_module(place.partition(':')[0]) for place in CORE_COMMANDS.values()]; import opsk_exporters.cli"
    )
    assert not loaded_by(statement).intersection({"sqlmodel", "sqlalchemy", "alembic", "psycopg", "pymysql"})
