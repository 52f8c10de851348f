"""Reads how busy the parts of a GPU were since the last reading, from NVML's GPM counters (Hopper and newer).

GPM gives the difference between two samples of the hardware's counters. The sample of the last reading is kept, one a
GPU or MIG GPU instance: a reading costs one new sample, and nothing waits. Samples closer than ``_SHORTEST_S`` to each
other are not meaningful; the older one is kept then, and gives the result of the longer window.
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
from collections.abc import Callable
from typing import Any

from opsk import units
from opsk.telemetry.gpu.nvml.caller import NvmlCaller, drop_blank, get_error_code
from opsk.telemetry.gpu.samples import GpuActivity

_SHORTEST_S = 0.1
_RATIOS = {
    1: "graphics",
    2: "sm",
    3: "sm_occupancy",
    4: "integer",
    5: "tensor",
    6: "tensor_double",
    7: "tensor_half",
    9: "tensor_integer",
    10: "dram",
    11: "fp64",
    12: "fp32",
    13: "fp16",
}
"""Metrics in percent."""
_RATES = {
    20: "pcie_transmitted",
    21: "pcie_received",
    60: "nvlink_received",
    61: "nvlink_transmitted",
}
"""Metrics in MiB/s, from the GPU's side."""
_METRICS = (*_RATIOS, *_RATES)
_METRIC = struct.Struct("=IidQQQ")
"""nvmlGpmMetric_t: metric, return code, value, and three pointers to names."""
WHOLE_GPU = -1
"""Stands for the GPU itself where GPU instances are numbered."""


class ActivityReader:
    """Activity of one GPU and its MIG GPU instances.

    Parameters
    ----------
    ask
        Calls NVML for the GPU.
    handle
        NVML's handle of the GPU.
    clock
        Monotonic seconds.
    """

    def __init__(self, ask: NvmlCaller, handle: object, clock: Callable[[], float]) -> None:
        self._ask = ask
        self._nvml = ask.nvml
        self._handle = handle
        self._clock = clock
        self._looks: dict[int, tuple[float, Any]] = {}
        self._request: Any = None
        support = ask("gpm", "nvmlGpmQueryDeviceSupport", handle)
        self.supported = bool(getattr(support, "isSupportedDevice", 0))

    def activity(self, instance: int = WHOLE_GPU) -> GpuActivity | None:
        """Return the activity since the last reading; ``None`` at the first, and where there is no GPM.

        Raises
        ------
        GpuLostError, SessionLostError
            As ``NvmlCaller``.
        """
        if not self.supported:
            return None
        look = self._look(instance)
        if look is None:
            self.forget(instance)
            return None
        now = self._clock()
        before = self._looks.get(instance)
        if before is None:
            self._looks[instance] = (now, look)
            return None
        if now - before[0] < _SHORTEST_S:
            self._free(look)
            return None
        activity = self._between(before[1], look, now - before[0])
        self._free(before[1])
        self._looks[instance] = (now, look)
        return activity

    def keep_only(self, instances: set[int]) -> None:
        """Forget the GPU instances that are gone."""
        for gone in [known for known in self._looks if known != WHOLE_GPU and known not in instances]:
            self.forget(gone)

    def forget(self, instance: int) -> None:
        """Free the sample that is kept of an instance."""
        look = self._looks.pop(instance, None)
        if look is not None:
            self._free(look[1])

    def close(self) -> None:
        """Free all samples."""
        for instance in list(self._looks):
            self.forget(instance)

    def _look(self, instance: int) -> Any:
        """Sample the counters now; ``None`` when they cannot be read."""
        what = "gpm" if instance == WHOLE_GPU else f"gpm of GPU instance {instance}"
        look = self._ask(f"{what} sample", "nvmlGpmSampleAlloc")
        if look is None:
            return None
        try:
            if instance == WHOLE_GPU:
                taken = self._ask(what, "nvmlGpmSampleGet", self._handle, look)
            else:
                taken = self._ask(what, "nvmlGpmMigSampleGet", self._handle, instance, look)
        except BaseException:
            self._free(look)
            raise
        if taken is None:
            self._free(look)
        return taken

    def _between(self, before: Any, now: Any, window_s: float) -> GpuActivity | None:
        """Return the activity between two samples."""
        request = self._request
        if request is None:
            request = self._request = self._nvml.c_nvmlGpmMetricsGet_t()
            request.version = 1
            request.numMetrics = len(_METRICS)
            for place, metric in enumerate(_METRICS):
                request.metrics[place].metricId = metric
        request.sample1, request.sample2 = before, now
        try:
            self._nvml.nvmlGpmMetricsGet(request)
        except Exception as error:  # noqa: BLE001 - whatever pynvml raises
            self._ask.note_failure("gpm metrics", get_error_code(error))
            return None
        start = ctypes.addressof(request) + type(request).metrics.offset
        return _parse_activity(ctypes.string_at(start, len(_METRICS) * _METRIC.size), window_s)

    def _free(self, look: Any) -> None:
        """Free a sample in NVML, which may have gone in the meantime."""
        with contextlib.suppress(Exception):
            self._nvml.nvmlGpmSampleFree(look)


def _parse_activity(answers: bytes, window_s: float) -> GpuActivity | None:
    """Parse NVML's metrics; ``None`` when there are none."""
    ratios: dict[str, float] = {}
    rates: dict[str, float] = {}
    for metric, code, answer, *_names in _METRIC.iter_unpack(answers):
        value = drop_blank(answer) if code == 0 else None
        if value is None or value < 0:
            continue
        if metric in _RATIOS:
            # Counters are read one after another: a busy unit comes out a little above 100 % at times.
            ratios[_RATIOS[metric]] = min(1.0, units.percent(value))
        else:
            rates[_RATES[metric]] = value * units.MIB
    return GpuActivity(window_s=window_s, ratios=ratios, bytes_per_s=rates) if ratios or rates else None
