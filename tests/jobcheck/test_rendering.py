"""How advice reads on a terminal, and what no input may do to it; whole answers are in ``test_check_command``."""

from __future__ import annotations

import pytest

from opsk.hardware.catalog import cluster
from opsk.topology.design import rail_optimized_fabric
from opsk.topology.rails import find_rails
from opsk.workload.completion import complete
from opsk.workload.workload import Problem, Workload
from opsk_jobcheck.adviser import Adviser
from opsk_jobcheck.readers.script import read_script
from opsk_jobcheck.rendering import lines, short_lines
from tests.fakes.launch_scripts import megatron_script

OOM = "--micro-batch-size 4 --global-batch-size 256"
FITS = (
    "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 --micro-batch-size 1 --global-batch-size 128 "
    "--sequence-parallel --use-distributed-optimizer"
)


@pytest.fixture(scope="module")
def adviser() -> Adviser:
    """Sixteen DGX H100 in two scalable units."""
    rails = find_rails(rail_optimized_fabric(nodes=16, hcas=8, leaves=16, spines=4))
    return Adviser(cluster=cluster("superpod-h100"), cluster_from="superpod-h100", rails=rails)


def text_of(script: str, adviser: Adviser) -> str:
    """Return the advice on a script as one text."""
    return "\n".join(lines(adviser.advise(read_script(script, file="job.sh"))))


def test_the_short_form_is_headline_and_verdict(adviser: Adviser) -> None:
    advice = adviser.advise(read_script(megatron_script(OOM), file="job.sh"))
    headline, memory = short_lines(advice)
    assert headline == lines(advice)[0]
    assert memory.startswith(lines(advice)[1])
    assert "will run out" in short_lines(advice)[1]
    bare = Adviser().advise(read_script(megatron_script(OOM), file="job.sh"))
    assert "cannot tell" in short_lines(bare)[1]


def test_ways_out_are_shown_with_flags_memory_and_pace(adviser: Adviser) -> None:
    text = text_of(megatron_script(OOM), adviser)
    assert text.count("→ --") >= 2
    assert "slower" in text or "faster" in text


def test_a_quick_answer_does_not_claim_that_nothing_fits(adviser: Adviser) -> None:
    quick = Adviser(cluster=adviser.cluster, search=False)
    assert "no plan on these GPUs" not in text_of(megatron_script(OOM), quick)


def test_where_nothing_fits_this_is_said() -> None:
    script = megatron_script("--micro-batch-size 1 --global-batch-size 8", nodes=1)
    text = text_of(script, Adviser(cluster=cluster("titan")))
    assert "no plan on these GPUs is predicted to fit" in text


def test_a_problem_names_file_and_line_and_what_to_do(adviser: Adviser) -> None:
    text = text_of(megatron_script(FITS.replace("parallel-size 8", "parallel-size 6", 1)), adviser)
    assert "problem  job.sh:4: 64 GPUs are not a multiple of TP 6" in text
    assert "; change the node count" in text


def test_a_problem_without_a_place_stands_alone() -> None:
    workload = Workload(framework="megatron-lm", problems=(Problem(what="something is odd"),))
    assert lines(Adviser().advise(workload))[-1] == "problem  something is odd"


def test_a_gpu_that_nobody_knows_is_shown_as_asked(adviser: Adviser) -> None:
    script = megatron_script(FITS).replace("#SBATCH --gpus-per-node=8", "#SBATCH --gres=gpu:h900:8")
    text = text_of(script, adviser)
    assert "64 × h900" in text
    assert "H100" not in text


HOSTILE = "\x1b]0;owned\x07\x1b[31m\r\x9b2J\u202e\u2066"


@pytest.mark.parametrize(
    "script",
    [
        megatron_script(FITS) + f"#OPSK model.name={HOSTILE}\n",
        f"#!/bin/bash\n#SBATCH --job-name={HOSTILE}\n" + megatron_script(FITS),
        megatron_script(f"{FITS} --micro-batch-size '{HOSTILE}'"),
        megatron_script(f"{FITS} --micro-batch-size $(cat {HOSTILE})"),
        megatron_script(FITS).replace("--gpus-per-node=8", f"--gres=gpu:{HOSTILE}:8"),
        megatron_script(FITS) + f"#OPSK framework='{HOSTILE}'\n#OPSK {HOSTILE}=3\n",
    ],
)
def test_no_input_reaches_the_terminal_as_control(script: str, adviser: Adviser) -> None:
    for cluster_adviser in (adviser, Adviser()):
        advice = cluster_adviser.advise(read_script(script, file=f"a{HOSTILE}.sh"))
        assert all(line.isprintable() for line in (*lines(advice), *short_lines(advice)))


def test_the_file_name_is_made_harmless_too(adviser: Adviser) -> None:
    workload = read_script(megatron_script("--micro-batch-size 0"), file=f"a{HOSTILE}\nb.sh")
    assert complete(workload).plan is None
    assert all(line.isprintable() for line in lines(adviser.advise(workload)))
