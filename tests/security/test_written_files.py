"""Can a user have root write where he wants, by links that wait in his folder under names that can be guessed?"""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from opsk.cli.calibration.calibrate import _write_atomically as write_efficiency
from opsk.errors import InputError
from opsk.postmortem.evidence.bundle import Redaction, write_bundle
from opsk.telemetry.network.rails_file import write_rails


def links(folder: Path, target: Path, *names: str) -> None:
    for name in names:
        (folder / name).symlink_to(target)


def test_a_bundle_goes_through_no_link_that_waits_for_it(tmp_path: Path) -> None:
    shadow = tmp_path / "shadow"
    shadow.write_text("root:x", encoding="ascii")
    mine = tmp_path / "mine"
    mine.mkdir()
    links(mine, shadow, ".b.tar.gz.part", ".b.tar.gz", "b.tar.gz")
    write_bundle(mine / "b.tar.gz", {"report.md": "text"}, Redaction())
    assert shadow.read_text(encoding="ascii") == "root:x"
    assert not (mine / "b.tar.gz").is_symlink()


def test_files_that_are_written_whole_go_through_no_link_either(tmp_path: Path) -> None:
    """Their drafts are called after the process, whose number can be guessed."""
    shadow = tmp_path / "shadow"
    shadow.write_text("root:x", encoding="ascii")
    links(tmp_path, shadow, f".e.toml.{os.getpid()}", f"rails.json.{os.getpid()}.new")
    with pytest.raises(InputError):
        write_efficiency(tmp_path / "e.toml", "x")
    with pytest.raises(InputError):
        write_rails(tmp_path / "rails.json", [], source="x", generated="x")
    assert shadow.read_text(encoding="ascii") == "root:x"


def test_a_bundle_is_its_writers_own_from_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    add = tarfile.TarFile.addfile

    def spied(archive: tarfile.TarFile, *given: object) -> None:
        modes.append(Path(str(archive.name)).stat().st_mode & 0o777)
        add(archive, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(tarfile.TarFile, "addfile", spied)
    write_bundle(tmp_path / "b.tar.gz", {"report.md": "text"}, Redaction())
    assert set(modes) == {0o600}
    assert [path.name for path in tmp_path.iterdir()] == ["b.tar.gz"]
