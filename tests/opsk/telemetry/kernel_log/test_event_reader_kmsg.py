"""Is the kernel's buffer followed without waiting, without counting twice, and without hiding what was lost?"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from opsk.telemetry.kernel_log import KmsgReader, XidEvent
from opsk.telemetry.kernel_log import event_reader as module


def record(sequence: int, code: int = 79) -> str:
    return f"3,{sequence},{sequence * 1_000_000},-;NVRM: Xid (PCI:0000:1a:00): {code}, pid=1, name=x, what\n"


def codes(reader: KmsgReader) -> list[int]:
    return [event.code for event in reader.poll().events if isinstance(event, XidEvent)]


def test_what_is_in_the_buffer_comes_first_and_once_with_its_own_time(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text(record(5, 31) + record(6, 79))
    reader = KmsgReader(log, boot_unix_s=1000.0)
    batch = reader.poll()
    assert [event.at.unix_s for event in batch.events] == [1005.0, 1006.0]
    assert (batch.records, batch.lost, batch.problem) == (2, 0, "")
    assert codes(reader) == []
    with log.open("a") as more:
        more.write(record(7, 48))
    assert codes(reader) == [48]


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text(record(1)[:30])
    reader = KmsgReader(log)
    assert codes(reader) == []
    with log.open("a") as more:
        more.write(record(1)[30:])
    assert codes(reader) == [79]


def test_a_last_line_without_an_end_is_told_when_nothing_follows(tmp_path: Path) -> None:
    log = tmp_path / "syslog"
    log.write_text(record(1).rstrip("\n"))
    reader = KmsgReader(log)
    assert codes(reader) + codes(reader) == [79]


def test_gaps_in_the_numbers_are_lost_records(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text(record(5) + record(9))
    assert KmsgReader(log).poll().lost == 3


def test_a_rotated_and_a_cut_file_are_read_from_their_beginning(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text(record(5) + record(6))
    reader = KmsgReader(log)
    reader.poll()
    log.rename(tmp_path / "kmsg.1")
    log.write_text(record(1, 48) + record(2, 63) + record(3, 64))
    assert codes(reader) == [48, 63, 64]
    log.write_text(record(1, 31))
    assert codes(reader) == [31]


def test_a_log_that_cannot_be_read_is_said_and_tried_again(tmp_path: Path) -> None:
    reader = KmsgReader(tmp_path / "kmsg")
    problem = reader.poll().problem
    assert problem == f"{tmp_path / 'kmsg'}: No such file or directory"
    (tmp_path / "kmsg").write_text(record(1))
    assert codes(reader) == [79]


def test_no_permission_is_said_not_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(module.os, "open", refuse)
    assert "Operation not permitted" in KmsgReader(tmp_path).poll().problem


class Device:
    """A character device like ``/dev/kmsg``: one record a read, EPIPE after an overrun, EAGAIN at the end."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path.touch()
        self.answers: list[str | type[OSError]] = []
        monkeypatch.setattr(module.os, "read", self.read)
        monkeypatch.setattr(stat, "S_ISCHR", lambda mode: True)

    def will(self, *answers: str | type[OSError]) -> Sequence[object]:
        self.answers += answers
        return self.answers

    def read(self, descriptor: int, size: int) -> bytes:
        assert size >= 8192
        answer = self.answers.pop(0) if self.answers else BlockingIOError
        if isinstance(answer, str):
            return answer.encode()
        raise answer


def test_an_overrun_of_the_device_is_survived_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(tmp_path / "kmsg", monkeypatch)
    reader = KmsgReader(tmp_path / "kmsg")
    device.will(record(10) + " SUBSYSTEM=pci\n DEVICE=+pci:0000:1a:00.0\n", record(11))
    assert codes(reader) == [79, 79]
    device.will(BrokenPipeError, record(20, 48))
    batch = reader.poll()
    assert (batch.lost, batch.records) == (8, 1)  # 12 to 19
    assert codes(reader) == []


def test_records_are_not_told_again_when_the_device_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(tmp_path / "kmsg", monkeypatch)
    reader = KmsgReader(tmp_path / "kmsg")
    device.will(record(10), OSError)
    assert reader.poll().problem
    device.will(record(10), record(11, 48))
    assert codes(reader) == [48]


def test_a_device_that_never_stops_is_left_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(tmp_path / "kmsg", monkeypatch)
    monkeypatch.setattr(module, "MAX_RECORDS", 3)
    device.will(*(record(n) for n in range(1, 10)))
    reader = KmsgReader(tmp_path / "kmsg")
    assert [reader.poll().records for _ in range(4)] == [3, 3, 3, 0]
    device.will(*[BrokenPipeError] * 1000)
    assert reader.poll().records == 0


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    (tmp_path / "kmsg").write_text(record(1))
    reader = KmsgReader(tmp_path / "kmsg")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    reader.poll()
    reader.close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
