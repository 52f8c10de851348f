"""Python programs that are too long, too deep or of another Python: reading them ends soon, and names what was cut."""

from __future__ import annotations

import ast
import time
import warnings
from pathlib import Path

import pytest

from opsk.workload.workload import Workload
from opsk_jobcheck.cli import read_with_files
from opsk_jobcheck.named_files import read_regular
from opsk_jobcheck.scripts.frameworks.python.statements import MAX_CHARS, read_python
from opsk_jobcheck.scripts.script import read_script
from opsk_jobcheck.submission.request import SlurmRequest

HEAD = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=4\ntorchrun --nproc_per_node=4 train.py --n_layer 12\n"
FAR_TOO_LONG_S = 10.0
PLAIN = "import argparse\nmodel = DistributedDataParallel(m)\nloss.backward()\nblock_size = 512\n"


def read(source: str) -> Workload:
    return read_script(HEAD, file="job.sh", files={"train.py": source})


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("x = 1\n" * 900_000, "longer than the"),
        ("x = " + "(" * 5000 + ")" * 5000 + "\n", "no Python 3, or nested too deep"),
        ("x = " + "f(" * 90 + ")" * 90 + "\n", ""),
        ("x = " + "-" * 60_000 + "1\n", "no Python 3, or nested too deep"),
        ("x = " + "+".join(["1"] * 20_000) + "\n", "no Python 3, or nested too deep"),
        ("x" + ".a" * 40_000 + " = 1\n", "no Python 3, or nested too deep"),
        ("if a:\n  pass\n" + "elif b:\n  pass\n" * 4000, "no Python 3, or nested too deep"),
        ("if a:\n  pass\n" + "elif b:\n  pass\n" * 150, "more, or deeper, statements"),
        ("".join(f"{' ' * depth}for i in x:\n" for depth in range(99)) + " " * 99 + "y = 1\n", ""),
        ("print 'training'\nexec 'x = 1'\n", "no Python 3, or nested too deep"),
        ("x = f'" + "{y}" * 9000 + "'\n", "more braces"),
        ("f(a)\n" * 25_000, "more, or deeper, statements"),
        ("x = '\0'\n", "no Python 3, or nested too deep"),
        ("\ufeff" + PLAIN, ""),
        (PLAIN, ""),
    ],
    ids=lambda text: repr(text[:12]),
)
def test_reading_ends_and_says_what_was_not_read(source: str, why: str) -> None:
    before = time.process_time()
    workload = read(source)
    assert time.process_time() - before < FAR_TOO_LONG_S
    reasons = {entry.field: entry.why for entry in workload.unknown}
    assert workload.model.layers == 12  # what the command states is read all the same
    if why:
        assert "train.py, which opsk cannot read: it" in reasons["model.seq"]
        assert why in reasons["model.seq"]
    else:
        assert "cannot read" not in reasons.get("model.seq", "")


def test_a_program_of_the_allowed_length_is_read() -> None:
    source = f"{PLAIN}{'#' * (MAX_CHARS - len(PLAIN))}"
    assert read(source).model.seq == 512
    assert read(f"{source}#").model.seq is None


def test_a_large_program_and_a_thousand_files_next_to_it_are_not_read(tmp_path: Path) -> None:
    """Only the files that the script names are opened: no folder is listed."""
    script = tmp_path / "job.sh"
    script.write_text(HEAD.replace("train.py", str(tmp_path / "train.py")))
    (tmp_path / "train.py").write_text(f"from config import *\n{PLAIN}" + "x = 1\n" * 900_000)
    for number in range(1000):
        (tmp_path / f"config_{number}.py").touch()
    before = time.process_time()
    workload, is_readable = read_with_files(script, SlurmRequest())
    assert time.process_time() - before < FAR_TOO_LONG_S
    assert is_readable
    assert workload.model.seq is None


def test_a_file_that_grows_while_it_is_read_is_cut_at_the_limit_or_refused(tmp_path: Path) -> None:
    """What a writer appends after the size was checked is no more than the limit and one byte."""
    path = tmp_path / "a.yaml"
    path.write_bytes(b"a: 1\n")
    with path.open("ab", buffering=0) as writer:
        for _ in range(20):
            content = read_regular(path, limit_bytes=4096)
            assert len(content) <= 4096
            assert content.startswith(b"a: 1\n")
            writer.write(b"b: 2\n")
    path.write_bytes(b"")
    assert read_regular(path, limit_bytes=4096) == b""


def test_no_file_is_opened_and_no_warning_is_shown_for_a_wrong_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python opens the file that a text is named after, ``<unknown>`` where it has no name, to cite its wrong line."""
    cited: list[str | None] = []

    def parse(text: str, filename: str = "<unknown>") -> ast.AST:
        try:
            return compile(text, filename, "exec", ast.PyCF_ONLY_AST)
        except SyntaxError as error:
            cited.append(error.text)
            raise

    monkeypatch.chdir(tmp_path)
    (tmp_path / "<unknown>").write_text("a line of another file\n")
    monkeypatch.setattr(ast, "parse", parse)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_python("def f(:\n").why
        assert not read_python("x = '\\d'\nif 1 is 1: pass\n").why
    assert cited == ["def f(:\n"]
