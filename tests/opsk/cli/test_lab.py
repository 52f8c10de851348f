import os
import subprocess
from pathlib import Path

import pytest

from tests.fakes.warm_opsk import warm


def opsk(*words: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return warm().run(["lab", *map(str, words)], cwd=cwd, environment=os.environ, stdin="", timeout_s=60.0)


def test_there_is_no_lab_where_none_was_started(tmp_path: Path):
    status = opsk("status", cwd=tmp_path)
    assert (status.returncode, status.stdout) == (1, f"no lab in {tmp_path / '.lab'}\n")


def test_down_without_a_lab_is_no_error(tmp_path: Path):
    down = opsk("down", "--dir", tmp_path / "lab")
    assert (down.returncode, down.stdout) == (0, f"no lab in {tmp_path / 'lab'}\n")


@pytest.mark.parametrize("words", [("run", "job.sh"), ("env",)])
def test_using_a_lab_that_is_not_up_says_how_to_start_it(tmp_path: Path, words: tuple[str, ...]):
    said = opsk(words[0], "--dir", "some where", *words[1:], cwd=tmp_path)
    assert said.returncode == 3
    assert said.stderr.splitlines()[-1] == "opsk: hint: opsk lab up --dir 'some where'"


@pytest.mark.parametrize("spoilt", [None, "{"])
def test_down_removes_nothing_from_a_folder_that_is_no_lab(tmp_path: Path, spoilt: str | None):
    for name in ("run", "state", "dev", "etc", "log"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "precious").touch()
    if spoilt is not None:
        (tmp_path / "lab.json").write_text(spoilt)
    before = sorted(tmp_path.rglob("*"))
    assert opsk("down", "--purge", "--dir", tmp_path).returncode == 0
    assert sorted(tmp_path.rglob("*")) == before


def test_a_spoilt_record_is_one_line_and_no_traceback(tmp_path: Path):
    (tmp_path / "lab.json").write_text("{")
    status = opsk("status", "--dir", tmp_path)
    assert status.returncode == 3
    assert status.stderr.startswith(f"opsk: {tmp_path}/lab.json: no record of a lab")
    assert "Traceback" not in status.stderr
    assert opsk("up", "--dir", tmp_path).returncode == 3


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("--nodes", "0"), 2, "nodes is 0, must be 1 to 512"),
        (("--nodes", "many"), 2, "not a valid integer"),
        (("--leaves", "3"), 2, "3 leaves are neither a divisor nor a multiple of the 8 HCAs"),
        (("--dir", "/proc/lab"), 3, "opsk: /proc/lab: "),
        (("--dir", "."), 2, "is not the folder of a lab"),
    ],
)
def test_a_lab_that_cannot_be_is_refused_in_one_line(words: tuple[str, ...], status: int, text: str, tmp_path: Path):
    from opsk.lab.programs import find_missing

    if find_missing():
        pytest.skip("not installed: " + ", ".join(find_missing()))
    (tmp_path / "thesis.tex").write_text("somebody's work")
    said = opsk("up", *words, cwd=tmp_path)
    assert said.returncode == status
    assert text in said.stderr
    assert "Traceback" not in said.stderr
    assert not (tmp_path / ".lab").exists()
