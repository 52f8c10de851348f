"""Scripts within the limits of size that would take for ever if work were not bounded as well."""

from __future__ import annotations

import time

import pytest

from opsk_jobcheck.scripts.script import read_script
from opsk_jobcheck.submission.request import SlurmRequest, parse_gpus
from tests.fakes.recipes import HEAD

KIB = 1 << 10
FAR_TOO_LONG_S = 20.0
"""Each of these took from half a minute to the age of the universe [s of CPU]; now they take a second or less."""
LOOPS = "A=0; while true; do for ((i = 0; i < 99; i++)); do A=$((A + 1)); "
CONFIG = "{" + ",".join(f'"k{number}": 1' for number in range(20_000)) + "}"


def filled(piece: str, chars: int = 250 * KIB) -> str:
    return piece * (chars // len(piece))


@pytest.mark.parametrize(
    "text",
    [
        f"torchrun -m distill{'_' * 60}! --num-layers 4\n",
        f"torchrun distill{'_' * 200}!.py --num-layers 4\n",
        "torchrun " + filled("train" * 800 + " ", 1500 * KIB) + "\n",
        filled("A+=(--x 1 2 3)\n"),
        "".join(f"f{number}() {{ f$U; f$U a; }}\n" for number in range(500)) + "f$U\n" * 50,
        filled("A+=x\n"),
        "declare -i A=1\n" + filled("A+=A*3\n"),
        "python - <<E\nopen('a', 'w') " + filled("a.b/") + "\nE\n",
        filled("python - <<E\ndump f.json\nE\n", 100 * KIB) + "torchrun run_clm.py --deepspeed ds.json\n",
        "sed -i s/a/b/ '" + filled("*a", 200 * KIB) + ".json'\ntorchrun run_clm.py --deepspeed m/config.json\n",
        filled("sed -i s/a/b/ '*1*a*b*.json'\n", 75 * KIB) + "torchrun run_clm.py --deepspeed m/config.json\n",
        "X=" + "a" * 4000 + "\n" + filled('Y="${X##*b}"\n'),
        "X=" + "a" * 4000 + "\n" + filled('Y="${X//a/b}"\n'),
        filled("x m/config.json\n"),
        "X=$((" + "NOUS_PER_" * 8000 + " ${q}))\n",
        "X=$((" + "a[" * 100_000 + " ${q}))\n",
        "X='" + "a;" * 8000 + "'\n" + filled('eval "$X"\n', 150 * KIB),
        'X=\'eval "$X"; eval "$X"\'\n' + filled('eval "$X"\n', 150 * KIB),
        "\n".join(f"f{n}() {{ f{n + 1}; f{n + 2}; }}" for n in range(4000)) + "\n" + "while a; do f0; done\n" * 500,
        "set -- " + "a " * 4000 + "\n" + filled('set -- "$@" a\n', 200 * KIB),
        f"{LOOPS}{'B=1; ' * 11_000} done; done",
        f"{LOOPS}export {'B=1 ' * 11_000}; done; done",
        f"{LOOPS}case $A in {'|'.join(f'x{number}*' for number in range(9000))}) B=1 ;; esac; done; done",
        f"{LOOPS}{'B=$(seq 4000 | cut -d: -f1); ' * 2000} done; done",
        f"{LOOPS}[[ {' || '.join(['1 == 2'] * 60)} ]]; {'[[ 1 == 2 ]]; ' * 8000} done; done",
        "".join(f"V{number}={number}\n" for number in range(10_000)) + f"{LOOPS} done; done",
    ],
    ids=lambda text: repr(text[:24]),
)
def test_reading_ends(text: str) -> None:
    before = time.process_time()
    read_script(HEAD + text, file="job.sh", files={"m/config.json": CONFIG})
    assert time.process_time() - before < FAR_TOO_LONG_S


def test_what_is_asked_of_slurm_is_read_once() -> None:
    """The advisor reads it beside everybody's answers."""
    before = time.process_time()
    assert parse_gpus("gpu:8," + "(S:" * (300 * KIB)) == (8, None)
    assert parse_gpus("gpu:8(S:0-1),gpu:2(S:1)") == (8, None)
    assert time.process_time() - before < FAR_TOO_LONG_S


def test_commands_beyond_those_that_are_followed_are_a_problem() -> None:
    """Else what stands behind them would be missed without a word."""
    workload = read_script("#!/bin/bash\n" + "a b\n" * 3000 + "torchrun x.py\n", file="job.sh")
    assert [(entry.line, entry.what[:35]) for entry in workload.problems] == [
        (2502, "the script runs more commands than ")
    ]


def test_no_gpus_on_no_gpus_a_node_are_no_number_of_nodes() -> None:
    empty = SlurmRequest(gpus=0, gpus_per_node=0)
    assert read_script("#!/bin/bash\ntorchrun x.py\n", file="job.sh", request=empty).plan.nodes is None


def test_a_path_that_no_file_has_is_not_wanted() -> None:
    for path in ("\x1b[31m/config.json", "a\u202e/config.json", "a" * 5000 + "/config.json"):
        wanted = read_script(f"{HEAD}torchrun train.py '{path}'\n", file="job.sh").missing_files
        assert wanted in ((), ("train.py",))


def test_in_a_directory_that_nobody_would_have_no_file_is_wanted() -> None:
    for directory in ("/\x1b[1m", "/" + "a/" * 2040):
        request = SlurmRequest(directory=directory)
        script = f"{HEAD}torchrun train.py model/of/some/name/config.json\n"
        assert not any("config" in name for name in read_script(script, file="job.sh", request=request).missing_files)
