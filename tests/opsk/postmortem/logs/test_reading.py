"""Are logs of any form read: line ends, colours, compression, labels of ranks, names, times?"""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.logs.header import LineClock, parse_log_name, parse_nodes
from opsk.postmortem.logs.kernel import is_kernel_log
from opsk.postmortem.logs.printers import Labels
from opsk.postmortem.values import Evidence, Origin, Role

FULL = "OSError: [Errno 28] No space left on device: '/ckpt/x'"
END_S = datetime(2026, 3, 21, 12, 0, tzinfo=UTC).timestamp()


def read(path: Path, text: str | bytes) -> Evidence:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_logs([LogFile(path=path)], processes=1, not_after_s=END_S)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_any_end_of_a_line_will_do(end: str, tmp_path: Path) -> None:
    found = read(tmp_path / "rank3.log", end.join(["one", FULL, "three", ""]))
    assert [(s.signature, s.place.rank, s.text) for s in found.findings] == [("storage.full", 3, FULL)]


def test_colours_are_taken_out(tmp_path: Path) -> None:
    found = read(tmp_path / "log", f"\x1b[31m{FULL}\x1b[0m\n")
    assert found.findings[0].text == FULL


@pytest.mark.parametrize(("pack", "name"), [(gzip.compress, "gz"), (lzma.compress, "xz"), (bz2.compress, "bz2")])
def test_compressed_logs_are_read(pack: Callable[[bytes], bytes], name: str, tmp_path: Path) -> None:
    found = read(tmp_path / f"rank3.out.{name}", pack(f"{FULL}\n".encode()))
    assert [finding.signature for finding in found.findings] == ["storage.full"]


def test_a_compressed_log_that_is_cut_off_gives_what_it_has(tmp_path: Path) -> None:
    whole = gzip.compress((f"{FULL}\n" + "x\n" * 100_000).encode())
    found = read(tmp_path / "rank3.out.gz", whole[: len(whole) // 2])
    assert any("damaged" in problem for problem in found.unreadable)


@pytest.mark.parametrize("label", ["{}: ", " {}: ", "[rank{}]: ", "[1,{}]<stderr>:", "[{}]:"])
def test_ranks_of_one_log_are_told_apart_by_their_labels(label: str, tmp_path: Path) -> None:
    lines = [label.format(rank) + text for text in ("hello", FULL, "bye") for rank in (4, 5, 6)]
    found = read(tmp_path / "slurm-99.out", "\n".join(lines) + "\n")
    assert {finding.place.rank for finding in found.findings} == {4, 5, 6}
    assert {each.rank for each in found.ranks} == {4, 5, 6}


def test_a_traceback_of_one_rank_is_read_between_lines_of_others(tmp_path: Path) -> None:
    lines = ["0: Traceback (most recent call last):", "1: step 5", '0:   File "a.py", line 1', "1: step 6",
             "0: KeyError: 'x'", "1: step 7"]  # fmt: skip
    found = read(tmp_path / "slurm-99.out", "\n".join(lines) + "\n")
    finding = next(finding for finding in found.findings if finding.signature == "python.exception")
    assert (finding.place.rank, finding.fields["type"], finding.fields["message"]) == (0, "KeyError", "'x'")


def test_nccl_tells_where_a_rank_sits(tmp_path: Path) -> None:
    text = "\n".join(
        f"{rank}: gpu-{rank // 4:02d}:100{rank}:200{rank} [{rank % 4}] NCCL INFO comm 0x55d0 rank {rank} nranks 8 "
        f"cudaDev {rank % 4} nvmlDev {rank % 4} busId {0x1B + rank % 4:x}000 commId 0x1 - Init COMPLETE"
        for rank in range(8)
    )
    slots = {each.rank: each for each in read(tmp_path / "slurm-99.out", text + "\n").ranks}
    assert (slots[5].node, slots[5].gpu_index, slots[5].pci) == ("gpu-01", 1, "0000:1c:00")


def test_a_flood_of_one_line_is_counted_and_not_kept(tmp_path: Path) -> None:
    found = read(tmp_path / "rank3.log", f"{FULL}\n" * 5_000)
    assert len(found.findings) == 1
    assert found.findings[0].count >= 1_000


def test_what_a_program_prints_is_never_evidence_of_the_kernel(tmp_path: Path) -> None:
    xid = "[Mon Jan  5 10:00:00 2026] NVRM: Xid (PCI:0000:86:00): 79, GPU has fallen off the bus."
    text = f"step 1\nstep 2\n{xid}\nstep 3\n"
    findings = [finding for finding in read(tmp_path / "rank3.log", text).findings if finding.signature == "kernel.xid"]
    assert [(finding.origin, finding.role) for finding in findings] == [(Origin.JOB_LOG, Role.ADVICE)]


def test_a_log_that_is_not_there_keeps_no_other_from_being_read(tmp_path: Path) -> None:
    (tmp_path / "rank1.log").write_text(f"{FULL}\n")
    found = read_logs([LogFile(path=tmp_path / "no"), LogFile(path=tmp_path / "rank1.log")], processes=1)
    assert len(found.findings) == 1
    assert len(found.unreadable) == 1


@pytest.mark.parametrize(
    ("line", "at"),
    [
        ("2026-03-21 02:07:08.5 INFO x", "2026-03-21T02:07:08.5"),
        ("[2026-03-21 02:07:08,500] [INFO] x", "2026-03-21T02:07:08.5"),
        ("2026-03-21T02:07:08Z x", "2026-03-21T02:07:08"),
        ("2026-03-21T04:07:08+02:00 x", "2026-03-21T02:07:08"),
        ("[E321 02:07:08.500000000 ProcessGroupNCCL.cpp:616] x", "2026-03-21T02:07:08.5"),
        ("W0321 02:07:08.500000 4711 api.py:897] x", "2026-03-21T02:07:08.5"),
        ("Mar 21 02:07:08 node kernel: x", "2026-03-21T02:07:08"),
        ("[Sat Mar 21 02:07:08 2026] x", "2026-03-21T02:07:08"),
        ("03/21/2026 02:07:08 [INFO|DP=0] x", "2026-03-21T02:07:08"),
        ("slurmstepd: error: *** JOB 1 ON n CANCELLED AT 2026-03-21T02:07:08 ***", "2026-03-21T02:07:08"),
    ],
)
def test_times_of_every_form_are_read(line: str, at: str) -> None:
    found = LineClock(END_S).read(line)
    assert found == pytest.approx(datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp())


def test_a_line_without_a_time_tells_of_none_by_itself(tmp_path: Path) -> None:
    stale = "2026-03-21 02:00:00 INFO up\n" + "Traceback (most recent call last):\n  x\nKeyError: 'x'\n"
    finding = next(s for s in read(tmp_path / "rank3.log", stale).findings if s.signature == "python.exception")
    assert finding.time_s is None
    assert finding.earliest_s == datetime(2026, 3, 21, 2, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("name", "rank"),
    [("rank3.log", 3), ("train_4711_17.out", 17), ("train-4711-17.err.gz", 17), ("log.rank_05.txt", 5),
     ("global_rank12_local_rank4.log", 12), ("slurm-4711.out", None),
     ("llama3-8b-4711.out", None), ("llama3-8b_4711_12.out", 12)],
)  # fmt: skip
def test_names_tell_of_ranks(name: str, rank: int | None) -> None:
    assert parse_log_name(name).rank == rank


def test_names_tell_of_nodes_where_they_differ_in_that() -> None:
    names = [f"run_4711_gpu-{node:03d}_rank{rank}.log" for node, rank in ((12, 0), (13, 8))]
    assert list(parse_nodes(names).values()) == ["gpu-012", "gpu-013"]
    assert parse_nodes([f"train-4711-{rank}.out" for rank in range(3)]) == {}


@pytest.mark.parametrize(("stamped", "is_kernel"), [(60, True), (59, False), (0, False), (100, True)])
def test_a_file_is_a_kernel_log_where_three_lines_of_five_are_the_kernels(stamped: int, is_kernel: bool) -> None:
    lines = ["[  12.345678] mlx5_core 0000:3b:00.0: up"] * stamped + ["step 7 | loss: 2.31"] * (100 - stamped)
    for order in (lines, lines[::-1]):
        assert is_kernel_log("\n".join(order).encode()) is is_kernel


@pytest.mark.parametrize("before", ["", "step 7\n"])
def test_a_label_of_ray_is_seen_at_the_beginning_of_any_line(before: str) -> None:
    labels = Labels()
    labels.take(f"{before}(WorkerDict pid=4711, ip=10.0.0.7) up\n".encode())
    assert labels.are_ray
    others = Labels()
    others.take(f"{before}worker (WorkerDict pid=4711) up\n".encode())
    assert not others.are_ray
