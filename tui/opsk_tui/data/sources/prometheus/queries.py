"""Defines the Prometheus queries and their intervals, each as short as its answer can change.

``SEL`` in an expression stands for the site's labels. A value that is the same for most parts of a node, such as the
memory size of its GPUs, is queried by node: one series instead of eight; only nodes with mixed parts are then queried
in full.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from opsk.metrics.quantities import HEAT_REASONS, POWER_REASONS
from opsk_tui.data.sources.readings import (
    BYTES,
    CLOCK_MAX,
    CLOCK_NOW,
    CONGESTION,
    ERRORS,
    HEAT_HELD,
    HOST_SHARES,
    MEMORY_SIZE,
    MEMORY_USED,
    POWER_DEFAULT,
    POWER_HELD,
    POWER_LIMIT,
    RATE,
    SLOWDOWN,
    SM_ACTIVE,
)
from opsk_tui.data.view import Metric

SCRAPED_EVERY_S = 15.0
"""Readings of a GPU change no more often than exporters are scraped."""
SELDOM_S = 300.0
HOSTS_EVERY_S = 60.0
_PROGRESS = "step_seconds|tokens_per_second|tflops_per_gpu|iteration|last_progress_timestamp_seconds"
_FAULTS = (
    "opsk_gpu_xid_errors_total|opsk_gpu_xid_last_seen_timestamp_seconds|opsk_gpu_row_remap_pending"
    "|opsk_gpu_row_remap_failed|opsk_gpu_fabric_fault|opsk_nvswitch_sxid_errors_total"
    "|opsk_nvswitch_sxid_last_seen_timestamp_seconds"
)
_UP = "opsk_gpu_up|opsk_gpu_fabric_healthy|opsk_gpu_fabric_joined"
IS = "is"
"""Label of a value where the series are the parts that have it."""


class About(StrEnum):
    """The subject of the series of an answer."""

    GPU_INFO = "gpu_info"
    PORT_INFO = "port_info"
    GPUS = "gpus"
    PORTS = "ports"
    HOSTS = "hosts"
    UNHEALTHY = "sick"
    PROGRESS = "progress"


@dataclass(slots=True, kw_only=True)
class Question:
    """One expression, and its interval [s].

    Parameters
    ----------
    about, name
        The destination of its answer.
    by_node
        Expression that counts the parts of each node by value, in the label ``is``; queried first.
    missing
        The value of parts that have no series.
    may_wait
        Whether no screen shows it by itself, so that it is queried after the first view.
    """

    about: About
    name: str
    expr: str
    every_s: float
    by_node: str = ""
    missing: float = math.nan
    may_wait: bool = False
    asked_at_s: float = -math.inf


def questions() -> Iterator[Question]:
    """Yield all queries, in the order of the first round."""
    yield Question(about=About.GPU_INFO, name="gpu_info", every_s=SELDOM_S,
                   expr="max by (node, gpu, index, slurm_index) (opsk_gpu_info{SEL})")  # fmt: skip
    yield Question(about=About.PORT_INFO, name="port_info", every_s=SELDOM_S,
                   expr="max by (node, device, port, rail, leaf, role) (opsk_infiniband_port_info{SEL})")  # fmt: skip
    yield from _build_gpu_queries()
    yield from _build_port_queries()
    for name, expr in {
        "faults": f'{{__name__=~"{_FAULTS}",SEL}} > 0',
        "up": f'{{__name__=~"{_UP}",SEL}} == 0',
        "ecc": 'opsk_gpu_ecc_volatile_errors_total{error="uncorrected",SEL} > 0',
        "recovery": 'opsk_gpu_recovery_action{action!="none",SEL} > 0',
        "ports": "opsk_infiniband_port_state{SEL} != 4",
    }.items():
        yield Question(about=About.UNHEALTHY, name=name, expr=expr, every_s=4.0)
    yield Question(about=About.PROGRESS, name="progress", every_s=10.0,
                   expr=f'{{__name__=~"opsk_training_({_PROGRESS})",SEL}}')  # fmt: skip
    yield Question(about=About.HOSTS, name="hosts", every_s=HOSTS_EVERY_S, expr=_build_host_query(), may_wait=True)


def _build_gpu_queries() -> Iterator[Question]:
    by, often = "max by (node, gpu)", SCRAPED_EVERY_S
    for name, expr in {
        Metric.UTILISATION: f"{by} (opsk_gpu_utilization_ratio{{SEL}}) or {by} (opsk:gpu_activity:ratio{{SEL}})",
        Metric.TENSOR: f"{by} (opsk_gpu_tensor_active_ratio{{SEL}})",
        MEMORY_USED: f"{by} (opsk_gpu_memory_used_bytes{{SEL}})",
        Metric.POWER: f"{by} (opsk_gpu_power_watts{{SEL}}) or {by} (opsk_gpu_power_average_watts{{SEL}})",
        Metric.TEMPERATURE: f'{by} (opsk_gpu_temperature_celsius{{sensor="gpu",SEL}})',
        CLOCK_NOW: f'{by} (opsk_gpu_clock_hertz{{clock="sm",SEL}})',
    }.items():
        yield Question(about=About.GPUS, name=name, expr=expr, every_s=often)
    for name, metric in {
        MEMORY_SIZE: "opsk_gpu_memory_size_bytes{SEL}",
        CLOCK_MAX: 'opsk_gpu_clock_max_hertz{clock="sm",SEL}',
        POWER_LIMIT: "opsk_gpu_power_limit_watts{SEL}",
        POWER_DEFAULT: "opsk_gpu_power_default_limit_watts{SEL}",
        SLOWDOWN: 'opsk_gpu_temperature_limit_celsius{limit="slowdown",SEL}',
    }.items():
        expr = f"{by} ({metric})"
        yield Question(about=About.GPUS, name=name, expr=expr, by_node=_build_by_node(expr), every_s=SELDOM_S,
                       may_wait=name not in (MEMORY_SIZE, CLOCK_MAX))  # fmt: skip
    yield Question(about=About.GPUS, name=SM_ACTIVE, expr=f"{by} (opsk_gpu_sm_active_ratio{{SEL}})",
                   every_s=4 * often, may_wait=True)  # fmt: skip
    for name, reasons in ((HEAT_HELD, HEAT_REASONS), (POWER_HELD, POWER_REASONS)):
        expr = f'{by} (opsk:gpu_throttle:ratio{{reason=~"{"|".join(reasons)}",SEL}} > 0.001)'
        yield Question(about=About.GPUS, name=name, expr=expr, every_s=2 * often, missing=0.0)
    errors = f'{by} (opsk_gpu_ecc_volatile_errors_total{{error="uncorrected",SEL}} > 0)'
    expr = f"sum by (node, gpu) (opsk_gpu_xid_errors_total{{SEL}}) or {errors}"
    yield Question(about=About.GPUS, name=Metric.ERRORS, expr=expr, every_s=often, missing=0.0)


def _build_port_queries() -> Iterator[Question]:
    by, often = "(node, device, port)", SCRAPED_EVERY_S
    rate = f"max by {by} (opsk_infiniband_port_rate_bytes_per_second{{SEL}})"
    yield Question(about=About.PORTS, name=RATE, expr=rate, by_node=_build_by_node(rate), every_s=4 * often)
    for name, expr, missing in (
        (CONGESTION, f"max by {by} (opsk_infiniband_port_congestion_ratio{{SEL}})", math.nan),
        (BYTES, f"sum by {by} (rate(opsk_infiniband_port_transmitted_bytes_total{{SEL}}[2m])) "
                f"+ sum by {by} (rate(opsk_infiniband_port_received_bytes_total{{SEL}}[2m]))", math.nan),
        (ERRORS, f"sum by {by} (opsk:infiniband_port_errors:rate5m{{SEL}}) * 300 > 0", 0.0),
    ):  # fmt: skip
        yield Question(about=About.PORTS, name=name, expr=expr, every_s=2 * often, missing=missing)


def _build_by_node(expr: str) -> str:
    return f'count_values by (node) ("{IS}", {expr})'


def _build_host_query() -> str:
    """Return the query for all shares of time of all hosts, each named in the label ``is``."""
    spent = "sum by (node) (rate(opsk_host_cpu_seconds_total{%sSEL}[5m]))"
    stalled = 'max by (node) (rate(opsk_host_pressure_seconds_total{resource="%s",share="some",SEL}[5m]))'
    exprs = {
        "cpu_busy": "1 - " + spent % 'mode=~"idle|iowait",' + " / " + spent % "",
        "iowait": spent % 'mode="iowait",' + " / " + spent % "",
        **{f"{resource}_stalled": stalled % resource for resource in ("cpu", "io", "memory")},
    }
    return " or ".join(f'label_replace({exprs[name]}, "{IS}", "{name}", "", "")' for name in HOST_SHARES)
