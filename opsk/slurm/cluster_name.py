"""Finds the name of the cluster that Slurm's commands query here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Protocol

from opsk.errors import OpskError

PARAMETER, VARIABLE = "ClusterName", "SLURM_CLUSTER_NAME"


class ConfigClient(Protocol):
    """A client that reads Slurm's configuration; see `opsk.slurm.client.SlurmClient`."""

    def config(self) -> dict[str, str]:
        """Return the output of ``scontrol show config``, by parameter."""
        ...


def cluster_name(client: ConfigClient, environ: Mapping[str, str] = os.environ) -> str:
    """Return ``ClusterName`` of the cluster that a client queries; empty where it is unknown.

    slurmctld comes first: in the shell of a job, ``SLURM_CONF`` may name another cluster.

    Parameters
    ----------
    environ
        Names the cluster in jobs, prologs and epilogs; used where slurmctld does not answer.
    """
    try:
        return client.config().get(PARAMETER) or environ.get(VARIABLE, "")
    except OpskError:
        return environ.get(VARIABLE, "")
