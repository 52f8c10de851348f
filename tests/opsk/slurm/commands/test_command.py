"""How the commands are called: with what environment and deadline, and what their failures become."""

import os
import stat
from pathlib import Path

import pytest

from opsk.errors import InputError, SlurmError
from opsk.slurm.commands.command import CommandClient, build_command_environment

SQUEUE = r"""#!/usr/bin/python3
# Stands for squeue: prints the jobs below in whatever format it is asked for, and the separator that it was given.
import os, sys
if "--version" in sys.argv:
    print("slurm-wlm 22.05.8")
    sys.exit(0)
if os.environ.get("SQUEUE_FORMAT") or os.environ.get("SLURM_TIME_FORMAT") != "%s":
    sys.exit("the caller's settings came through")
jobs = [
    {"JobID": "10", "JobArrayID": "10_[3-4]", "ArrayJobID": "10", "ArrayTaskID": "3-4", "State": "PENDING"},
    {"JobID": "12", "JobArrayID": "10_1", "ArrayJobID": "10", "ArrayTaskID": "1", "State": "RUNNING",
     "NodeList": "n[0-1]", "tres-alloc": "gres/gpu=16", "Name": "a\nb|c", "WorkDir": "/home/alice"},
]
asked = [argument for argument in sys.argv if argument.startswith("--jobs=")]
if asked == ["--jobs=99"]:
    sys.exit("slurm_load_jobs error: Invalid job id specified")
for job in jobs:
    line = ""
    for field in sys.argv[-1].split(","):
        name, _, suffix = field.partition(":")
        line += job.get(name, "") + suffix
    print(line)
"""
SCONTROL = r"""#!/bin/sh
cat <<'END'
JobId=10 ArrayJobId=10 ArrayTaskId=3-4 JobName=x
   WorkDir=/home/alice
JobId=12 ArrayJobId=10 ArrayTaskId=1 JobName=a
b|c
     Nodes=n[0-1] CPU_IDs=0-7 Mem=0 GRES=gpu:8(IDX:0-7)
   WorkDir=/home/alice
   AdminComment={"v":1}
   Comment=(null)
END
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    for name, text in (("squeue", SQUEUE), ("scontrol", SCONTROL)):
        install(tmp_path, name, text)
    return tmp_path


def install(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def client(folder: Path, **settings: float) -> CommandClient:
    environment = {"PATH": f"{folder}{os.pathsep}/usr/bin:/bin", "SQUEUE_FORMAT": "%i", "SLURM_TIME_FORMAT": "relative"}
    return CommandClient(environment=environment, **settings)


def test_the_callers_own_settings_do_not_reach_the_commands() -> None:
    given = {
        "SQUEUE_FORMAT": "%i",
        "SLURM_CLUSTERS": "other",
        "SLURM_CONF": "/etc/s.conf",
        "HOME": "/root",
        "LC_ALL": "de",
    }
    assert build_command_environment(given) == {
        "SLURM_CONF": "/etc/s.conf",
        "HOME": "/root",
        "LC_ALL": "C",
        "SLURM_TIME_FORMAT": "%s",
        "PATH": os.defpath,
    }


def test_jobs_with_details_join_two_questions(programs: Path) -> None:
    pending, running = client(programs).jobs(details=True)
    assert pending.label == "10_[3-4]"
    assert (running.name, running.admin_comment, running.gpus_per_node) == ("a\nb|c", '{"v":1}', 8)
    assert running.gpu_indices["n1"] == tuple(range(8))


def test_one_array_task_is_picked_from_its_array(programs: Path) -> None:
    assert client(programs).job("10_1").id == 12


def test_an_array_as_a_whole_is_refused_with_its_members(programs: Path) -> None:
    with pytest.raises(InputError, match=r"10_\[3-4\], 10_1"):
        client(programs).job("10")


@pytest.mark.parametrize("job_id", ["99", "10_7", "10+1"])
def test_an_unknown_job_is_named(programs: Path, job_id: str) -> None:
    with pytest.raises(InputError, match="knows no job " + job_id.replace("+", r"\+")):
        client(programs).job(job_id)


@pytest.mark.parametrize("job_id", ["", "abc", "1;rm", "--help", "1_", "1\n", "99999999999"])
def test_what_is_no_job_id_never_reaches_slurm(tmp_path: Path, job_id: str) -> None:
    with pytest.raises(InputError, match="no job id"):
        client(tmp_path).job(job_id)


def test_a_command_that_hangs_is_ended_at_the_deadline(tmp_path: Path) -> None:
    install(tmp_path, "squeue", "#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(SlurmError, match="did not answer within"):
        client(tmp_path, deadline_s=0.2).jobs()


def test_a_missing_command_is_said(tmp_path: Path) -> None:
    with pytest.raises(SlurmError, match="sinfo: No such file"):
        CommandClient(environment={"PATH": str(tmp_path)}).nodes()


def test_the_commands_own_complaint_is_passed_on_without_control_signs(tmp_path: Path) -> None:
    install(tmp_path, "sinfo", "#!/bin/sh\nprintf 'slurm_load_node error: \\033[31mUnable to contact\\n' >&2; exit 1\n")
    with pytest.raises(SlurmError, match=r"sinfo: slurm_load_node error:  \[31mUnable to contact"):
        client(tmp_path).nodes()


def test_a_program_that_is_not_slurms_is_found_out(tmp_path: Path) -> None:
    install(tmp_path, "squeue", "#!/bin/sh\necho hello\n")
    with pytest.raises(SlurmError, match="answers 'hello'"):
        client(tmp_path).release()


def test_a_queue_is_asked_for_with_whole_lists_of_tasks(tmp_path: Path) -> None:
    """Else squeue cuts an array's list at 64 characters, and the tasks behind are lost."""
    install(tmp_path, "squeue", SQUEUE.replace("jobs = [", "assert os.environ['SLURM_BITSTR_LEN'] == '0'\njobs = ["))
    found = CommandClient(environment={"PATH": str(tmp_path)}).queue()
    assert [(row.state, row.tasks, row.gpus) for row in found] == [("PENDING", 2, 0), ("RUNNING", 1, 16)]


def test_a_slurmctld_that_is_down_is_an_answer_of_ping(tmp_path: Path) -> None:
    install(tmp_path, "scontrol", "#!/bin/sh\necho 'Slurmctld(primary) at a is DOWN'; exit 1")
    (found,) = CommandClient(environment={"PATH": str(tmp_path)}).controllers()
    assert not found.is_up


def test_a_ping_without_an_answer_is_a_failure(tmp_path: Path) -> None:
    install(tmp_path, "scontrol", "#!/bin/sh\necho 'error: no slurm.conf' >&2; exit 1")
    with pytest.raises(SlurmError, match=r"no slurm\.conf"):
        CommandClient(environment={"PATH": str(tmp_path)}).controllers()
