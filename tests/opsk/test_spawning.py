"""Does nothing that lies in the current directory run, however opsk starts Python?"""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = (
    "opsk_jobcheck.workers.forked_processes:FORK_SERVER_COMMAND",
    "opsk_jobcheck.records.record_queue:RECORDER_COMMAND",
    "opsk_jobcheck.service.shared_cluster:ASKER_COMMAND",
    "opsk_exporters.lab_part:OPSK",
)
TRAP = "import pathlib\npathlib.Path(__file__).with_name('taken').touch()\nraise SystemExit(9)\n"


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A folder in which somebody has put modules of well-known names."""
    for name in ("json", "multiprocessing", "logging", "opsk", "opsk_jobcheck"):
        (tmp_path / f"{name}.py").write_text(TRAP)
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_a_child_imports_nothing_from_the_current_directory(name: str, trap: Path) -> None:
    module, _, attribute = name.partition(":")
    command = getattr(importlib.import_module(module), attribute)
    words = [*command, *(["--version"] if attribute == "OPSK" else [])]
    subprocess.run(words, cwd=trap, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    assert not (trap / "taken").exists()


def test_processes_of_a_pool_import_nothing_from_the_current_directory(trap: Path) -> None:
    logs = [trap / f"train_{rank}.out" for rank in range(2)]
    for log in logs:
        log.write_text("CUDA out of memory. Tried to allocate 2.00 GiB\n")
    program = (
        "from pathlib import Path\nfrom opsk.postmortem.logs import LogFile, read_logs\n"
        "if __name__ == '__main__':\n"
        f"    found = read_logs([LogFile(path=Path(p)) for p in {[str(log) for log in logs]}], processes=2)\n"
        "    print(len(found.findings))\n"
    )
    script = trap / "scripts" / "read.py"
    script.parent.mkdir()
    script.write_text(program)
    done = subprocess.run(
        [sys.executable, "-P", str(script)], cwd=trap, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "2\n", done.stderr
    assert not (trap / "taken").exists()
