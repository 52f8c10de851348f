"""Is the time with clocks held down counted once, from the best source, and never backwards?"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opsk.telemetry.gpu.samples import GpuReading, GpuSample
from opsk_exporters.gpu.health import LONGEST_S, ThrottleTimes

KNOWN = frozenset({"gpu_idle", "hw_slowdown", "sw_power_cap"})


def at(read_at_s: float, *reasons: str, **violation_s: float) -> GpuReading:
    gpu = GpuSample(
        uuid="GPU-a",
        index=0,
        throttle_reasons=frozenset(reasons),
        throttle_reasons_known=KNOWN,
        violation_s=violation_s,
    )
    return GpuReading(read_at_s=read_at_s, gpus=(gpu,))


def test_a_reason_that_is_set_has_the_time_since_the_last_reading() -> None:
    times = ThrottleTimes()
    assert times.note(at(10, "hw_slowdown"))["GPU-a"] == {"gpu_idle": 0, "hw_slowdown": 0, "sw_power_cap": 0}
    assert times.note(at(25, "hw_slowdown"))["GPU-a"]["hw_slowdown"] == 15
    assert times.note(at(40))["GPU-a"]["hw_slowdown"] == 15
    assert times.note(at(50, "hw_slowdown", "gpu_idle"))["GPU-a"] == {
        "gpu_idle": 10,
        "hw_slowdown": 25,
        "sw_power_cap": 0,
    }


def test_the_drivers_own_counter_is_taken_where_it_has_one() -> None:
    times = ThrottleTimes()
    times.note(at(0, "sw_power_cap", sw_power_cap=100.0))
    assert times.note(at(15, "sw_power_cap", sw_power_cap=101.5))["GPU-a"]["sw_power_cap"] == 101.5


def test_a_counter_of_the_driver_that_fails_once_leaves_a_gap_and_no_jump() -> None:
    times = ThrottleTimes()
    assert times.note(at(0, "hw_slowdown", sw_power_cap=86400.0))["GPU-a"]["sw_power_cap"] == 86400
    assert times.note(at(15, "hw_slowdown", "sw_power_cap"))["GPU-a"] == {"gpu_idle": 0, "hw_slowdown": 15}
    assert times.note(at(30, sw_power_cap=86401.0))["GPU-a"]["sw_power_cap"] == 86401


def test_a_counter_of_the_driver_that_fails_at_first_brings_no_jump_when_it_answers() -> None:
    times = ThrottleTimes()
    assert times.note(at(0, "sw_power_cap"))["GPU-a"]["sw_power_cap"] == 0
    assert times.note(at(15, "sw_power_cap", sw_power_cap=86400.0))["GPU-a"]["sw_power_cap"] == 15
    assert times.note(at(30, "sw_power_cap"))["GPU-a"]["sw_power_cap"] == 30


def test_a_gpu_that_told_nothing_at_first_has_the_drivers_counter_later() -> None:
    times = ThrottleTimes()
    assert times.note(GpuReading(read_at_s=0, gpus=(GpuSample(uuid="GPU-a", index=0),)))["GPU-a"] == {}
    assert times.note(at(15, sw_power_cap=86400.0))["GPU-a"]["sw_power_cap"] == 86400


def test_thermal_time_stays_away_when_its_parts_fail_once() -> None:
    times = ThrottleTimes()
    times.note(at(0, thermal=3.0, sw_thermal_slowdown=1.0))
    assert "thermal" not in times.note(at(15, thermal=4.0))["GPU-a"]


def test_thermal_time_is_not_counted_beside_its_parts() -> None:
    both = ThrottleTimes().note(at(0, thermal=3.0, sw_thermal_slowdown=1.0, hw_thermal_slowdown=2.0))["GPU-a"]
    assert "thermal" not in both
    assert ThrottleTimes().note(at(0, thermal=3.0))["GPU-a"]["thermal"] == 3


def test_time_below_clocks_is_no_reason() -> None:
    assert "below_base_clocks" not in ThrottleTimes().note(at(0, below_base_clocks=5.0))["GPU-a"]


def test_the_same_reading_twice_adds_nothing() -> None:
    times = ThrottleTimes()
    times.note(at(0, "hw_slowdown"))
    times.note(at(15, "hw_slowdown"))
    assert times.note(at(15, "hw_slowdown"))["GPU-a"]["hw_slowdown"] == 15


def test_a_gap_that_nobody_watched_adds_nothing() -> None:
    times = ThrottleTimes()
    times.note(at(0, "hw_slowdown"))
    assert times.note(at(LONGEST_S + 1, "hw_slowdown"))["GPU-a"]["hw_slowdown"] == 0


def test_a_gpu_that_does_not_tell_its_reasons_has_what_the_driver_counts() -> None:
    gpu = GpuSample(uuid="GPU-a", index=0, violation_s={"sw_power_cap": 2.0})
    assert ThrottleTimes().note(GpuReading(read_at_s=0, gpus=(gpu,)))["GPU-a"] == {"sw_power_cap": 2.0}


@given(st.lists(st.tuples(st.floats(0, 60), st.frozensets(st.sampled_from(sorted(KNOWN))))))
def test_times_never_fall_nor_exceed_the_time_that_passed(steps: list[tuple[float, frozenset[str]]]) -> None:
    times, now_s, last = ThrottleTimes(), 0.0, dict.fromkeys(KNOWN, 0.0)
    times.note(at(0))
    for step_s, reasons in steps:
        now_s += step_s
        seconds = times.note(at(now_s, *reasons))["GPU-a"]
        assert all(seconds[reason] >= last[reason] for reason in KNOWN)
        # A rounding error a step is allowed: sums of floats in another order.
        assert all(value <= now_s + 1e-6 for value in seconds.values())
        last = seconds
