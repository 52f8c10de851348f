"""Is every XID counted once, whoever tells of it, and for the right GPU?"""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from opsk_exporters.gpu.xids import MAX_GPUS, MAX_UNKNOWN, OTHER, WINDOW_S, XidTally

PCI, UUID = "0000:1a:00.0", "GPU-1"


def counted(tally: XidTally) -> dict[tuple[str, str], int]:
    return {(count.gpu, count.code): count.count for count in tally.counts()}


def test_an_event_that_both_sources_tell_counts_once_in_either_order() -> None:
    for first, second in (("nvml", "kernel_log"), ("kernel_log", "nvml")):
        tally = XidTally()
        assert tally.record(UUID, PCI, 79, 100.0, first)
        assert not tally.record(None, PCI, 79, 100.0 + WINDOW_S, second)
        assert counted(tally) == {(UUID, "79"): 1}


def test_events_further_apart_and_other_codes_and_gpus_are_not_twins() -> None:
    tally = XidTally()
    tally.record(UUID, PCI, 79, 100.0, "nvml")
    assert tally.record(UUID, PCI, 79, 100.1 + WINDOW_S, "kernel_log")
    assert tally.record(UUID, PCI, 48, 100.0, "kernel_log")
    assert tally.record("GPU-2", "0000:2b:00.0", 79, 100.0, "kernel_log")
    assert counted(tally) == {(UUID, "48"): 1, (UUID, "79"): 2, ("GPU-2", "79"): 1}


def test_each_event_has_one_twin_only() -> None:
    tally = XidTally()
    for at in (100.0, 101.0, 102.0):
        tally.record(UUID, PCI, 13, at, "kernel_log")
    tally.record(UUID, PCI, 13, 100.5, "nvml")
    assert counted(tally) == {(UUID, "13"): 3}  # three lines, one event: the one is among the three
    for at in (101.0, 102.0, 103.0):
        tally.record(UUID, PCI, 13, at, "nvml")
    assert counted(tally) == {(UUID, "13"): 4}


@given(st.lists(st.floats(0, 10_000), max_size=30), st.randoms())
def test_two_sources_that_tell_the_same_count_as_one(times: list[float], random: object) -> None:
    tally = XidTally()
    told = [("nvml", at) for at in times] + [("kernel_log", at) for at in times]
    random.shuffle(told)  # type: ignore[attr-defined]
    for source, at in told:
        tally.record(UUID, PCI, 31, at, source)
    # Pairs are made greedily: near a window's edge an event may find another's twin, and two remain alone.
    total = sum(count.count for count in tally.counts())
    assert len(times) <= total <= 2 * len(times)
    if len(times) < 2 or min(abs(a - b) for n, a in enumerate(times) for b in times[:n]) > 2 * WINDOW_S:
        assert total == len(times)


def test_what_was_counted_by_address_becomes_the_gpus() -> None:
    tally = XidTally()
    tally.record(None, PCI, 63, 100.0, "kernel_log")
    assert counted(tally) == {(PCI, "63"): 1}
    tally.learn_uuids({PCI: UUID})
    assert counted(tally) == {(UUID, "63"): 1}
    assert not tally.record(UUID, PCI, 63, 101.0, "nvml")  # its twin moved along
    tally.record(None, PCI, 63, 200.0, "kernel_log")
    assert counted(tally) == {(UUID, "63"): 2}


def test_an_event_without_time_counts_and_has_no_twin() -> None:
    tally = XidTally()
    assert tally.record(None, PCI, 79, None, "kernel_log")
    assert tally.record(None, PCI, 79, 100.0, "nvml")
    (count,) = tally.counts()
    assert (count.count, count.last_unix_s, count.class_) == (2, 100.0, "reboot")


def test_the_last_time_is_the_latest_not_the_last_told() -> None:
    tally = XidTally()
    tally.record(None, PCI, 79, 200.0, "kernel_log")
    tally.record(None, PCI, 79, 100.0, "kernel_log")
    assert tally.counts()[0].last_unix_s == 200.0


def test_an_event_nobody_can_place_is_counted_without_gpu() -> None:
    tally = XidTally()
    tally.record(None, None, 79, 100.0, "nvml")
    assert counted(tally) == {("", "79"): 1}


def test_too_many_unknown_codes_are_counted_together() -> None:
    tally = XidTally()
    for code in range(1000, 1000 + 3 * MAX_UNKNOWN):
        tally.record(UUID, PCI, code, 100.0, "kernel_log")
    counts = counted(tally)
    assert len(counts) == MAX_UNKNOWN + 1
    assert counts[(UUID, OTHER)] == 2 * MAX_UNKNOWN
    tally.record(UUID, PCI, 1000, 200.0, "kernel_log")
    assert counted(tally)[(UUID, "1000")] == 2


def test_many_addresses_do_not_make_many_series() -> None:
    tally = XidTally()
    for number in range(5000):
        tally.record(None, f"{number:04x}:00:00.0", 79, 100.0, "kernel_log")
    counts = tally.counts()
    assert len(counts) == MAX_GPUS + 1
    assert sum(count.count for count in counts) == 5000


def test_threads_may_tell_at_the_same_time() -> None:
    tally = XidTally()

    def tell(source: str) -> None:
        for number in range(500):
            tally.record(UUID, PCI, 31, 20.0 * number, source)

    threads = [threading.Thread(target=tell, args=(source,)) for source in ("nvml", "kernel_log")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 500 <= counted(tally)[(UUID, "31")] <= 1000
