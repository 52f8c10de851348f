"""Do both engines find the same, and does it not matter where a log is cut into pieces?"""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.postmortem.logs import LogFile, read_logs, scanning
from opsk.postmortem.logs.matching import build_finder
from opsk.postmortem.logs.pieces import read_pieces

FRAGMENTS = st.lists(st.binary(min_size=3, max_size=6), min_size=1, max_size=8, unique=True)
LINES = (
    b"ordinary line of a program", b"[rank3]: Traceback (most recent call last):", b"[rank3]:     main()",
    b"[rank3]: KeyError: 'input_ids'", b"OSError: [Errno 28] No space left on device: '/x'", b"\xff\xfe\x00",
    b"[Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600) "
    b"ran for 600 milliseconds before timing out.",
)  # fmt: skip


@given(FRAGMENTS, st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_both_engines_find_the_same(fragments: list[bytes], parts: list[bytes], data: st.DataObject) -> None:
    planted = data.draw(st.lists(st.sampled_from(fragments), max_size=6))
    piece = b"".join(part + plant for part, plant in zip(parts, [*planted, *[b""] * len(parts)], strict=False))
    fast, plain = build_finder(fragments), build_finder(fragments, plain=True)
    assert fast.find(piece) == plain.find(piece)
    assert (fast.find_first(piece) is None) == (plain.find_first(piece) is None)


@given(st.lists(st.sampled_from(LINES), max_size=40), st.sampled_from([b"\n", b"\r\n"]), st.integers(16, 400))
def test_pieces_hold_every_line_once(lines: list[bytes], end: bytes, size: int) -> None:
    data = b"".join(line + end for line in lines)
    found = list(read_pieces(io.BytesIO(data), max_bytes=size))
    assert b"".join(piece.data for piece in found) == data
    assert all(piece.data.endswith((b"\n", b"\r")) for piece in found if piece.data and not piece.is_last)


@pytest.mark.parametrize("size", [200, 333, 4096, 1 << 20])
def test_signs_do_not_depend_on_where_a_log_is_cut(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rank3.log"
    path.write_bytes(b"".join(line + b"\n" for line in LINES * 20))
    whole = read_logs([LogFile(path=path)], processes=1)
    monkeypatch.setattr(scanning, "read_limited_pieces", lambda stream, _: read_pieces(stream, max_bytes=size))
    cut = read_logs([LogFile(path=path)], processes=1)
    assert {(s.signature, s.line) for s in cut.findings if not s.fields.get("type")} == {
        (s.signature, s.line) for s in whole.findings if not s.fields.get("type")
    }


@pytest.mark.parametrize("processes", [1, 2])
def test_signs_do_not_depend_on_how_many_read(processes: int, tmp_path: Path) -> None:
    logs = []
    for rank in range(4):
        path = tmp_path / f"rank{rank}.log"
        path.write_bytes(b"\n".join(LINES) + b"\n")
        logs.append(LogFile(path=path))
    found = read_logs(logs, processes=processes)
    assert len(found.ranks) == 4
    assert sorted(s.signature for s in found.findings) == sorted(
        s.signature for s in read_logs(logs, processes=1).findings
    )
