"""Is the last line of a log a cause only where it is the end of what the job was for?"""

# ruff: noqa: E501 -- lines are laid out as programs print them
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.reasoning import explain
from opsk.postmortem.values import Evidence, JobFacts, Report

SCRIPT = "/var/spool/slurmd/job4711/slurm_script"
STEPS = "".join(f"step {step} | loss: 2.3100 | 1.23 s/step\n" for step in range(40))
WORK = "".join(f"shard {number} of 400 is tokenised, 81920 tokens\n" for number in range(120))
DONE = "Saved the model to out.pt\nTraining complete\n"
TRIFLES = (
    f"{SCRIPT}: line 40: seff: command not found\n",
    f"{SCRIPT}: line 40: finish: command not found\n",
    f"{SCRIPT}: line 31: /home/u/notify: No such file or directory\n",
    "gzip: results/*.csv: No such file or directory\n",
    "tar: checkpoints: No such file or directory\n",
)


def read(folder: Path, text: str) -> Evidence:
    path = folder / "slurm-4711.out"
    path.write_text(text)
    return read_logs([LogFile(path=path)], processes=1)


def named(report: Report) -> str:
    return report.root.failure.value if report.root is not None else ""


@pytest.mark.parametrize("last", TRIFLES)
@pytest.mark.parametrize("above", [STEPS + DONE, DONE, WORK], ids=["trained", "done", "worked"])
def test_a_line_of_the_script_after_its_program_is_a_note(above: str, last: str, tmp_path: Path) -> None:
    report = explain(read(tmp_path, above + last))
    assert named(report) == ""
    assert any("a line of the script failed" in note for note in report.evidence.notes)


@pytest.mark.parametrize("last", TRIFLES)
def test_it_is_the_cause_where_slurm_says_that_the_job_failed(last: str, tmp_path: Path) -> None:
    failed = replace(read(tmp_path, WORK + last), job=JobFacts(job_id="4711", state="FAILED", exit_code=127))
    assert named(explain(failed)) == "config"


@pytest.mark.parametrize(
    "last",
    [
        f"{SCRIPT}: line 40: torchrun: command not found\n",
        f"{SCRIPT}: line 40: ./solver: No such file or directory\n",
        f"{SCRIPT}: line 40: lmp_mpi: command not found\n",
        f"{SCRIPT}: line 40: interFoam: command not found\n",
        f"{SCRIPT}: line 40: /home/u/bin/train.sh: No such file or directory\n",
    ],
)
def test_what_the_job_was_for_is_no_trifle(last: str, tmp_path: Path) -> None:
    assert named(explain(read(tmp_path, WORK + last))) == "config"


def test_a_short_script_whose_command_is_not_there_failed(tmp_path: Path) -> None:
    assert named(explain(read(tmp_path, f"{SCRIPT}: line 4: relax: command not found\n"))) == "config"


def test_an_error_that_is_the_last_word_ended_the_program(tmp_path: Path) -> None:
    report = explain(read(tmp_path, WORK + "Error: invalid type: null, expected f64\n"))
    assert report.root is not None
    assert named(report) == "software"
    assert report.root.confidence < 0.6
    assert named(explain(read(tmp_path, WORK + "Error: no label for item 3\n" + WORK))) == ""
    assert named(explain(read(tmp_path, STEPS + DONE + "Error: nobody is subscribed\n"))) == ""


def test_an_error_that_a_program_says_all_the_time_is_not_what_it_ended_by(tmp_path: Path) -> None:
    often = "".join(f"reading cluster {number}\nError: no group for cluster {number}\n" for number in range(40))
    assert named(explain(read(tmp_path, often + "Total time: 411.7 s\n"))) == ""


@pytest.mark.parametrize(
    "says",
    [
        "RNA pipeline failed: clustering is required for the plot.\n\nTotal execution time: 1300.77 seconds\n",
        "The following command failed to execute: \ncat data.tar | gawk '{print}'\nError code: 0\n",
        "{Index exceeds array bounds.\n\nError in cocluster (line 38)\ntmpA = A(batch_size, 1);\n}\n",
    ],
)
def test_a_program_that_says_that_it_failed_failed(says: str, tmp_path: Path) -> None:
    assert named(explain(read(tmp_path, "Reading the matrix\n" + says))) == "software"
    assert named(explain(read(tmp_path, says.replace("Error in", "In") + WORK))) == ""


@pytest.mark.parametrize("asks", ["Proceed ([y]/n)? ", "wandb: Enter your choice: ", "Overwrite out.pt? [y/N] "])
def test_a_program_that_asks_and_gets_no_answer_ended_there(asks: str, tmp_path: Path) -> None:
    assert named(explain(read(tmp_path, "Collecting packages\n" + asks))) == "software"
    assert named(explain(read(tmp_path, "Collecting packages\n" + asks + "y\n" + WORK))) == ""


def test_a_tool_of_perl_that_died_is_told_from_one_that_warns(tmp_path: Path) -> None:
    died = "cannot open reads.fa: No file at /opt/tools/split.pl line 120.\n"
    warns = "Use of uninitialized value $n in addition (+) at /opt/tools/split.pl line 120.\n"
    missing = "Can't locate Bio/SeqIO.pm in @INC (you may need to install the Bio::SeqIO module) at run.pl line 3.\nBEGIN failed--compilation aborted at run.pl line 3.\n"
    assert named(explain(read(tmp_path, WORK + died))) == "software"
    assert named(explain(read(tmp_path, WORK + warns))) == ""
    assert named(explain(read(tmp_path, WORK + warns * 9 + missing))) == "config"
    assert named(explain(read(tmp_path, died + WORK))) == ""


def test_a_display_that_is_not_there_is_no_rank(tmp_path: Path) -> None:
    gtk = "Unable to init server: Could not connect: Connection refused\n"
    assert named(explain(read(tmp_path, gtk + "WARNING:tensorflow:Using temporary folder\n"))) == ""


def test_a_gpu_that_pytorch_does_not_know_fails_when_a_kernel_is_launched(tmp_path: Path) -> None:
    warns = (
        "/opt/venv/lib/python3.9/site-packages/torch/cuda/__init__.py:287: UserWarning: \n"
        "NVIDIA B200 with CUDA capability sm_100 is not compatible with the current PyTorch installation.\n"
        "  warnings.warn(\n"
    )
    assert named(explain(read(tmp_path, warns))) == ""
    error = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    assert named(explain(read(tmp_path, warns + error))) == "config"
