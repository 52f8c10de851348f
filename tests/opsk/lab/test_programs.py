from pathlib import Path

import pytest

from opsk.errors import ExitStatus, LabError
from opsk.lab import programs
from opsk.lab.programs import PACKAGES, locate, read_slurm_release


def test_every_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(programs, "build_search_path", lambda: str(tmp_path))
    with pytest.raises(LabError) as caught:
        locate()
    assert all(f"{name} (package {package})" in caught.value.message for name, package in PACKAGES.items())
    assert "apt-get install" in caught.value.hint
    assert caught.value.exit_status is ExitStatus.UNAVAILABLE


@pytest.mark.parametrize(
    ("said", "release"), [("slurm-wlm 22.05.8", (22, 5)), ("slurm 24.11.5", (24, 11)), ("slurm 26.05.0-rc1", (26, 5))]
)
def test_the_release_is_read_from_slurmd(tmp_path: Path, said: str, release: tuple[int, int]):
    fake = tmp_path / "slurmd"
    fake.write_text(f"#!/bin/sh\necho '{said}'\n")
    fake.chmod(0o755)
    assert read_slurm_release(fake) == release


def test_a_slurmd_that_says_nothing_is_an_error(tmp_path: Path):
    fake = tmp_path / "slurmd"
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    with pytest.raises(LabError, match="names no release"):
        read_slurm_release(fake)
