"""Are the last ten fits kept, is the newest published whole, and can a site go back?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from opsk.app.learning.fits import MAX_FITS, list_fits, lock_folder, publish_fit, read_undone_at, undo_fit
from opsk.config import PUBLISHED_FIT
from opsk.errors import InputError

NIGHT = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)


def publish(folder: Path, number: int) -> None:
    publish_fit(folder, f'fit = "{number}"\n', {"number": number}, made_at=NIGHT + timedelta(days=number))


def read_published(folder: Path) -> str:
    return (folder / PUBLISHED_FIT).read_text(encoding="utf-8")


def test_ten_fits_are_kept_and_undone_one_by_one(tmp_path: Path) -> None:
    for number in range(MAX_FITS + 2):
        publish(tmp_path, number)
    assert [fit.evidence["number"] for fit in list_fits(tmp_path)] == list(range(MAX_FITS + 1, 1, -1))
    assert len(list((tmp_path / "fits").iterdir())) == 2 * MAX_FITS
    undone, current = undo_fit(tmp_path, now=NIGHT)
    assert current is not None
    assert (undone.evidence["number"], current.evidence["number"]) == (MAX_FITS + 1, MAX_FITS)
    assert read_published(tmp_path) == f'fit = "{MAX_FITS}"\n'
    assert read_undone_at(tmp_path) == NIGHT
    publish(tmp_path, 20)
    assert read_undone_at(tmp_path) is None


def test_the_first_fit_undone_leaves_the_efficiencies_of_the_site(tmp_path: Path) -> None:
    publish(tmp_path, 1)
    assert undo_fit(tmp_path, now=NIGHT)[1] is None
    assert not (tmp_path / PUBLISHED_FIT).exists()
    with pytest.raises(InputError, match="no fit to go back from"):
        undo_fit(tmp_path, now=NIGHT)


def test_two_fits_of_one_second_are_two_and_damaged_ones_are_passed_over(tmp_path: Path) -> None:
    publish(tmp_path, 1)
    publish(tmp_path, 1)
    (tmp_path / "fits" / "20260101T000000Z.toml").write_text("", encoding="utf-8")  # its evidence is gone
    (tmp_path / "fits" / "notes.toml").write_text("", encoding="utf-8")
    assert len(list_fits(tmp_path)) == 2


def test_evidence_names_users_and_is_not_for_everyone(tmp_path: Path) -> None:
    publish(tmp_path, 1)
    modes = {path.suffix: path.stat().st_mode & 0o777 for path in (tmp_path / "fits").iterdir()}
    assert modes == {".toml": 0o644, ".json": 0o640}


def test_one_process_learns_at_a_time(tmp_path: Path) -> None:
    with lock_folder(tmp_path), pytest.raises(InputError, match="another process is learning"), lock_folder(tmp_path):
        pass
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="file: "), lock_folder(tmp_path / "file"):
        pass
