"""Is a release whole, does it hold one version, and is it the same to the byte whoever builds it where?"""

from __future__ import annotations

import hashlib
import tarfile
import zipfile
from pathlib import Path

import pytest

from deploy.packages.build import build as build_here
from deploy.packages.running import StepError
from opsk import __version__
from tests.packaging.conftest import Release, build


def sums(folder: Path) -> dict[str, str]:
    lines = (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split("  ") for line in lines)}


def test_every_file_is_there_under_this_version_with_its_sum(release: Release) -> None:
    said = sums(release.folder)
    present = {path.name for path in release.folder.iterdir() if path.is_file()} - {"SHA256SUMS"}
    assert set(said) == present
    assert all(__version__ in name for name in present)
    for name, digest in said.items():
        assert hashlib.sha256((release.folder / name).read_bytes()).hexdigest() == digest


def test_the_version_stands_in_one_file_of_the_sources(release: Release) -> None:
    # The names of the two modulefiles hold it too: that is how their programs know versions.
    with tarfile.open(release.file(f"opsk-{__version__}.tar.gz")) as archive:
        named = [member.name for member in archive if f"/{__version__}" in member.name.partition("/")[2].join("/ ")]
    assert sorted(Path(name).name for name in named) == [__version__, f"{__version__}.lua"]
    assert f'__version__ = "{__version__}"' in (release.source / "opsk" / "__init__.py").read_text(encoding="utf-8")


def test_the_wheel_holds_four_packages_and_the_files_for_administrators(release: Release) -> None:
    with zipfile.ZipFile(release.file("opsk-*.whl")) as wheel:
        names = wheel.namelist()
    tops = {name.partition("/")[0] for name in names}
    assert tops == {
        *("opsk", "opsk_exporters", "opsk_jobcheck", "opsk_tui"),
        *(f"opsk-{__version__}.dist-info", f"opsk-{__version__}.data"),
    }
    for ending in (
        "/job_submit.lua",
        "/opsk.tcss",
        "share/opsk/deploy/systemd/opsk-advisor.service",
        f"/{__version__}",
    ):
        assert any(name.endswith(ending) for name in names), ending


def test_building_again_elsewhere_gives_the_same_bytes(release: Release, tmp_path: Path) -> None:
    out = tmp_path / "a much longer path than before" / "dist"
    epoch = {"SOURCE_DATE_EPOCH": release.epoch} if release.epoch else {}
    other = {"TZ": "Asia/Seoul", "LC_ALL": "C", "PYTHONHASHSEED": "17", "HOME": str(tmp_path), **epoch}
    build(release.source, out, release.wheels, other, umask=0o077)
    assert sums(out) == sums(release.folder)


def test_a_lock_that_misses_something_ends_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.packages.wheels.build", lambda *_: (tmp_path, fake_wheel(tmp_path)))
    (tmp_path / "requirements.lock").write_text("click==8.1\n", encoding="utf-8")
    with pytest.raises(StepError, match="does not pin numpy: run make lock"):
        build_here(tmp_path, tmp_path / "out", tmp_path / "cache", 0)


def fake_wheel(folder: Path) -> Path:
    path = folder / "opsk-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("opsk-1.0.dist-info/METADATA", "Name: opsk\nVersion: 1.0\nRequires-Dist: numpy\n")
    return path


def test_what_lay_in_the_output_folder_and_is_not_ours_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.packages.wheels.build", lambda *_: (_ for _ in ()).throw(StepError("stop here")))
    (tmp_path / "thesis.tex").touch()
    (tmp_path / "opsk-0.0.1.tar.gz").touch()
    with pytest.raises(StepError):
        build_here(tmp_path, tmp_path, tmp_path / "cache", 0)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
