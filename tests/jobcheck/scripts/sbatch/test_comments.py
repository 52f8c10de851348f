"""Tests that the readers of comments accept any text, and read as the real sbatch does."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.sbatch.comments import Directives, apply_statements, merge, read_directives, read_opsk_lines
from opsk_jobcheck.submission.request import SlurmRequest


def read(*lines: str) -> Directives:
    return read_directives("\n".join(("#!/bin/bash", *lines)) + "\n", file="job.sbatch")


HOSTILE = st.text() | st.lists(
    st.sampled_from(
        ["#SBATCH ", "#OPSK ", "\n", "-N", "--nodes=", "4", '"',
          "'", "\\", "#", "=", "$", "hetjob", "tp", "off", "\x1b[2J", "\0"]
    ),
    max_size=40,
).map("".join)  # fmt: skip


@given(HOSTILE)
@settings(max_examples=300)
def test_no_text_makes_the_readers_raise(text: str) -> None:
    requested = merge(read_directives(text, file="x"), SlurmRequest(nodes=2))
    assert requested.nodes == 2, "what is said at the command line counts, whatever stands in the script"
    apply_statements(Workload(framework=None), read_opsk_lines(text, file="x"))


@pytest.mark.parametrize(
    "text", ["#SBATCH " + "-N 4 " * 200_000, "#OPSK " + "tp=4 " * 200_000, "#SBATCH x\n" * 200_000]
)
def test_huge_input_is_cut(text: str) -> None:
    found = read_directives(text, file="x")
    said = read_opsk_lines(text, file="x")
    assert len(found.problems) + len(said.problems) < 10
    assert all(len(entry.text) <= 200 for entry in (*found.evidence, *said.evidence))


@pytest.mark.shared
def test_every_real_script_has_the_nodes_and_gpus_that_its_answer_names(shared: Path) -> None:
    folder = shared / "data" / "real"
    answers = json.loads((folder / "EXPECTED.json").read_text())["sbatch"]
    wrong = {}
    for name, answer in answers.items():
        text = (folder / "sbatch" / name).read_text(errors="replace")
        found = merge(read_directives(text, file=name), None)
        # where directives do not say it, the launcher's flags may
        if found.nodes != answer["nodes"] or found.gpus_per_node not in (None, answer["gpus_per_node"]):
            wrong[name] = (found.nodes, found.gpus_per_node)
    assert not wrong


REAL = [
    "-N 2 # two",
    "-N4#x --gres=gpu:2",
    "--nodes 3 -J 'a b' -pfoo",
    '--job-name="q r" "" -N 4',
    "-n 16 --ntasks-per-node=8 -c 4",
    "--tasks-per-node=4 --nodes=3-3",
    "--nodes=1k --exclusive -C a100",
    "-QN5 --requeue --wait-all-nodes=1",
    "--gpus-per-n=2 --gpus-per-task=2",
    "-J x#y -N 2",
    "-J b\\#c -N 2",
]


@pytest.mark.slurm
@pytest.mark.skipif(shutil.which("sbatch") is None, reason="sbatch is not installed")
@pytest.mark.parametrize("words", REAL)
def test_the_real_sbatch_reads_the_same(words: str, tmp_path: Path) -> None:
    """With -v sbatch prints the options as it understood them before it looks for a controller."""
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        "ClusterName=none\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=1\nMessageTimeout=2\n"
        "AuthType=auth/munge\nNodeName=localhost\nPartitionName=p Nodes=ALL\n"
    )
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/bash\n#SBATCH {words}\nsrun x\n")
    process = subprocess.Popen(
        ["sbatch", "-v", "--test-only", str(script)],
        env={"SLURM_CONF": str(conf), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    theirs: dict[str, str] = {}
    assert process.stderr is not None
    for line in process.stderr:
        if "end of defined options" in line:
            break
        name, colon, value = line.removeprefix("sbatch: ").partition(" : ")
        if colon:
            theirs[name.strip()] = value.strip()
    process.kill()
    process.communicate()
    assert theirs, "sbatch printed no options"
    found = read(f"#SBATCH {words}")
    ours = {
        "nodes": found.nodes,
        "ntasks": found.ntasks,
        "ntasks-per-node": found.ntasks_per_node,
        "cpus-per-task": found.cpus_per_task,
        "gpus-per-task": found.gpus_per_task,
        "partition": found.partition,
        "constraint": found.constraint,
        "job-name": found.job_name or theirs.get("job-name"),
    }
    assert {name: str(value) for name, value in ours.items() if value is not None} == {
        name: value for name, value in theirs.items() if name in ours
    }
