"""Builds the parts of a lab that the submit hooks add: the hooks beside its slurm.conf, and an advisor of its own."""

from __future__ import annotations

import sys

from opsk.config import load_site
from opsk.lab.parts import LabPart, LabSite, PartDaemon
from opsk_jobcheck.service.hooks import install_hooks


def advisor_part(site: LabSite) -> LabPart:
    """Return the advisor and its hooks for one lab.

    Raises
    ------
    ConfigError
        When the lab's opsk.toml cannot be read.
    """
    config = load_site(site.config)
    command = (sys.executable, "-P", "-m", "opsk", "advisor", "--config", str(site.config))
    return LabPart(
        install=lambda: install_hooks(site.etc, config),
        slurm_snippets=("opsk.conf",),
        daemons=(PartDaemon(name="advisor", command=command, socket=config.advisor.socket),),
    )
