"""A program that answers as ``nvidia-smi`` does: the columns that its driver knows, and a row a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from opsk.telemetry.gpu.nvidia_smi import FIELDS

UUID = "GPU-11111111-2222-3333-4444-555555555555"
H100 = {
    "index": "0",
    "uuid": UUID,
    "pci.bus_id": "00000000:1A:00.0",
    "name": "NVIDIA H100 80GB HBM3",
    "driver_version": "590.48.01",
    "power.draw.average": "80.00",
    "power.draw.instant": "79.50",
    "enforced.power.limit": "700.00",
}
"""Cells of one GPU; columns that are not named are ``[N/A]``."""


def print_help(fields: Sequence[str] = FIELDS) -> str:
    """Return what ``--help-query-gpu`` prints of these fields."""
    return "".join(f'"{field}"\nWhat {field} is.\n\n' for field in fields)


def print_rows(*gpus: Mapping[str, str], fields: Sequence[str] = FIELDS) -> str:
    """Return what ``--query-gpu`` prints of these fields, without header and units."""
    return "".join(", ".join(gpu.get(field, "[N/A]") for field in fields) + "\n" for gpu in gpus)


def write_program(path: Path, answer: str, fields: Sequence[str] = FIELDS) -> Path:
    """Write a program that knows these fields and answers every other question with ``answer``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"#!/bin/sh\nif [ $1 = --help-query-gpu ]; then cat <<'END'\n{print_help(fields)}END\n"
        f"else cat <<'END'\n{answer}END\nfi\n",
        encoding="ascii",
    )
    path.chmod(0o755)
    return path
