"""Writes the pages of ``docs/reference`` that follow from the code; ``--check`` only compares.

The output depends on the code alone: not on the terminal, the machine or the time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from opsk.calibration.runs.columns import COLUMNS, Column, Kind
from opsk.cli.main import opsk
from opsk.workload.software_defaults import known_software

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
CLI_PAGE, RUNS_PAGE = REFERENCE / "cli.md", REFERENCE / "runs-table.md"
_HEAD = """# Commands

<!-- Written by docs/programs/generate.py from the commands themselves: change their help texts, not this page. -->

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


_RUNS_HEAD = """# Tables of runs

<!-- Written by docs/programs/generate.py from opsk/calibration/runs/columns.py: change that, not this page. -->

`opsk validate` and `opsk calibrate` read a CSV (UTF-8, one header line) with one training run a row. Every column may
be missing and every cell empty: empty is "not stated". Numbers may have thousands commas. Columns that are not in
this list are named and say nothing to a prediction; so is a value that a column does not have, and its row is read as
if the cell were empty. A row with a cell that holds no number, or with numbers that cannot be, is named with all that
is wrong and stops no other.

Start with `id`, `gpu`, `gpus`, `software`, `model`, `seq_len`, `tp`, `pp`, `dp`, `sharding`, `recompute`,
`precision`, `micro_batch`, `global_batch`, and `iter_time_s` or `peak_mem_gb`. Nothing is read from prose: `notes`
are for people, but for the tags named there.
"""
_RUNS_TAIL = """
## Frameworks

`software` may be any name; these are known, with what each does where a row does not say it
(`opsk/workload/software_defaults.toml`, by release and chip generation): {software}. Another name is taken for a
program on PyTorch, and that is said.

## What is filled in

What a row leaves out is taken, in this order, from the public model of that name, by arithmetic (`gpus` = `tp` × `pp`
× `cp` × `dp`; `global_batch` from `local_batch`, or from `micro_batch` and `grad_accum`; layers, width or MLP from
`params_b`), from the defaults of its framework, and from what a user would do: the smallest model-parallel product
that fits, tensor parallelism within a node first; the least recomputation that fits; the fastest micro-batch that
fits. Arithmetic aside, every such value is in `assumed`, with the reason, and widens the range.

A row *states every time input* when none of these was assumed: layers, width, heads, MLP, experts, sequence; GPU, and
NIC where the run leaves one NVLink domain; number of GPUs, tp, pp, cp, dp, ep; micro-batch, global batch,
recomputation, sharding, precision. *Every memory input* adds the vocabulary, and needs no NIC.
"""


def runs_page() -> str:
    """Return the page on tables of runs."""
    groups = dict.fromkeys(column.group for column in COLUMNS)
    software = ", ".join(f"`{name}`" for name in sorted(known_software()))
    return _RUNS_HEAD + "".join(map(_group, groups)) + _RUNS_TAIL.format(software=software)


def _group(group: str) -> str:
    """Return the section on one group of columns."""
    rows = [_column(column) for column in COLUMNS if column.group == group]
    return "\n".join([f"\n## {group}\n", "| column | holds | meaning |", "| --- | --- | --- |", *rows, ""])


def _column(column: Column) -> str:
    """Return the line on one column."""
    holds = ", ".join(f"`{value}`" for value in column.values) if column.kind is Kind.CHOICE else column.kind.value
    return f"| `{column.name}` | {holds} | {column.meaning} |"


PAGES = {CLI_PAGE: cli_page, RUNS_PAGE: runs_page}


def main() -> int:
    """Write the pages, or with ``--check`` only say whether they are as the code says."""
    lost = []
    for path, written in PAGES.items():
        page = written()
        if "--check" not in sys.argv[1:]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(page, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != page:
            lost.append(str(path.relative_to(ROOT)))
    for name in lost:
        print(f"{name} is not what the code says: run python docs/programs/generate.py", file=sys.stderr)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
