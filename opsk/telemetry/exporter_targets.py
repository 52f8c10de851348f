"""Where are the exporters of the nodes? Where Slurm says that slurmd listens, or as Prometheus's targets say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import yaml

from opsk.errors import ConfigError

_NOWHERE: Mapping[str, str] = {}


def targets_of(addresses: Mapping[str, str], port: int, *, tls: bool) -> dict[str, str]:
    """Return the URL of each node's exporter, without a path, by node.

    Parameters
    ----------
    addresses
        Where each node is, by node, as Slurm's ``NodeAddr`` says; empty where it has the node's own name.
    """
    return {node: f"{_scheme(tls)}://{_host(address or node)}:{port}" for node, address in addresses.items()}


def targets_in(path: Path, *, tls: bool, addresses: Mapping[str, str] = _NOWHERE) -> dict[str, str]:
    """Return the exporters of a file as Prometheus's ``file_sd_configs`` reads it: URLs without a path, by node.

    A label ``node`` names the node of a group with one target; others are named by their host, and by the whole target
    where another has that name already: all are asked.

    Parameters
    ----------
    addresses
        Where nodes are, as Slurm says; a target that has the name of a node is looked for there.

    Raises
    ------
    ConfigError
        It cannot be read, or is no such file.
    """
    found: dict[str, str] = {}
    try:
        text = path.read_text(encoding="utf-8")
        for group in (json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)) or ():
            targets = [str(target) for target in _listed(group["targets"])]
            node = (group.get("labels") or {}).get("node") if len(targets) == 1 else None
            for target in targets:
                host, port = _parts(target)
                name = str(node or host)
                place = _host(addresses.get(host, host))
                found[target if name in found else name] = f"{_scheme(tls)}://{place}{port and f':{int(port)}'}"
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", hint="see exporter_targets under [top]") from error
    except (ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError, RecursionError) as error:
        hint = "a list of targets, each HOST or HOST:PORT, as Prometheus's file_sd_configs reads it"
        raise ConfigError(f"{path}: no file of targets", hint=hint) from error
    return found


def _listed(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(type(value).__name__)
    return value


def _parts(target: str) -> tuple[str, str]:
    """Return host and port of ``host``, ``host:port``, ``[address]`` or ``[address]:port``; an empty port if none.

    Raises
    ------
    ValueError
        It is none of these.
    """
    host, sign, port = target.rpartition(":") if not target.endswith("]") else (target, "", "")
    if not sign:
        host, port = target, ""
    if not host.strip("[]") or "/" in target:
        raise ValueError(target)
    return host, port


def _host(address: str) -> str:
    return f"[{address}]" if ":" in (address := address.strip("[]")) else address


def _scheme(tls: bool) -> str:
    return "https" if tls else "http"
