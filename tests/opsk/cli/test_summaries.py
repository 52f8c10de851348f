"""The list of commands in ``opsk --help`` is read from their sources: it has what the commands have."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import pytest

from opsk.cli.main import CORE_COMMANDS, opsk
from opsk.cli.summaries import summarize

LIMIT = 60


@pytest.mark.parametrize("name", sorted(CORE_COMMANDS))
def test_a_summary_is_that_of_the_imported_command(name: str) -> None:
    command = opsk.get_command(click.Context(opsk), name)
    assert command is not None
    assert summarize(CORE_COMMANDS[name], LIMIT) == command.get_short_help_str(LIMIT)


@pytest.mark.parametrize(
    "source",
    [
        '@click.command(help="Other.")\ndef word():\n    """This."""\n',
        '@click.command(hidden=True)\ndef word():\n    """This."""\n',
        "@click.command(**settings)\ndef word():\n    pass\n",
        "word = make_command()\n",
        "@click.command()\ndef word():\n    pass\n",
    ],
)
def test_a_command_whose_docstring_is_not_all_has_to_be_imported(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_a_test.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    assert summarize("of_a_test:word", LIMIT) is None
    assert "of_a_test" not in sys.modules


def test_a_module_that_is_not_there_has_no_summary() -> None:
    assert summarize("no_such_module_of_opsk:word", LIMIT) is None
