"""Can a name that stands for a file of ours lead out of its folder?"""

from __future__ import annotations

import shlex
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import OpskError
from opsk.hardware.catalog import cluster, gpu
from opsk.job_key import JobKey
from opsk.postmortem.evidence.bundle import Redaction, write_bundle
from opsk.postmortem.evidence.node_files import job_folder, node_file_name
from opsk.postmortem.reasoning.actions import list_actions
from opsk.postmortem.values import Cause, FailureClass, JobFacts, Place
from opsk.slurm.commands.remap_commands import Command, Who
from opsk.workload.public_models.lookup import public_model

OUT = (
    "../../etc/passwd",
    "/etc/passwd",
    "..",
    ".",
    "a/../../b",
    "\x00",
    "x\x00.toml",
    "~root",
    "%2e%2e/x",
    "C:\\x",
    "",
)
HOSTILE = (
    "n1;reboot", "n1$(reboot)", "n1`reboot`", "n1 State=DOWN", "n1\nreboot", "-v", "n1'", 'n1"', "n1|sh", "n1&", "n1>x",
    "n1\x1b[2J", "*", "~", "n1,ALL", "",
)  # fmt: skip


@pytest.mark.parametrize("name", OUT)
def test_a_name_of_the_catalogue_is_no_path(name: str) -> None:
    for look in (cluster, gpu):
        with pytest.raises(OpskError):
            look(name)
    assert public_model(name) is None


@pytest.mark.parametrize("number", [*OUT, "4711/..", "٤٧١١", "4711\n", "-1", "1e3", "99999999999"])
def test_a_jobs_folder_is_named_by_digits_alone(number: str, tmp_path: Path) -> None:
    with pytest.raises(OpskError):
        job_folder(tmp_path, JobKey(cluster="hall-2", job=number))


@given(cluster=st.text(max_size=300))
def test_a_jobs_folder_stays_where_evidence_is_kept(cluster: str) -> None:
    folder = job_folder(Path("/kept"), JobKey(cluster=cluster, job="4711"))
    assert folder.parent == Path("/kept")
    assert "\x00" not in folder.name
    assert not folder.name.startswith(".")


@given(node=st.text(max_size=300))
def test_a_nodes_file_stays_in_its_folder(node: str) -> None:
    name = node_file_name(node, 0.0)
    assert "/" not in name
    assert "\x00" not in name
    assert not name.startswith(".")
    assert Path("/top", name).parent == Path("/top")


def test_every_name_in_a_bundle_lies_below_one_folder(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b.tar.gz", {"nodes/1.json": "{}", "report.md": "x"}, Redaction())
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        members = archive.getmembers()
    assert all(member.isfile() and member.name.startswith("postmortem/") for member in members)
    assert not any(".." in member.name for member in members)


@pytest.mark.parametrize("node", HOSTILE)
def test_no_command_to_paste_holds_what_a_log_calls_a_node(node: str) -> None:
    cause = Cause(failure=FailureClass.GPU_HARDWARE, what=node, where=Place(node=node), confidence=0.99)
    job = JobFacts(job_id=f"4711{node}", user=node, state="FAILED")
    for action in list_actions(cause, job, ()):
        assert node not in action.command.split() if node else True
        assert not set(";$`|&><\n\x1b*~") & set(action.command.partition("   #")[0])


@given(words=st.lists(st.text(st.characters(exclude_characters="\x00"), max_size=20), min_size=1, max_size=5))
def test_a_command_is_pasted_as_the_words_that_it_is(words: list[str]) -> None:
    command = Command(argv=("scontrol", *words), who=Who.USER, why="")
    assert shlex.split(command.text) == ["scontrol", *words]
