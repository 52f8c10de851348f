"""What the recorded output of four Slurm releases says of jobs, and what forged records cannot say."""

from pathlib import Path

import pytest

from opsk.errors import SlurmError
from opsk.slurm.commands.job_text import add_details, parse_jobs, split_records
from opsk.slurm.records import JobRecord

RELEASES = ("22.05", "24.11", "25.11", "26.05")
RECORDED_COLUMNS = [
    "JobID",
    "ArrayJobID",
    "ArrayTaskID",
    "HetJobID",
    "HetJobOffset",
    "Name",
    "UserName",
    "State",
    "Reason",
    "NumNodes",
    "tres-alloc",
    "tres-per-node",
    "tres-per-job",
    "tres-per-task",
    "NodeList",
    "ReqNodes",
    "ExcNodes",
    "Features",
    "Comment",
    "unknown",
    "exit_code",
    "derived",
    "Reservation",
    "RestartCnt",
    "STDOUT",
]


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def jobs(root: Path, release: str) -> dict[str, JobRecord]:
    lines = (root / "tests/data/slurm" / release / "squeue_O.txt").read_text().splitlines()[1:]
    text = "".join(line.rstrip() + "|\n" for line in lines)
    return {f"{job.name} {job.label}": job for job in parse_jobs(text, RECORDED_COLUMNS, "|")}


@pytest.fixture
def records(root: Path, release: str) -> dict[int, list[str]]:
    return split_records((root / "tests/data/slurm" / release / "scontrol_d_show_jobs.txt").read_text())


def named(jobs: dict[str, JobRecord], name: str) -> JobRecord:
    found = [job for label, job in jobs.items() if label.split()[0] == name]
    assert len(found) == 1
    return found[0]


def test_an_uneven_job_has_no_gpus_per_node(jobs: dict[str, JobRecord]) -> None:
    """Submitted with ``-N2 --gpus=5`` on n3 and n4."""
    job = named(jobs, "uneven")
    assert (job.nodes, job.gpus, job.gpus_per_node, job.gpu_type) == (("n3", "n4"), 5, None, "h100")
    assert job.is_active


def test_a_pending_job_has_what_it_asks_for(jobs: dict[str, JobRecord]) -> None:
    """Submitted with ``-N8 --gpus-per-node=8``: 64 GPUs, not one node yet."""
    job = named(jobs, "big")
    assert (job.state, job.nodes, job.node_count, job.gpus, job.gpus_per_node) == ("PENDING", (), 8, 64, 8)
    assert job.comment == "needs all"
    assert not job.is_active


def test_gpus_asked_for_by_the_job_are_counted(jobs: dict[str, JobRecord]) -> None:
    """Submitted with ``--gpus=8`` on one node."""
    assert named(jobs, "later").gpus == 8


def test_array_tasks_and_the_pending_rest_are_told_apart(jobs: dict[str, JobRecord]) -> None:
    labels = {job.label: job.array_task for job in jobs.values() if job.name == "arr"}
    assert labels["10_0"] == "0"
    assert labels["10_[3-4%2]"] == "3-4%2"


def test_components_of_a_heterogeneous_job_keep_their_offset(jobs: dict[str, JobRecord]) -> None:
    components = sorted((job.label, job.het_job_id, job.het_offset) for job in jobs.values() if job.name == "het")
    assert components == [("8+0", 8, 0), ("8+1", 8, 1)]


def test_exit_status_is_that_of_the_batch_script(jobs: dict[str, JobRecord]) -> None:
    """The script ran ``exit 3``."""
    job = named(jobs, "fail3")
    assert (job.state, job.exit_code, job.exit_signal) == ("FAILED", 3, 0)


def test_a_running_job_has_no_exit_status_yet(jobs: dict[str, JobRecord]) -> None:
    assert named(jobs, "uneven").exit_code is None


def test_details_add_gpu_indices_of_each_node(jobs: dict[str, JobRecord], records: dict[int, list[str]]) -> None:
    """``GRES=gpu:h100:4(IDX:0-3)`` on n3 and ``gpu:h100:1(IDX:0)`` on n4."""
    job = named(jobs, "uneven")
    (record,) = records[job.id]
    assert add_details(job, record).gpu_indices == {"n3": (0, 1, 2, 3), "n4": (0,)}


def test_details_add_the_administrators_comment(jobs: dict[str, JobRecord], records: dict[int, list[str]]) -> None:
    """An operator had written ``remapped n1->n6 by ...`` into the running train8."""
    commented = [job for job in jobs.values() if job.comment == "team=nlp run=42" and job.state == "RUNNING"]
    job = with_work_dir(commented[0])
    (record,) = records[job.id]
    assert (add_details(job, record).admin_comment or "").startswith("remapped n1->n6 by ")
    assert add_details(job, record).gpus_per_node == 8


def with_work_dir(job: JobRecord, path: str = "/home/alice") -> JobRecord:
    """The recorded squeue was not asked for the directory; scontrol printed it."""
    return JobRecord(**{name: getattr(job, name) for name in JobRecord.__slots__} | {"work_dir": path})


RECORD = """JobId=5 JobName={name}
   UserId=alice(2001) GroupId=alice(2001) MCS_label=N/A
     Nodes=n2 CPU_IDs=0,32 Mem=100 GRES=gpu:h100:3(IDX:0-2)
   Command=(null)
   WorkDir=/home/alice
{admin}   Comment={comment}
   StdErr=/home/alice/5.out
"""
JOB = JobRecord(
    id=5, label="5", user="alice", name="g3", state="RUNNING", nodes=("n2",), gpus=3, work_dir="/home/alice"
)


def test_excluded_nodes_are_read_where_squeue_does_not_tell_them() -> None:
    """22.05: ``squeue -O ExcNodes`` is not there, ``scontrol show job`` has it; a name that repeats the line is not."""
    line = "   ReqNodeList=(null) ExcNodeList=n[3-4]\n"
    record = RECORD.format(name="g3", comment="x", admin="")
    assert add_details(JOB, record + line).excluded_nodes == ("n3", "n4")
    assert add_details(JOB, record + line + line).excluded_nodes == ()


@pytest.mark.parametrize(
    ("name", "comment"),
    [
        ("g3", "x\n   AdminComment=forged"),
        ("g3\n   WorkDir=/home/alice\n   AdminComment=forged", "x"),
        ("g3", "x\n   WorkDir=/home/alice\n   AdminComment=forged"),
    ],
)
def test_a_user_cannot_forge_the_administrators_comment(name: str, comment: str) -> None:
    assert add_details(JOB, RECORD.format(name=name, comment=comment, admin="")).admin_comment is None


def test_a_directory_name_cannot_forge_the_administrators_comment() -> None:
    job = with_work_dir(JOB, "/home/alice\n   AdminComment=forged")
    record = RECORD.format(name="g3", comment="x", admin="   AdminComment=forged\n")
    assert add_details(job, record).admin_comment is None


def test_a_true_comment_is_read_beside_a_forged_one() -> None:
    record = RECORD.format(name="g3", comment="x\n   AdminComment=forged", admin="   AdminComment=true one \n")
    assert add_details(JOB, record).admin_comment == "true one"


def test_forged_gpu_lines_take_the_indices_away() -> None:
    name = "g3\n     Nodes=n2 CPU_IDs=0 Mem=1 GRES=gpu:h100:3(IDX:5-7)"
    assert add_details(JOB, RECORD.format(name=name, comment="x", admin="")).gpu_indices == {}


def test_a_forged_record_makes_its_id_ambiguous() -> None:
    evil = RECORD.format(name="g3", comment="x\nJobId=6 JobName=fake", admin="")
    honest = RECORD.replace("JobId=5", "JobId=6").format(name="honest", comment="y", admin="")
    assert {number: len(found) for number, found in split_records(evil + honest).items()} == {5: 1, 6: 2}


def test_text_within_fields_cannot_start_a_record() -> None:
    separator = "|0123456789abcdef|"
    cells = ["7", "evil\n8|alice|RUNNING\n", "alice"]
    (job,) = parse_jobs(separator.join(cells) + separator + "\n", ("JobID", "Name", "UserName"), separator)
    assert (job.id, job.user, job.name) == (7, "alice", "evil\n8|alice|RUNNING\n")


@pytest.mark.parametrize("text", ["7|evil|ali", "7|evil|", "(null)|evil|alice|\n"])
def test_an_answer_that_ends_early_is_an_error(text: str) -> None:
    with pytest.raises(SlurmError):
        parse_jobs(text, ("JobID", "Name", "UserName"), "|")
