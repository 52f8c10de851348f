"""Sizes in bytes are multiples of the units of `opsk.units`, so that nobody has to count shifts."""

from __future__ import annotations

import re
from pathlib import Path

_BY_HAND = re.compile(r"<< ?[123]0\b|\b2 ?\*\* ?[123]0\b|\* ?1024\b|\b1024 ?\*")
_OF_BYTES = re.compile(r"byte|_(KIB|MIB|GIB)\b", re.IGNORECASE)
EXEMPT = frozenset(
    {
        "opsk/units.py",
        "opsk/probe/program.py",  # runs where opsk need not be
        "opsk/slurm/pyslurm/child.py",  # runs on a Python that need not have opsk
        "opsk/postmortem/evidence/recorder_child.py",  # runs isolated, without site-packages
        "opsk/slurm/commands/accounting.py",  # powers by sacct's letters
        "opsk/telemetry/progress/lines.py",  # prose
    }
)


def test_sizes_are_written_with_units(root: Path) -> None:
    by_hand = [
        f"{path.relative_to(root)}:{number} {line.strip()}"
        for room in ("opsk", "exporters", "jobcheck", "tui")
        for path in sorted((root / room).rglob("*.py"))
        if path.relative_to(root).as_posix() not in EXEMPT
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if _BY_HAND.search(line) and _OF_BYTES.search(line.partition("#")[0])
    ]
    assert by_hand == [], "use KIB, MIB and GIB of opsk.units"
