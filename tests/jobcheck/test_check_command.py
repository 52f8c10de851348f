"""``opsk check`` as a person and a program meet it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from opsk.cli.main import opsk
from opsk.errors import InputError
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.render import render_ibnetdiscover
from opsk_jobcheck.cli import MAX_SCRIPT_BYTES
from opsk_jobcheck.named_files import NamedFiles
from tests.fakes.launch_scripts import megatron_script
from tests.fakes.warm_opsk import WarmProcess
from tests.golden.compare import assert_as_golden

FITS = (
    "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 --micro-batch-size 1 --global-batch-size 128 "
    "--sequence-parallel --use-distributed-optimizer"
)
OOM = "--micro-batch-size 4 --global-batch-size 256"
CLUSTER = ("--cluster", "superpod-h100")


@pytest.fixture(autouse=True)
def no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start every command with an empty site configuration, on a terminal that shows all signs."""
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.delenv("OPSK_ADVICE", raising=False)
    (tmp_path / "opsk.toml").write_text("")
    monkeypatch.setenv("OPSK_CONFIG", str(tmp_path / "opsk.toml"))


def check(*arguments: str | Path) -> Result:
    """Run the command; a returned status is the exit status, as ``opsk`` has it."""
    return CliRunner().invoke(opsk, ["check", *map(str, arguments)], standalone_mode=False)


def answer(*arguments: str | Path) -> tuple[int, dict[str, Any]]:
    """Run the command with --json."""
    result = check(*arguments, *CLUSTER, "--json")
    assert result.exception is None, result.exception
    return result.return_value, json.loads(result.stdout)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Path of a script to be written."""
    return tmp_path / "job.sh"


@pytest.mark.parametrize(
    ("text", "status", "verdict"),
    [
        (megatron_script(FITS), 0, "fits"),
        (megatron_script(OOM), 1, "oom"),
        (megatron_script("--micro-batch-size $1"), 0, "unknown"),
        (megatron_script(FITS).replace("--gpus-per-node=8", "--gres=gpu:h900:8"), 0, "unknown"),
        ("#!/bin/bash\nhostname\n", 0, "unknown"),
        ("", 0, "unknown"),
    ],
)
def test_exit_status_and_verdict(script: Path, text: str, status: int, verdict: str) -> None:
    script.write_text(text)
    assert answer(script)[0] == status
    assert answer(script)[1]["verdict"] == verdict
    assert check(script, *CLUSTER).return_value == status


def test_a_script_with_defaults_is_read_as_submitted_without_arguments(script: Path) -> None:
    text = megatron_script(FITS.replace("--micro-batch-size 1", "--micro-batch-size $BATCH"))
    head, _, rest = text.partition("\nsrun")
    loop = "\nBATCH=1\nwhile [ $# -gt 0 ]; do\n  BATCH=$1\n  shift\ndone"
    script.write_text(f"{head}{loop}\nsrun{rest}")
    document = answer(script)[1]
    assert document["verdict"] == "fits"
    assert document["assumed"][0]["field"] == "arguments"
    assert "arguments not given" in check(script, *CLUSTER, "--detail", "long").stdout
    script.write_text(f"{head}\nBATCH=$1\nsrun{rest}")
    assert answer(script)[1]["verdict"] == "unknown"


@pytest.mark.parametrize(
    "start",
    ["bash ~/lab/tools/train.sh", "bash /work/me/lab/tools/train.sh", "cd 'where it lies'\nbash tools/train.sh"],
)
def test_files_of_a_folder_that_is_not_here_are_looked_for_below_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    head, _, rest = megatron_script(FITS).partition("\nsrun")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "train.sh").write_text(f"srun{rest}")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "job.sh").write_text(f"{head}\n{start}\n")
    monkeypatch.chdir(tmp_path)
    assert answer("jobs/job.sh")[1]["verdict"] == "fits"
    monkeypatch.chdir(tmp_path / "jobs")
    assert answer("job.sh")[1]["verdict"] == "unknown"  # a file above the working directory is none of the job's


ARRAY = megatron_script(FITS).replace("#SBATCH --nodes", "#SBATCH --array=1-4\n#SBATCH --nodes")


@pytest.mark.parametrize(
    ("text", "options", "environment", "is_array"),
    [
        (megatron_script(FITS), (), {}, False),
        (ARRAY, (), {}, True),
        (megatron_script(FITS), ("--sbatch", "-J x -a 0-7%2"), {}, True),
        (megatron_script(FITS), (), {"SBATCH_ARRAY_INX": "1-4"}, True),
    ],
)
def test_advice_on_an_array_says_that_it_is_about_each_of_its_tasks(
    script: Path,
    text: str,
    options: tuple[str, ...],
    environment: dict[str, str],
    is_array: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script.write_text(text)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for detail in ("long", "short"):
        told = check(script, *CLUSTER, *options, "--detail", detail).stdout.splitlines()
        assert told[0].endswith(" · each task of the array") is is_array
        assert "each task" not in " ".join(told[1:])


@pytest.mark.parametrize("name", ["hello", "llama3-70b-megatron", "llama3-8b-megatron", "site-launcher"])
def test_advice_on_the_examples_reads_as_accepted(
    name: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    dump = tmp_path / "fabric.ibnetdiscover"
    dump.write_text(render_ibnetdiscover(rail_optimized_fabric(nodes=16, hcas=8, leaves=16, spines=4)))
    assert_as_golden(f"check/{name}.txt", check(f"examples/{name}.sbatch", *CLUSTER, "--fabric", dump).stdout)


def test_a_person_sees_advice(script: Path) -> None:
    script.write_text(megatron_script(OOM))
    output = check(script, *CLUSTER).stdout
    assert "will run out" in output
    assert output.count("→") >= 2


def test_more_or_less_is_said_on_demand(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script.write_text(megatron_script(OOM))
    few = check(script, *CLUSTER).stdout.splitlines()
    two = check(script, *CLUSTER, "--detail", "short").stdout.splitlines()
    everything = check(script, *CLUSTER, "--detail", "long").stdout.splitlines()
    assert (len(two), two) == (2, few[:2])
    assert len(few) == 6
    assert len(everything) > 6
    assert not any(line.startswith("more") for line in everything)
    monkeypatch.setenv("OPSK_ADVICE", "long")
    assert check(script, *CLUSTER).stdout.splitlines() == everything
    assert check(script, *CLUSTER, "--detail", "default").stdout.splitlines() == few


def test_a_pipe_gets_no_colour_and_an_ascii_locale_ascii(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script.write_text(megatron_script(OOM))
    assert "\x1b" not in check(script, *CLUSTER).stdout
    monkeypatch.setenv("LC_ALL", "C")
    assert check(script, *CLUSTER, "--detail", "long").stdout.isascii()


@pytest.mark.parametrize(
    ("environment", "is_coloured"),
    [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"TERM": "xterm", "NO_COLOR": "1"}, False)],
)
def test_a_terminal_gets_colour_unless_it_has_or_wants_none(
    script: Path, environment: dict[str, str], is_coloured: bool
) -> None:
    script.write_text(megatron_script(OOM))
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    master, terminal = os.openpty()
    words = ["check", str(script), *CLUSTER]
    WarmProcess(None, words, environment={**kept, **environment}, stdout=terminal).wait(120.0)
    os.close(terminal)
    shown = os.read(master, 1 << 16)
    os.close(master)
    assert b"will run out" in shown
    assert (b"\x1b[31m" in shown) is is_coloured


def test_other_work_and_opted_out_scripts_get_no_advice(script: Path) -> None:
    script.write_text("#!/bin/bash\nhostname\n")
    assert "no training job" in check(script, *CLUSTER).stdout
    script.write_text(megatron_script(OOM) + "#OPSK off\n")
    result = check(script, *CLUSTER)
    assert (result.return_value, result.stdout) == (0, "the script says #OPSK off: sbatch would print no advice\n")
    assert answer(script)[1]["workload"]["opted_out"] is True


def refused(path: Path) -> str:
    """Check that a path gives one clear line, or one document with one problem, and status 2; return the problem."""
    status, found = answer(path)
    (problem,) = found["problems"]
    assert (status, found["verdict"]) == (2, "unknown")
    assert str(path.name) in problem["file"]
    assert problem["hint"]
    result = check(path, *CLUSTER)
    assert (result.return_value, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert problem["what"] in result.stderr
    return str(problem["what"])


def test_a_missing_script(tmp_path: Path) -> None:
    assert refused(tmp_path / "nothing.sh") == "No such file or directory"


def test_a_directory(tmp_path: Path) -> None:
    assert refused(tmp_path) == "not a regular file"


def test_a_pipe_is_not_waited_for(script: Path) -> None:
    os.mkfifo(script)
    assert refused(script) == "not a regular file"


def test_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("job.sh")
        assert refused(Path("job.sh"))


def test_a_device() -> None:
    assert refused(Path("/dev/zero")) == "not a regular file"


def test_a_binary_file(script: Path) -> None:
    script.write_bytes(b"\x7fELF" + bytes(2000))
    assert "binary" in refused(script)


def test_a_script_larger_than_slurm_takes(script: Path) -> None:
    with script.open("wb") as stream:
        stream.truncate(50 << 20)
    assert str(MAX_SCRIPT_BYTES) in refused(script)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_script(script: Path) -> None:
    script.write_text(megatron_script(FITS))
    script.chmod(0)
    assert refused(script) == "Permission denied"


def test_an_unknown_cluster_is_one_error_that_names_near_ones(script: Path) -> None:
    script.write_text(megatron_script(FITS))
    error = check(script, "--cluster", "superpod-h10").exception
    assert isinstance(error, InputError)
    assert "superpod-h10" in error.message
    assert int(error.exit_status) == 2


def test_more_nodes_than_the_script_asks_for(script: Path) -> None:
    script.write_text(megatron_script(FITS))
    found = answer(script, "--nodes", "16")[1]
    assert (found["workload"]["plan"]["nodes"], found["workload"]["plan"]["gpus"]) == (16, 128)
    assert found["workload"]["plan"]["dp"] == 2


def test_options_of_sbatch_beat_its_environment_and_both_the_script(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.write_text(megatron_script(FITS))
    assert answer(script, "--sbatch", "-N 16 --partition=x")[1]["workload"]["plan"]["nodes"] == 16
    monkeypatch.setenv("SBATCH_GPUS_PER_NODE", "4")
    assert answer(script)[1]["workload"]["plan"]["gpus_per_node"] == 4
    assert answer(script, "--sbatch", "--gpus-per-node=8")[1]["workload"]["plan"]["gpus_per_node"] == 8


def test_options_with_an_open_quote_are_refused(script: Path) -> None:
    script.write_text(megatron_script(FITS))
    error = check(script, "--sbatch", "--comment='a").exception
    assert isinstance(error, InputError)
    assert "--sbatch" in error.message


def test_arguments_are_those_of_the_script(script: Path) -> None:
    script.write_text(megatron_script("--global-batch-size 64 --micro-batch-size $1"))
    assert answer(script, "2")[1]["workload"]["plan"]["micro_batch"] == 2


def test_a_plan_that_is_not_the_gpu_count_is_a_problem_with_its_line(script: Path) -> None:
    script.write_text(megatron_script(FITS.replace("parallel-size 8", "parallel-size 6", 1)))
    status, found = answer(script)
    assert (status, found["verdict"]) == (0, "unknown")
    problem = next(entry for entry in found["problems"] if "64 GPUs" in entry["what"])
    assert (problem["file"], problem["line"]) == (str(script), 4)


def test_named_files_are_read_beside_the_script(script: Path) -> None:
    script.write_text(
        megatron_script("--global-batch-size 64 --micro-batch-size $MBS").replace("srun", "source a.env\nsrun")
    )
    assert answer(script)[1]["workload"]["plan"]["micro_batch"] is None
    (script.parent / "a.env").write_text("MBS=2\n")
    assert answer(script)[1]["workload"]["plan"]["micro_batch"] == 2


@pytest.mark.parametrize("path", ["/workspace/conf/a.env", "/srv/project/conf/a.env"])
def test_files_of_another_machine_or_a_container_are_read_below_the_scripts_folder(script: Path, path: str) -> None:
    script.write_text(
        megatron_script("--global-batch-size 64 --micro-batch-size $MBS").replace("srun", f"source {path}\nsrun")
    )
    (script.parent / "conf").mkdir()
    (script.parent / "conf" / "a.env").write_text("MBS=2\n")
    assert answer(script)[1]["workload"]["plan"]["micro_batch"] == 2


@pytest.mark.parametrize(
    "name",
    [
        *("/proc/kmsg", "pipe", "/dev/stdin", "a" * 5000, ".", "loop", "/proc/self/mem"),
        *("to-zero.sh", "to-pipe.sh", "to-nothing.sh", "turn/turn/turn/a.sh", "large.sh"),
    ],
)
def test_named_files_that_cannot_be_read_do_no_harm(script: Path, name: str) -> None:
    os.mkfifo(script.parent / "pipe")
    (script.parent / "loop").symlink_to("loop")
    (script.parent / "to-zero.sh").symlink_to("/dev/zero")
    (script.parent / "to-pipe.sh").symlink_to("pipe")
    (script.parent / "to-nothing.sh").symlink_to("nothing")
    (script.parent / "turn").symlink_to(".")
    (script.parent / "large.sh").write_bytes(b"MBS=2\n" * 900_000)
    script.write_text(megatron_script(FITS).replace("srun", f"source {name}\nsrun"))
    assert answer(script)[0] == 0


@pytest.mark.parametrize("word", ["$'a\\0b'", "$'\\ud800'", "'\x1b[31m'", "$'\\xff'"])
def test_names_of_files_may_be_anything(script: Path, word: str) -> None:
    script.write_text(megatron_script(f"{FITS} --c {word}/config.json").replace("srun", f"source {word}\nsrun"))
    answer(script)
    assert "\x1b" not in check(script, *CLUSTER).stdout


def test_escape_sequences_in_a_file_name_do_not_reach_the_terminal(tmp_path: Path) -> None:
    result = check(tmp_path / "\x1b[31m\nx.sh", *CLUSTER)
    assert result.return_value == 2
    assert "\x1b" not in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_installed_command_ends_with_the_same_status(script: Path) -> None:
    script.write_text(megatron_script(OOM))
    done = subprocess.run(
        [sys.executable, "-m", "opsk", "check", str(script), *CLUSTER], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, "")
    done = subprocess.run(
        [sys.executable, "-m", "opsk", "check", str(script), "--cluster", "nowhere"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("opsk: ")


def test_a_script_without_nodes_is_checked_on_the_one_that_slurm_gives(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    train = "trl sft --model_name_or_path meta-llama/Llama-2-7b-hf --use_peft --load_in_4bit --bf16 true"
    script.write_text(f"#!/bin/bash\n#SBATCH --gpus-per-node=8\n{train}\n")
    _, shown = answer(script)
    assert (shown["workload"]["plan"]["nodes"], shown["workload"]["plan"]["gpus"]) == (1, 8)


def test_a_module_that_is_not_in_a_folder_that_is_here_is_no_module_of_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("net/model.py", "parts/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("", encoding="utf-8")
    script = tmp_path / "job.sh"
    script.write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert NamedFiles(script=script).read("net/model.py") == ""
    assert NamedFiles(script=script).read("net/parts/__init__.py") is None
    assert NamedFiles(script=script).read("away/parts/__init__.py") == ""
