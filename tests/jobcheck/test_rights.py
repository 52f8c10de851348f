"""Whose rights count: who may connect, who may ask for whom, and what is opened with them."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opsk.errors import InputError
from opsk_jobcheck.named_files import read_regular
from tests.fakes.advisor_process import RunningAdvisor, config_text, eventually, start_advisor

SCRIPT = "#!/bin/bash\ntorchrun x.py\n"
GPUS = '{"gpus-per-node":"8","nodes":"2"}'
JOB = {"tres_per_node": "gres/gpu:8", "min_nodes": 2}
NOBODY = pwd.getpwnam("nobody")
AS_NOBODY = """
import json, os, socket, sys
path, group, question = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
os.setgroups([group] if group >= 0 else [])
os.setgid(int(sys.argv[4]))
os.setuid(int(sys.argv[5]))
peer = socket.socket(socket.AF_UNIX)
peer.settimeout(20)
try:
    peer.connect(path)
except OSError as error:
    print(json.dumps({"refused": type(error).__name__}))
    raise SystemExit
body = json.dumps({"v": 1, **question}).encode()
peer.sendall(len(body).to_bytes(4, "big") + body)
size = int.from_bytes(peer.recv(4, socket.MSG_WAITALL), "big")
print(peer.recv(size, socket.MSG_WAITALL).decode())
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may ask as another user")


def as_nobody(advisor: RunningAdvisor, *, group: int = -1, **question: Any) -> dict[str, Any]:
    """Ask as a user who is neither root nor anybody that the advisor knows."""
    ids = [str(NOBODY.pw_gid), str(NOBODY.pw_uid)]
    row = [sys.executable, "-I", "-c", AS_NOBODY, str(advisor.socket), str(group), json.dumps(question), *ids]
    done = subprocess.run(row, capture_output=True, text=True, check=True, timeout=60)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def running(directory: Path, mode: int) -> RunningAdvisor:
    """Start an advisor whose socket others can reach, if its mode lets them."""
    return start_advisor(directory, text=config_text(directory) + f"socket_mode = 0o{mode:o}\n")


@needs_root
def test_everybody_may_ask_on_an_open_socket(passable_path: Path) -> None:
    advisor = running(passable_path, 0o666)
    assert as_nobody(advisor, kind="ping")["status"] == "pong"
    advisor.stop()


@needs_root
def test_only_its_group_may_ask_on_a_closed_socket(passable_path: Path) -> None:
    advisor = running(passable_path, 0o660)
    assert as_nobody(advisor, kind="ping") == {"refused": "PermissionError"}
    assert as_nobody(advisor, kind="ping", group=advisor.socket.stat().st_gid)["status"] == "pong"
    advisor.stop()


@needs_root
def test_nobody_asks_for_others_whatever_he_claims_to_be(passable_path: Path) -> None:
    """The uid in a question is the submitting user's; who asks is what the kernel says."""
    advisor = running(passable_path, 0o666)
    for uid in (0, NOBODY.pw_uid):
        answer = as_nobody(advisor, kind="submit", uid=uid, script=SCRIPT, job=JOB)
        assert answer == {"v": 1, "status": "error", "error": "not allowed to ask for others"}
    records = advisor.records_when(lambda found: len(found) == 2)
    assert [(entry["uid"], entry.get("for_uid")) for entry in records] == [(NOBODY.pw_uid, None)] * 2
    assert advisor.analyses == 0
    advisor.stop()


@needs_root
def test_what_one_user_was_told_is_no_answer_for_another(passable_path: Path) -> None:
    """Else one could learn whether others have submitted a script, or have it marked as shown for them."""
    advisor = running(passable_path, 0o666)
    with advisor.client() as client:
        client.ask(kind="advise", script=SCRIPT, options_json=GPUS)
    as_nobody(advisor, kind="advise", script=SCRIPT, options_json=GPUS, uid=0)
    eventually(lambda: advisor.analyses, lambda count: count == 2)
    stored = [entry.get("stored") for entry in advisor.records_when(lambda found: len(found) == 2)]
    assert True not in stored
    advisor.stop()


@pytest.mark.parametrize("kind", ["fifo", "link to a fifo", "device", "folder"])
def test_what_is_no_regular_file_is_not_even_opened(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening alone starts a watchdog, winds back a tape, and lets whoever writes into a FIFO go on."""
    path = {"device": Path("/dev/null"), "folder": tmp_path}.get(kind, tmp_path / "named")
    if "fifo" in kind:
        os.mkfifo(tmp_path / "fifo")
        path.symlink_to(tmp_path / "fifo")
    opened: list[object] = []
    monkeypatch.setattr(os, "open", lambda *arguments, **_: opened.append(arguments))
    with pytest.raises(InputError, match="not a regular file"):
        read_regular(path, limit_bytes=100)
    assert not opened
