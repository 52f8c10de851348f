"""Does nobody wait for a slow source longer than he wants, and does its failure show?"""

from __future__ import annotations

import threading

from opsk.telemetry.background_reader import Background


def test_a_quick_source_answers_at_once() -> None:
    answers = iter([1, 2])
    source = Background("test", lambda: next(answers))
    assert source.refresh(5.0).value == 1
    assert source.refresh(5.0).value == 2


def test_a_source_that_hangs_gives_the_last_answer_and_how_long_it_hangs() -> None:
    now = [100.0]
    gate = threading.Event()
    first = [True]

    def read() -> str:
        if first[0]:
            first[0] = False
            return "first"
        gate.wait(30)
        return "second"

    source = Background("test", read, clock=lambda: now[0])
    assert source.refresh(5.0).value == "first"
    source.refresh(0.05)
    now[0] = 112.0
    hanging = source.latest()
    assert (hanging.value, hanging.age_s, hanging.hanging_s) == ("first", 12.0, 12.0)
    gate.set()
    assert source.refresh(5.0).value == "second"


def test_a_source_that_fails_tells_why_and_recovers() -> None:
    faults = [ValueError("no"), None]

    def read() -> int:
        fault = faults.pop(0)
        if fault:
            raise fault
        return 7

    source = Background("test", read)
    failed = source.refresh(5.0)
    assert (failed.value, str(failed.error)) == (None, "no")
    assert source.refresh(5.0).error is None
    assert source.latest().value == 7


def test_an_answer_that_came_in_time_is_no_hanging_though_the_next_read_began() -> None:
    gates = [threading.Event(), threading.Event()]
    begun = threading.Semaphore(0)
    answers = iter(gates)

    def read() -> int:
        begun.release()
        next(answers).wait(30)
        return 7

    source = Background("test", read)
    given: list[int | None] = []
    first = threading.Thread(target=lambda: given.append(source.refresh(30.0).fresh_value))
    first.start()
    assert begun.acquire(timeout=30)
    source.refresh(0.0)  # asks while the first read is under way: a second one follows at once
    gates[0].set()
    first.join(30)
    assert given == [7]
    gates[1].set()


def test_who_asks_later_never_waits() -> None:
    source = Background("test", lambda: 1)
    assert source.latest(5.0).value == 1
    assert source.latest().value == 1


def test_a_source_is_read_every_so_often_without_being_asked() -> None:
    enough = threading.Event()
    reads: list[int] = []

    def read() -> None:
        reads.append(1)
        if len(reads) >= 3:
            enough.set()

    Background("test", read, every_s=0.01).latest(5.0)
    assert enough.wait(30)


def ours(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def test_a_closed_source_has_no_thread_and_keeps_its_last_answer() -> None:
    source = Background("closed", lambda: 1, every_s=0.01)
    assert source.refresh(5.0).value == 1
    (thread,) = ours("closed")
    source.close()
    thread.join(30)
    assert not ours("closed")
    assert (source.refresh(5.0).value, source.latest(5.0).value) == (1, 1)
    assert not ours("closed")


def test_the_thread_of_a_closed_source_that_hangs_ends_with_its_read() -> None:
    gate = threading.Event()
    source = Background("hung", lambda: gate.wait(30))
    source.refresh(0.01)
    (thread,) = ours("hung")
    source.close()
    gate.set()
    thread.join(30)
    assert not thread.is_alive()


def test_nobody_waits_for_a_source_that_is_closed_meanwhile() -> None:
    gate = threading.Event()
    source = Background("left", lambda: gate.wait(60))
    given: list[bool | None] = []
    waiting = threading.Thread(target=lambda: given.append(source.refresh(60.0).value))
    waiting.start()
    source.close()
    waiting.join(30)
    assert given == [None]
    gate.set()
