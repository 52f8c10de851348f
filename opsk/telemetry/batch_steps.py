"""On which jobs' first node is this? Where the batch script runs, by the title of its slurmstepd."""

from __future__ import annotations

import re
from pathlib import Path

_STEPD = re.compile(r"slurmstepd: \[(\d{1,12}|s[0-9A-Z]{13})(?:[.+][\w+]{0,20})?\.batch\]", re.ASCII)


def batch_steps(procfs: Path = Path("/proc")) -> dict[str, list[int]]:
    """Return the slurmstepd of each batch script on this node, by number of the job, or SLUID.

    Where several clusters share a node one number may have several.
    """
    found: dict[str, list[int]] = {}
    try:
        folders = [path for path in procfs.iterdir() if path.name.isdecimal()]
    except OSError:
        return found
    for folder in folders:
        try:
            if (folder / "comm").read_bytes().startswith(b"slurmstepd"):
                title = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                if (step := _STEPD.match(title)) is not None:
                    found.setdefault(step[1], []).append(int(folder.name))
        except OSError:
            continue
    return found
