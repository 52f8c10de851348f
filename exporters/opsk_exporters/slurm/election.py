"""Elects the one node of a cluster that queries Slurm: a named node, or the one whose slurmctld is in charge.

All nodes have the same settings, so each decides for itself, and sends no request as long as no slurmctld runs on it:
thousands of compute nodes never send slurmctld a message.
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
    """Decides before each poll whether this node queries Slurm.

    Parameters
    ----------
    on
        ``auto``, ``off``, or a host's name.
    procfs, cgroups
        Where these are mounted.
    host
        Name of this node; the kernel's when it is not given.
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
        """Return whether this node queries Slurm now.

        Parameters
        ----------
        controllers
            Returns which slurmctld answer; called only where one runs, or ran until now.

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
        in_charge = next((controller for controller in known if controller.is_up), None)
        if in_charge is None:
            raise SlurmError("a slurmctld is or was on this node, and none answers", hint="see `scontrol ping`")
        is_here = is_same_host(in_charge.host, self._host())
        self._was_in_charge = is_here or (runs_here and len(known) == 1)  # an address that moves has another name
        return self._was_in_charge

    def _slurmctld_runs_here(self) -> bool:
        """Return whether there is one, as a service of systemd or as a process that can be seen."""
        if any((self._cgroups / unit / "system.slice" / "slurmctld.service").is_dir() for unit in _UNITS):
            return True
        try:
            processes = [entry for entry in self._procfs.iterdir() if entry.name.isdecimal()]
        except OSError:
            return False
        return any(_read_name(process) == "slurmctld" for process in processes)


def is_same_host(first_name: str, second_name: str) -> bool:
    """Return whether two names are of one host; a name without a domain is of any domain."""
    first, second = first_name.lower().rstrip("."), second_name.lower().rstrip(".")
    if "." in first and "." in second:
        return first == second
    return first.partition(".")[0] == second.partition(".")[0]


def _read_name(process: Path) -> str:
    """Return the name of a process; empty when it has just gone."""
    try:
        return (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
