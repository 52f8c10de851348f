"""Does `opsk doctor` say when nothing is kept of jobs that die, or nobody takes what was handed over?"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from opsk.app.doctor.evidence import OVERDUE_AFTER_S, check_evidence
from opsk.app.doctor.finding import Finding, Level, Site
from opsk.config import SiteConfig


def looked(folder: Path | None, spool: Path, *, later_s: float = 0.0) -> list[Finding]:
    named = {} if folder is None else {"folder": str(folder)}
    config = SiteConfig.model_validate({"postmortem": {**named, "spool": str(spool)}})
    now_s = time.time() + later_s
    return list(check_evidence(Site(config=config, config_path=Path("/etc/opsk/opsk.toml"), slurm=None, now_s=now_s)))


def levels(found: list[Finding]) -> list[Level]:
    return [each.level for each in found]


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    for name in ("started", "ended"):
        (tmp_path / "spool" / name).mkdir(parents=True)
    return tmp_path / "spool"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kept").mkdir(mode=0o755)
    return tmp_path / "kept"


def test_a_folder_and_an_empty_spool_are_sound(folder: Path, spool: Path) -> None:
    assert levels(looked(folder, spool)) == [Level.SOUND, Level.SOUND]


def test_a_site_that_keeps_nothing_is_told_how(tmp_path: Path) -> None:
    (found,) = looked(None, tmp_path / "spool")
    assert (found.level, "keep-evidence" in found.hint) == (Level.NOTE, True)


def test_a_spool_without_a_folder_fills_up(spool: Path) -> None:
    (found,) = looked(None, spool)
    assert (found.level, found.check) == (Level.WRONG, "evidence")
    assert "no folder for evidence" in found.what


def test_storage_that_is_not_mounted_is_wrong_and_a_folder_to_come_is_not(tmp_path: Path, spool: Path) -> None:
    assert looked(tmp_path / "kept", spool)[0].level is Level.NOTE
    away = looked(tmp_path / "shared" / "kept", spool)[0]
    assert (away.level, "mounted" in away.hint) == (Level.WRONG, True)


def test_a_folder_that_everybody_can_change_is_wrong(folder: Path, spool: Path) -> None:
    folder.chmod(0o777)
    found = looked(folder, spool)[0]
    assert found.level is Level.WRONG
    assert found.what == "opsk neither writes nor trusts it: everybody might change it"


def test_a_host_without_jobs_needs_no_spool(folder: Path, tmp_path: Path) -> None:
    assert levels(looked(folder, tmp_path / "none")) == [Level.SOUND, Level.NOTE]


def test_jobs_that_nobody_takes_are_named_after_an_hour(folder: Path, spool: Path) -> None:
    # As the epilog does: the note was written at the job's start, long ago.
    note = spool / "4711"
    note.write_text("")
    os.utime(note, (1.0, 1.0))
    note.rename(spool / "ended" / "4711")
    (spool / "ended" / ".4711.end").touch()
    (spool / "reports").mkdir()
    (spool / "reports" / "4712@17").touch()
    assert Level.WRONG not in levels(looked(folder, spool)), "it has ended just now"
    _, taken, reported = looked(folder, spool, later_s=OVERDUE_AFTER_S + 1)
    assert (taken.level, taken.what) == (Level.WRONG, "not collected an hour after the end: 1 job (4711)")
    assert "opsk-collector.timer" in taken.hint
    assert (reported.level, reported.what) == (Level.WRONG, "no report yet: 1 job (4712)")


def test_another_user_is_told_that_he_cannot_look(folder: Path, spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refused)
    found = looked(folder, spool)
    assert levels(found) == [Level.SOUND, Level.UNKNOWN]
    assert found[1].hint == "run opsk doctor as root"
