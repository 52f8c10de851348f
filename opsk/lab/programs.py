"""Locates the programs that a lab runs, and names the Debian package of each missing one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from opsk.errors import LabError

PACKAGES = {
    "munged": "munge",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
    "slurmdbd": "slurmdbd",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sacctmgr": "slurm-client",
    "scontrol": "slurm-client",
    "sinfo": "slurm-client",
    "sbatch": "slurm-client",
    "sacct": "slurm-client",
    "ibsim": "ibsim-utils",
    "ibsim-run": "ibsim-utils",
    "opensm": "opensm",
    "ibnetdiscover": "infiniband-diags",
}
"""Program to the Debian package that has it."""

_SYSTEM_DIRECTORIES = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin")
_RELEASE = re.compile(r"(\d+)\.(\d+)")


def build_search_path() -> str:
    """Return this process's PATH with the directories of daemons, which ordinary users often lack."""
    own = os.environ.get("PATH", "").split(os.pathsep)
    return os.pathsep.join(dict.fromkeys([*filter(None, own), *_SYSTEM_DIRECTORIES]))


def find_missing(names: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Return the programs that are not installed, each with its Debian package."""
    path = build_search_path()
    return {name: PACKAGES[name] for name in names if shutil.which(name, path=path) is None}


def locate(names: Iterable[str] = PACKAGES) -> dict[str, Path]:
    """Return where each program is.

    Raises
    ------
    LabError
        Names every missing program and the packages that bring them.
    """
    names = tuple(names)
    absent = find_missing(names)
    if absent:
        packages = " ".join(sorted(set(absent.values())))
        raise LabError(
            f"not installed: {', '.join(f'{name} (package {package})' for name, package in absent.items())}",
            hint=f"as root: apt-get install {packages}",
        )
    path = build_search_path()
    return {name: Path(str(shutil.which(name, path=path))) for name in names}


def read_slurm_release(slurmd: Path) -> tuple[int, int]:
    """Return the release of the installed Slurm, e.g. (22, 5).

    Raises
    ------
    LabError
        When ``slurmd -V`` does not print it.
    """
    try:
        output = subprocess.run([slurmd, "-V"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"{slurmd} -V: {error}") from error
    match = _RELEASE.search(output)
    if match is None:
        raise LabError(f"{slurmd} -V names no release: {output[:80]!r}")
    return int(match[1]), int(match[2])
