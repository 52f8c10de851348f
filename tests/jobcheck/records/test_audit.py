"""Does the audit log lose lines rather than hold anybody up?"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from opsk_jobcheck.records import audit
from opsk_jobcheck.records.audit import MAX_QUEUED, AuditLog


def test_records_are_json_lines_with_a_time(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    log.write(kind="advise", text="new\nline \x1b[0m ж")
    log.close()
    (line,) = (tmp_path / "audit.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert record["text"] == "new\nline \x1b[0m ж"
    assert line.isascii()
    assert line.isprintable()
    assert record["time"].endswith("+00:00")


def test_without_a_file_records_go_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    log = AuditLog(None)
    log.write(kind="advise")
    log.close()
    assert '"kind": "advise"' in capfd.readouterr().err


def test_a_full_disk_loses_records_and_says_how_many(tmp_path: Path) -> None:
    """``/dev/full`` refuses every write."""
    path = tmp_path / "audit.jsonl"
    path.symlink_to("/dev/full")
    log = AuditLog(path)
    for number in range(5):
        log.write(number=number)
    while not log._queue.empty():
        os.sched_yield()
    path.unlink()
    log.reopen(path)
    log.write(number=5)
    log.close()
    (record,) = map(json.loads, path.read_text().splitlines())
    assert record["number"] == 5
    assert record["lost_before"] == 5


def test_a_line_that_a_full_disk_cut_off_spoils_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system writes what has room, and refuses the rest."""
    path = tmp_path / "audit.jsonl"
    room = [300]
    write = os.write

    def cut_off(file: int, data: bytes) -> int:
        if not data.startswith(b'{"time"') and room[0] == 300:
            return write(file, data)
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = write(file, data[: room[0]])
        room[0] -= done
        return done

    monkeypatch.setattr(audit.os, "write", cut_off)
    log = AuditLog(path)
    log.write(number=0, text="x" * 150)
    log.write(number=1, text="x" * 150)
    while room[0] or not log._queue.empty():
        os.sched_yield()
    room[0] = 1 << 20
    log.write(number=2)
    log.close()
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert records[-1]["number"] == 2
    assert 0 < sum(record.get("lost_before", 0) for record in records) <= 2


def test_a_file_that_hangs_holds_nobody_up(tmp_path: Path) -> None:
    """Opening a FIFO that nobody reads waits for ever: writing goes on, and closing too."""
    os.mkfifo(tmp_path / "fifo")
    log = AuditLog(tmp_path / "fifo")
    for number in range(MAX_QUEUED + 10):
        log.write(number=number)
    log.close(timeout_s=0.1)
    assert log._lost >= 9  # the thread may hold one of the ten that found no room


def test_a_directory_that_is_missing_is_said_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = AuditLog(tmp_path / "none" / "audit.jsonl")
    for number in range(3):
        log.write(number=number)
    log.close()
    assert capfd.readouterr().err.count("no audit log") == 1
