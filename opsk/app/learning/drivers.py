"""Reads which NVIDIA driver the nodes of the site have now, from its Prometheus or from some of its exporters."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

from opsk.app.site_pages import fetch
from opsk.config import TopConfig
from opsk.errors import OpskError
from opsk.metrics import names as metric_names
from opsk.metrics.exposition import read_samples
from opsk.slurm.commands.command import CommandClient
from opsk.telemetry.exporter_targets import build_targets, read_targets

DEADLINE_S = 3.0
MAX_EXPORTERS = 16
"""Nodes of one kind mostly have one driver: some of them show which."""
_MAX_CHARS = 100


def read_drivers(top: TopConfig) -> Mapping[str, int]:
    """Return how many of the nodes that answer have each driver; empty where none does.

    It takes `DEADLINE_S`, and as long again for Slurm where neither Prometheus nor a targets file is set.
    """
    drivers = _query_prometheus(top.prometheus, top) if top.prometheus is not None else _scrape_exporters(top)
    return Counter(driver[:_MAX_CHARS] for driver in drivers if driver)


def _query_prometheus(url: str, top: TopConfig) -> list[str]:
    matchers = ",".join(f"{name}={json.dumps(value)}" for name, value in top.prometheus_labels.items())
    query = urlencode({"query": f"{metric_names.GPU_DRIVER_INFO}{{{matchers}}}"})
    page = fetch(f"{url.rstrip('/')}/api/v1/query?{query}", top, deadline_s=DEADLINE_S)
    try:
        return [str(series["metric"].get("driver", "")) for series in json.loads(page.body)["data"]["result"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []


def _scrape_exporters(top: TopConfig) -> list[str]:
    urls = _list_exporters(top)
    step = max(1, len(urls) // MAX_EXPORTERS)
    chosen = urls[::step][:MAX_EXPORTERS]
    if not chosen:
        return []
    with ThreadPoolExecutor(max_workers=len(chosen), thread_name_prefix="driver") as pool:
        return [driver for drivers in pool.map(lambda url: list(_scrape(url, top)), chosen) for driver in drivers]


def _scrape(url: str, top: TopConfig) -> Iterator[str]:
    page = fetch(f"{url}/metrics", top, deadline_s=DEADLINE_S)
    for sample in read_samples(page.body, (metric_names.GPU_DRIVER_INFO,)):
        yield sample.labels.get("driver", "")


def _list_exporters(top: TopConfig) -> list[str]:
    """Return the URLs of the targets file, else of Slurm's nodes; empty where neither is there."""
    try:
        if top.exporter_targets is not None:
            return list(read_targets(top.exporter_targets, tls=top.tls).values())
        if not top.exporter_port:
            return []
        nodes = {node.name: node.address or "" for node in CommandClient(deadline_s=DEADLINE_S).nodes()}
    except OpskError:
        return []
    return list(build_targets(nodes, top.exporter_port, tls=top.tls).values())
