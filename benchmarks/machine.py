"""Describes the machine of a measurement by what bears on speed, and by nothing that names it."""

from __future__ import annotations

import os
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path

GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Processor, number of its threads, memory, kernel and Python."""

    processor: str
    processors: int
    memory_bytes: int
    kernel: str
    python: str

    def __str__(self) -> str:
        """In one line."""
        return (
            f"{self.processors} processors ({self.processor}), {self.memory_bytes / GIB:.0f} GiB of memory, "
            f"{self.kernel}, Python {self.python}"
        )


def this_machine() -> Machine:
    """Return the machine that this runs on."""
    # a build's own suffix may say whose machine this is
    release = re.match(r"[\d.]+", platform.release())
    return Machine(
        processor=_processor(),
        processors=os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        kernel=f"{platform.system()} {release[0] if release else ''}".strip(),
        python=_python(),
    )


def _processor() -> str:
    """Return the model of the processor."""
    path = Path("/proc/cpuinfo")
    rows = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [row.partition(":")[2].strip() for row in rows if row.startswith("model name")]
    return names[0] if names else platform.machine()


def _python() -> str:
    """Return which Python runs; how one was built makes a difference of up to a fifth."""
    whose = "the distribution's" if sys.base_prefix == "/usr" else "not the distribution's"
    return f"{platform.python_version()}, {whose}"
