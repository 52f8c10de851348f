"""Determines the addresses of the nodes' exporters, from Slurm's ``NodeAddr`` or from a Prometheus target file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import yaml

from opsk.errors import ConfigError

_NO_ADDRESSES: Mapping[str, str] = {}


def build_targets(addresses: Mapping[str, str], port: int, *, tls: bool) -> dict[str, str]:
    """Return the URL of each node's exporter, without a path, by node.

    Parameters
    ----------
    addresses
        Address by node, from Slurm's ``NodeAddr``; empty where it is the node's name.
    """
    return {node: f"{_scheme(tls)}://{_format_host(address or node)}:{port}" for node, address in addresses.items()}


def read_targets(path: Path, *, tls: bool, addresses: Mapping[str, str] = _NO_ADDRESSES) -> dict[str, str]:
    """Return the exporters of a file as Prometheus's ``file_sd_configs`` reads it: URLs without a path, by node.

    A label ``node`` names the node of a group with one target; others are named by their host, and by the whole target
    where the name is already taken: all are scraped.

    Parameters
    ----------
    addresses
        Addresses of nodes from Slurm; used for a target that has the name of a node.

    Raises
    ------
    ConfigError
        It cannot be read, or has another format.
    """
    urls: dict[str, str] = {}
    try:
        text = path.read_text(encoding="utf-8")
        for group in (json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)) or ():
            targets = [str(target) for target in _as_list(group["targets"])]
            node = (group.get("labels") or {}).get("node") if len(targets) == 1 else None
            for target in targets:
                host, port = _split_target(target)
                name = str(node or host)
                place = _format_host(addresses.get(host, host))
                urls[target if name in urls else name] = f"{_scheme(tls)}://{place}{port and f':{int(port)}'}"
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", hint="see exporter_targets under [top]") from error
    except (ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError, RecursionError) as error:
        hint = "a list of targets, each HOST or HOST:PORT, as Prometheus's file_sd_configs reads it"
        raise ConfigError(f"{path}: no file of targets", hint=hint) from error
    return urls


def _as_list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(type(value).__name__)
    return value


def _split_target(target: str) -> tuple[str, str]:
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


def _format_host(address: str) -> str:
    return f"[{address}]" if ":" in (address := address.strip("[]")) else address


def _scheme(tls: bool) -> str:
    return "https" if tls else "http"
