"""Is a log followed while it grows, is rotated or truncated, and never waited for?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opsk.errors import TelemetryError
from opsk.telemetry.progress.follow import Follower
from opsk.telemetry.progress.records import StepRecord
from tests.fakes.progress_logs import megatron_line


def append(path: Path, *steps: int) -> None:
    with path.open("a", encoding="ascii") as file:
        file.writelines(f"{megatron_line(step)}\n" for step in steps)


def steps(follower: Follower) -> list[int | None]:
    return [each.iteration for each in follower.poll() if isinstance(each, StepRecord)]


def test_what_is_appended_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append(path, 1, 2)
    follower = Follower(path)
    assert steps(follower) == [1, 2]
    assert steps(follower) == []
    append(path, 3)
    assert steps(follower) == [3]


def test_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    path, line = tmp_path / "log", megatron_line(1)
    path.write_text(line[:60])
    follower = Follower(path)
    assert steps(follower) == []
    with path.open("a") as file:
        file.write(line[60:] + "\n")
    assert steps(follower) == [1]


def test_a_rotated_log_is_read_to_its_end_and_then_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append(path, 1)
    follower = Follower(path)
    assert steps(follower) == [1]
    append(path, 2)
    path.rename(tmp_path / "log.1")
    append(path, 3)
    assert steps(follower) == [2, 3]


def test_a_truncated_log_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append(path, 1, 2, 3)
    follower = Follower(path)
    assert steps(follower) == [1, 2, 3]
    path.write_text("")
    append(path, 1)
    assert steps(follower) == [1]
    assert follower.reader.restarts == 1


def test_a_log_that_vanishes_is_read_on_as_long_as_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append(path, 1)
    follower = Follower(path)
    assert steps(follower) == [1]
    path.unlink()
    assert steps(follower) == []


def test_a_poll_reads_no_more_than_it_may(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append(path, *range(1, 101))
    size = len(megatron_line(1)) + 1
    follower = Follower(path, poll_bytes=10 * size)
    assert steps(follower) == list(range(1, 11))
    assert steps(follower) == list(range(11, 21))


def test_of_a_long_log_the_tail_is_read_and_one_that_outruns_is_caught_up_with(tmp_path: Path) -> None:
    path, size = tmp_path / "log", len(megatron_line(1)) + 1
    append(path, *range(1, 101))
    follower = Follower(path, poll_bytes=20 * size, tail_bytes=10 * size + 5)
    assert steps(follower) == list(range(91, 101))
    append(path, *range(101, 201))
    assert steps(follower)[-1] == 200
    assert follower.skipped_bytes > 0


@pytest.mark.parametrize("kind", ["fifo", "link", "folder", "nothing"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "log"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        append(tmp_path / "other", 1)
        path.symlink_to(tmp_path / "other")
    elif kind == "folder":
        path.mkdir()
    with pytest.raises(TelemetryError):
        list(Follower(path).poll())


def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append(path, 1)
    with pytest.raises(TelemetryError, match="owner"):
        list(Follower(path, owner=os.getuid() + 1).poll())


@pytest.mark.parametrize(("mode", "is_read"), [(0o644, True), (0o640, False)])
def test_in_a_user_namespace_only_what_everybody_may_read_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, is_read: bool
) -> None:
    """There all other users' files look as if nobody had them."""
    path = tmp_path / "log"
    append(path, 1)
    path.chmod(mode)
    monkeypatch.setattr("opsk.telemetry.progress.follow._NOBODY", os.getuid())
    follower = Follower(path, owner=os.getuid() + 1)
    if is_read:
        assert steps(follower) == [1]
    else:
        with pytest.raises(TelemetryError, match="owner"):
            steps(follower)


def test_a_log_that_could_not_be_read_for_a_while_goes_on_where_it_was_left(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append(path, 1, 2)
    follower = Follower(path)
    assert steps(follower) == [1, 2]
    follower.close()
    append(path, 3)
    assert steps(follower) == [3]


def test_files_are_let_go(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append(path, 1)
    before = len(list(Path("/proc/self/fd").iterdir()))
    follower = Follower(path)
    steps(follower)
    follower.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
