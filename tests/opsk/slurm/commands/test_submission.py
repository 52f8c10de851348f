"""How a script is given to sbatch, and what its refusals become."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.errors import SlurmError
from opsk.slurm.commands.submission import submit


def sbatch(folder: Path, body: str) -> dict[str, str]:
    program = folder / "sbatch"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin", "SBATCH_ACCOUNT": "research"}


def test_the_number_of_the_job_is_told_with_what_sbatch_says(tmp_path: Path) -> None:
    environment = sbatch(tmp_path, 'echo "4711;cluster"; echo "sbatch: account $SBATCH_ACCOUNT, $1 $2" >&2')
    done = submit(Path("/x/job.sh"), environment=environment)
    assert (done.job_id, done.message) == ("4711", "sbatch: account research, --parsable /x/job.sh")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("echo 'sbatch: error: invalid partition' >&2; exit 1", "status 1.*invalid partition"),
        ("exit 1", "it said nothing"),
        ("echo Submitted", "did not take the job"),
        ("echo 12; exit 3", "status 3"),
    ],
)
def test_a_job_that_was_not_taken_is_an_error_with_its_words(tmp_path: Path, body: str, why: str) -> None:
    with pytest.raises(SlurmError, match=why) as error:
        submit(Path("job.sh"), environment=sbatch(tmp_path, body))
    assert error.value.hint.endswith("sbatch job.sh")


def test_without_sbatch_it_is_said_how_to_submit_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlurmError, match="sbatch: No such file"):
        submit(Path("job.sh"))


def test_an_sbatch_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(SlurmError, match=r"did not answer within 0\.2 s"):
        submit(Path("job.sh"), environment=sbatch(tmp_path, "exec sleep 60"), deadline_s=0.2)
