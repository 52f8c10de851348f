"""What a job will get: the script's lines, the request that beats them, and what follows by arithmetic."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.sbatch.directives import Directives, read_directives, read_words
from opsk_jobcheck.scripts.sbatch.resources import ENVIRONMENT, Resources, build_typed_request, merge
from opsk_jobcheck.scripts.sbatch.statements import apply_statements, read_opsk_lines
from opsk_jobcheck.scripts.script import read_script
from opsk_jobcheck.submission.request import SlurmRequest
from tests.fakes.slurm_sizes import REFUSED_BY_NEWER, SIZES, RequestedSizes


def read(*lines: str) -> Directives:
    return read_directives("\n".join(("#!/bin/bash", *lines)) + "\n", file="job.sbatch")


def merged(*lines: str, **request: object) -> Resources:
    return merge(read(*lines), SlurmRequest(**request) if request else None)  # type: ignore[arg-type]


def test_nodes_times_gpus_per_node_are_all_gpus() -> None:
    found = merged("#SBATCH --nodes=4 --gres=gpu:8")
    assert found.gpus == 32
    entry = next(entry for entry in found.evidence if entry.field == "plan.gpus")
    assert entry.text == "nodes 4 x gpus_per_node 8"
    assert entry.line == 2


@pytest.mark.parametrize(
    ("lines", "nodes", "per_node", "in_all"),
    [
        ("--nodes=4 --gpus=32", 4, 8, 32),
        ("--nodes=3 --gpus=32", 3, None, 32),
        ("--gpus=32 --gpus-per-node=8", 4, 8, 32),
        ("--nodes=2 --ntasks-per-node=8 --gpus-per-task=1", 2, 8, 16),
        ("--nodes=2 --ntasks=2 --gpus-per-task=4", 2, 4, 8),
        ("--ntasks=16 --ntasks-per-node=8 --gpus-per-node=8", 2, 8, 16),
        ("--nodes=2 --ntasks=16 --ntasks-per-gpu=1", 2, 8, 16),
        ("--ntasks=1 --gres=gpu:8", 1, 8, 8),
        ("--ntasks=1 --nodes=1-2 --gres=gpu:8", None, 8, None),
        ("--ntasks=2 --gres=gpu:8", None, 8, None),
        ("--gres=gpu:8", None, 8, None),
        ("--nodes=2-4 --gres=gpu:8", None, 8, None),
    ],
)
def test_arithmetic_fills_what_is_fixed(
    lines: str, nodes: int | None, per_node: int | None, in_all: int | None
) -> None:
    found = merged(f"#SBATCH {lines}")
    assert (found.nodes, found.gpus_per_node, found.gpus) == (nodes, per_node, in_all)


@pytest.mark.parametrize("sizes", [*SIZES, REFUSED_BY_NEWER], ids=lambda sizes: sizes.options)
def test_sizes_are_those_that_slurmctld_derives(sizes: RequestedSizes) -> None:
    found = merge(read(f"#SBATCH {sizes.options}"), None, is_for_one_node=True)
    tasks = found.ntasks if sizes.ntasks is not None else None
    assert (found.nodes, found.gpus, tasks) == (sizes.nodes, sizes.gpus, sizes.ntasks)


def test_two_counts_of_a_nodes_gpus_are_a_problem() -> None:
    (problem,) = merged(f"#SBATCH {REFUSED_BY_NEWER.options}").problems
    assert problem.what == "--gpus-per-node asks for 4 GPUs of a node, and another option for 8"


@pytest.mark.parametrize("option", ["-F hosts", "-w ./hosts", "-w 'n[0-'"])
def test_nodes_that_a_file_or_no_list_names_are_not_counted(option: str) -> None:
    assert merge(read(f"#SBATCH --gres=gpu:8 {option}"), None, is_for_one_node=True).nodes is None


@pytest.mark.parametrize(
    ("lines", "nodes", "in_all"),
    [
        ("--gres=gpu:8", 1, 8),
        ("--gpus-per-node=4 --ntasks-per-node=4", 1, 4),
        ("--gpus-per-node=4 --ntasks=8", None, None),  # Slurm may spread tasks
        ("--gpus-per-node=4 --nodes=2-4", None, None),
        ("--gpus=8", None, 8),
        ("--gpus=h100-80:1", 1, 1),  # a node has at least one of them
        ("--gpus=1 --ntasks=4", None, 1),
        ("--gpus=1 --nodes=1-2", None, 1),
        ("--cpus-per-task=8", None, None),  # nothing is said of GPUs
    ],
)
def test_slurm_gives_one_node_where_none_are_asked_for(lines: str, nodes: int | None, in_all: int | None) -> None:
    found = merge(read_directives(f"#!/bin/bash\n#SBATCH {lines}\n", file="job.sh"), None, is_for_one_node=True)
    assert (found.nodes, found.gpus) == (nodes, in_all)


@pytest.mark.parametrize(
    ("body", "nodes"),
    [
        ("python train.py", 1),
        ("torchrun --nnodes $SLURM_NNODES train.py", None),
        ("python train.py --num_nodes 4", None),
        ("echo $SLURM_JOB_NODELIST\npython train.py", 1),  # many print the list of their one node
        ("  printf '%s' $SLURM_NNODES\n# scontrol show hostnames\npython train.py", 1),
        ("echo $SLURM_JOB_NODELIST > hosts\npython train.py", None),
        ("head=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\npython train.py", None),
    ],
)
def test_a_script_that_asks_for_its_nodes_gets_their_number_when_it_is_submitted(body: str, nodes: int | None) -> None:
    workload = read_script(f"#!/bin/bash\n#SBATCH --gres=gpu:8\n{body}\n", file="job.sh")
    assert workload.plan.nodes == nodes


def test_the_request_beats_the_script() -> None:
    found = merged("#SBATCH --nodes=4 --gres=gpu:a100:8", nodes=2, gpu_type="h100")
    assert (found.nodes, found.gpus_per_node, found.gpus, found.gpu_type) == (2, 8, 16, "h100")


def test_a_line_that_slurm_was_not_asked_for_is_not_in_force() -> None:
    """``sbatch -N 4-6``, and whatever comes through srun, salloc or slurmrestd: the request has no number."""
    found = merged("#SBATCH --nodes=2 --gpus-per-node=h100:4", is_merged=True, gpus_per_node=8)
    assert (found.nodes, found.gpus_per_node, found.gpus, found.gpu_type) == (None, 8, None, None)
    told = [(entry.field, entry.line) for entry in found.unknown if "this line has no effect" in entry.why]
    assert told == [("plan.nodes", 2), ("gpu", 2)]


def test_a_range_of_nodes_is_why_the_gpus_cannot_be_told() -> None:
    (reason,) = merged("hostname", is_merged=True, gpus_per_node=8).unknown
    assert (reason.field, reason.why) == ("plan.gpus", "Slurm chooses the number of nodes")


def test_what_a_hook_cannot_see_is_still_taken_from_the_script() -> None:
    assert merged("#SBATCH --ntasks-per-gpu=2 --ntasks=8", is_merged=True, ntasks=8).gpus == 4


def test_the_request_tells_what_the_script_cannot() -> None:
    found = merged("#SBATCH --nodes=$N --gres=gpu:8", nodes=2)
    assert (found.nodes, found.gpus, found.unknown) == (2, 16, ())


def test_more_nodes_than_tasks_are_cut_as_sbatch_does() -> None:
    # _opt_verify: "can't run %d processes on %d nodes, setting nnodes to %d"
    found = merged("#SBATCH --nodes=8 --ntasks=2 --gres=gpu:8")
    assert (found.nodes, found.gpus) == (2, 16)
    assert found.problems


def test_contradicting_gpu_counts_are_a_problem() -> None:
    found = merged("#SBATCH --nodes=2 --gpus-per-node=8 --gpus=8")
    assert (found.nodes, found.gpus) == (2, None)
    assert "8 GPUs" in found.problems[0].what


@given(
    script=st.integers(1, 64),
    requested=st.integers(1, 64) | st.none(),
    per_node=st.integers(1, 16),
)
def test_merged_counts_always_multiply(script: int, requested: int | None, per_node: int) -> None:
    found = merged(f"#SBATCH -N {script} --gpus-per-node={per_node}", nodes=requested)
    assert found.nodes == (requested or script)
    assert found.gpus == (requested or script) * per_node


def test_a_steps_one_task_says_nothing_of_the_job() -> None:
    assert merge(read_words(("--ntasks=1",), file="srun"), None).nodes is None


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


def test_options_are_read_as_sbatch_reads_them() -> None:
    requested = build_typed_request(["-N4", "--gpus-per-node", "h100:8", "-pgpu", "--ntasks-per-node=1"], {})
    assert (
        requested.nodes,
        requested.gpus_per_node,
        requested.gpu_type,
        requested.partition,
    ) == (4, 8, "h100", "gpu")
    assert requested.ntasks_per_node == 1


def test_the_environment_counts() -> None:
    requested = build_typed_request([], {"SBATCH_GPUS_PER_NODE": "4", "SBATCH_PARTITION": "gpu", "HOME": "/root"})
    assert (requested.gpus_per_node, requested.partition) == (4, "gpu")


def test_the_command_line_beats_the_environment() -> None:
    requested = build_typed_request(["--partition=own"], {"SBATCH_PARTITION": "inherited"})
    assert requested.partition == "own"


def test_nodes_that_are_given_apart_beat_all() -> None:
    assert build_typed_request(["--nodes=2"], {}, nodes=4).nodes == 4


@pytest.mark.parametrize("variable", ["SLURM_NNODES", "SLURM_GPUS", "SALLOC_GPUS", "SBATCH_NODES"])
def test_variables_that_sbatch_does_not_read_do_not_count(variable: str) -> None:
    assert build_typed_request([], {variable: "4"}) == build_typed_request([], {})


def test_an_empty_variable_is_none() -> None:
    assert build_typed_request([], {"SBATCH_GPUS": ""}).gpus is None


@given(words=st.lists(st.text(max_size=20), max_size=6), value=st.text(max_size=20))
def test_nothing_that_is_typed_raises(words: list[str], value: str) -> None:
    build_typed_request(words, dict.fromkeys(ENVIRONMENT, value))
