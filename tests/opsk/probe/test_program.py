"""Does the program run where PyTorch is, say what is missing where not, and travel inside its batch script?"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from opsk.errors import InputError
from opsk.probe import program
from opsk.probe.batch_script import read_program, write_batch_script
from opsk.probe.document import parse_probe

PYTHON = os.environ.get("OPSK_TEST_TORCH_PYTHON", sys.executable)
"""A Python that may have PyTorch."""


def run_program(folder: Path, *arguments: str, python: str = PYTHON) -> subprocess.CompletedProcess[str]:
    path = folder / "program.py"
    path.write_text(read_program(), encoding="utf-8")
    argv = [python, str(path), "--output", str(folder / "p.json"), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)


def test_it_measures_processors_where_pytorch_is(tmp_path: Path) -> None:
    done = run_program(tmp_path, "--cpu")
    if "no PyTorch" in done.stderr:
        pytest.skip("no PyTorch: OPSK_TEST_TORCH_PYTHON names a Python that has it")
    document = parse_probe((tmp_path / "p.json").read_bytes(), origin="p.json")
    assert (done.returncode, document.machine.device, document.skipped) == (0, "cpu", ())
    assert {row.variant for row in document.training} == {"plain", "recomputed"}
    assert all((document.launch, document.memory, document.matmul, document.attention, document.host_link))


def test_it_says_in_one_line_that_pytorch_is_missing(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError\n")
    done = run_program(tmp_path, python=sys.executable)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "this Python has no PyTorch" in done.stderr


def test_it_imports_pytorch_and_the_standard_library_alone() -> None:
    names = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
        for node in ast.walk(ast.parse(read_program()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert {name.partition(".")[0] for name in names} <= {"torch", *sys.stdlib_module_names}


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({}, (0, 1, 0)),
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, (3, 8, 1)),
        ({"SLURM_PROCID": "9", "SLURM_NTASKS": "16", "SLURM_LOCALID": "1"}, (9, 16, 1)),
        ({"RANK": "x", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, (0, 1, 0)),
    ],
)
def test_torchrun_and_srun_tell_each_process_its_place(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], place: tuple[int, int, int]
) -> None:
    for name in list(os.environ):
        if name.startswith("SLURM_") or name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert program.read_place() == place


@pytest.mark.parametrize("nodes", [1, 2])
def test_the_batch_script_holds_the_program_and_is_shell(nodes: int) -> None:
    text = write_batch_script(nodes=nodes, gpus_per_node=8, python="/opt/my env/bin/python")
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
    assert read_program().rstrip() in text
    assert f"#SBATCH --nodes={nodes}\n#SBATCH --ntasks-per-node=8\n" in text
    assert "srun '/opt/my env/bin/python'" in text


@pytest.mark.parametrize(("nodes", "gpus"), [(0, 8), (9, 8), (1, 0)])
def test_a_size_that_measures_nothing_is_refused(nodes: int, gpus: int) -> None:
    with pytest.raises(InputError):
        write_batch_script(nodes=nodes, gpus_per_node=gpus)
