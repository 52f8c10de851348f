"""Does the exporter take the sockets that systemd hands over, and tell it how it is?"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from opsk.errors import UnavailableError
from opsk_exporters.core.systemd import notify, receive_sockets, watchdog_s

PATIENCE_S = 60.0
AS_SYSTEMD = """
import os, sys
for place, descriptor in enumerate(map(int, sys.argv[1].split(",")), 3):
    os.dup2(descriptor, place + 100)
    os.dup2(place + 100, place, inheritable=True)
os.environ["LISTEN_PID"] = str(os.getpid())
os.environ["LISTEN_FDS"] = str(len(sys.argv[1].split(",")))
os.execv(sys.executable, [sys.executable, "-m", "opsk", "exporter", *sys.argv[2:]])
"""


def test_nothing_is_handed_over_without_systemd_or_to_another_process() -> None:
    assert receive_sockets({}) == ()
    environment = {"LISTEN_PID": "1", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "x"}
    assert receive_sockets(environment) == ()
    # Nor is it left for children to mistake.
    assert environment == {}


def test_something_else_than_a_listening_socket_is_refused() -> None:
    code = (
        "import os, socket; from opsk_exporters.core.systemd import receive_sockets\n"
        "a, b = socket.socketpair(); os.dup2(a.fileno(), 3)\n"
        "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1'); receive_sockets()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert f"{UnavailableError.__name__}: systemd handed over descriptor 3" in done.stderr


@pytest.mark.parametrize(
    ("environment", "every_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "60000000"}, 30.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "x"}, None),
    ],
)
def test_signs_of_life_come_twice_as_often_as_systemd_wants(environment: dict[str, str], every_s: float | None) -> None:
    assert watchdog_s(environment) == every_s


def test_without_systemd_nobody_is_told() -> None:
    notify("READY=1", {})
    notify("READY=1", {"NOTIFY_SOCKET": "/no/such/socket"})


def test_it_serves_what_was_handed_over_and_says_that_it_is_ready_alive_and_gone(tmp_path: Path) -> None:
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    first, second = socket.socket(), socket.socket(socket.AF_UNIX)
    with told, first, second:
        told.bind(str(tmp_path / "notify"))
        told.settimeout(PATIENCE_S)
        first.bind(("127.0.0.1", 0))
        second.bind(str(tmp_path / "metrics"))
        for each in (first, second):
            each.listen(8)
        handed = [first.fileno(), second.fileno()]
        (tmp_path / "sys").mkdir()
        options = ["--collectors", "infiniband", "--sysfs", str(tmp_path / "sys")]
        command = [sys.executable, "-c", AS_SYSTEMD, ",".join(map(str, handed)), *options]
        environment = {
            **os.environ,
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "400000",
        }
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, pass_fds=handed) as running:
            try:
                assert told.recv(100) == b"READY=1"
                address = f"http://127.0.0.1:{first.getsockname()[1]}/metrics"
                with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
                    assert b"opsk_collector_success" in answer.read()
                assert b" 200 OK" in over_unix(tmp_path / "metrics")
                assert told.recv(100) == b"WATCHDOG=1"
            finally:
                running.terminate()
            said = b"WATCHDOG=1"
            while said == b"WATCHDOG=1":
                said = told.recv(100)
            assert said == b"STOPPING=1"
            assert running.wait(PATIENCE_S) == 0
            # The address is the socket's, whatever --listen would be.
            assert running.stderr is not None
            assert address in running.stderr.read()


def over_unix(path: Path) -> bytes:
    """Ask for health over a Unix socket, as an agent on the same node may."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE_S)
        client.connect(str(path))
        client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        return client.recv(4096)
