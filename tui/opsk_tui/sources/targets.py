"""Which exporters does a screen ask? Those of the file that the site names, else of all nodes of Slurm with GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from opsk.config import TopConfig
from opsk.slurm.records import NodeRecord
from opsk.telemetry.exporter_targets import targets_in, targets_of


def exporters_of(nodes: Sequence[NodeRecord], top: TopConfig) -> dict[str, str]:
    """Return the URL of each exporter, without a path, by node; nodes are where Slurm says.

    Raises
    ------
    ConfigError
        The file of targets cannot be read, or is no such file.
    """
    if top.exporter_targets is not None:
        addresses = {node.name: node.address for node in nodes if node.address}
        return targets_in(top.exporter_targets, tls=top.tls, addresses=addresses)
    addresses = {node.name: node.address or "" for node in nodes if node.gpus}
    return targets_of(addresses, top.exporter_port, tls=top.tls)
