"""What does a script ask of Slurm, and what does its user say to opsk? Comments only."""

from __future__ import annotations

from opsk_jobcheck.readers.directives import Directives, read_directives
from opsk_jobcheck.readers.resources import Resources, merge
from opsk_jobcheck.readers.statements import Statements, apply_statements, read_opsk_lines

__all__ = [
    "Directives",
    "Resources",
    "Statements",
    "apply_statements",
    "merge",
    "read_directives",
    "read_opsk_lines",
]
