"""What a command inside a job takes from its environment."""

from __future__ import annotations

import pytest

from opsk.errors import InputError, SlurmError
from opsk.slurm.commands.current_job import find_own_job, read_batch_script, read_node_list, resolve_label


def test_the_first_task_of_an_array_asks_for_itself_only() -> None:
    """Slurm gives one task of an array the id of the whole: by that id it answers with all tasks."""
    inside = {"SLURM_JOB_ID": "10", "SLURM_ARRAY_JOB_ID": "10", "SLURM_ARRAY_TASK_ID": "3"}
    assert resolve_label("10", inside) == "10_3"
    assert resolve_label("11", inside) == "11"


def test_a_heterogeneous_job_is_refused_from_inside_only() -> None:
    inside = {"SLURM_JOB_ID": "10", "SLURM_HET_SIZE": "2"}
    assert resolve_label("11", inside) == "11"
    with pytest.raises(InputError, match="heterogeneous"):
        resolve_label("10", inside)


@pytest.mark.parametrize("text", ["", "x", "1;ls", "12345678901"])
def test_what_is_no_id_is_no_job(text: str) -> None:
    assert find_own_job({"SLURM_JOB_ID": text}) == ""


def test_nodes_that_cannot_be_read_are_none() -> None:
    assert read_node_list({"SLURM_JOB_NODELIST": "n[0-1]"}) == ("n0", "n1")
    assert read_node_list({"SLURM_JOB_NODELIST": "n[0-"}) == ()
    assert read_node_list({}) == ()


def test_without_slurm_there_is_no_script(tmp_path: object) -> None:
    with pytest.raises(SlurmError):
        read_batch_script(1, {"PATH": str(tmp_path)}, deadline_s=1.0)
