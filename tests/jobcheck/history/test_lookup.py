"""Does the advisor find a user's own runs, in what the store has, and nobody else's?"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from opsk.config import AdvisorConfig, SiteConfig
from opsk.history.submission import read_submission
from opsk.store.records.use import JobUsed
from opsk.units import GIB
from opsk_jobcheck.advice.site_errors_file import FOLDER_VARIABLE
from opsk_jobcheck.history.gpu_memory import list_gpu_memory
from opsk_jobcheck.history.index_file import FILE_NAME, IndexFile, build_account_key, build_key, write_index
from opsk_jobcheck.history.program_history import (
    HistoryFile,
    ProgramHistory,
    Recognised,
    build_record,
    count_gpus,
    name_job,
)
from opsk_jobcheck.history.publisher import Publisher, RunIndex
from opsk_jobcheck.service.answering import Answerer
from opsk_jobcheck.service.session import NoSideServices, Peer, Session
from opsk_jobcheck.submission.protocol import AdviseQuestion, Answer
from opsk_jobcheck.submission.request import SlurmRequest, parse_advise_request
from opsk_jobcheck.workers.analysis import Analysis

NOW = datetime(2026, 5, 1, tzinfo=UTC)
SCRIPT = "#!/bin/sh\nsrun ./foldit --batch 8\n"
SUBMISSION = read_submission(SCRIPT, gpu_type="a100", gpus=4)
OPTIONS = '{"gpus-per-node":"a100:4","nodes":"1","job-name":"fold"}'
QUESTION = AdviseQuestion(kind="advise", script=SCRIPT, script_name="run.sh", options_json=OPTIONS)
USED = JobUsed(
    cluster="lab", job="7", submitted_at=NOW, at=NOW, uid=1000, script_key=SUBMISSION.script_key,
    command_key=SUBMISSION.command_key, settings={"--batch": "8"}, gpu_type="h100", gpus=4, started_at=NOW,
    ended_at=NOW + timedelta(hours=1), state="COMPLETED", observed_s=3600.0, capacity_bytes=80 * GIB,
    memory_peak_bytes=52.1 * GIB, activity=0.9, idle_gpus=0,
)  # fmt: skip


def publish(folder: Path, *rows: JobUsed) -> HistoryFile:
    known = {"a100": 39.4 * GIB}
    index = RunIndex(runs=3, days=30)
    Publisher(path=folder / FILE_NAME, index=index, read=lambda since: list(rows), known_capacities=known).publish(NOW)
    return HistoryFile(folder / FILE_NAME)


def test_a_user_gets_the_history_of_their_own_runs_alone(tmp_path: Path) -> None:
    file = publish(tmp_path, USED)
    history = file.find(1000, SUBMISSION, None)
    assert history is not None
    assert history.findings[0].text.endswith("peaked at 52.1 GiB a GPU on H100: will not fit into A100 (39.4 GiB)")
    assert file.find(1001, SUBMISSION, None) is None
    assert file.find(1000, read_submission("./dockit", gpus=4), None) is None


def test_coordinators_of_an_account_get_its_runs_and_others_do_not(tmp_path: Path) -> None:
    row = replace(USED, account="physics")
    known: dict[int, tuple[str, ...]] = {1001: ("astro", "physics"), 1002: ("astro",)}
    index = RunIndex(runs=3, days=30)
    publisher = Publisher(
        path=tmp_path / FILE_NAME, index=index, read=lambda since: [row], read_coordinators=lambda: dict(known)
    )
    publisher.publish(NOW)
    file = HistoryFile(tmp_path / FILE_NAME)
    history = file.find(1001, SUBMISSION, None)
    assert history is not None
    assert history.findings[0].text.startswith("last run of this script in account physics peaked at 52.1 GiB")
    assert file.find(1002, SUBMISSION, None) is None
    own = file.find(1000, SUBMISSION, None)
    assert own is not None
    assert own.findings[0].text.startswith("your last run of this script peaked")
    del known[1001]
    publisher.publish(NOW)
    assert HistoryFile(tmp_path / FILE_NAME).find(1001, SUBMISSION, None) is None
    # nobody coordinates physics any more: its keys are not even in the file
    index_file = IndexFile(tmp_path / FILE_NAME)
    assert index_file.find(build_account_key("physics", "script", SUBMISSION.script_key)) is None


def test_an_edited_script_is_found_by_its_command(tmp_path: Path) -> None:
    edited = read_submission(SCRIPT.replace("--batch 8", "--batch 8 --tf32"), gpus=4)
    history = publish(tmp_path, USED).find(1000, edited, None)
    assert history is not None
    assert "of srun foldit peaked" in history.findings[0].text


def test_runs_that_go_on_are_old_or_many_do_not_count(tmp_path: Path) -> None:
    rows = [replace(USED, job=str(number)) for number in range(5)]
    history = publish(tmp_path, *rows).find(1000, SUBMISSION, None)
    assert history is not None
    assert {run.job for run in history.runs} == {"2", "3", "4"}
    old = replace(USED, ended_at=NOW - timedelta(days=31))
    assert publish(tmp_path, replace(USED, ended_at=None), old).find(1000, SUBMISSION, None) is None


def test_the_file_is_read_again_when_it_was_replaced(tmp_path: Path) -> None:
    clock = [0.0]
    path = tmp_path / FILE_NAME
    file = HistoryFile(path, lambda: clock[0])
    assert file.find(1000, SUBMISSION, None) is None
    publish(tmp_path, USED)
    assert file.find(1000, SUBMISSION, None) is None
    clock[0] += 5
    assert file.find(1000, SUBMISSION, None) is not None


@pytest.mark.parametrize(
    "content", [b"", b"x", b"opsk history 1\n", b"opsk history 1\n\xff\xff\xff\xff\xff\xff\xff\xff"]
)
def test_a_broken_file_is_no_history(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    assert HistoryFile(tmp_path / FILE_NAME).find(1000, SUBMISSION, None) is None


def test_every_document_is_found_among_many(tmp_path: Path) -> None:
    documents = {build_key(uid, "script", "s"): str(uid).encode() for uid in range(500)}
    write_index(tmp_path / "x", documents, {})
    index = IndexFile(tmp_path / "x")
    assert all(index.find(key) == document for key, document in documents.items())
    assert index.find(build_key(500, "script", "s")) is None
    assert (tmp_path / "x").stat().st_mode & 0o077 == 0


def test_a_submission_is_recorded_without_the_text_of_its_script() -> None:
    request = parse_advise_request(QUESTION)
    recognised = Recognised(submission=SUBMISSION, job_name=name_job(QUESTION), history=None)
    assert (count_gpus(request), name_job(QUESTION)) == (4, "fold")
    assert build_record(1000, recognised) == {
        "kind": "submitted", "uid": 1000, "name": "fold", "script_key": SUBMISSION.script_key,
        "command_key": SUBMISSION.command_key, "command": "srun foldit", "settings": {"GPUs": "4", "--batch": "8"},
        "gpus": 4,
    }  # fmt: skip


def test_workers_get_the_folder_of_the_published_files_where_there_is_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    site = SiteConfig.model_validate({"store": {"url": "sqlite://"}})
    history = ProgramHistory(site)
    folder = Path(history.environment(site)[FOLDER_VARIABLE])
    assert folder.parent == tmp_path
    assert history.environment(SiteConfig()) == {}
    asyncio.run(history.close())
    assert not folder.exists()


def test_a_site_without_a_store_recognises_nothing() -> None:
    history = ProgramHistory(SiteConfig())
    history.start()
    assert history.recognise(1000, QUESTION, SlurmRequest()) is None


def test_memory_of_a_gpu_is_known_where_its_name_leaves_no_doubt() -> None:
    known = list_gpu_memory(None)
    assert known["h100sxm"] == pytest.approx(80 * GIB, rel=0.03)
    assert "a100" not in known  # of 40 or of 80 GB


class OneRun(NoSideServices):
    """An advisor whose users ran one job before."""

    def __init__(self, file: HistoryFile) -> None:
        self._file = file

    def recognise(self, uid: int, question: AdviseQuestion, request: SlurmRequest) -> Recognised | None:
        return Recognised(submission=SUBMISSION, job_name="fold", history=self._file.find(uid, SUBMISSION, None))


class SilentPool:
    """Knows no program."""

    def analyze(self, *_: object, then: object, **__: object) -> None:
        then(Analysis(silent=True), {})  # type: ignore[operator]


@pytest.mark.parametrize(("uid", "lines"), [(1000, 1), (1001, 0)])
def test_a_program_that_no_reader_knows_is_answered_with_its_history(tmp_path: Path, uid: int, lines: int) -> None:
    services = OneRun(publish(tmp_path, USED))
    answerer = Answerer(AdvisorConfig(), SilentPool(), frozenset(), side_services=services)  # type: ignore[arg-type]

    async def ask() -> Answer:
        answer = answerer.advise(QUESTION, Session(peer=Peer(pid=1, uid=uid, gid=7)))
        return answer if isinstance(answer, Answer) else await answer

    answer = asyncio.run(ask())
    assert (answer.status, len(answer.lines) > 0) == (("advice" if lines else "silent"), bool(lines))
    if lines:
        assert answer.lines[0].startswith("history  ! your last run of this script peaked at 52.1 GiB a GPU on H100")
