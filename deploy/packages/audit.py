"""Reports known vulnerabilities in what ``requirements.lock`` pins, from public databases, through pip-audit.

A database that cannot be reached, or a mirror of files that knows no vulnerability of anything, reports none either. So
an old release with known vulnerabilities is looked up as well: a database that reports none for it has looked up
nothing. What was not looked up is reported by name, and never counts as sound.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOCK = Path(__file__).resolve().parents[2] / "requirements.lock"
SERVICES = ("pypi", "osv")
"""Databases of pip-audit, in the order in which they are asked: the second for what the first did not know."""
KNOWN_BAD = ("django", "1.11")
"""With holes that every database knows (CVE-2019-14234 among them), and nothing that opsk needs."""
DEADLINE_S = 300
SOUND, HOLES, NOT_LOOKED_UP = 0, 1, 3
_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)")

Pin = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What databases report: holes by pin, and pins that none of them knows."""

    holes: dict[Pin, tuple[str, ...]]
    unknown: tuple[Pin, ...]
    problems: tuple[str, ...] = ()


def parse_pins(lock: str) -> list[Pin]:
    """Return what a lock pins; one name may be there in several versions, for several Pythons."""
    return [(pin[1].lower(), pin[2]) for line in lock.splitlines() if (pin := _PIN.match(line))]


def parse_report(document: Any) -> dict[Pin, tuple[str, ...]]:
    """Return the holes of each pin that pip-audit's document says it has looked up; none is an empty tuple."""
    return {
        (str(package["name"]).lower(), str(package["version"])): tuple(hole["id"] for hole in package["vulns"])
        for package in document["dependencies"]
        if "skip_reason" not in package and "vulns" in package
    }


def ask(pins: Iterable[Pin], service: str) -> tuple[dict[Pin, tuple[str, ...]], str]:
    """Ask one database about pins; return what it knows, and why it may know nothing."""
    known: dict[Pin, tuple[str, ...]] = {}
    for group in _without_doubles(pins):
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
            file.write("".join(f"{name}=={version}\n" for name, version in [*group, KNOWN_BAD]))
            file.flush()
            words = ["--no-deps", "--disable-pip", "--progress-spinner=off", "--format=json", "-s", service]
            try:
                done = subprocess.run(
                    [sys.executable, "-P", "-m", "pip_audit", *words, "-r", file.name],
                    capture_output=True, text=True, timeout=DEADLINE_S, check=False,
                )  # fmt: skip
                result = parse_report(json.loads(done.stdout))
            except subprocess.TimeoutExpired:
                return known, f"{service}: no answer within {DEADLINE_S} s"
            except (ValueError, KeyError, TypeError):
                printed = [line for line in done.stderr.splitlines() if line.strip()]
                return known, f"{service}: {printed[-1][:200] if printed else f'status {done.returncode}'}"
        if not result.pop(KNOWN_BAD, ()):
            return known, f"{service}: knows no hole of {'=='.join(KNOWN_BAD)}, which has many: it is no such database"
        known |= result
    return known, ""


def _without_doubles(pins: Iterable[Pin]) -> list[list[Pin]]:
    """Return the pins in groups in which no name is there twice, which pip-audit refuses."""
    groups: list[list[Pin]] = []
    seen: Counter[str] = Counter()
    for name, version in pins:
        if seen[name] == len(groups):
            groups.append([])
        groups[seen[name]].append((name, version))
        seen[name] += 1
    return groups


def audit(pins: Sequence[Pin], services: Sequence[str] = SERVICES) -> Audit:
    """Ask the databases, each for what those before it did not know."""
    known: dict[Pin, tuple[str, ...]] = {}
    problems = []
    for service in services:
        remaining = [pin for pin in pins if pin not in known]
        if not remaining:
            break
        result, problem = ask(remaining, service)
        known |= result
        problems += [problem] if problem else []
    return Audit(
        holes={pin: known[pin] for pin in pins if known.get(pin)},
        unknown=tuple(pin for pin in pins if pin not in known), problems=tuple(problems),
    )  # fmt: skip


def compute_status(result: Audit, *, skip_offline: bool) -> int:
    """Return the exit status: a hole above all; what was not looked up is a success only where that is asked for."""
    if result.holes:
        return HOLES
    return NOT_LOOKED_UP if result.unknown and not skip_offline else SOUND


def format_report(result: Audit, count: int) -> list[str]:
    """Return the report for people."""
    lines = [f"audit: HOLE in {name}=={version}: {', '.join(ids)}" for (name, version), ids in result.holes.items()]
    if result.unknown:
        names = ", ".join(f"{name}=={version}" for name, version in result.unknown[:8])
        more = f" and {len(result.unknown) - 8} more" if len(result.unknown) > 8 else ""
        lines += [
            f"audit: NOT LOOKED UP: {len(result.unknown)} of {count} packages: {names}{more}",
            *(f"audit: NOT LOOKED UP because: {problem}" for problem in result.problems),
            "audit: this is no clean bill: run `make audit` where the databases of PyPI or OSV can be reached",
        ]
    elif not result.holes:
        lines.append(f"audit: {count} pinned packages looked up, no known hole")
    return lines


def main() -> int:
    """Audit the lock, and print the report."""
    parser = argparse.ArgumentParser(description="Look for known holes in what requirements.lock pins.")
    parser.add_argument("--lock", type=Path, default=LOCK)
    parser.add_argument("--skip-offline", action="store_true", help="end with 0 where no database can be reached")
    options = parser.parse_args()
    pins = parse_pins(options.lock.read_text(encoding="utf-8"))
    result = audit(pins)
    print("\n".join(format_report(result, len(pins))), file=sys.stderr)
    return compute_status(result, skip_offline=options.skip_offline)


if __name__ == "__main__":
    sys.exit(main())
