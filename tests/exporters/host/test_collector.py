"""Does a node's CPU time never fall, whatever the kernel takes back?"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opsk_exporters.host.collector import CpuTimes


def test_time_that_the_kernel_takes_back_stays_counted() -> None:
    times = CpuTimes()
    assert times.note({"idle": 100.0, "iowait": 10.0}) == {"idle": 100.0, "iowait": 10.0}
    assert times.note({"idle": 103.0, "iowait": 9.5}) == {"idle": 103.0, "iowait": 10.0}
    assert times.note({"idle": 104.0, "iowait": 10.5}) == {"idle": 104.0, "iowait": 10.5}


def test_a_node_that_began_anew_shows_it() -> None:
    times = CpuTimes()
    times.note({"idle": 100.0, "iowait": 10.0})
    assert times.note({"idle": 1.0, "iowait": 0.0}) == {"idle": 1.0, "iowait": 0.0}


def test_a_look_that_failed_changes_nothing() -> None:
    times = CpuTimes()
    times.note({"idle": 100.0, "iowait": 10.0})
    assert times.note({}) == {}
    assert times.note({"idle": 101.0, "iowait": 9.5})["iowait"] == 10.0


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(-5, 5)), max_size=20))
def test_no_mode_falls_while_all_together_grow(steps: list[tuple[float, float]]) -> None:
    times, idle, iowait, last = CpuTimes(), 1000.0, 1000.0, {"idle": 0.0, "iowait": 0.0}
    for step, back in steps:
        idle, iowait = idle + step + abs(back), iowait + back
        shown = times.note({"idle": idle, "iowait": iowait})
        assert all(shown[mode] >= last[mode] for mode in last)
        last = dict(shown)
