"""Reads the comments of a script: its ``#SBATCH`` directives and its user's ``#OPSK`` lines."""

from __future__ import annotations

from opsk_jobcheck.scripts.sbatch.directives import Directives, read_directives
from opsk_jobcheck.scripts.sbatch.resources import Resources, merge
from opsk_jobcheck.scripts.sbatch.statements import Statements, apply_statements, read_opsk_lines

__all__ = [
    "Directives",
    "Resources",
    "Statements",
    "apply_statements",
    "merge",
    "read_directives",
    "read_opsk_lines",
]
