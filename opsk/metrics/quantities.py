"""Maps the exporters' series to the quantities that diagnosis and screens use: one table, whoever reads the series."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opsk.metrics import names


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """A metric with one value a GPU: of those with a further label, the series in which it has this value."""

    metric: str
    label: str = ""
    value: str = ""

    @property
    def selector(self) -> str:
        """The further label as an exporter's page and Prometheus have it; empty without one."""
        return f'{self.label}="{self.value}"' if self.label else ""

    def get_labels(self, gpu: str) -> Mapping[str, str]:
        """Return all labels of the series of one GPU."""
        return {"gpu": gpu, self.label: self.value} if self.label else {"gpu": gpu}


GPU_GAUGES: Mapping[str, Gauge] = {
    "busy": Gauge(metric=names.GPU_UTILIZATION_RATIO),
    "sm_active": Gauge(metric=names.GPU_SM_ACTIVE_RATIO),
    "tensor_active": Gauge(metric=names.GPU_TENSOR_ACTIVE_RATIO),
    "memory_used_bytes": Gauge(metric=names.GPU_MEMORY_USED_BYTES),
    "memory_size_bytes": Gauge(metric=names.GPU_MEMORY_SIZE_BYTES),
    "power_w": Gauge(metric=names.GPU_POWER_WATTS),
    "power_average_w": Gauge(metric=names.GPU_POWER_AVERAGE_WATTS),
    "power_limit_w": Gauge(metric=names.GPU_POWER_LIMIT_WATTS),
    "power_default_limit_w": Gauge(metric=names.GPU_POWER_DEFAULT_LIMIT_WATTS),
    "temperature_c": Gauge(metric=names.GPU_TEMPERATURE_CELSIUS, label="sensor", value="gpu"),
    "slowdown_at_c": Gauge(metric=names.GPU_TEMPERATURE_LIMIT_CELSIUS, label="limit", value="slowdown"),
    "clock_hz": Gauge(metric=names.GPU_CLOCK_HERTZ, label="clock", value="sm"),
    "max_clock_hz": Gauge(metric=names.GPU_CLOCK_MAX_HERTZ, label="clock", value="sm"),
}
HEAT_REASONS = ("thermal", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_slowdown")
"""Reasons of `opsk_gpu_throttle_seconds_total` that heat has; of the next ones power."""
POWER_REASONS = ("sw_power_cap", "hw_power_brake", "board_limit")


def name_port_counter(what: str) -> str:
    """Return the metric of a counter of InfiniBand ports."""
    return f"opsk_infiniband_port_{what}_total"


PORT_ERRORS = tuple(
    name_port_counter(what)
    for what in ("symbol_errors", "link_error_recoveries", "link_downed", "receive_errors", "transmit_discards")
)
"""Counters of errors that slow a link down."""
