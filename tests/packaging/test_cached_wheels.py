"""A wheel that an earlier build fetched is not fetched again, as long as it is the pinned one."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from deploy.packages import wheels
from deploy.packages.running import StepError


@pytest.fixture(autouse=True)
def no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*words: object, **_: object) -> None:
        raise StepError(f"pip was called: {' '.join(map(str, words))}")

    monkeypatch.setattr(wheels, "call", refuse)


def write_wheel(folder: Path, name: str, needs: str = "", tag: str = "py3-none-any") -> Path:
    path = folder / f"{name}-1.0-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        requirement = f"Requires-Dist: {needs}\n" if needs else ""
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Name: {name}\nVersion: 1.0\n{requirement}")
    return path


def gather(folder: Path, *heads: str, digest: str) -> list[str]:
    """Gather what an opsk that needs six needs, by a lock with these heads, all of them with one hash."""
    lock = folder / "requirements.lock"
    lock.write_text("".join(f"{head} \\\n    --hash=sha256:{digest}\n" for head in heads), encoding="utf-8")
    own = write_wheel(folder, "opsk", needs="six")
    return [wheel.name for wheel in wheels.gather(own, lock, folder / "cache")]


@pytest.fixture
def six(tmp_path: Path) -> Path:
    (tmp_path / "cache").mkdir()
    return write_wheel(tmp_path / "cache", "six")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_pinned_wheel_is_taken_from_the_folder(tmp_path: Path, six: Path) -> None:
    assert gather(tmp_path, "six==1.0", digest=sha256(six)) == ["opsk", "six"]


def test_a_wheel_that_is_not_the_pinned_one_is_fetched(tmp_path: Path, six: Path) -> None:
    with pytest.raises(StepError, match="pip was called"):
        gather(tmp_path, "six==1.0", digest="0" * 64)


def test_a_wheel_for_another_python_is_fetched(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    other = write_wheel(tmp_path / "cache", "six", tag="cp27-cp27mu-manylinux1_x86_64")
    with pytest.raises(StepError, match="pip was called"):
        gather(tmp_path, "six==1.0", digest=sha256(other))


def test_pins_for_another_python_do_not_count(tmp_path: Path, six: Path) -> None:
    here, elsewhere = "six==1.0 ; python_version >= '3'", "six==0.9 ; python_version < '3'"
    assert gather(tmp_path, elsewhere, here, digest=sha256(six)) == ["opsk", "six"]
