"""What runs in a fork of a loaded opsk is what ``python -m opsk`` runs."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fakes import warm_opsk
from tests.fakes.warm_opsk import OPSK


def cold(words: list[str], **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*OPSK, *words], capture_output=True, text=True, timeout=120, check=False, **more)  # type: ignore[call-overload,no-any-return]


def both(words: list[str], tmp_path: Path, **environ: str) -> list[tuple[int, str, str]]:
    environment = {**os.environ, **environ}
    warm = warm_opsk.run([*OPSK, *words], environment=environment, cwd=tmp_path, timeout_s=120)
    plain = cold(words, env=environment, cwd=tmp_path, stdin=subprocess.DEVNULL)
    return [(done.returncode, done.stdout, done.stderr) for done in (warm, plain)]


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["--help"],
        ["fabric", "--help"],
        ["no-such-command"],
        ["check", "train.sh", "--cluster", "superpod-h100", "--json"],
        ["check", "absent.sh", "--cluster", "superpod-h100"],
    ],
)
def test_status_and_both_streams_are_the_same(words: list[str], tmp_path: Path):
    (tmp_path / "train.sh").write_text("#!/bin/bash\n#SBATCH --nodes=2\nsrun python train.py\n")
    warm, plain = both(words, tmp_path)
    assert warm == plain


def test_the_environment_is_the_calls_own(tmp_path: Path):
    warm, plain = both(["advisor", "--once"], tmp_path, OPSK_CONFIG=str(tmp_path / "absent.toml"))
    assert warm == plain
    assert warm[0] != 0
    assert "OPSK_CONFIG" not in os.environ


def test_a_call_reads_what_it_is_given():
    environment = dict(os.environ)
    words = [*OPSK, "throughput", "-"]
    text = "iteration 1/10 | elapsed time per iteration (ms): 1000.0 |\n"
    warm = warm_opsk.run(words, environment=environment, stdin=text, timeout_s=120)
    plain = cold(words[3:], env=environment, input=text)
    assert (warm.returncode, warm.stdout, warm.stderr) == (plain.returncode, plain.stdout, plain.stderr)


def test_a_call_that_takes_too_long_is_ended(tmp_path: Path):
    log = tmp_path / "log"
    log.touch()
    with pytest.raises(subprocess.TimeoutExpired):
        warm_opsk.run([*OPSK, "throughput", "--follow", str(log)], environment=dict(os.environ), timeout_s=1.0)


def test_calls_run_at_the_same_time(tmp_path: Path):
    log = tmp_path / "log"
    log.touch()
    connection, pid = warm_opsk.warm().start(["throughput", "--follow", str(log)], os.environ, tmp_path, (0, 1, 2))
    try:
        done = warm_opsk.run([*OPSK, "--version"], environment=dict(os.environ), timeout_s=120)
        assert done.returncode == 0
        os.kill(pid, 0)  # still there
    finally:
        os.kill(pid, 9)
        connection.close()


def test_a_shell_calls_it_as_its_own_command(tmp_path: Path):
    """With what flows into it and out of it, its folder and its status."""
    environment = {**os.environ, **warm_opsk.warm().shell_function()}
    (tmp_path / "absent.sh").touch()
    line = "iteration 1/10 | elapsed time per iteration (ms): 1000.0 |"
    script = f"type -t opsk; echo '{line}' | opsk throughput - | head -n 1; cd /; opsk check absent.sh 2>&1; echo $?"
    words = ["bash", "-c", script]
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    shown = cold(["throughput", "-"], input=f"{line}\n").stdout.splitlines()[0]
    refused = cold(["check", "absent.sh"], cwd="/")
    assert done.stdout.splitlines() == ["function", shown, *refused.stderr.splitlines(), str(refused.returncode)]


def test_other_commands_are_simply_run():
    done = warm_opsk.run(["sh", "-c", "echo $WORD; exit 3"], environment={"WORD": "said"}, timeout_s=60)
    assert (done.returncode, done.stdout) == (3, "said\n")


def test_what_has_loaded_opsk_ends_with_who_started_it(tmp_path: Path):
    program = "import os; from tests.fakes.warm_opsk import warm; print(warm()._process.pid, flush=True); os._exit(0)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    stat = Path("/proc") / done.stdout.strip() / "stat"
    end = time.monotonic() + 60
    while stat.exists() and ") Z " not in stat.read_text():
        assert time.monotonic() < end
        time.sleep(0.05)
