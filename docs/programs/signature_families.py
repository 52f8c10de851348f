"""Writes the table of docs/reference/signatures.md: who prints signatures, how many, which were met in real logs.

    python docs/programs/signature_families.py [FOLDER OF LOGS]

Without a folder the column of real logs stays as it is on the page.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.signatures import Signature, signatures

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "signatures.md"
HEAD = (
    "| Who prints it | Messages | Texts | Met in real logs | Signatures (no real log: *in italics*) |\n"
    "|---|---|---|---|---|\n"
)
_ROW = re.compile(r"\| [^|]+\|[^|]+\|[^|]+\|[^|]+\| (?P<ids>[^|]+) \|")


def main(folder: str) -> None:
    """Rewrite the table."""
    text = PAGE.read_text("utf-8")
    begin = text.index(HEAD.split("\n", 1)[0])
    met = find_met(Path(folder)) if folder else read_met(text[begin:])
    end = text.find("\n\n", begin)
    PAGE.write_text(text[:begin] + render(met) + (text[end:] if end >= 0 else "\n"), "utf-8")


def find_met(folder: Path) -> set[str]:
    """Return the signatures that match in logs of a folder."""
    logs = [LogFile(path=path) for path in sorted(folder.iterdir()) if path.is_file()]
    return {finding.signature for log in logs for finding in read_logs([log], processes=1).findings}


def read_met(table: str) -> set[str]:
    """Return what the page says was met."""
    rows = [match["ids"] for line in table.splitlines() if (match := _ROW.match(line))]
    return {name.strip() for row in rows for name in row.split(", ") if not name.startswith("*")}


def render(met: set[str]) -> str:
    """Return the table."""
    families: dict[str, list[Signature]] = defaultdict(list)
    for signature in signatures():
        families[signature.framework].append(signature)
    rows = []
    for name, members in sorted(families.items(), key=lambda item: (-len(item[1]), item[0].lower())):
        ids = ", ".join(each.id if each.id in met else f"*{each.id}*" for each in members)
        texts = sum(len(each.fragments) for each in members)
        seen = sum(each.id in met for each in members)
        rows.append(f"| {name} | {len(members)} | {texts} | {seen} | {ids} |\n")
    return HEAD + "".join(rows).rstrip("\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
