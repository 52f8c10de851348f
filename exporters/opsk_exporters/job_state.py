"""How do counters of jobs outlive a restart of the exporter? One small JSON file in its runtime folder.

The file is of one boot: after another, no job of it is left. One that cannot be read or written costs the counters of
running jobs what happened before, and nothing else.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from opsk.units import MIB

_VERSION = 1
_MAX_BYTES = 16 * MIB


def state_file() -> Path | None:
    """Return where systemd gives the exporter a folder (``RuntimeDirectory=``); ``None`` elsewhere."""
    folder = os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    return Path(folder) / "jobs.json" if folder else None


def load(path: Path, boot: str) -> dict[str, Any] | None:
    """Return what was saved in this boot; ``None`` when there is nothing of use."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            return None
        said = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or said.get("version") != _VERSION or said.get("boot") != boot:
        return None
    return said


def save(path: Path, boot: str, accounts: dict[str, Any], settled: dict[str, list[str]]) -> bool:
    """Write the file, whole or not at all; return whether that worked."""
    said = {"version": _VERSION, "boot": boot, "accounts": accounts, "settled": settled}
    made = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        made.write_text(json.dumps(said), encoding="utf-8")
        made.replace(path)
    except OSError:
        return False
    return True


def boot_id(procfs: Path) -> str:
    """Return the kernel's name of this boot; empty where it has none."""
    try:
        return (procfs / "sys" / "kernel" / "random" / "boot_id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
