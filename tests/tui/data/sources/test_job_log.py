"""Is the end of a job's log shown, and nothing that is not the job's?"""

from __future__ import annotations

import getpass
import os
from pathlib import Path

import pytest

from opsk.errors import InputError
from opsk_tui.data.sources.job_log import MAX_LINES, TAIL_BYTES, log_path, log_tail
from tests.tui.data.sources.conftest import training_job

ME = getpass.getuser()


def test_the_last_lines_are_shown_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"one\n\x1b[31mtwo\xff\r\nthree")
    assert log_tail(path, ME) == ("one", "\x1b[31mtwo\ufffd", "three")


def test_of_a_long_log_the_end_is_read_and_no_half_line(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"".join(b"line %08d\n" % at for at in range(100_000)))
    lines = log_tail(path, ME)
    assert lines[-1] == "line 00099999"
    assert len(lines) == MAX_LINES
    path.write_bytes(b"x" * (3 * TAIL_BYTES))
    assert log_tail(path, ME) == ("x" * TAIL_BYTES,)


@pytest.mark.parametrize("make", ["absent", "folder", "pipe"])
def test_what_is_no_readable_file_is_said_at_once(make: str, tmp_path: Path) -> None:
    path = tmp_path / "out"
    if make == "folder":
        path.mkdir()
    elif make == "pipe":
        os.mkfifo(path)
    with pytest.raises(InputError, match="out: "):
        log_tail(path, ME)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may read others' files")
def test_root_is_shown_no_file_of_another_user_than_the_jobs(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("geheim")
    out = tmp_path / "out"
    out.symlink_to(secret)
    with pytest.raises(InputError, match="not a file of nobody's own"):
        log_tail(out, "nobody")


def test_patterns_of_slurm_are_worked_out(tmp_path: Path) -> None:
    job = training_job(std_out=str(tmp_path / "%x-%j-%u.out"))
    assert log_path(job) == tmp_path / "llama3-8b-4711-ada.out"
    task = training_job(label="4700_3", std_out=str(tmp_path / "%A_%a.out"))
    assert log_path(task) == tmp_path / "4700_3.out"
    assert log_path(training_job(std_out="/dev/null")) is None
