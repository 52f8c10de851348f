"""Reads the live state once, for a command whose user waits for it; the advisor gets its state from the watcher."""

from __future__ import annotations

import time
from dataclasses import replace

from opsk.config import SiteConfig
from opsk.errors import ConfigError
from opsk.slurm.client import SlurmClient
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.cluster_state.polling import Poller
from opsk_jobcheck.service.watcher import StateBuilder


def add_live_state(site: SiteConfig, adviser: Adviser, slurm: SlurmClient) -> Adviser:
    """Return the adviser with the live state.

    Raises
    ------
    ConfigError
        There is no fabric for running jobs and free nodes.
    SlurmError
        Slurm did not answer.
    """
    if adviser.fabric_links is None:
        raise ConfigError("running jobs need a fabric to run on", hint="set fabric in opsk.toml, or give --fabric")
    poller = Poller(slurm=slurm, clock=time.monotonic, interval_s=0.0)
    return replace(adviser, live=StateBuilder(site, adviser, slurm).state(poller.round()))
