"""Is of a log that is too large only its beginning and its end read, in bounded memory, and is that said?"""

from __future__ import annotations

import gzip
from pathlib import Path

from opsk.postmortem.logs.kernel import scan_kernel_log
from opsk.postmortem.logs.pieces import ReadLimits
from opsk.postmortem.logs.scanning import scan_log
from opsk.postmortem.report.text import format_source

LIMITS = ReadLimits(whole_bytes=1 << 20, head_bytes=1 << 16, tail_bytes=1 << 16)
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n"
HEAD = "iter 1: loss 2.3100, time 1230.12ms, mfu 41.20%\n"


def write_sparse(path: Path, size: int) -> int:
    """Write a log of which all but the ends is a hole; return where its last message begins."""
    with path.open("wb") as out:
        out.write(HEAD.encode())
        out.truncate(size)
        out.seek(size)
        out.write(f"\nlast line but one\n{OOM}".encode())
    return size + len("\nlast line but one\n")


def test_of_ten_gigabytes_the_beginning_and_the_end_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    order = write_sparse(path, 10 << 30)
    scan = scan_log(path, limits=LIMITS)
    (oom,) = [finding for finding in scan.findings if finding.signature == "torch.cuda_oom"]
    assert (oom.order, oom.has_line) == (order, False)
    assert format_source(oom) == f"{path} (byte {order})"
    assert scan.ranks[0].first_iteration == 1
    assert scan.note == f"{path}: only the first 64 KiB and the last 64 KiB of 10 GiB were read"


def test_a_log_that_is_not_too_large_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    write_sparse(path, 1 << 19)
    scan = scan_log(path, limits=LIMITS)
    (oom,) = [finding for finding in scan.findings if finding.signature == "torch.cuda_oom"]
    assert (oom.line, oom.has_line, scan.note) == (4, True, "")


def test_of_a_compressed_log_only_the_beginning_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress(HEAD.encode() + b"x\n" * (1 << 20) + OOM.encode()))
    scan = scan_log(path, limits=LIMITS)
    assert not [finding for finding in scan.findings if finding.signature == "torch.cuda_oom"]
    assert scan.note == f"{path}: only the first 1 MiB of its content were read"


XID = "NVRM: Xid (PCI:0000:{bus}:00): 79, pid=1, name=python3, GPU has fallen off the bus.\n"


def test_of_a_large_kernel_log_the_beginning_and_the_end_are_read(tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    middle = "[ 2000.000001] usb 1-1: new device\n" * 40_000
    path.write_text(f"[ 1000.000001] {XID.format(bus='1a')}{middle}[ 3000.000001] {XID.format(bus='9b')}")
    findings, problem, note = scan_kernel_log(path, limits=LIMITS)
    assert [(each.place.pci, format_source(each)) for each in findings] == [
        ("0000:1a:00.0", f"{path}:1"), ("0000:9b:00.0", str(path)),
    ]  # fmt: skip
    assert (problem, note) == ("", f"{path}: only the first 64 KiB and the last 64 KiB of 1.335 MiB were read")
