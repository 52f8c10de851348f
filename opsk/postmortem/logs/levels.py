"""Reads the level at which a program's logger wrote a line."""

from __future__ import annotations

import re

from opsk.postmortem.values import Finding, Origin

_LEVEL = re.compile(r"^.{0,120}?(?<![\w./-])(?<![A-Za-z] )(?<!UCX  )(?P<level>DEBUG|INFO|WARN(?:ING)?)(?![\w/-])")
"""Levels of Python's logging, as most formats show them; NCCL and UCX write WARN before what ends them."""


def find_level(finding: Finding) -> str:
    """Return ``DEBUG``, ``INFO`` or ``WARNING`` where a program's logger wrote a line at that level, else nothing."""
    match = _LEVEL.match(finding.text) if finding.origin is Origin.JOB_LOG else None
    return "" if match is None else "WARNING" if match["level"].startswith("WARN") else match["level"]


_PYTHON_WARNS = re.compile(r"\.pyx?:\d{1,6}: \w{0,40}Warning: ")
_ENDS_BY_WARNING = frozenset(("lightning.interrupted",))
"""How a framework says that training ends."""


def is_python_warning(finding: Finding) -> bool:
    """Return whether Python's warnings printed a line: the program went on, with whatever it was warned of."""
    return finding.signature not in _ENDS_BY_WARNING and _PYTHON_WARNS.search(finding.text) is not None
