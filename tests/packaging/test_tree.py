"""Does the tree for a shared folder work where it was moved, for users with environments of their own?"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from opsk import __version__
from tests.packaging.conftest import Release, run

SCRIPT = "examples/llama3-70b-megatron.sbatch"


def test_it_answers_from_a_path_with_a_space_and_through_a_link(tree: Path, root: Path, tmp_path: Path) -> None:
    (tmp_path / "opsk").symlink_to(tree / "bin" / "opsk")
    for command in (tree / "bin" / "opsk", tmp_path / "opsk"):
        assert run(command, "--version").stdout == f"opsk, version {__version__}\n"
    done = run(tmp_path / "opsk", "check", "--json", "--cluster", "titan", root / SCRIPT)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["verdict"] == "oom"


def test_it_goes_on_after_it_was_moved_again(tree: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(tree, moved, symlinks=True, copy_function=os.link)
    assert run(moved / "bin" / "opsk", "--version").returncode == 0
    where = run(moved / "bin" / "python3", "-I", "-c", "import opsk, sys; print(opsk.__file__, sys.prefix)").stdout
    assert where.count(str(moved)) == 2


def test_no_file_holds_the_path_that_it_was_built_in(tree: Path, release: Release) -> None:
    place = str(release.source).encode()
    assert [path for path in tree.rglob("*") if path.is_file() and place in path.read_bytes()] == []


def test_no_command_names_an_interpreter_that_may_not_be_there(tree: Path) -> None:
    starts = {path.name: path.read_text(encoding="utf-8").splitlines()[0] for path in (tree / "bin").glob("opsk*")}
    assert starts == {"opsk": "#!/bin/sh", "opsk-srun": "#!/bin/sh"}
    outside = [
        path
        for path in tree.rglob("*")
        if path.is_symlink() and path.readlink().is_absolute() and path.name != "python3"
    ]
    assert outside == []


@pytest.mark.parametrize(
    "command", [["check", "--help"], ["exporter", "--help"], ["top", "--help"], ["store", "--help"]]
)
def test_it_brings_what_all_commands_need(tree: Path, command: list[str]) -> None:
    done = run(tree / "bin" / "opsk", *command)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Usage: opsk {command[0]} ")


def test_every_page_that_it_names_is_there(tree: Path) -> None:
    share = tree / "share" / "opsk"
    ours = (tree / "lib").glob("python*/site-packages/opsk*/**/*.py")
    texts = [*ours, *(path for path in (share / "deploy").rglob("*") if path.suffix in {".conf", ".service", ".yml"})]
    named = {page for path in texts for page in re.findall(r"\bdocs/[a-z]+/[a-z-]+\.md", path.read_text("utf-8"))}
    assert "docs/howto/keep-evidence.md" in named
    assert sorted(page for page in named if not (share / page).is_file()) == []
    linked = re.findall(r"\]\((\.\./[^)#]+)", (share / "deploy" / "README.md").read_text(encoding="utf-8"))
    assert sorted(link for link in linked if not (share / "deploy" / link).exists()) == []
    assert (tree / "share" / "doc" / "opsk" / "docs" / "howto" / "install.md").is_file()
    assert list((share / "docs").rglob("*.py")) == []


def test_every_library_that_it_brings_can_be_imported(tree: Path) -> None:
    names = "hyperscan, jinja2, psycopg, pymysql, textual, sqlmodel, alembic, scipy.optimize, rustworkx, bcrypt, pynvml"
    names += ", uvloop"
    done = run(tree / "bin" / "python3", "-I", "-c", f"import {names}")
    assert done.returncode == 0, done.stderr


def test_tests_of_libraries_are_left_out(tree: Path) -> None:
    assert [path for path in tree.rglob("tests") if path.is_dir()] == []


def test_python_modules_of_the_user_are_not_taken(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise SystemExit('the wrong click')\n", encoding="utf-8")
    done = run(tree / "bin" / "opsk", "--version", folder=tmp_path, PYTHONPATH=str(tmp_path), PYTHONHOME="/nonexistent")
    assert done.returncode == 0, done.stderr


def test_nothing_is_written_into_it(tree: Path, root: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in tree.rglob("*") if path.is_dir()}
    run(tree / "bin" / "opsk", "check", root / SCRIPT)
    run(tree / "bin" / "opsk", "exporter", "--help")
    assert {path: path.stat().st_mtime_ns for path in tree.rglob("*") if path.is_dir()} == before


def test_without_its_python_it_says_which_one_it_needs(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    shutil.copy(tree / "bin" / "opsk", tmp_path / "bin")
    (tmp_path / "bin" / "python3").symlink_to("/nonexistent/python3.11")
    done = run(tmp_path / "bin" / "opsk", "check")
    assert done.returncode == 3
    assert re.search(r"/nonexistent/python3\.11 is missing.*install it", done.stderr)
