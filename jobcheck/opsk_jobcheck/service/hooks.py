"""Installs the two Lua hooks beside slurm.conf, the Lua file that ``cli_filter`` loads, and the hooks' settings."""

from __future__ import annotations

import os
import re
from importlib.resources import files
from pathlib import Path

from opsk.config import SiteConfig
from opsk_jobcheck.service.policy import ENFORCING

HOOKS = ("job_submit.lua", "cli_filter.lua")
ADVICE = "opsk-advice.lua"
"""The Lua file that ``cli_filter.lua`` loads for jobs that may train: few submissions load it, all load the hook."""
SETTINGS = "opsk-hooks.conf"
MANUAL_SETTINGS = ("submit_lines", "gpus_implied", "breaker_failures", "breaker_pause_s")
"""Settings of the hooks that are set only in their file."""
_PART = re.compile(r"^--@ (\S+)\n", re.MULTILINE)
_SETTING_LINE = re.compile(r"^[ \t]*(\w+)[ \t]*=[ \t]*([\w.]+)[ \t]*$", re.MULTILINE)


def read_hook(name: str) -> str:
    """Return the Lua text of a hook, or of ``ADVICE``, with the parts that its lines ``--@ FILE`` name.

    Configless Slurm sends each hook by itself, so common parts are included in both once they are installed.
    """
    text = (files("opsk_jobcheck") / "lua" / name).read_text(encoding="utf-8")
    return _PART.sub(lambda match: read_hook(match[1]), text)


def render_hook_settings(
    site: SiteConfig, *, submit_lines: str = "auto", gpus_implied: bool = False, breaker_pause_s: float = 5.0
) -> str:
    """Return the settings file of both hooks.

    Parameters
    ----------
    site
        Socket and deadlines.
    submit_lines
        ``auto``: ``job_submit`` prints two lines unless the user has just been shown the advice; ``never``: it only
        writes the record. Where slurmctld runs on another machine than the logins, its advisor cannot know who has been
        shown advice: set ``never`` there once every login node has the ``cli_filter``.
    gpus_implied
        True where jobs get GPUs without requesting them (whole nodes by partition).
    breaker_pause_s
        Pause without questions after three failures in a row [s]; doubles up to 60 s.
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

    ``none``: there is none; ``rules``: it sends the account, QOS and partition that a job gets without naming them;
    ``enforce``: it may also hold or refuse jobs, which otherwise it never does, whatever an advisor answers.
    """
    if any(rule.action in ENFORCING for rule in site.advisor.policy):
        return "enforce"
    return "rules" if site.advisor.policy else "none"


def install_hooks(directory: Path, site: SiteConfig, *, submit_lines: str = "auto") -> None:
    """Write both hooks, and what they read, into a directory, each complete before it gets its name.

    The hooks come last: slurmctld reads its own again as soon as its time stamp is newer. Settings that have no
    configuration key keep the values that an administrator wrote into the existing file.

    Raises
    ------
    OSError
        When the directory cannot be written.
    """
    settings = render_hook_settings(site, submit_lines=submit_lines)
    texts = {SETTINGS: _keep_manual_settings(settings, directory / SETTINGS)}
    texts |= {name: read_hook(name) for name in (ADVICE, *HOOKS)}
    for name, text in texts.items():
        draft = directory / f".{name}.{os.getpid()}"
        draft.write_text(text, encoding="utf-8")
        draft.chmod(0o644)
        draft.replace(directory / name)


def _keep_manual_settings(settings: str, present: Path) -> str:
    """Return new settings, with the present file's values of those that have no configuration key."""
    try:
        existing = present.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return settings
    present_values = dict(_SETTING_LINE.findall(existing))
    lines = [line.partition(" = ") for line in settings.splitlines()]
    return "".join(
        f"{name} = {present_values.get(name, value) if name in MANUAL_SETTINGS else value}\n"
        for name, _, value in lines
    )
