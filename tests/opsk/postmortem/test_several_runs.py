"""Does the last run of a log decide, where output of several runs is appended to one file?"""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.logs.openings import Opening
from opsk.postmortem.reasoning import explain
from opsk.postmortem.values import Report

HEAD = "Loaded module: gcc/13.2\nLoaded module: cuda/12.4\npython 3.11 on gpu012\n"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB."
TYPE = "TypeError: forward() takes 2 positional arguments but 3 were given"
MISSING = "ModuleNotFoundError: No module named 'tokenizers'"


def raised(message: str, program: str = "train.py", label: str = "") -> str:
    text = (
        f'Traceback (most recent call last):\n  File "/home/u/{program}", line 88, in <module>\n    main()\n'
        f'  File "/home/u/{program}", line 41, in main\n    run()\n{message}\n'
    )
    return "".join(f"{label}{line}\n" for line in text.splitlines())


def explained(folder: Path, text: str) -> Report:
    path = folder / "train.err"
    path.write_text(text)
    return explain(read_logs([LogFile(path=path)], processes=1))


def named(report: Report) -> str:
    return report.root.failure.value if report.root is not None else ""


@pytest.mark.parametrize(
    ("first", "last", "failure"),
    [(TYPE, OOM, "gpu_memory"), (OOM, TYPE, "software"), (TYPE, MISSING, "config"), (MISSING, TYPE, "software")],
)
def test_where_the_first_lines_stand_again_the_last_run_decides(
    first: str, last: str, failure: str, tmp_path: Path
) -> None:
    report = explained(tmp_path, HEAD + raised(first) + HEAD + raised(last))
    assert named(report) == failure
    assert report.root is not None
    assert last in report.root.findings[0].text
    assert any("several runs" in note for note in report.evidence.notes)


def test_a_last_run_that_shows_no_failure_is_none(tmp_path: Path) -> None:
    assert named(explained(tmp_path, HEAD + raised(TYPE) + HEAD)) == ""
    assert named(explained(tmp_path, HEAD + raised(TYPE) + HEAD + "Saved the model to out.pt\n")) == ""


def test_a_killed_run_below_others_that_raised_was_killed(tmp_path: Path) -> None:
    killed = "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.batch.\n"
    assert named(explained(tmp_path, HEAD + raised(TYPE) + HEAD + raised(MISSING) + HEAD + killed)) == "host_memory"


def test_the_same_program_that_raises_again_ran_again(tmp_path: Path) -> None:
    said = "Using the slow processor, as use_fast is not set, and tokens of the model's own vocabulary\n" * 3
    assert named(explained(tmp_path, raised(MISSING) + said + raised(TYPE))) == "software"
    assert named(explained(tmp_path, raised(TYPE) + said + raised(MISSING))) == "config"


def test_another_program_of_the_script_fails_by_what_the_first_one_did_not_write(tmp_path: Path) -> None:
    said = (
        "Loading the checkpoint that training has written, for the evaluation on the held-out part of the corpus\n" * 3
    )
    lost = "KeyError: 'weights'"
    assert named(explained(tmp_path, raised(OOM) + said + raised(lost, "evaluate.py"))) == "gpu_memory"
    assert named(explained(tmp_path, HEAD + raised(OOM) + HEAD + raised(lost, "evaluate.py"))) == "gpu_memory"


def test_ranks_of_one_job_are_no_runs(tmp_path: Path) -> None:
    said = "a line of another rank, which is still at work and prints what it has loaded from the shared folder\n" * 3
    interrupted = raised("KeyboardInterrupt")
    assert named(explained(tmp_path, raised(TYPE) + said + interrupted)) == "software"
    srun = "srun: error: gpu012: task 3: Exited with exit code 1\n"
    assert named(explained(tmp_path, raised(OOM) + said + raised(TYPE) + srun)) == "gpu_memory"
    labelled = raised(OOM, label="[rank3]: ") + said + raised(TYPE, label="[rank0]: ")
    assert named(explained(tmp_path, HEAD + labelled)) == "gpu_memory"


def test_what_one_run_prints_again_and_again_is_no_beginning() -> None:
    def find_last(text: str) -> int | None:
        opening = Opening()
        opening.take(text.encode(), 0, 1)
        return opening.last

    body = "".join(f"shard {number} of 400 is there\n" for number in range(40))
    assert find_last(HEAD + body + HEAD) == len(HEAD + body)
    assert find_last((HEAD + body) * 80) is None
    assert find_last(HEAD * 20) is None
    assert find_last(raised(TYPE) + HEAD + body + HEAD) is None
    assert find_last("Sampling 64 hypotheses\nepoch 1 iteration 3 loss 2.1\n" * 9) is None


def test_a_beginning_is_found_across_pieces() -> None:
    body = "".join(f"shard {number} of 400 is there\n" for number in range(40)).encode()
    opening = Opening()
    opening.take(HEAD.encode() + body, 0, 1)
    opening.take(body + HEAD.encode(), len(HEAD) + len(body), 44)
    assert (opening.last, opening.last_line) == (len(HEAD) + 2 * len(body), 84)


def test_below_lsf_s_report_stands_the_output_of_its_job(tmp_path: Path) -> None:
    def report(job: int, code: int) -> str:
        head = f"Sender: LSF System <lsfadmin@n-1>\nSubject: Job {job}: <train> in cluster <dcc> Exited\n\n"
        return f"{head}Exited with exit code {code}.\n\nThe output (if any) follows:\n\n"

    assert named(explained(tmp_path, report(31, 1) + raised(OOM) + report(32, 1) + raised(TYPE))) == "software"
    assert named(explained(tmp_path, report(31, 1) + raised(TYPE) + report(32, 1) + raised(OOM))) == "gpu_memory"
