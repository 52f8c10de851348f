"""Is a socket taken over from systemd, and is systemd told what it wants to know?"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from opsk.config import AdvisorConfig
from opsk.errors import ConfigError
from opsk_jobcheck.service.connections import listen, notify, read_peer, submit_uids


def test_a_socket_passed_by_systemd_is_used(socket_directory: Path) -> None:
    """Source: sd_listen_fds(3): the first passed socket is descriptor 3, LISTEN_PID names who it is for."""
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(socket_directory / "s"))
    made.listen()
    code = (
        "import os, sys; os.dup2(int(sys.argv[1]), 3)\n"
        "from opsk.config import AdvisorConfig\n"
        "from opsk_jobcheck.service.connections import listen\n"
        "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1')\n"
        "listener = listen(AdvisorConfig(socket='/nonexistent/s'), os.environ)\n"
        "print(listener.socket.getsockname(), listener.path); listener.release()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(made.fileno())],
        pass_fds=[made.fileno()],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == f"{socket_directory}/s None"
    assert (socket_directory / "s").exists()


def test_a_socket_for_another_process_is_not_touched(socket_directory: Path) -> None:
    config = AdvisorConfig(socket=socket_directory / "s")
    listener = listen(config, {"LISTEN_PID": "1", "LISTEN_FDS": "1"})
    assert listener.path == socket_directory / "s"
    listener.release()
    assert not (socket_directory / "s").exists()


def test_releasing_leaves_the_socket_of_a_successor(socket_directory: Path) -> None:
    path = socket_directory / "s"
    first = listen(AdvisorConfig(socket=path), {})
    path.unlink()
    second = listen(AdvisorConfig(socket=path), {})
    first.release()
    assert path.exists()
    second.release()


@pytest.mark.parametrize("path", ["/nonexistent/directory/s", "/proc/s", "x" * 200])
def test_a_path_that_cannot_be_used_is_named(path: str) -> None:
    with pytest.raises(ConfigError, match=path[:20]) as caught:
        listen(AdvisorConfig(socket=Path(path)), {})
    assert caught.value.hint


def test_no_draft_is_left_behind(socket_directory: Path) -> None:
    listener = listen(AdvisorConfig(socket=socket_directory / "s"), {})
    assert [path.name for path in socket_directory.iterdir()] == ["s"]
    listener.release()


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_notified(socket_directory: Path, abstract: bool) -> None:
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    name = f"@opsk-test-{os.getpid()}" if abstract else str(socket_directory / "n")
    receiver.bind(name.replace("@", "\0"))
    notify("READY=1", {"NOTIFY_SOCKET": name})
    assert receiver.recv(100) == b"READY=1"
    receiver.close()


def test_without_systemd_notifying_does_nothing() -> None:
    notify("READY=1", {})
    notify("READY=1", {"NOTIFY_SOCKET": "/nonexistent/n"})


def test_a_peer_is_known_by_the_kernel() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    assert (read_peer(one).uid, read_peer(one).pid) == (os.getuid(), os.getpid())
    one.close()
    other.close()


def test_users_that_do_not_exist_may_ask_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert submit_uids(AdvisorConfig()) >= {os.geteuid()}
    assert not caplog.messages  # "slurm" is a default, and need not exist
    assert submit_uids(AdvisorConfig(submit_users=("no-such-user-here",))) == {os.geteuid()}
    assert "no-such-user-here" in caplog.text
    assert submit_uids(AdvisorConfig(submit_users=("root",))) == {0, os.geteuid()}
