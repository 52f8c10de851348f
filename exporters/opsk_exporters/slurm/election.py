"""Which one node of a cluster asks Slurm? A named one, or by itself the one whose slurmctld is in charge.

All nodes have the same settings, so each finds out for itself, without asking anybody as long as no slurmctld runs on
it: thousands of compute nodes never send slurmctld a message.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from opsk.errors import SlurmError
from opsk.slurm.commands.controller_text import Controller

AUTO = "auto"
OFF = "off"
_UNITS = ("", "systemd", "unified")
"""Where systemd's groups are below the mount: version 2, and two places of version 1."""


class Election:
    """Decides, before each round of questions, whether this node asks.

    Parameters
    ----------
    on
        ``auto``, ``off``, or a host's name.
    procfs, cgroups
        Where these are mounted.
    host
        What this node is called; the kernel's word when it is not given.
    """

    def __init__(
        self,
        on: str,
        *,
        procfs: Path = Path("/proc"),
        cgroups: Path = Path("/sys/fs/cgroup"),
        host: Callable[[], str] = socket.gethostname,
    ) -> None:
        self._on = on
        self._procfs = procfs
        self._cgroups = cgroups
        self._host = host
        self._was_in_charge = False

    def is_won(self, controllers: Callable[[], Sequence[Controller]]) -> bool:
        """Tell whether this node asks now.

        Parameters
        ----------
        controllers
            Asks which slurmctld answer; called only where one runs, or ran until now.

        Raises
        ------
        SlurmError
            This node's slurmctld was or is there, and none answers: that is a fault, not another node's turn.
        """
        if self._on != AUTO:
            return self._on != OFF and is_same_host(self._on, self._host())
        runs_here = self._slurmctld_runs_here()
        if not runs_here and not self._was_in_charge:
            return False
        known = controllers()
        in_charge = next((each for each in known if each.is_up), None)
        if in_charge is None:
            raise SlurmError("a slurmctld is or was on this node, and none answers", hint="see `scontrol ping`")
        is_here = is_same_host(in_charge.host, self._host())
        self._was_in_charge = is_here or (runs_here and len(known) == 1)  # an address that moves has another name
        return self._was_in_charge

    def _slurmctld_runs_here(self) -> bool:
        """Tell whether there is one, as a service of systemd or as a process that can be seen."""
        if any((self._cgroups / unit / "system.slice" / "slurmctld.service").is_dir() for unit in _UNITS):
            return True
        try:
            found = [each for each in self._procfs.iterdir() if each.name.isdecimal()]
        except OSError:
            return False
        return any(_name_of(process) == "slurmctld" for process in found)


def is_same_host(one: str, other: str) -> bool:
    """Tell whether two names are of one host; a name without a domain is of any domain."""
    first, second = one.lower().rstrip("."), other.lower().rstrip(".")
    if "." in first and "." in second:
        return first == second
    return first.partition(".")[0] == second.partition(".")[0]


def _name_of(process: Path) -> str:
    """Return the name of a process; empty when it has just gone."""
    try:
        return (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
