"""A script starts another: what is exported reaches it, what is not does not, and its lines are cited as its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.bash.evaluate import run
from opsk_jobcheck.scripts.script import read_script
from opsk_jobcheck.submission.request import SlurmRequest

HEAD = "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8\n"
TRAIN = (
    "#!/bin/bash\npython pretrain_gpt.py --num-layers ${LAYERS:-8} --hidden-size 1024 --num-attention-heads 16 \\\n"
    "  --seq-length 2048 --micro-batch-size ${1:-1} --tensor-model-parallel-size $TP\n"
)


def read(script: str, files: Mapping[str, str] | None = None, environment: dict[str, str] | None = None) -> Workload:
    request = SlurmRequest(environment=environment) if environment is not None else None
    return read_script(HEAD + script, file="job.sh", files=files or {}, request=request)


@pytest.mark.parametrize(
    "start",
    [
        "srun bash train.sh 4",
        "srun --ntasks-per-node=1 bash ./train.sh 4",
        "srun ./train.sh 4",
        "bash -x train.sh 4",
        "cd x && cd .. && bash train.sh 4",
        "srun numactl --cpunodebind=0 bash train.sh 4",
        "exec bash train.sh 4",
    ],
)
def test_a_started_script_is_wanted_and_read(start: str) -> None:
    assert "train.sh" in read(f"export LAYERS=12 TP=2\n{start}\n").missing_files
    workload = read(f"export LAYERS=12 TP=2\n{start}\n", {"train.sh": TRAIN})
    assert (workload.model.layers, workload.plan.tp, workload.plan.micro_batch) == (12, 2, 4)
    assert workload.framework == "megatron-lm"


def test_lines_of_the_other_script_are_cited_as_its_own() -> None:
    workload = read("export TP=2\nsrun bash train.sh\n", {"train.sh": TRAIN})
    sources = {entry.field: (entry.file, entry.line) for entry in workload.evidence}
    assert sources["model.hidden"] == ("train.sh", 2)
    assert sources["model.seq"] == ("train.sh", 3)
    assert sources["plan.tp"] == ("job.sh", 3), "where the value was written"


@pytest.mark.parametrize(
    ("setting", "tp"),
    [
        ("TP=4", None),
        ("export TP=4", 4),
        ("TP=4; export TP", 4),
        ("export TP; TP=4", 4),
        ("declare -x TP=4", 4),
        ("set -a; TP=4", 4),
        ("set -o allexport; TP=4; set +o allexport", 4),
        ("export TP=4; export -n TP", None),
        ("export TP=4; unset TP", None),
        ("export TP=4; (export TP=8)", 4),
        ("TP=4; if [ -f /x ]; then export TP; fi", None),
        ("f() { export TP=4; }; f", None),
    ],
)
def test_only_what_is_exported_reaches_it(setting: str, tp: int | None) -> None:
    assert read(f"{setting}\nsrun bash train.sh\n", {"train.sh": TRAIN}).plan.tp == tp


def test_an_assignment_before_the_command_reaches_it() -> None:
    assert read("TP=4 bash train.sh\n", {"train.sh": TRAIN}).plan.tp == 4


def test_its_own_variables_do_not_come_back() -> None:
    script = "export TP=2\nbash set.sh\nbash train.sh\n"
    assert read(script, {"set.sh": "export TP=8\nTP=8\n", "train.sh": TRAIN}).plan.tp == 2


def test_a_variable_that_is_named_like_a_secret_may_be_set() -> None:
    """The submit hook sends none of those."""
    script = "python pretrain_gpt.py --num-layers 8 --hidden-size 64 --seq-length 8 --micro-batch-size {}\n"
    unset = read(script.format("$(( ${MBS} + 1 ))"), environment={})
    maybe = read(script.format("$(( ${MBS_PER_TOKEN} + 1 ))"), environment={})
    assert (unset.plan.micro_batch, maybe.plan.micro_batch) == (1, None)


def test_a_script_that_the_job_writes_itself_is_read() -> None:
    script = "export TP=2 LAYERS=3\ncat > run.sh <<'EOF'\n" + TRAIN + "EOF\nchmod +x run.sh\nsrun ./run.sh 2\n"
    workload = read(script)
    assert (workload.model.layers, workload.plan.micro_batch) == (3, 2)
    assert "run.sh" not in workload.missing_files


@pytest.mark.parametrize("change", ["sed -i s/8/4/ train.sh", "cp other.sh train.sh", "python gen.py > train.sh"])
def test_a_script_that_the_job_changes_is_not_read(change: str) -> None:
    workload = read(f"export TP=2\n{change}\nsrun bash train.sh\n", {"train.sh": TRAIN})
    assert workload.model.layers is None


@pytest.mark.parametrize(
    "start",
    [
        "cp train.sh /tmp/",
        "chmod +x train.sh",
        "sbatch train.sh",
        "echo bash train.sh",
        "srun --export=NONE bash train.sh",
        "srun --task-prolog=train.sh hostname",
        "srun --prolog train.sh hostname",
    ],
)
def test_what_starts_no_known_script_is_not_read(start: str) -> None:
    assert read(f"export TP=2\n{start}\n", {"train.sh": TRAIN}).model.layers is None


@pytest.mark.parametrize(
    ("start", "path"),
    [
        ("cd $WHERE && bash train.sh", "train.sh"),
        ("bash ~/project/tools/train.sh", "project/tools/train.sh"),
        ("cd ~/project\n./tools/train.sh", "tools/train.sh"),
        ("singularity exec --pwd /w x.sif bash train.sh", "train.sh"),
    ],
)
def test_a_script_of_an_unknown_directory_is_one_below_that_of_submission_as_programs_are(
    start: str, path: str
) -> None:
    script = f"export TP=2\n{start}\n"
    assert read(script).missing_files == (path,)
    assert read(script, {path: TRAIN}).plan.tp == 2


def test_what_is_sourced_from_an_unknown_directory_is_not_read() -> None:
    for path in ("~/.bashrc", "$WHERE/settings.sh"):
        assert read(f"source {path}\n{TRAIN}").missing_files == ()


def test_a_script_that_starts_itself_ends() -> None:
    assert read("bash a.sh\n", {"a.sh": "bash a.sh\nbash b.sh\n", "b.sh": "bash a.sh\n"}).framework is None


def test_a_job_directory_is_followed() -> None:
    script = "export TP=2\ncd runs\ncd ../code\nbash train.sh\n"
    assert read(script).missing_files == ("code/train.sh",)
    assert read(script, {"code/train.sh": TRAIN}).plan.tp == 2
    assert read("pushd a\npopd\nbash train.sh\n").missing_files == ("train.sh",)
    for move in ("cd -", "cd", "[ -d a ] && cd a"):  # as if the job started where it goes
        assert read(f"{move}\nbash train.sh\n").missing_files == ("train.sh",)
    assert read("(cd a)\nbash train.sh\n").missing_files == ("train.sh",)
    assert read("cd /abs\nbash $(pwd)/train.sh $PWD\n").missing_files == ("/abs/train.sh",)


def test_a_real_file_is_read_with_the_users_rights(tmp_path: Path) -> None:
    from opsk_jobcheck.cli import read_with_files

    (tmp_path / "train.sh").write_text(TRAIN)
    (tmp_path / "job.sh").write_text(HEAD + "export TP=2 LAYERS=5\nsrun bash train.sh\n")
    workload, _ = read_with_files(tmp_path / "job.sh", SlurmRequest())
    assert workload.model.layers == 5


def test_where_the_job_starts_is_known_at_submission() -> None:
    request = SlurmRequest(directory="/home/a/run", submit_directory="/home/a/run")
    script = HEAD + "export TP=2\ncd $SLURM_SUBMIT_DIR/code\nbash train.sh\nbash $(pwd)/b.sh\nbash $PWD/../c.sh\n"
    wanted = read_script(script, file="job.sh", request=request).missing_files
    assert wanted == ("/home/a/run/code/train.sh", "/home/a/run/code/b.sh", "/home/a/run/c.sh")


@pytest.mark.parametrize(
    ("starter", "expected"),
    [
        ("", "2"),
        ("srun", "2"),
        ("srun --export=ALL", "2"),
        ("srun --export=ALL,M=8", "8"),
        ("srun --export=M=8", "8"),
        ("srun --export M=8,ALL", "8"),
        ("srun --export=NONE", None),
        ("srun --export=PATH", None),
        ("env M=8", "8"),
        ("srun env N=1 M=8", "8"),
        ("env -i PATH=/bin", None),
        ("env -u M", None),
        ("apptainer exec x.sif", "2"),
        ("apptainer exec --env N=2,M=8 x.sif", "8"),
        ("singularity exec --cleanenv x.sif", None),
        ("docker run -e M=8 image", "8"),
        ("docker run image", None),
        ("mpirun -x M=4", "4"),
        ("sudo", None),
    ],
)
def test_a_text_for_a_shell_sees_what_its_starter_hands_on(starter: str, expected: str | None) -> None:
    """By the manuals of what starts it; whether a box has a variable of its own is not known."""
    script = f"export M=2\n{starter} bash -c 'run ${{M:-1}}'\n"
    found = run(script, given={}, environment={}).invocations
    assert [entry.words[1].known for entry in found if entry.known_words[0] == "run"] == [expected]


@pytest.mark.parametrize(
    "starter",
    [
        "bash",
        "bash -s",
        "bash -l -x",
        "srun bash",
        "srun --ntasks-per-node=1 bash -s --",
        "/bin/bash",
        "time srun /bin/bash -e",
        "env bash",
        "apptainer exec image.sif bash",
    ],
)
@pytest.mark.parametrize("mark", ["EOF", "'EOF'"])
def test_a_shell_reads_what_stands_behind_it(starter: str, mark: str) -> None:
    body = "python pretrain_gpt.py --num-layers 8 --hidden-size 1024 --tensor-model-parallel-size $TP\n"
    workload = read(f"export TP=4\n{starter} <<{mark}\n{body}EOF\n")
    assert (workload.model.layers, workload.plan.tp) == (8, 4)


def test_a_text_that_a_shell_reads_sees_what_is_exported_and_its_arguments() -> None:
    """bash(1): without quotes around the mark the outer shell expands first; with them only the inner one."""
    train = "python pretrain_gpt.py --num-layers 8 --hidden-size 1024 --tensor-model-parallel-size $TP\n"
    assert read(f"TP=4\nbash <<EOF\n{train}EOF\n").plan.tp == 4
    assert read(f"TP=4\nbash <<'EOF'\n{train}EOF\n").plan.tp is None
    assert read(f"bash -s 2 <<'EOF'\nTP=$1\n{train}EOF\n").plan.tp == 2
    assert read(f"srun bash -s -- 2 <<'EOF'\nTP=$1\n{train}EOF\n").plan.tp == 2
    assert read(f"TP=4\nbash <<'EOF'\nTP=2\nEOF\n{train}").plan.tp == 4
    assert read(f"export TP=2\nbash <<< '{train.strip()}'\n").plan.tp == 2


@pytest.mark.parametrize(
    "start",
    ["bash other.sh", "bash -c true", "mpirun bash", "ssh node bash", "srun --input=none bash", "srun -i0 bash"],
)
def test_what_reads_no_input_runs_none(start: str) -> None:
    body = "python pretrain_gpt.py --num-layers 8 --hidden-size 1024 --tensor-model-parallel-size 4\n"
    assert read(f"{start} <<EOF\n{body}EOF\n").plan.tp is None
