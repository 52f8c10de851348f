"""Find the name of the cluster that Slurm's commands ask here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Protocol

from opsk.errors import OpskError

PARAMETER, VARIABLE = "ClusterName", "SLURM_CLUSTER_NAME"


class ConfigClient(Protocol):
    """Who tells Slurm's configuration; see `opsk.slurm.client.SlurmClient`."""

    def config(self) -> dict[str, str]:
        """Return what ``scontrol show config`` says, by parameter."""
        ...


def cluster_name(client: ConfigClient, environ: Mapping[str, str] = os.environ) -> str:
    """Return ``ClusterName`` of the cluster that a client asks; empty where nobody tells it.

    slurmctld comes first: in the shell of a job, somebody may have named another cluster by ``SLURM_CONF``.

    Parameters
    ----------
    environ
        Says it in jobs, prologs and epilogs; counts where slurmctld does not answer.
    """
    try:
        return client.config().get(PARAMETER) or environ.get(VARIABLE, "")
    except OpskError:
        return environ.get(VARIABLE, "")
