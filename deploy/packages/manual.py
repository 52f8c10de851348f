"""Writes a manual page for each command, from the commands themselves: ``python manual.py FOLDER EPOCH``.

It stands alone, importing nothing of its neighbours: the opsk of a finished tree runs it.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from opsk import __version__
from opsk.cli.main import opsk

EXIT_STATUS = (
    ("0", "an answer"),
    ("1", "the answer is bad news"),
    ("2", "wrong usage, or an input that cannot be read at all"),
    ("3", "a needed service is not there, or opsk itself failed"),
)
FILES = (("/etc/opsk/opsk.toml", "the site's own settings"),)


def commands(context: click.Context, command: click.Command) -> Iterator[tuple[click.Context, click.Command]]:
    """Yield a command and all below it, each with the words that call it."""
    yield context, command
    if isinstance(command, click.Group):
        for name in sorted(command.list_commands(context)):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from commands(click.Context(below, info_name=name, parent=context), below)


def page(context: click.Context, command: click.Command, day: str) -> str:
    """Return the page on one command, in roff."""
    name = context.command_path.replace(" ", "-")
    return (
        "\n".join(
            (
                f'.TH "{roff(name.upper())}" "1" "{day}" "opsk {__version__}" "opsk manual"',
                ".SH NAME",
                f"{roff(name)} \\- {roff(first_words(command))}",
                ".SH SYNOPSIS",
                f".B {roff(context.command_path)}",
                *(roff(piece) for piece in command.collect_usage_pieces(context)),
                ".SH DESCRIPTION",
                *paragraphs(command.help or ""),
                *_commands_below(context, command),
                *_options(context, command),
                ".SH EXIT STATUS",
                *(line for code, text in EXIT_STATUS for line in tag(f"\\fB{code}\\fR", text)),
                ".SH FILES",
                *(line for path, text in FILES for line in tag(f"\\fI{roff(path)}\\fR", text)),
                *_see_also(context, command),
            )
        ).replace("\n\n", "\n")
        + "\n"
    )


def _commands_below(context: click.Context, command: click.Command) -> Iterator[str]:
    """Yield the section on the commands of a group."""
    if isinstance(command, click.Group):
        yield ".SH COMMANDS"
        for below, inner in commands(context, command):
            if below.parent is context:
                words = below.command_path
                yield from tag(f"\\fB{roff(words.replace(' ', '-'))}\\fR(1)", first_words(inner))


def _options(context: click.Context, command: click.Command) -> Iterator[str]:
    """Yield the section on options."""
    options = [part for part in command.get_params(context) if isinstance(part, click.Option) and not part.hidden]
    if not options:
        return
    yield ".SH OPTIONS"
    for option in options:
        names = ", ".join(f"\\fB{roff(name)}\\fR" for name in (*option.opts, *option.secondary_opts))
        value = "" if option.is_flag or option.count else f" \\fI{roff(option.make_metavar(context))}\\fR"
        yield from tag(names + value, _option_text(option))


def _option_text(option: click.Option) -> str:
    """Return what an option does, and what holds without it."""
    parts = [" ".join((option.help or "").split())]
    if option.show_default and option.default not in (None, "") and not option.is_flag:
        parts.append(f"Default: {option.default}.")
    if option.required:
        parts.append("Required.")
    return " ".join(part for part in parts if part)


def _see_also(context: click.Context, command: click.Command) -> Iterator[str]:
    """Yield the section that names the page above and those below."""
    above = [context.parent.command_path] if context.parent is not None else []
    below = [inner.command_path for inner, _ in commands(context, command) if inner.parent is context]
    names = sorted(words.replace(" ", "-") for words in (*above, *below))
    if names:
        yield ".SH SEE ALSO"
        yield from (f".BR {roff(name)} (1){',' if number < len(names) else ''}" for number, name in enumerate(names, 1))


def first_words(command: click.Command) -> str:
    """Return the first sentence of a command's help, as a manual's NAME has it."""
    text = " ".join((command.help or "").split("\n\n")[0].split())
    sentence = re.split(r"(?<=[a-z0-9)])\. ", text, maxsplit=1)[0].rstrip(".")
    return sentence[:1].lower() + sentence[1:] if sentence[1:2].islower() else sentence


def paragraphs(text: str) -> Iterator[str]:
    r"""Yield a help text; what click must not wrap (``\b``) stays as it is."""
    for number, part in enumerate(text.strip().split("\n\n")):
        lines = part.strip("\n").splitlines()
        if lines and lines[0].strip() == "\b":
            yield from (".PP", ".nf", *(roff(line) or "." for line in lines[1:]), ".fi")
        elif lines:
            if number:
                yield ".PP"
            yield wrap(" ".join(lines))


def tag(tag: str, text: str) -> Iterator[str]:
    """Yield a paragraph with a tag that is roff already."""
    yield from (".TP", tag, wrap(text) or "\\&")


def wrap(text: str) -> str:
    """Return running text as roff in lines that fit an editor."""
    return roff(textwrap.fill(" ".join(text.split()), 70, break_long_words=False, break_on_hyphens=False))


def roff(text: str) -> str:
    """Return plain text as roff that shows just that: no escape, no request, hyphens that can be searched for."""
    safe = text.replace("\\", "\\e").replace("-", "\\-").replace("\f", " ").replace("\x08", "")
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in safe.split("\n"))


def main(folder: Path, epoch: int) -> None:
    """Write all pages."""
    folder.mkdir(parents=True, exist_ok=True)
    day = datetime.fromtimestamp(epoch, UTC).date().isoformat()
    for context, command in commands(click.Context(opsk, info_name="opsk"), opsk):
        name = context.command_path.replace(" ", "-")
        (folder / f"{name}.1").write_text(page(context, command, day), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
