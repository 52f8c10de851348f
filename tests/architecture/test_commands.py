"""Is every command and option documented, in itself and in the pages that people read?"""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from opsk.cli.main import opsk


def commands(group: click.Group = opsk, above: str = "opsk") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group, info_name=above)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, f"{above} {name} is listed and cannot be loaded"
        yield f"{above} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{above} {name}")


def test_every_command_says_what_it_does() -> None:
    silent = [words for words, command in commands() if not (command.help or "").strip()]
    assert silent == []


def test_every_option_says_what_it_does() -> None:
    silent = [
        f"{words} {parameter.opts[0]}"
        for words, command in commands()
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.hidden and not parameter.help
    ]
    assert silent == []


def test_the_reference_page_lists_every_command_and_option(root: Path) -> None:
    page = (root / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    missing = [words for words, _ in commands() if f"\n## {words}\n" not in page]
    missing += [
        f"{words} {option}"
        for words, command in commands()
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.hidden
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option not in page.partition(f"\n## {words}\n")[2].partition("\n## ")[0]
    ]
    assert missing == [], "run python docs/programs/generate.py"


def test_the_reference_page_is_what_the_commands_say(root: Path) -> None:
    generate = runpy.run_path(str(root / "docs" / "programs" / "generate.py"))
    page = (root / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    assert page == generate["cli_page"](), "run python docs/programs/generate.py"


@pytest.mark.parametrize("name", sorted(opsk.list_commands(click.Context(opsk))))
def test_the_readme_names_the_command(root: Path, name: str) -> None:
    assert f"opsk {name}" in (root / "README.md").read_text(encoding="utf-8")
