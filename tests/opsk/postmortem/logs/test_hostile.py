"""Is a log that means harm, or nothing at all, read in bounded time and memory, without a crash?"""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.logs.lines import read_fields
from opsk.postmortem.reasoning import explain
from opsk.postmortem.signatures import signatures
from opsk.postmortem.values import Origin, Report, Role


def explained(path: Path, data: bytes) -> Report:
    path.write_bytes(data)
    return explain(read_logs([LogFile(path=path)], processes=1))


def test_bytes_that_are_no_text_say_nothing(tmp_path: Path) -> None:
    assert explained(tmp_path / "log", random.Random(1).randbytes(4 << 20)).root is None


def test_one_line_of_64_mb_is_read_and_its_end_is_seen(tmp_path: Path) -> None:
    report = explained(tmp_path / "rank0.log", b"x" * (64 << 20) + b" OSError: [Errno 28] No space left on device\n")
    assert [finding.signature for finding in report.evidence.findings] == ["storage.full"]
    assert all(len(finding.text) <= 400 for finding in report.evidence.findings)


def test_nothing_but_nul_and_line_ends_is_read(tmp_path: Path) -> None:
    assert explained(tmp_path / "a", b"\x00" * (1 << 20)).root is None
    assert explained(tmp_path / "b", b"\n\r" * (1 << 19)).root is None
    assert explained(tmp_path / "c", b"").root is None


def test_text_is_kept_as_it_was_and_is_never_a_command(tmp_path: Path) -> None:
    evil = "OSError: [Errno 28] No space left on device: '/x'; <script>alert(1)</script> \x1b]0;owned\x07 $(reboot)"
    report = explained(tmp_path / "rank0.log", f"{evil}\n".encode())
    assert report.root is not None
    assert all("reboot" not in action.command and "\x1b" not in action.command for action in report.actions)


def test_a_user_cannot_fake_the_kernel_or_drain_a_node(tmp_path: Path) -> None:
    fake = "[Mon Jan  5 10:00:00 2026] NVRM: Xid (PCI:0000:86:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"
    report = explained(tmp_path / "rank0.log", ("INFO training\n" * 50 + fake * 5 + "INFO training\n" * 50).encode())
    assert report.root is None
    assert not any(finding.origin is Origin.KERNEL for finding in report.evidence.findings)
    assert not any("drain" in action.command.lower() for action in report.actions)


def test_a_million_time_outs_take_no_more_room_than_some(tmp_path: Path) -> None:
    said = b"[Rank 5] Watchdog caught collective operation timeout: "
    line = said + b"WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=6) ran\n"
    evidence = read_logs([LogFile(path=_written(tmp_path / "log", line * 200_000))], processes=1)
    assert len(evidence.findings) < 10


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("signature", signatures(), ids=lambda each: each.id)
def test_no_pattern_takes_long_on_a_line_made_to_be_slow(signature: object) -> None:
    """A pattern that goes back and forth would not end within the time that pytest is given for all."""
    for fragment in signature.fragments:  # type: ignore[attr-defined]
        for filler in ("a", " ", "1", "rank 1 ", "1.0 GiB ", "'", "("):
            for line in (fragment + filler * 2000, filler * 1000 + fragment + filler * 1000):
                found = read_fields(signature, line)  # type: ignore[arg-type]
                assert found is None or all(value in line for value in found.values())


@given(st.binary(max_size=4000))
def test_any_bytes_give_a_report(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.log"
    report = explained(path, data)
    assert all(finding.role is not Role.ROOT or finding.failure for finding in report.evidence.findings)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress])
def test_a_compressed_log_that_was_cut_says_what_is_before(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    """A node that dies leaves a file without an end; bzip2 has blocks of 900 kB, of which whole ones can be read."""
    line = (
        b"[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=1)\n"
    )
    log = tmp_path / "job.log"
    log.write_bytes(pack(line + random.Random(7).randbytes(3 << 20))[:-20])
    evidence = read_logs([LogFile(path=log)], processes=1)
    assert [finding.signature for finding in evidence.findings] == ["torch.watchdog_timeout"]
    assert "damaged" in evidence.unreadable[0]


def test_a_kernel_log_that_was_cut_says_what_is_before(tmp_path: Path) -> None:
    log = tmp_path / "kern.log"
    xid = b"[ 1.123456] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"
    log.write_bytes(gzip.compress(xid * 9)[:-9])
    evidence = read_logs([LogFile(path=log, kind="kernel")], processes=1)
    assert "kernel.xid" in {finding.signature for finding in evidence.findings}
    assert "damaged" in evidence.unreadable[0]


def test_a_kernel_log_of_one_line_is_read_in_little_room(tmp_path: Path) -> None:
    log = tmp_path / "kern.log"
    log.write_bytes(b"[ 1.123456] " + b"A" * (32 << 20) + b"\n[ 2.123456] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, x\n")
    (finding,) = read_logs([LogFile(path=log, kind="kernel")], processes=1).findings
    assert (finding.fields["code"], finding.line) == ("79", 2)


@pytest.mark.parametrize(
    ("data", "says"), [(b"", "empty"), (b"\x00" * 4096, "empty"), (bytes(range(256)) * 64, "no text")]
)
def test_a_file_that_can_say_nothing_is_named(data: bytes, says: str, tmp_path: Path) -> None:
    report = explained(tmp_path / "slurm-1.out", data)
    assert report.root is None
    assert [says in problem for problem in report.evidence.unreadable] == [True]


def test_a_traceback_that_is_cut_off_is_a_failure_without_a_cause(tmp_path: Path) -> None:
    report = explained(
        tmp_path / "log", b'step 1\nTraceback (most recent call last):\n  File "a.py", line 3, in f\n    x'
    )
    assert (report.state, report.root) == ("failed", None)
