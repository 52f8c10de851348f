"""``opsk store`` from the outside, with a real SQLite file, and a server that is not there."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from opsk.cli.store import store
from opsk.store.database.engine import connect, open_store
from opsk.store.database.schema import list_revisions, newest_revision, upgrade
from opsk.store.records.jobs import find_jobs
from opsk.store.writing import DirectWriter
from tests.fakes.store_records import job, later, one_of_each
from tests.fakes.warm_opsk import warm

KINDS = ["clusters", "snapshots", "jobs", "advice", "measured", "submitted", "used", "failures", "remaps", "reports"]


def opsk(folder: Path, *arguments: str, give: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "XDG_STATE_HOME": str(folder / "state")}
    if (folder / "opsk.toml").exists():
        environment["OPSK_CONFIG"] = str(folder / "opsk.toml")
    return warm().run(["store", *arguments], cwd=folder, environment=environment, stdin=give or "", timeout_s=60.0)


def answer(folder: Path, *arguments: str, status: int = 0, give: str | None = None) -> dict[str, Any]:
    done = opsk(folder, *arguments, "--json", give=give)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def url_of(folder: Path) -> str:
    return f"sqlite:///{folder / 'state' / 'opsk' / 'opsk.db'}"


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    engine = open_store(url_of(tmp_path))
    DirectWriter(engine).write([*one_of_each(), job("\x1b[31mred", name="\u202eevil", ended_at=later(days=1))])
    engine.dispose()
    return tmp_path


def test_the_size_is_told(filled: Path) -> None:
    told = answer(filled, "size")
    assert told.keys() == {"store", "kinds", "total_bytes", "free_bytes"}
    assert [kind["kind"] for kind in told["kinds"]] == KINDS
    assert told["kinds"][2] == {
        "kind": "jobs", "records": 2, "first_at": "2026-03-01T12:00:00.123456+00:00",
        "last_at": "2026-03-01T12:00:00.123456+00:00",
    }  # fmt: skip
    assert "jobs                  2  2026-03-01" in opsk(filled, "size").stdout


def test_what_opsk_toml_says_is_removed_and_the_command_line_beats_it(filled: Path) -> None:
    kinds = {"jobs": 1, "advice": 0, "reports": 0, "measured": 0, "submitted": 0, "used": 0}
    days = "".join(f"{kind} = {number}\n" for kind, number in kinds.items())
    (filled / "opsk.toml").write_text(f"[store.retention_days]\n{days}")
    dry = answer(filled, "prune", "--dry-run", "--days", "measured=1")
    assert {kind["kind"]: kind["removed"] for kind in dry["kinds"] if kind["removed"]} == {"jobs": 2, "measured": 1}
    done = answer(filled, "prune", "--give-back", "--days", "measured=1")
    assert done["dry_run"] is False
    assert [(kind["removed"], kind["kept"]) for kind in done["kinds"]] == [
        (kind["removed"], kind["kept"]) for kind in dry["kinds"]
    ]
    assert "kept for ever" in opsk(filled, "prune").stdout


@pytest.mark.parametrize("given", ["jobs", "jobs=", "jobs=-1", "jobs=1.5", "jobs=999999", "nothing=1", "=", "\x1b=1"])
def test_days_that_are_none_are_refused(given: str) -> None:
    done = CliRunner().invoke(store, ["prune", "--days", given])
    assert done.exit_code == 2
    assert "--days" in done.output
    assert "\x1b" not in done.output


def test_an_export_is_lines_of_json_that_another_store_takes_in(filled: Path, tmp_path: Path) -> None:
    printed = opsk(filled, "export").stdout
    assert {json.loads(line)["kind"] for line in printed.splitlines()} >= {"job", "remap_step", "report"}
    assert opsk(filled, "export", "--output", "all.jsonl").returncode == 0
    assert (filled / "all.jsonl").read_text() == printed
    assert opsk(filled, "export", "--output", "all.jsonl").returncode == 2  # is there already
    other = tmp_path / "other"
    other.mkdir()
    count = len(printed.splitlines())
    assert answer(other, "import", "-", give=printed) == {"new": count, "known": 0}
    assert answer(other, "import", str(filled / "all.jsonl")) == {"new": 0, "known": count}
    assert opsk(other, "export").stdout == printed


def test_only_some_kinds_are_exported(filled: Path) -> None:
    lines = opsk(filled, "export", "--kind", "jobs", "--json").stdout.splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["job", "job"]


def test_lines_that_are_no_records_are_refused_with_their_number(tmp_path: Path) -> None:
    done = opsk(tmp_path, "import", "-", give='\n{"kind":"\\u001b[31m"}\n')
    assert done.returncode == 2
    assert "line 2: no record" in done.stderr
    assert "\x1b" not in done.stderr


def test_a_sound_store_is_said_to_be_and_one_that_is_not(filled: Path) -> None:
    told = answer(filled, "check")
    assert (told["sound"], told["records"], told["findings"]) == (True, len(one_of_each()) + 1, [])
    engine = connect(url_of(filled))
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE reports SET content = x'00'")
    told = answer(filled, "check", status=1)
    assert told["findings"][0].keys() == {"part", "what", "hint"}
    assert opsk(filled, "export").returncode == 1
    assert "left out: report 1" in opsk(filled, "export").stderr


def test_a_store_that_is_not_there_is_not_made_by_looking(tmp_path: Path) -> None:
    for word in ("size", "check", "export"):
        done = opsk(tmp_path, word)
        assert (done.returncode, "not there yet" in done.stderr) == (3, True)
    assert not (tmp_path / "state").exists()


def test_an_upgrade_makes_a_store_and_brings_up_an_old_one(tmp_path: Path) -> None:
    told = answer(tmp_path, "upgrade")
    assert (told["before"], told["now"]) == (None, newest_revision())
    assert "nothing to do" in opsk(tmp_path, "upgrade").stdout
    old = tmp_path / "old"
    old.mkdir()
    upgrade(connect(url_of(old)), list_revisions()[0])
    assert "opsk store upgrade" in opsk(old, "size").stderr
    assert answer(old, "upgrade")["before"] == list_revisions()[0]
    assert find_jobs(open_store(url_of(old), writing=False)) == []


def test_a_server_that_is_not_there_ends_with_3_and_without_a_password(tmp_path: Path) -> None:
    url = f"postgresql://opsk:s3cret@/opsk?host={tmp_path}"
    (tmp_path / "opsk.toml").write_text(f'[store]\nurl = "{url}"\n')
    for word in ("size", "check", "export", "prune", "upgrade"):
        done = opsk(tmp_path, word)
        assert done.returncode == 3, done.stderr
        assert "does not answer" in done.stderr
        assert "Traceback" not in done.stderr
        assert "s3cret" not in done.stdout + done.stderr


def test_a_url_of_the_wrong_form_is_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "opsk.toml").write_text('[store]\nurl = ["postgresql://opsk:s3cret@/opsk"]\n')
    done = opsk(tmp_path, "size")
    assert (done.returncode, "s3cret" in done.stderr) == (2, False)
