"""Where are the exporters of the nodes? Where slurmd listens, or as Prometheus's file of targets says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from opsk.errors import ConfigError
from opsk.slurm.records import NodeRecord


def targets_of(nodes: Sequence[NodeRecord], port: int, *, tls: bool) -> dict[str, str]:
    """Return the exporter of each node that can have one, at the address where slurmd listens."""
    scheme = "https" if tls else "http"
    return {node.name: f"{scheme}://{_host(node.address or node.name)}:{port}" for node in nodes}


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def targets_in(path: Path, *, tls: bool, addresses: Mapping[str, str]) -> dict[str, str]:
    """Return the exporters of a file of targets as Prometheus's ``file_sd_configs`` reads it, by node.

    Parameters
    ----------
    addresses
        Where nodes are, as Slurm says; a target that has the name of a node is looked for there.

    Raises
    ------
    ConfigError
        It cannot be read, or is no such file.
    """
    scheme = "https" if tls else "http"
    found: dict[str, str] = {}
    try:
        text = path.read_text(encoding="utf-8")
        groups = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
        for group in groups:
            for target in group["targets"]:
                host, _, port = str(target).rpartition(":")
                node = str((group.get("labels") or {}).get("node", "")) or host
                found[node] = f"{scheme}://{_host(addresses.get(host, host).strip('[]'))}:{int(port)}"
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", hint="see exporter_targets under [top]") from error
    except (ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path}: no file of targets", hint="as Prometheus's file_sd_configs reads it") from error
    return found
