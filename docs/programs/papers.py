"""Writes ``docs/explanation/papers.md``: what five texts state, the command that shows it, and both numbers.

    python docs/programs/papers.py

``papers.toml`` lists the claims. Every number of the right column is picked from the JSON document that the command
prints. Takes about a minute: two papers are compared on predicted steps.
"""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from page_table import NOTHING, table

from opsk.cli.main import opsk

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "papers.md"
CLAIMS = ROOT / "docs" / "programs" / "papers.toml"
_BY_SIGN = {True: "same sign", False: "**other sign**"}
_AGREEMENT = {True: "yes", False: "**no**"}
_COLUMNS = ("claim", "stated", "opsk", "agrees", "basis, or cause of the difference")
_HEAD = """# Papers and talks, claim by claim

<!-- Written by docs/programs/papers.py from papers.toml beside it and the commands: change those, not this page. -->

What five texts on clusters state, and what opsk computes. Every number in the column "opsk" is what the command above
it prints (with `--json`, at full length). Where the two differ the last column has the cause. [Network
design](network-design.md) tells the rail-only paper and the talks in sentences.
"""


def load_texts() -> list[dict[str, Any]]:
    """Return the texts with their claims, each claim a table by column."""
    texts = tomllib.loads(CLAIMS.read_text("utf-8"))["texts"]
    for text in texts:
        text["claims"] = [dict(zip(text["columns"], row, strict=True)) for row in text["claims"]]
    return texts


@cache
def run(command: str) -> Any:
    """Return the document that a command prints."""
    result = CliRunner().invoke(opsk, [*shlex.split(command), "--json"], catch_exceptions=False, standalone_mode=False)
    return json.loads(result.stdout)


def pick(document: Any, path: Sequence[Any]) -> float:
    """Return a number of a document: keys, the first entry with given values, and a factor at the end."""
    for step in path:
        if isinstance(step, Mapping):
            document = next(entry for entry in document if all(entry[key] == value for key, value in step.items()))
        elif isinstance(step, float):
            document *= step
        else:
            document = document[step]
    return float(document)


def agrees(claim: Mapping[str, Any], value: float) -> bool:
    """Return whether a number is what a text states."""
    if claim["unit"].startswith("or "):
        return value <= claim["stated"] if "less" in claim["unit"] else value >= claim["stated"]
    return abs(value / claim["stated"] - 1) <= claim["within"]


def number(value: float | None, unit: str) -> str:
    """Return a number with its unit, four digits."""
    if value is None:
        return NOTHING
    if unit in ("USD", "W") and abs(value) >= 1e6:
        return f"{value / 1e6:,.4g} M{'' if unit == 'W' else ' '}{unit}"
    if unit == "ratio" or unit.startswith("or "):
        rest = unit.removeprefix("ratio")
        return f"{value:.3g} {rest}".strip() if rest else f"{value:.1%}"
    return f"{value:,.4g} {unit}" if abs(value) < 1e6 else f"{value:.4g} {unit}"


def claim_row(claim: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the row of a claim."""
    value = pick(run(claim["command"]), claim["pick"])
    unit = "" if claim["unit"].startswith("or ") else claim["unit"]
    return (claim["claim"], number(claim["stated"], claim["unit"]), number(value, unit),
            _AGREEMENT[agrees(claim, value)], claim["why"])  # fmt: skip


def compare_rows(paper: str) -> Iterator[tuple[str, ...]]:
    """Yield the rows of ``opsk design --paper``."""
    for entry in run(f"design --paper {paper}")["compared"]:
        if entry["stated"] is None:
            continue
        words = _BY_SIGN if entry["by"] == "sign" else _AGREEMENT
        yield (f"{entry['section']}: {entry['what']}", number(entry["stated"], entry["unit"]),
               number(entry["computed"], entry["unit"]), words[entry["agrees"]], entry["why"])  # fmt: skip


def sections(text: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parts of one text: a table a command, then what no command shows."""
    yield f"\n## {text['title']}\n\n{text['source']}.\n"
    commands = dict.fromkeys(claim["command"] for claim in text["claims"])
    for command in commands:
        rows = [claim_row(claim) for claim in text["claims"] if claim["command"] == command]
        yield f"\n`opsk {command}`\n\n{table(_COLUMNS, rows)}"
    if "paper" in text:
        yield f"\n`opsk design --paper {text['paper']}`\n\n{table(_COLUMNS, compare_rows(text['paper']))}"
    yield "\nBehind no command:\n\n" + "".join(f"- {line}\n" for line in text["left_out"])


def page() -> str:
    """Return the page."""
    return _HEAD + "".join(part for text in load_texts() for part in sections(text))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
