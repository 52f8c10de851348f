"""Files that a script names, and that lie elsewhere on the machine where it is checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk_jobcheck.named_files import MAX_SEARCHED, NamedFiles


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NamedFiles:
    """Return the files of a script in a folder with programs in folders below."""
    for name in ("code/train.py", "code/parts.py", "a/twice.py", "b/twice.py", "b/other.py", "deep/er/far.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")
    (tmp_path / "job.sh").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return NamedFiles(script=tmp_path / "job.sh")


@pytest.mark.parametrize("folder", ["", "/scratch/me/project"])
def test_a_program_whose_folder_is_not_here_is_the_only_one_of_its_name(files: NamedFiles, folder: str) -> None:
    place = f"{folder}/" if folder else ""
    assert files.read(f"{place}train.py") == "code/train.py"
    assert files.read(f"{place}parts.py") == "code/parts.py"
    assert files.read(f"{place}other.py") is None  # a module beside it, and no program


@pytest.mark.parametrize(("name", "text"), [("/x/twice.py", None), ("/x/far.py", "deep/er/far.py"), ("/x/no.py", None)])
def test_one_of_several_of_a_name_is_none(files: NamedFiles, name: str, text: str | None) -> None:
    assert files.read(name) == text


def test_modules_of_a_program_that_is_where_it_was_named_are_in_no_other_folder(files: NamedFiles) -> None:
    assert files.read("code/train.py") == "code/train.py"
    assert files.read("other.py") is None
    assert files.read("code/other.py") is None


def test_few_folders_are_searched(files: NamedFiles, tmp_path: Path) -> None:
    for index in range(MAX_SEARCHED + 1):
        (tmp_path / f"aa{index}").mkdir()
    assert files.read("/x/far.py") is None
