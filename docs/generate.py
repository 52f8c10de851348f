"""Writes the pages of ``docs/reference`` that follow from the code: ``python docs/generate.py [--check]``.

The output depends on the code alone: not on the terminal, the machine or the time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from opsk.cli.main import opsk

ROOT = Path(__file__).resolve().parent.parent
CLI_PAGE = ROOT / "docs" / "reference" / "cli.md"
_HEAD = """# Commands

<!-- Written by docs/generate.py from the commands themselves: change their help texts, not this page. -->

Exit status of every command: 0 an answer, 1 the answer is bad news, 2 wrong usage or an input that cannot be read at
all, 3 a needed service is not there, or opsk itself failed. With `--json`, stdout is one JSON document; diagnostics go
to stderr.
"""


def commands(group: click.Group = opsk, above: str = "opsk") -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its words, sub-commands right after their command."""
    context = click.Context(group, info_name=above)
    for name in sorted(group.list_commands(context)):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        yield f"{above} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{above} {name}")


def cli_page() -> str:
    """Return the page on all commands."""
    return _HEAD + "".join(_section(words, command) for words, command in commands())


def _section(words: str, command: click.Command) -> str:
    """Return the section on one command."""
    context = click.Context(command, info_name=words)
    usage = " ".join([words, *command.collect_usage_pieces(context)])
    lines = [f"\n## {words}\n", f"```\n{usage}\n```\n", *_paragraphs(command.help or "")]
    options = [
        parameter for parameter in command.params if isinstance(parameter, click.Option) and not parameter.hidden
    ]
    if options:
        lines.append("| option | |\n| --- | --- |\n" + "\n".join(_row(option, context) for option in options) + "\n")
    return "\n".join(lines)


def _paragraphs(text: str) -> list[str]:
    r"""Return a help text as paragraphs; what click must not wrap (``\b``) becomes a block."""
    shown = []
    for paragraph in text.split("\n\n"):
        lines = paragraph.strip("\n").splitlines()
        if lines and lines[0].strip() == "\b":
            shown.append("```\n" + "\n".join(lines[1:]) + "\n```\n")
        elif lines:
            shown.append(" ".join(" ".join(lines).split()) + "\n")
    return shown


def _row(option: click.Option, context: click.Context) -> str:
    """Return the line on one option."""
    names = ", ".join([*option.opts, *option.secondary_opts])
    value = "" if option.is_flag or option.count else f" {option.make_metavar(context)}"
    notes = [option.help or ""]
    if option.show_default and option.default not in (None, "") and not option.is_flag:
        notes.append(f"Default: {option.default}.")
    if option.required:
        notes.append("Required.")
    text = " ".join(" ".join(note.split()) for note in notes if note)
    return " | ".join(["", *(cell.replace("|", "\\|") for cell in (f"`{names}{value}`", text)), ""]).strip()


def main() -> int:
    """Write the pages, or with ``--check`` only say whether they are as the code says."""
    page = cli_page()
    if "--check" not in sys.argv[1:]:
        CLI_PAGE.parent.mkdir(parents=True, exist_ok=True)
        CLI_PAGE.write_text(page, encoding="utf-8")
        return 0
    if not CLI_PAGE.exists() or CLI_PAGE.read_text(encoding="utf-8") != page:
        print(
            f"{CLI_PAGE.relative_to(ROOT)} is not what the commands say: run python docs/generate.py", file=sys.stderr
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
