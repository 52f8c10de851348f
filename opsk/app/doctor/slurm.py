"""Checks that slurmctld answers and that its clock agrees with this host's."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from opsk.app.doctor.finding import Finding, Site, sound, unknown, wrong
from opsk.errors import SlurmError
from opsk.slurm.commands.command import CommandClient, build_command_environment

DEADLINE_S = 5.0
SKEW_LIMIT_S = 5.0
"""More than this, and step times, failures and records of different hosts no longer line up; munge bears 300 s."""
_MOMENT = re.compile(r"sdiag output at .*\((\d{9,11})\)")


def check_slurmctld() -> tuple[Mapping[str, str] | None, list[Finding]]:
    """Return slurmctld's configuration, and whether it answers."""
    client = CommandClient(deadline_s=DEADLINE_S)
    try:
        config = client.config()
    except SlurmError as error:
        hint = "systemctl status slurmctld munge; scontrol ping. Without it half of what follows cannot be looked at"
        return None, [wrong("slurm", f"slurmctld does not answer: {error.message}", hint=hint)]
    version = config.get("SLURM_VERSION", "of unknown release")
    return config, [sound("slurm", f"slurmctld {version} answers", config.get("SLURM_CONF", ""))]


def check_clock(site: Site) -> Iterator[Finding]:
    """Compare slurmctld's clock with ours."""
    if site.slurm is None:
        return
    before_s = time.time()
    try:
        result = subprocess.run(
            ["sdiag"], env=build_command_environment(os.environ), stdin=subprocess.DEVNULL, capture_output=True,
            timeout=DEADLINE_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        yield unknown("clock", f"sdiag gives no answer: {getattr(error, 'strerror', None) or 'too slow'}")
        return
    after_s = time.time()
    match = _MOMENT.search(result.stdout.decode("utf-8", errors="replace"))
    if match is None:
        yield unknown("clock", "sdiag does not say what time it is for slurmctld")
        return
    yield check_skew("clock", "slurmctld's clock", float(match[1]), before_s, after_s)


def check_skew(check: str, whose: str, theirs_s: float, before_s: float, after_s: float) -> Finding:
    """Return how far a clock that was read between two moments of ours, in whole seconds, is off."""
    off_s = max(theirs_s - after_s, before_s - (theirs_s + 1.0), 0.0)
    if off_s <= SKEW_LIMIT_S:
        return sound(check, f"{whose} agrees with this host's")
    direction = "ahead of" if theirs_s > after_s else "behind"
    hint = "chronyc tracking on both; munge refuses credentials from 300 s on, and times of reports do not line up"
    return wrong(check, f"{whose} is {off_s:.0f} s {direction} this host's", hint=hint)


def is_controller_host(slurm: Mapping[str, str], hostname: str) -> bool:
    """Return whether a slurmctld of this cluster runs on this host, by slurm.conf."""
    short = hostname.partition(".")[0]
    named = (
        value.partition("(")[0].partition(".")[0] for key, value in slurm.items() if key.startswith("SlurmctldHost")
    )
    return short in named


def find_slurm_folder(slurm: Mapping[str, str]) -> Path:
    """Return the folder of slurm.conf and of the hooks."""
    return Path(slurm.get("SLURM_CONF") or "/etc/slurm/slurm.conf").parent
