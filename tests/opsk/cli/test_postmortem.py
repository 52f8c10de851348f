"""What does ``opsk postmortem --log`` print, answer and exit with?"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click import ClickException
from click.testing import CliRunner

from opsk.app.postmortem import build_postmortem_document
from opsk.cli.main import opsk
from opsk.errors import ExitStatus, OpskError
from opsk.postmortem.values import Evidence, Finding, Origin, Report, Role

HUNG = (
    "[rank{rank}]:[E822 15:25:1{second}.408271257 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for "
    "600060 milliseconds before timing out.\n"
)
"""PyTorch's line; the last rank of four says nothing of the kind, so it is the one that the others waited for."""


@pytest.fixture
def logs(tmp_path: Path) -> list[Path]:
    paths = []
    for rank in range(4):
        path = tmp_path / f"train_4711_{rank}.out"
        path.write_text(f"rank {rank} is ready\n" + (HUNG.format(rank=rank, second=rank) if rank < 3 else ""))
        paths.append(path)
    return paths


def asked(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(opsk, ["postmortem", *map(str, words)], standalone_mode=False)
    if isinstance(done.exception, OpskError | ClickException):
        return ExitStatus.USAGE, done.exception.message
    assert done.exception is None, done.exception
    return int(done.return_value), done.stdout


def of(logs: list[Path]) -> list[object]:
    return [word for log in logs for word in ("--log", log)]


def test_a_hang_names_the_rank_that_did_not_come(logs: list[Path]) -> None:
    status, said = asked(*of(logs), "--json")
    document = json.loads(said)
    assert status == 1
    assert document["root_cause"]["class"] == "collective_hang"
    assert document["root_cause"]["place"]["rank"] == 3
    assert "rank 3" in document["root_cause"]["where"]
    waited = [row for row in document["evidence"] if row["kind"] == "nccl_watchdog"]
    assert sorted((row["rank"], row["seq"], row["op"]) for row in waited) == [(r, 1580, "ALLREDUCE") for r in range(3)]
    assert document["missing"]
    assert document["timeline"]


def test_the_contract_keys_are_there(logs: list[Path]) -> None:
    document = json.loads(asked(*of(logs), "--json")[1])
    assert {"state", "root_cause", "timeline", "evidence", "missing", "actions"} <= set(document)
    assert {"class", "what", "where", "confidence"} <= set(document["root_cause"])


def test_people_get_cause_place_and_what_is_missing(logs: list[Path]) -> None:
    status, said = asked(*of(logs))
    assert status == 1
    lines = said.splitlines()
    assert lines[1].startswith("cause   collective_hang, ")
    assert lines[2].startswith("where   rank 3")
    assert "missing" in lines
    assert "do" in lines


def test_a_job_that_ended_well_has_no_cause(tmp_path: Path) -> None:
    log = tmp_path / "fine.out"
    log.write_text("{'train_runtime': 12.0, 'train_samples_per_second': 10.2, 'train_loss': 2.1, 'epoch': 1.0}\n")
    status, said = asked("--log", log)
    assert status == 0
    assert "nothing failed" in said


def test_text_of_a_log_drives_no_terminal(tmp_path: Path) -> None:
    log = tmp_path / "hostile.out"
    log.write_bytes(b"\x1b]0;taken\x07 CUDA out of memory. Tried to allocate \x1b[2J 2.00 GiB \xe2\x80\xae\n")
    status, said = asked("--log", log)
    assert status == 1
    assert "\x1b" not in said
    assert "\u202e" not in said


def test_reports_are_written_beside(logs: list[Path], tmp_path: Path) -> None:
    asked(*of(logs), "--html", tmp_path / "r.html", "--md", tmp_path / "r.md")
    assert "<svg" in (tmp_path / "r.html").read_text()
    assert (tmp_path / "r.md").read_text().startswith("# Job")


def test_logs_that_cannot_be_read_are_named_and_the_others_are_read(logs: list[Path], tmp_path: Path) -> None:
    status, said = asked(*of(logs), "--log", tmp_path / "gone.out")
    assert status == 1
    assert "gone.out: not there" in said


def test_nothing_to_read_is_an_error_in_one_line(tmp_path: Path) -> None:
    status, said = asked("--log", tmp_path / "gone.out")
    assert status == 2
    assert "Traceback" not in said


@pytest.mark.parametrize("kind", ["empty", "zeros", "no text", "a folder", "no regular file"])
def test_what_is_no_log_is_said_in_a_line(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    match kind:
        case "a folder":
            path.mkdir()
        case "no regular file":
            os.mkfifo(path)
        case _:
            path.write_bytes({"empty": b"", "zeros": b"\0" * 4096, "no text": bytes(range(256)) * 64}[kind])
    status, said = asked("--log", path)
    assert status == 2
    assert said.startswith(f"{path}: ")
    assert "\n" not in said.strip()


def test_without_job_and_logs_it_says_what_to_name() -> None:
    status, said = asked()
    assert status == 2
    assert "--log" in said


def test_of_too_much_evidence_what_the_kernel_says_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = tuple(Finding(signature="x.y", role=Role.CASCADE, origin=Origin.JOB_LOG, order=at) for at in range(9))
    xid = Finding(signature="kernel.xid", role=Role.ROOT, origin=Origin.KERNEL, fields={"code": "79"})
    monkeypatch.setattr("opsk.app.postmortem.MAX_EVIDENCE", 3)
    document = build_postmortem_document(Report(state="failed", evidence=Evidence(findings=(*waits, xid))))
    assert [row["kind"] for row in document["evidence"]] == ["x.y", "x.y", "xid"]
    assert document["evidence_left_out"] == 7


def test_all_logs_that_a_shell_lists_behind_log_are_read(logs: list[Path]) -> None:
    """``--log *.out``: the contract's ``--log FILE...``."""
    one = CliRunner().invoke(opsk, ["postmortem", "--json", "--log", *map(str, logs)], standalone_mode=False)
    each = [word for log in logs for word in ("--log", str(log))]
    other = CliRunner().invoke(opsk, ["postmortem", "--json", *each], standalone_mode=False)
    assert json.loads(one.stdout) == json.loads(other.stdout)
    assert len(json.loads(one.stdout)["ranks"]) == 4


def test_a_log_without_its_option_is_no_job(logs: list[Path]) -> None:
    answer = CliRunner().invoke(opsk, ["postmortem", "--json", str(logs[0])], standalone_mode=False)
    document = json.loads(answer.stdout)
    assert (document["job"], document["unreadable"]) == (None, [])


def test_two_jobs_at_once_are_an_error_in_words() -> None:
    answer = CliRunner().invoke(opsk, ["postmortem", "4711", "4712"])
    assert answer.exit_code == ExitStatus.USAGE
    assert "name one job" in answer.output
