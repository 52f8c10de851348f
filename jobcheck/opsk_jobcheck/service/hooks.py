"""What is installed beside slurm.conf? The two Lua hooks, what one of them goes on with, and the settings of both."""

from __future__ import annotations

import os
import re
from importlib.resources import files
from pathlib import Path

from opsk.config import SiteConfig
from opsk_jobcheck.service.policy import ENFORCING

HOOKS = ("job_submit.lua", "cli_filter.lua")
ADVICE = "opsk-advice.lua"
"""What ``cli_filter.lua`` goes on with where a job may train: it is read by few submissions, the hook by all."""
SETTINGS = "opsk-hooks.conf"
BY_HAND = ("submit_lines", "gpus_implied", "breaker_failures", "breaker_pause_s")
"""Settings of the hooks that are set in their file alone."""
_PART = re.compile(r"^--@ (\S+)\n", re.MULTILINE)
_WRITTEN = re.compile(r"^[ \t]*(\w+)[ \t]*=[ \t]*([\w.]+)[ \t]*$", re.MULTILINE)


def hook_text(name: str) -> str:
    """Return the Lua text of a hook, or of ``ADVICE``, with the parts that its lines ``--@ FILE`` name.

    Configless Slurm sends each hook by itself, so what both share stands in both once they are installed.
    """
    text = (files("opsk_jobcheck") / "lua" / name).read_text(encoding="utf-8")
    return _PART.sub(lambda found: hook_text(found[1]), text)


def hook_settings(
    site: SiteConfig, *, submit_lines: str = "auto", gpus_implied: bool = False, breaker_pause_s: float = 5.0
) -> str:
    """Return the settings file of both hooks.

    Parameters
    ----------
    site
        Socket and deadlines.
    submit_lines
        ``auto``: ``job_submit`` prints two lines unless the user has just been told; ``never``: it only leaves the
        record. Where slurmctld runs on another machine than the logins, its advisor cannot know who has been told:
        say ``never`` there once every login node has the ``cli_filter``.
    gpus_implied
        True where jobs get GPUs without asking for them (whole nodes by partition).
    breaker_pause_s
        How long nothing is asked after three failures in a row [s]; doubles up to 60 s.
    """
    advisor = site.advisor
    values = {
        "socket": str(advisor.socket),
        "submit_deadline_ms": f"{advisor.submit_deadline_s * 1e3:g}",
        "cli_deadline_ms": f"{advisor.cli_deadline_s * 1e3:g}",
        "submit_lines": submit_lines,
        "gpus_implied": "yes" if gpus_implied else "no",
        "breaker_failures": "3",
        "breaker_pause_s": f"{breaker_pause_s:g}",
        "policy": policy_setting(site),
    }
    return "".join(f"{name} = {value}\n" for name, value in values.items())


def policy_setting(site: SiteConfig) -> str:
    """Return how much of the site's policy ``job_submit`` has to know.

    ``none``: there is none; ``rules``: it sends which account, QOS and partition a job gets that names none;
    ``enforce``: it may also hold or refuse jobs, which without this it never does, whatever an advisor says.
    """
    if any(rule.action in ENFORCING for rule in site.advisor.policy):
        return "enforce"
    return "rules" if site.advisor.policy else "none"


def install_hooks(directory: Path, site: SiteConfig, *, submit_lines: str = "auto") -> None:
    """Write both hooks, and what they read, into a directory, each complete before it gets its name.

    The hooks come last: slurmctld reads its own again as soon as its time stamp is newer. Settings that stand in no
    configuration keep what an administrator wrote into the file that was there.

    Raises
    ------
    OSError
        When the directory cannot be written.
    """
    settings = hook_settings(site, submit_lines=submit_lines)
    texts = {SETTINGS: _with_words_of_hand(settings, directory / SETTINGS)}
    texts |= {name: hook_text(name) for name in (ADVICE, *HOOKS)}
    for name, text in texts.items():
        draft = directory / f".{name}.{os.getpid()}"
        draft.write_text(text, encoding="utf-8")
        draft.chmod(0o644)
        draft.replace(directory / name)


def _with_words_of_hand(settings: str, present: Path) -> str:
    """Return new settings, with what a file in their place says of those that no configuration has."""
    try:
        there = present.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return settings
    written = dict(_WRITTEN.findall(there))
    lines = [line.partition(" = ") for line in settings.splitlines()]
    return "".join(f"{name} = {written.get(name, value) if name in BY_HAND else value}\n" for name, _, value in lines)
