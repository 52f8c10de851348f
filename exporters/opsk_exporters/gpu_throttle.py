"""For how long did each reason hold a GPU's clocks down? Counters of time, from NVML's own where it has one.

NVML counts the time of some causes itself. For the others there is only a set of reasons now: a reason that is set at
a reading is taken to have been set since the reading before. A gap of more than ``LONGEST_S`` was not observed, and
adds nothing. Whoever gave a series its first value keeps it: when NVML fails to tell what it counted, the series is
absent, and what was summed because NVML failed at first goes on being summed. Nothing jumps to the other source.
"""

from __future__ import annotations

from opsk.telemetry.gpu import GpuReading, GpuSample

LONGEST_S = 120.0
_OTHER_COUNTERS = frozenset({"below_application_clocks", "below_base_clocks"})
_PARTS_OF_THERMAL = frozenset({"sw_thermal_slowdown", "hw_thermal_slowdown"})


class ThrottleTimes:
    """Time by GPU and reason, over all readings of this process."""

    def __init__(self) -> None:
        self._summed_s: dict[str, dict[str, float]] = {}
        self._counted: dict[str, set[str]] = {}
        self._read_at_s: float | None = None

    def note(self, reading: GpuReading) -> dict[str, dict[str, float]]:
        """Take a reading into account; return the seconds by GPU and reason.

        A reason that NVML counted from the first has NVML's number; the others have what was summed. The same reading
        twice adds nothing.
        """
        before, self._read_at_s = self._read_at_s, reading.read_at_s
        elapsed_s = 0.0 if before is None else max(0.0, reading.read_at_s - before)
        if elapsed_s > LONGEST_S:
            elapsed_s = 0.0
        return {gpu.uuid: self._times(gpu, elapsed_s) for gpu in reading.gpus}

    def _times(self, gpu: GpuSample, elapsed_s: float) -> dict[str, float]:
        """Return the seconds of one GPU by reason."""
        summed = self._summed_s.setdefault(gpu.uuid, {})
        other = _OTHER_COUNTERS | summed.keys()
        counted = {reason: time_s for reason, time_s in gpu.violation_s.items() if reason not in other}
        ever_counted = self._counted.setdefault(gpu.uuid, set())
        ever_counted.update(counted)
        if ever_counted & _PARTS_OF_THERMAL:
            counted.pop("thermal", None)
        if gpu.throttle_reasons is None:
            return counted
        for reason in sorted(((gpu.throttle_reasons_known or frozenset()) | gpu.throttle_reasons) - ever_counted):
            summed[reason] = summed.get(reason, 0.0) + (elapsed_s if reason in gpu.throttle_reasons else 0.0)
        return {**summed, **counted}
