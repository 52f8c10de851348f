"""Checks that CHANGELOG.md describes the version; ``python -m deploy.packages.changelog`` prints what is wrong."""

from __future__ import annotations

import re
import sys
from datetime import date
from pathlib import Path

from opsk import __version__

ROOT = Path(__file__).resolve().parent.parent.parent
_HEAD = re.compile(r"^## \[(?P<name>[^\]]+)\](?: - (?P<day>\S+))?\s*$", re.MULTILINE)
_VERSION = re.compile(r"\d+\.\d+\.\d+")


def faults(text: str, version: str) -> list[str]:
    """Return what is wrong with a changelog, for this version; nothing where a release may be made of it."""
    heads = list(_HEAD.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    found = []
    if version not in (head["name"] for head in heads):
        found.append(f"no section [{version}]: what is in [Unreleased] has not been given a version and a day")
    days: list[date] = []
    versions: list[tuple[int, ...]] = []
    for head, end in zip(heads, ends, strict=True):
        name = head["name"]
        if name == "Unreleased":
            if head is not heads[0]:
                found.append("[Unreleased] is not the first section")
            continue
        if not _VERSION.fullmatch(name):
            found.append(f"[{name}] is no version of the form 1.2.3")
            continue
        versions.append(tuple(int(part) for part in name.split(".")))
        if not re.search(r"^- \S", text[head.end() : end], re.MULTILINE):
            found.append(f"[{name}] says nothing")
        try:
            days.append(date.fromisoformat(head["day"] or ""))
        except ValueError:
            found.append(f"[{name}] has no day of the form 2026-01-31")
    if versions != sorted(set(versions), reverse=True):
        found.append("versions do not go down, each once")
    if days != sorted(days, reverse=True):
        found.append("days do not go back")
    return found


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    found = faults((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), __version__)
    for fault in found:
        print(f"CHANGELOG.md: {fault}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
