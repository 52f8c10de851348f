"""Which NVML stand-in does a lab get: one that this user's earlier labs built, or one of its own?"""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.lab import exporters
from opsk.lab.machine.nvml_standin import LIBRARY, hash_sources
from opsk.lab.parts import LabSite

BUILT = b"as gcc built it"


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders in which a stand-in was built, in place of gcc."""
    folders: list[Path] = []

    def build(folder: Path) -> Path:
        folders.append(folder)
        folder.mkdir(parents=True)
        (folder / LIBRARY).write_bytes(BUILT)
        return folder / LIBRARY

    monkeypatch.setattr(exporters, "build", build)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folders


def site(top: Path) -> LabSite:
    top.mkdir()
    return LabSite(etc=top / "etc", run=top / "run", log=top / "log", config=top / "opsk.toml")


def test_the_second_lab_of_a_user_builds_none(tmp_path: Path, builds: list[Path]) -> None:
    for name in ("first", "second"):
        stand_in = exporters.build_stand_in(site(tmp_path / name))
        assert stand_in.library == tmp_path / name / f"nvml-{hash_sources()}" / LIBRARY
        assert stand_in.library.read_bytes() == BUILT
    assert builds == [tmp_path / "first" / f"nvml-{hash_sources()}"]


def test_one_that_others_may_write_is_not_taken(tmp_path: Path, builds: list[Path]) -> None:
    exporters.build_stand_in(site(tmp_path / "first"))
    (tmp_path / "cache" / "opsk" / f"nvml-{hash_sources()}" / LIBRARY).chmod(0o777)
    exporters.build_stand_in(site(tmp_path / "second"))
    assert len(builds) == 2


def test_where_nothing_can_be_stored_each_lab_builds_its_own(
    tmp_path: Path, builds: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for name in ("first", "second"):
        assert exporters.build_stand_in(site(tmp_path / name)).library is not None
    assert len(builds) == 2


def test_in_a_folder_that_others_may_write_to_nothing_is_stored(tmp_path: Path, builds: list[Path]) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    assert exporters.build_stand_in(site(tmp_path / "first")).library is not None
    assert not list((tmp_path / "cache").iterdir())
