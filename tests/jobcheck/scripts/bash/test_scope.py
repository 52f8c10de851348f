"""Where a script works: a path is the same file however it is spelled, and another one after ``cd``."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.bash.scope import MAX_MENTIONS, MAX_VARIABLES, find_mentioned_variables
from opsk_jobcheck.scripts.script import read_script
from opsk_jobcheck.service.hooks import read_hook
from opsk_jobcheck.submission.request import SlurmRequest

HEAD = "#!/bin/bash\n#SBATCH --nodes=1 --gpus-per-node=8\n"
TRAIN = (
    "python pretrain_gpt.py --num-layers 8 --hidden-size 1024 --num-attention-heads 16 --tensor-model-parallel-size "
)


def read(script: str, files: dict[str, str] | None = None, request: SlurmRequest | None = None) -> Workload:
    return read_script(HEAD + script, file="job.sh", files=files or {}, request=request)


def wrote(path: str, tp: int = 2) -> str:
    return f"cat > {path} <<'EOF'\n{TRAIN}{tp}\nEOF\n"


@pytest.mark.parametrize(
    ("written", "started"),
    [
        ("run.sh", "$PWD/run.sh"),
        ("$PWD/run.sh", "run.sh"),
        ("${PWD}/run.sh", "./run.sh"),
        ("$(pwd)/run.sh", '"$PWD"/run.sh'),
        ("run.sh", "`pwd`/run.sh"),
        ("sub/run.sh", "$PWD/sub/run.sh"),
        ("$SLURM_SUBMIT_DIR/run.sh", "$SLURM_SUBMIT_DIR/run.sh"),
        ("run_$SLURM_JOB_ID.sh", "run_${SLURM_JOB_ID}.sh"),
        ("$OUT/run.sh", "${OUT}/run.sh"),
    ],
)
def test_a_script_that_is_written_is_found_by_another_spelling(written: str, started: str) -> None:
    assert read(f"{wrote(written)}srun bash {started}\n").plan.tp == 2


@pytest.mark.parametrize("start", ["bash $F", 'srun bash "$F"', "chmod +x $F; srun $F", "chmod +x $F\n$F"])
def test_a_file_of_a_name_that_nobody_knows_is_known_by_the_variable_that_holds_it(start: str) -> None:
    assert read(f"F=$(mktemp)\n{wrote('$F')}{start}\n").plan.tp == 2


def test_two_names_that_a_program_made_are_not_one() -> None:
    """Two calls of mktemp: what is written to the second is not in the first."""
    made = f"A=$(mktemp)\nB=$(mktemp)\n{wrote('$A', 2)}{wrote('$B', 4)}"
    assert [read(f"{made}srun bash {name}\n").plan.tp for name in ("$A", "$B")] == [2, 4]
    assert read(f"A=$(mktemp)\nB=$(mktemp)\n{wrote('$A')}srun bash $B\n").plan.tp is None


@pytest.mark.parametrize(
    "start",
    [
        "cd sub\nsrun bash $PWD/run.sh",
        "cd $PWD/sub; bash run.sh",
        "pushd sub; srun bash $PWD/run.sh",
        "pushd /x; popd; cd sub; bash $(pwd)/run.sh",
        "cd sub; bash -c 'bash $PWD/run.sh'",
        "pushd /x; popd; bash $PWD/sub/run.sh",
    ],
)
def test_a_script_knows_where_it_has_gone(start: str) -> None:
    workload = read(f"{start}\n", {"run.sh": TRAIN + "4\n", "sub/run.sh": TRAIN + "2\n"})
    assert workload.plan.tp == 2


@pytest.mark.parametrize(
    "start",
    [
        "cd $X; bash $PWD/run.sh",
        "cd -; bash $PWD/run.sh",
        "bash ${PWD}_run.sh",
        "cd sub; (pushd ..); popd; bash $PWD/run.sh",
        "cd sub; [ -d x ] && pushd ..; popd; bash $PWD/run.sh",
    ],
)
def test_what_lies_elsewhere_is_not_taken(start: str) -> None:
    assert read(f"{start}\n", {"run.sh": TRAIN + "4\n"}).plan.tp is None


def test_a_started_script_knows_where_it_is() -> None:
    """bash sets PWD anew, whatever it was given."""
    files = {"outer.sh": "bash $PWD/run.sh\n", "sub/run.sh": TRAIN + "2\n", "run.sh": TRAIN + "4\n"}
    for request in (None, SlurmRequest(directory="/d")):
        given = {f"/d/{path}" if request else path: text for path, text in files.items()}
        assert read("cd sub\nbash ../outer.sh\n", given, request).plan.tp == 2


def test_a_configuration_under_the_directory_of_the_job_is_wanted_by_its_path() -> None:
    script = "accelerate launch --config_file $PWD/conf/acc.yaml train.py\n"
    assert read(script).missing_files[:1] == ("conf/acc.yaml",)
    assert read(script, request=SlurmRequest(directory="/d")).missing_files[:1] == ("/d/conf/acc.yaml",)


def test_what_is_changed_by_its_longer_name_is_changed() -> None:
    """It was read as it lay there, for nobody saw that the edited file was the same."""
    script = "sed -i s/8/16/ $PWD/run.sh\nbash run.sh\n"
    assert read(script, {"run.sh": TRAIN + "8\n"}).plan.tp is None


@pytest.mark.parametrize("path", ["$OUT/run.sh", "$F"])
@pytest.mark.parametrize("change", ["sed -i s/2/4/", "cp other.sh", "python gen.py --output"])
def test_what_is_changed_by_a_name_that_nobody_knows_is_changed(path: str, change: str) -> None:
    written = f"F=$(mktemp)\n{wrote(path)}"
    assert read(f"{written}bash {path}\n").plan.tp == 2
    assert read(f"{written}{change} {path}\nbash {path}\n").plan.tp is None


PIECES = (
    "$A",
    "${B}",
    "${C:-x}",
    "${#D}",
    "${!E}",
    "$HF_TOKEN",
    "$my_key",
    "$1",
    "$",
    "${",
    "# $F",
    "$A$B",
    "\\$G",
    "\n",
)


def test_what_a_script_mentions_is_asked_for_but_no_secrets() -> None:
    assert find_mentioned_variables("echo $A ${B:-1} ${#C[@]} $API_KEY $TOKENS $((D))") == {"A", "B", "C"}


def test_of_too_many_nothing_is_known() -> None:
    assert find_mentioned_variables(" ".join(f"$A{number}" for number in range(MAX_VARIABLES + 1))) == frozenset()
    assert find_mentioned_variables("$A " * (MAX_MENTIONS + 1)) == frozenset()
    assert find_mentioned_variables("$A " * MAX_MENTIONS) == {"A"}


@pytest.mark.skipif(shutil.which("lua5.1") is None, reason="lua5.1 is not installed")
@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=30).map(" ".join))
def test_the_hooks_ask_for_the_same(text: str) -> None:
    hook = read_hook("shared/words.lua")
    start = hook.index("local MAX_VARIABLES")
    rule = hook[start : hook.index("\nend\n", start) + 5]
    program = (
        rule + "for name in pairs(mentioned_variables(io.read('*a'), function() return 'x' end)) do print(name) end"
    )
    ran = subprocess.run(["lua5.1", "-e", program], input=text, capture_output=True, text=True, check=True)
    assert set(ran.stdout.split()) == find_mentioned_variables(text), json.dumps(text)
