"""Does `opsk doctor` find what keeps a site from learning, and a fit that would stop predictions?"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from opsk.app.doctor.finding import Finding, Level, Site
from opsk.app.doctor.learning import check_learning
from opsk.app.learning.fits import publish_fit
from opsk.config import PUBLISHED_FIT, SiteConfig

NIGHT = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)


def check(folder: Path, *, enabled: bool = True, url: str | None = "sqlite://") -> list[Finding]:
    config = SiteConfig.model_validate({"learning": {"enabled": enabled, "folder": str(folder)}, "store": {"url": url}})
    return list(check_learning(Site(config=config, config_path=Path("/etc/opsk/opsk.toml"), slurm=None, now_s=0.0)))


def test_a_site_that_does_not_learn_is_not_checked(tmp_path: Path) -> None:
    assert check(tmp_path / "absent", enabled=False) == []


def test_a_missing_folder_and_a_missing_store_are_wrong(tmp_path: Path) -> None:
    (folder,) = check(tmp_path / "absent")
    assert (folder.level, "systemctl start opsk-learn" in folder.hint) == (Level.WRONG, True)
    store, fit = check(tmp_path, url=None)
    assert (store.level, fit.level) == (Level.WRONG, Level.NOTE)


def test_a_fit_is_sound_and_a_damaged_one_names_the_way_back(tmp_path: Path) -> None:
    publish_fit(tmp_path, 'fit = "12 jobs"\n', {}, made_at=NIGHT)
    (fit,) = check(tmp_path)
    assert (fit.level, "the last of 2026-03-01" in fit.what) == (Level.SOUND, True)
    (tmp_path / PUBLISHED_FIT).write_text("fit = [", encoding="utf-8")
    (fit,) = check(tmp_path)
    assert (fit.level, fit.hint) == (Level.WRONG, "opsk calibrate --undo")
