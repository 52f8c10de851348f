"""Exports the traffic of a GPU's NVLinks, and which of them are unhealthy.

A GPU has up to 18 links, and most of them never differ: series are for the GPU, with sums over its links, and for a
single link only when it is down or has seen errors.
"""

from __future__ import annotations

from collections import Counter

from opsk.metrics import names as metric_names
from opsk.telemetry.gpu.samples import GpuSample, NvLinkSample
from opsk_exporters.core.families import Families

_STATES = ("active", "inactive", "sleep", "traffic_disabled")
_UP = "active"
_DIRECTIONS = ("received", "transmitted")


class LinkTotals:
    """Sums over the links of each GPU that only grow.

    A link that goes down may stop reporting its counters, and one that is trained again may reset them. What it had
    counted stays in the sum: a sum that falls would look as if all of it had been counted once more. Only where every
    link is reset has the driver been loaded again, and the sum is reset with it.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, int], dict[str, int]] = {}
        self._before: dict[tuple[str, int], Counter[str]] = {}
        """Counts of links from before their resets."""

    def accumulate(self, gpu: GpuSample) -> dict[str, int]:
        """Return the sums by ``received``, ``transmitted`` and kind of error, with this sample taken in."""
        sums: Counter[str] = Counter()
        reported = {(gpu.uuid, link.link): _list_counters(link) for link in gpu.nvlinks}
        fell = {key: self._list_fallen(key, counters) for key, counters in reported.items()}
        counting = [key for key, counters in reported.items() if any(self._last.get(key, {}).values()) and counters]
        is_new_driver = bool(counting) and all(fell[key] for key in counting)
        for key, counters in reported.items():
            last, before = self._last.setdefault(key, {}), self._before.setdefault(key, Counter())
            if is_new_driver:
                before.clear()
            else:
                before.update({name: last[name] for name in fell[key]})
            last.update(counters)
            # The plain addition of two Counters would leave out what is 0.
            for name, value in last.items():
                sums[name] += value + before[name]
        return dict(sums)

    def _list_fallen(self, key: tuple[str, int], counters: dict[str, int]) -> list[str]:
        """Return the counters of a link that are less than they were."""
        last = self._last.get(key, {})
        return [name for name, value in counters.items() if value < last.get(name, 0)]


def add_links(families: Families, gpu: GpuSample, totals: LinkTotals) -> None:
    """Add the NVLinks of a GPU."""
    if not gpu.nvlinks:
        return
    states = Counter(link.state for link in gpu.nvlinks if link.state is not None)
    for state in dict.fromkeys((*_STATES, *sorted(states))):
        families.gauge(
            metric_names.GPU_NVLINKS, "NVLinks of the GPU by their state.", states[state], gpu=gpu.uuid, state=state
        )
    speeds = [link.bytes_per_s for link in gpu.nvlinks if link.state == _UP and link.bytes_per_s is not None]
    families.gauge(
        "opsk_gpu_nvlink_speed_bytes_per_second",
        "Speed of all active NVLinks together, in one direction.",
        sum(speeds) if speeds else None,
        gpu=gpu.uuid,
    )
    for name, total in totals.accumulate(gpu).items():
        if name in _DIRECTIONS:
            families.counter(
                f"opsk_gpu_nvlink_{name}_bytes_total",
                f"Bytes {name} over all NVLinks since driver load, without protocol.",
                total,
                gpu=gpu.uuid,
            )
        else:
            families.counter(
                "opsk_gpu_nvlink_errors_total",
                "Errors of all NVLinks of the GPU together since driver load, by kind.",
                total,
                gpu=gpu.uuid,
                kind=name,
            )
    for link in gpu.nvlinks:
        _add_unhealthy_link(families, gpu.uuid, link)


def _list_counters(link: NvLinkSample) -> dict[str, int]:
    """Return the counters of one link."""
    counters = dict(link.errors)
    if link.received_bytes is not None:
        counters["received"] = link.received_bytes
    if link.transmitted_bytes is not None:
        counters["transmitted"] = link.transmitted_bytes
    return counters


def _add_unhealthy_link(families: Families, uuid: str, link: NvLinkSample) -> None:
    """Add a link that is down or has errors."""
    if link.state is not None and link.state != _UP:
        families.gauge(
            "opsk_gpu_nvlink_link_down",
            "1 for an NVLink that is not active; there is no series for the others.",
            1.0,
            gpu=uuid,
            link=str(link.link),
        )
    for kind, count in link.errors.items():
        if count:
            families.counter(
                "opsk_gpu_nvlink_link_errors_total",
                "Errors of one NVLink since driver load, by kind; there is no series until there is an error.",
                count,
                gpu=uuid,
                link=str(link.link),
                kind=kind,
            )
