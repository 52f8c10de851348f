"""How does the advisor start, take over a new configuration, keep its audit log, and end?"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import stat
import sys
import time
from pathlib import Path

import pytest
from psutil import Process

from opsk_jobcheck.service import service
from tests.fakes.advisor_process import FAKE_ADVISOR, RunningAdvisor, config_text, eventually, start_advisor
from tests.fakes.warm_opsk import WarmProcess, warm

GPUS = '{"gpus-per-node":"8","nodes":"2"}'
JOB = {"tres_per_node": "gres/gpu:8", "min_nodes": 2}
UID = os.getuid()


def script(*orders: str) -> str:
    """Return a script of its own that orders something of the stand-in for the analysis."""
    return f"#!/bin/bash\n# {random.random()}\n" + "".join(f"FAKE {order}\n" for order in orders) + "torchrun x.py\n"


def test_what_was_asked_and_answered_is_audited(own_advisor: RunningAdvisor) -> None:
    text = script() + "export TOKEN=hush\n"
    with own_advisor.client() as client:
        client.ask(kind="advise", script=text, options_json=GPUS, argv=["train.sh"])
        client.ask(kind="submit", uid=77, script=text, job=JOB)
        client.ask(kind="submit", uid=77, script=text, job=JOB)
        client.send_bytes(b"\x00\x00\x00\x02[]")
        client.receive()
    records = own_advisor.records_when(lambda found: len(found) == 4)
    first, second, third, fourth = records
    assert first["kind"] == "advise"
    assert first["uid"] == UID
    assert first["status"] == "advice"
    assert first["verdict"] == "fits"
    assert first["request"] == {"nodes": 2, "gpus_per_node": 8}
    assert first["script_chars"] == len(text)
    assert len(first["script_sha256"]) == 64
    assert first["took_ms"] > 0
    assert second["for_uid"] == 77
    assert [second["stored"], third["stored"]] == [False, True]
    assert fourth["refused"] == "not a JSON object"
    assert "hush" not in own_advisor.audit.read_text()


def test_that_advice_was_shown_is_written_down(own_advisor: RunningAdvisor) -> None:
    with own_advisor.client() as client:
        client.ask(kind="advise", script=script(), options_json=GPUS)
    (shown,) = [
        record for record in eventually(own_advisor.written, lambda found: len(found) == 2) if "status" not in record
    ]
    assert (shown["kind"], shown["uid"]) == ("shown", os.getuid())


def test_the_audit_log_is_private(own_advisor: RunningAdvisor) -> None:
    assert stat.S_IMODE(own_advisor.audit.stat().st_mode) == 0o640


def test_a_rotated_audit_log_is_opened_anew_on_sighup(own_advisor: RunningAdvisor) -> None:
    own_advisor.audit.rename(own_advisor.directory / "audit.1")
    own_advisor.process.send_signal(signal.SIGHUP)
    eventually(own_advisor.audit.exists, bool)
    with own_advisor.client() as client:
        client.ask(kind="advise", script=script(), options_json=GPUS)
    (record,) = own_advisor.records_when(lambda found: len(found) == 1)
    assert record["kind"] == "advise"


def test_sighup_takes_over_a_new_configuration(own_advisor: RunningAdvisor) -> None:
    text = script()

    def line() -> str:
        with own_advisor.client() as client:
            return str(client.ask(kind="advise", script=text, options_json=GPUS)["lines"][1])

    assert line() == "memory fits 2 nodes on lab"
    own_advisor.config.write_text(config_text(own_advisor.directory, cluster="titan"))
    own_advisor.process.send_signal(signal.SIGHUP)
    eventually(line, lambda said: said == "memory fits 2 nodes on titan")


@pytest.mark.parametrize("broken", ["cluster = [", 'cluster = "missing"\n', "advisor = 7\n"])
def test_a_broken_configuration_changes_nothing(own_advisor: RunningAdvisor, broken: str) -> None:
    own_advisor.config.write_text(broken)
    own_advisor.process.send_signal(signal.SIGHUP)
    for _ in range(3):
        with own_advisor.client() as client:
            answer = client.ask(kind="advise", script=script(), options_json=GPUS)
        assert answer["lines"][1] == "memory fits 2 nodes on lab"
        time.sleep(0.2)
    assert own_advisor.process.poll() is None


def test_it_ends_cleanly_and_leaves_nothing(own_advisor: RunningAdvisor) -> None:
    started = processes(own_advisor)
    assert len(started) == 3
    assert own_advisor.stop() == 0
    assert not own_advisor.socket.exists()
    eventually(lambda: [pid for pid in started if Path(f"/proc/{pid}").exists()], lambda left: left == [])


def test_it_ends_at_once_though_it_is_just_reloading(own_advisor: RunningAdvisor) -> None:
    own_advisor.process.send_signal(signal.SIGHUP)
    assert own_advisor.stop() == 0
    assert not own_advisor.socket.exists()


def test_killed_it_leaves_no_worker(own_advisor: RunningAdvisor) -> None:
    workers = processes(own_advisor)
    own_advisor.process.kill()
    own_advisor.process.wait()
    eventually(lambda: [pid for pid in workers if Path(f"/proc/{pid}").exists()], lambda left: left == [])


def processes(advisor: RunningAdvisor) -> set[int]:
    """Return the processes of an advisor: here these are the fork server and its workers."""
    return {child.pid for child in Process(advisor.process.pid).children(recursive=True)}


@pytest.mark.parametrize("which", ["all", "the fork server", "workers"])
def test_processes_that_died_idle_cost_no_answer(own_advisor: RunningAdvisor, which: str) -> None:
    """They are replaced before anything is asked of them."""
    before = processes(own_advisor)
    (server,) = (child.pid for child in Process(own_advisor.process.pid).children())
    killed = {"all": before, "the fork server": {server}, "workers": before - {server}}[which]
    gone = killed if which == "workers" else before  # without the fork server nobody could end a worker
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: processes(own_advisor), lambda now: len(now) == len(before) and not now & gone)
    with own_advisor.client() as client:
        answer = client.ask(kind="advise", script=script(), options_json=GPUS)
    assert answer["status"] == "advice"


def test_a_long_script_reaches_its_worker_whole(advisor: RunningAdvisor) -> None:
    """More than a socket holds at once, both ways round."""
    text = script("want /a /b") + "# x\n" * 200_000
    files = {"/a": "y" * 250_000, "/b": "z" * 250_000}
    with advisor.client() as client:
        answer = client.ask(kind="advise", script=text, options_json=GPUS, files=files)
    assert "file /a 250000" in answer["lines"]


def test_a_left_over_socket_is_replaced(own_advisor: RunningAdvisor) -> None:
    own_advisor.process.kill()
    own_advisor.process.wait()
    assert own_advisor.socket.exists()
    second = start_advisor_again(own_advisor)
    with second.client() as client:
        assert client.ask(kind="ping")["status"] == "pong"
    second.stop()


def start_advisor_again(advisor: RunningAdvisor) -> RunningAdvisor:
    """Start another advisor in the same directory, and wait until it listens."""
    before = advisor.socket.lstat().st_ino
    process = WarmProcess(FAKE_ADVISOR, [str(advisor.config)], environment=os.environ)
    second = RunningAdvisor(advisor.directory, process)
    eventually(lambda: advisor.socket.lstat().st_ino, lambda inode: inode != before, within_s=60)
    return second


def failed_start(directory: Path, config: str) -> str:
    """Start an advisor that should refuse to start, and return what it says."""
    (directory / "opsk.toml").write_text(config)
    words = [str(directory / "opsk.toml")]
    done = warm().run(words, environment=os.environ, timeout_s=60, program=FAKE_ADVISOR)
    assert done.returncode != 0
    return done.stderr


def test_a_second_advisor_on_the_same_socket_refuses_to_start(advisor: RunningAdvisor, tmp_path: Path) -> None:
    config = config_text(tmp_path).replace(f'socket = "{tmp_path}', f'socket = "{advisor.directory}')
    assert "another advisor answers there" in failed_start(tmp_path, config)
    with advisor.client() as client:
        assert client.ask(kind="ping")["status"] == "pong"


def test_a_file_in_the_way_is_not_removed(socket_directory: Path) -> None:
    (socket_directory / "advisor.sock").write_text("precious")
    assert "is not a socket" in failed_start(socket_directory, config_text(socket_directory))
    assert (socket_directory / "advisor.sock").read_text() == "precious"


def test_a_cluster_that_cannot_be_read_is_said_at_the_start(socket_directory: Path) -> None:
    assert "no such cluster" in failed_start(socket_directory, config_text(socket_directory, cluster="missing"))


@pytest.mark.parametrize("mode", [0o660, 0o666])
def test_the_socket_has_its_configured_mode(socket_directory: Path, mode: int) -> None:
    config = config_text(socket_directory) + f"socket_mode = 0o{mode:o}\n"
    running = start_advisor(socket_directory, text=config)
    assert stat.S_IMODE(running.socket.stat().st_mode) == mode
    running.stop()


def test_the_loop_in_c_is_taken_where_it_is_installed_and_python_s_own_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = service._event_loop()()
    loop.close()
    assert type(loop).__module__ == "uvloop"
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert service._event_loop() is asyncio.new_event_loop
