"""Does ``opsk throughput --follow`` print steps as they come, and end well when it is told to?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from opsk.cli.main import opsk
from opsk.cli.throughput.command import SHOWN_AT_FIRST, follow_logs
from opsk.errors import InputError
from tests.fakes.progress_logs import megatron_line

PATIENCE_S = 60.0


def append(path: Path, *steps: int, **more: Any) -> None:
    with path.open("a", encoding="ascii") as file:
        file.writelines(f"{megatron_line(step, **more)}\n" for step in steps)


class Watched:
    """Stands for the time between two looks: does one thing each time, then the user presses Ctrl-C."""

    def __init__(self, *happens: Callable[[], object]) -> None:
        self.happens = list(happens)

    def __call__(self, _rest_s: float) -> None:
        if not self.happens:
            raise KeyboardInterrupt
        self.happens.pop(0)()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_the_last_steps_and_then_each_that_comes(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append(log, *range(1, 31), tflops=400)
    assert follow_logs([log], as_json=False, sleep=Watched(lambda: append(log, 31, tflops=400))) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == SHOWN_AT_FIRST + 1 + 1
    assert lines[0] == "step 21/1,000  2 s  400 TFLOP/s/GPU  loss 2"
    assert lines[-2].startswith("step 31/1,000")
    assert lines[-1] == "31 records, median 2 s a step · 400 TFLOP/s/GPU · 256 samples/s"


def test_every_step_is_one_json_object_a_line(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its keys are those of ``steps`` of the document without --follow."""
    append(log, *range(1, 31))
    follow_logs([log], as_json=True, sleep=Watched(lambda: append(log, 31)))
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["iteration"] for each in found] == list(range(1, 32))
    document = json.loads(CliRunner().invoke(opsk, ["throughput", str(log), "--json"], standalone_mode=False).stdout)
    assert found == document["steps"]


def test_restarts_stalls_and_checkpoints_are_told(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append(log, *range(10, 20))
    append(log, 20, step_ms=9000)
    with log.open("a", encoding="ascii") as file:
        file.write("  successfully saved checkpoint from iteration 20 to /x\n")
    append(log, 10)
    follow_logs([log], as_json=False, sleep=Watched())
    lines = capsys.readouterr().out.splitlines()[-5:]
    assert lines[0].endswith("slow: 4.5 times the median")
    assert lines[1] == "checkpoint after step 20"
    assert lines[2] == "restart 1"
    assert lines[3].startswith("step 10/")


def test_a_loss_that_is_no_number_is_bad_news(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append(log, 1)
    append(log, 2, loss=float("nan"))
    assert follow_logs([log], as_json=True, sleep=Watched()) == 1
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["loss"], last["not_finite"]) == (None, {"loss": "nan"})


def test_a_log_that_is_not_there_yet_is_said_once(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wait = lambda: None  # noqa: E731
    assert follow_logs([log], as_json=False, sleep=Watched(wait, wait, lambda: append(log, 1))) == 0
    said = capsys.readouterr()
    assert said.err.count("waiting") == 1
    assert "step 1/" in said.out


def test_standard_input_is_followed_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    text = "".join(f"{megatron_line(step)}\n" for step in (1, 2, 3))
    done = CliRunner().invoke(opsk, ["throughput", "--follow", "-", "--json"], input=text, standalone_mode=False)
    assert [json.loads(line)["iteration"] for line in done.stdout.splitlines()] == [1, 2, 3]
    with pytest.raises(InputError, match="together"):
        follow_logs([Path("-"), Path("x")], as_json=False)


def test_an_interrupt_ends_a_real_process_well(log: Path) -> None:
    append(log, 1, 2)
    command = [sys.executable, "-m", "opsk", "throughput", "--follow", str(log)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("step 1/")
        assert process.stdout.readline().startswith("step 2/")
        append(log, 3)
        assert process.stdout.readline().startswith("step 3/")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, err) == (0, "")
    assert out.startswith("3 records, median 2 s a step")


def test_a_reader_that_goes_away_ends_it_quietly(log: Path) -> None:
    append(log, 1)
    command = [sys.executable, "-m", "opsk", "throughput", "--follow", "--json", str(log)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        process.stdout.readline()
        process.stdout.close()
        end = time.monotonic() + PATIENCE_S
        step = 2
        while process.poll() is None:
            assert time.monotonic() < end
            append(log, step)
            step += 1
            time.sleep(0.1)
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    assert os.WIFEXITED(process.returncode << 8)
