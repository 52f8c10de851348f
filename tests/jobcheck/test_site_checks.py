"""What does `opsk doctor` make of an advisor that is slow, of another version, or none, and of the breaker's log?"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from opsk import __version__
from opsk.app.doctor.finding import Finding, Level
from opsk_jobcheck.cluster_state.state_header import HEAD, MAGIC
from opsk_jobcheck.service.hooks import HOOKS, read_hook
from opsk_jobcheck.site_checks import (
    check_answers,
    check_socket_modes,
    check_watcher,
    interpret_breaker,
    ping,
    read_plugins,
)
from tests.fakes.bad_servers import Server, framed, read_question

DEADLINE_S = 0.020
LINE = "[2026-01-02T03:04:05.678] lua: opsk: the advisor gives no answer (timeout): not asked for 20 s"
AT_S = datetime(2026, 1, 2, 3, 4, 5, 678000).astimezone(UTC).timestamp()


def saying(body: bytes, after_s: float = 0.0) -> Callable[[socket.socket], None]:
    def treat(connection: socket.socket) -> None:
        while read_question(connection):
            time.sleep(after_s)
            connection.sendall(body)

    return treat


def pong(**more: str) -> bytes:
    return framed(json.dumps({"v": 1, "status": "pong", "release": __version__, **more}).encode())


def found(path: Path) -> tuple[Level, str]:
    (finding,) = check_answers(path, DEADLINE_S)
    return finding.level, finding.check


def test_one_that_answers_at_once_is_sound(tmp_path: Path) -> None:
    Server(tmp_path / "s", saying(pong()))
    (finding,) = check_answers(tmp_path / "s", 0.5)
    assert (finding.level, finding.check) == (Level.SOUND, "advisor")


def test_one_that_takes_more_than_half_of_the_hooks_deadline_is_slow(tmp_path: Path) -> None:
    Server(tmp_path / "s", saying(pong(), after_s=0.05))
    assert found(tmp_path / "s") == (Level.WRONG, "advisor-slow")


@pytest.mark.parametrize("release", ["0.0.9", ""])
def test_one_of_another_release(tmp_path: Path, release: str) -> None:
    Server(tmp_path / "s", saying(pong(release=release)))
    assert next(finding.check for finding in check_answers(tmp_path / "s", 0.5)) == "advisor-version"


@pytest.mark.parametrize(
    "body",
    [
        b'{"v":1,"status":"error","error":"version not known, this advisor speaks 2"}',
        b'{"v":2,"status":"pong"}', b"[]", b"null", b"no JSON", b"[" * 5000, b'{"v":1}',
    ],
)  # fmt: skip
def test_one_that_speaks_otherwise(tmp_path: Path, body: bytes) -> None:
    Server(tmp_path / "s", saying(framed(body)))
    assert found(tmp_path / "s") == (Level.WRONG, "advisor-version")


def test_one_that_hangs_or_hangs_up(tmp_path: Path) -> None:
    Server(tmp_path / "hangs", lambda connection: time.sleep(5))
    assert ping(tmp_path / "hangs", deadline_s=0.1).problem == "accepts connections but gives no answer within 0.1 s"
    Server(tmp_path / "ends", lambda connection: connection.close())
    assert ping(tmp_path / "ends").problem
    assert ping(tmp_path / "nobody").problem == "does not answer: No such file or directory"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "left"))
    assert ping(tmp_path / "left").problem == "does not run: its socket exists, but no process listens"


@pytest.mark.parametrize(
    ("later_s", "level", "words"),
    [(5, Level.WRONG, "asks nothing for 20 s: timeout"), (600, Level.NOTE, "was open 10 min ago"),
     (7200, Level.SOUND, "last open 2 h ago")],
)  # fmt: skip
def test_the_breaker_is_open_as_long_as_its_pause(later_s: float, level: Level, words: str) -> None:
    said = interpret_breaker(LINE, "timeout", 20, Path("/var/log/slurmctld.log"), AT_S + later_s)
    assert said.level is level
    assert words in said.what


def test_a_log_without_times_and_a_missing_lua_socket() -> None:
    line = "Jan  2 03:04:05 opsk: the advisor gives no answer (lua-socket is not installed): not asked for 5 s"
    said = interpret_breaker(line, "lua-socket is not installed", 5, Path("/log"), AT_S)
    assert said.level is Level.NOTE
    said = interpret_breaker(LINE, "lua-socket is not installed", 20, Path("/log"), AT_S + 1)
    assert "install lua-socket" in said.hint


def test_plugins_are_read_from_slurm_conf_and_what_it_includes(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        "include more.conf\n#CliFilterPlugins=none\njobsubmitplugins = all_partitions,job_submit/lua # ours\n"
    )
    (tmp_path / "more.conf").write_text("CliFilterPlugins=cli_filter/lua\nInclude slurm.conf\n")
    assert read_plugins(conf) == {"jobsubmitplugins": ("all_partitions", "lua"), "clifilterplugins": ("lua",)}
    assert read_plugins(tmp_path / "none") == {}


def checks(findings: object) -> list[str]:
    assert isinstance(findings, list)
    return [each.check for each in findings if isinstance(each, Finding)]


def test_modes_of_the_socket(tmp_path: Path) -> None:
    path = tmp_path / "run" / "s"
    path.parent.mkdir(mode=0o750)
    tmp_path.chmod(0o755)
    said = list(check_socket_modes(path, 0o140600, 0o666))
    assert {"socket-mode", "socket-folder"} == set(checks(said))
    assert any(str(path.parent) in each.hint for each in said)
    assert list(check_socket_modes(path, 0o140660, 0o660)) == [], (
        "a group's socket may lie behind a folder of the group's"
    )


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_is_told_from_a_sites_own_script_by_its_head(name: str) -> None:
    assert "of opsk:" in read_hook(name)[:200]


def test_what_the_watcher_handed_over_gets_old(tmp_path: Path) -> None:
    assert check_watcher(tmp_path / "none").level is Level.WRONG
    assert "written no state" in check_watcher(tmp_path).what
    (tmp_path / "current").symlink_to("state-1-1")
    for age_s, level in ((5.0, Level.SOUND), (600.0, Level.WRONG)):
        (tmp_path / "state-1-1").unlink(missing_ok=True)
        (tmp_path / "state-1-1").write_bytes(HEAD.pack(MAGIC, time.monotonic() - age_s, 0))
        assert check_watcher(tmp_path).level is level
