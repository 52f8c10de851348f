"""Reads which systemd services are installed, enabled and running from systemd's own files, without special rights.

A unit that runs has processes in its control group; one that is enabled at boot has a link in a ``.wants`` folder. A
service that is enabled and does not run needs attention.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_UNITS = ("etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system")
_UNITS_OLD = "lib/systemd/system"
_WANTS = ("multi-user.target", "graphical.target", "basic.target", "default.target")
_GROUPS = ("sys/fs/cgroup/system.slice", "sys/fs/cgroup/systemd/system.slice", "sys/fs/cgroup/unified/system.slice")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSample:
    """One service that is installed: whether it is enabled at boot, and running now."""

    name: str
    enabled: bool
    running: bool


def read_service(name: str, root: Path = Path("/")) -> ServiceSample | None:
    """Return the state of a service; ``None`` when the node does not have it, or has no systemd.

    Parameters
    ----------
    name
        Name of the unit without ``.service``.
    root
        Where the file system begins.
    """
    unit = f"{name}.service"
    groups = [root / group for group in _GROUPS if (root / group).is_dir()]
    if not groups:
        return None
    running = any(_has_process(group / unit) for group in groups)
    installed = any(os.path.lexists(root / folder / unit) for folder in (*_UNITS, _UNITS_OLD))
    if not installed and not running:
        return None
    wants = [root / folder / f"{target}.wants" for folder in _UNITS for target in _WANTS]
    return ServiceSample(name=name, enabled=any(os.path.lexists(folder / unit) for folder in wants), running=running)


def _has_process(group: Path) -> bool:
    """Return whether a control group, or one below it, has a process."""
    try:
        events = (group / "cgroup.events").read_text(encoding="ascii", errors="replace")
    except OSError:
        events = ""
    if "populated" in events:
        return "populated 1" in events
    try:
        return bool((group / "cgroup.procs").read_text(encoding="ascii", errors="replace").strip())
    except OSError:
        return False
