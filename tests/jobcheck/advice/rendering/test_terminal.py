"""How advice reads on a terminal, and what no input may do to it; whole answers are in ``test_check_command``."""

from __future__ import annotations

import pytest

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.rails import find_rails
from opsk.hardware.catalog import cluster
from opsk.workload.completion import complete
from opsk.workload.workload import Problem, Workload
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.advice.layout import LABEL_WIDTH, MAX_WIDTH
from opsk_jobcheck.advice.rendering.sections import MAX_PROBLEM
from opsk_jobcheck.advice.rendering.terminal import MAX_LINES, Detail, is_ascii_only, lines, parse_detail, short_lines
from opsk_jobcheck.scripts.script import read_script
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


def text_of(script: str, adviser: Adviser, detail: Detail = Detail.LONG) -> str:
    """Return the advice on a script as one text."""
    return "\n".join(lines(adviser.advise(read_script(script, file="job.sh")), detail))


def test_the_short_form_is_headline_and_verdict(adviser: Adviser) -> None:
    advice = adviser.advise(read_script(megatron_script(OOM), file="job.sh"))
    assert short_lines(advice) == lines(advice)[:2] == lines(advice, "short")
    assert "will run out" in short_lines(advice)[1]
    bare = Adviser().advise(read_script(megatron_script(OOM), file="job.sh"))
    assert "cannot tell" in short_lines(bare)[1]


SCRIPTS = {
    "oom": megatron_script(OOM),
    "fits": megatron_script(FITS),
    "broken": megatron_script(FITS.replace("parallel-size 8", "parallel-size 6", 1)),
    "bubble": megatron_script(FITS.replace("batch-size 128", "batch-size 8")),
    "unknown": megatron_script("--micro-batch-size $1"),
    "frozen": megatron_script(f"{FITS} --freeze-LM"),
    "too small": megatron_script("--micro-batch-size 1 --global-batch-size 8", nodes=1),
    "many problems": megatron_script(FITS.replace("batch-size 128", "batch-size 7") + " --context-parallel-size 3"),
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_at_most_six_lines_are_said_and_the_last_says_what_was_left_out(script: str, adviser: Adviser) -> None:
    for one in (adviser, Adviser(cluster=adviser.cluster), Adviser()):
        advice = one.advise(read_script(script, file="job.sh"))
        few, everything = lines(advice), lines(advice, Detail.LONG)
        if script == SCRIPTS["frozen"] or (script == SCRIPTS["unknown"] and not one.cluster):
            assert not few  # no line that the user adds would give a verdict
            continue
        assert 2 <= len(few) <= MAX_LINES
        assert few[0] == everything[0]
        if few != everything:
            assert few[-1].startswith("more     ")
            assert "OPSK_ADVICE=long" in few[-1]


def test_what_matters_most_is_kept(adviser: Adviser) -> None:
    few = lines(adviser.advise(read_script(SCRIPTS["bubble"], file="job.sh")))
    assert [line[:9].strip() for line in few[1:4]] == ["memory", "speed", "waste"]
    assert "wait" in few[3]
    assert "--num-layers-per-virtual-pipeline-stage" in few[3]
    few = lines(adviser.advise(read_script(SCRIPTS["oom"], file="job.sh")))
    assert few[2].startswith("         → --")


def test_a_change_is_named_once(adviser: Adviser) -> None:
    for script in SCRIPTS.values():
        told = [line for line in text_of(script, adviser).replace("\n           ", " ").split("\n") if "→" in line]
        words = [line.partition("→")[2].partition(": ")[0].strip() for line in told]
        assert len(set(words)) == len(words)


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_a_terminal_of_ascii_gets_ascii_that_says_the_same(script: str, adviser: Adviser) -> None:
    advice = adviser.advise(read_script(script, file="job.sh"))
    for detail in Detail:
        plain = lines(advice, detail, ascii_only=True)
        assert all(line.isascii() for line in plain)
        assert len(plain) == len(lines(advice, detail))
        assert "\\u" not in "".join(plain)


def test_long_lines_are_broken_for_a_terminal_of_120_columns(adviser: Adviser) -> None:
    for script in SCRIPTS.values():
        for line in text_of(script, adviser).split("\n")[1:]:
            assert len(line) <= MAX_WIDTH or " " not in line.strip().removeprefix("→ ")


@pytest.mark.parametrize(
    ("environment", "ascii_only"),
    [
        ({}, False),
        ({"LANG": "en_GB.UTF-8"}, False),
        ({"LANG": "C"}, True),
        ({"LC_ALL": "POSIX", "LANG": "en_GB.UTF-8"}, True),
        ({"LC_ALL": "C.utf8", "LANG": "C"}, False),
        ({"LC_CTYPE": "C.UTF-8"}, False),
        ({"LC_CTYPE": "C.UTF-8", "LANG": "C"}, True),  # Python's own doing: PEP 538
        ({"LANG": "de_DE.ISO-8859-1"}, True),
    ],
)
def test_the_locale_says_what_a_terminal_shows(environment: dict[str, str], ascii_only: bool) -> None:
    assert is_ascii_only(environment) is ascii_only


@pytest.mark.parametrize(
    ("said", "detail"),
    [("long", Detail.LONG), (" SHORT ", Detail.SHORT), ("", Detail.DEFAULT), ("lang", Detail.DEFAULT)],
)
def test_the_environment_asks_for_more_or_less(said: str, detail: Detail) -> None:
    assert parse_detail({"OPSK_ADVICE": said}) is detail


def test_ways_out_are_shown_with_flags_memory_and_pace(adviser: Adviser) -> None:
    text = text_of(megatron_script(OOM), adviser)
    assert text.count("→ --") >= 2
    assert "slower" in text or "faster" in text


def test_a_framework_without_words_gets_the_change_in_plain_ones(adviser: Adviser) -> None:
    said = "#OPSK layers=80 hidden=8192 heads=64 seq=8192 micro_batch=2 global_batch=128 ffn=28672\n"
    script = f"#!/bin/bash\n#SBATCH --nodes=8 --gpus-per-node=8\n{said}srun torchrun our/train.py\n"
    assert "→ TP 1 → 8 + PP 1 →" in text_of(script, adviser)


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
    assert "; change the node count" in text.replace("\n         ", " ")
    few = text_of(megatron_script(FITS.replace("parallel-size 8", "parallel-size 6", 1)), adviser, Detail.DEFAULT)
    assert "problem  line 4: change the node count" in few


@pytest.mark.parametrize(
    ("file", "line", "place"),
    [("", 0, ""), ("", 4, "line 4: "), ("job.sh", 4, "job.sh:4: "), ("job.sh", 0, "job.sh: ")],
)
def test_a_problem_has_its_place_before_it_as_far_as_that_is_said(file: str, line: int, place: str) -> None:
    """The advisor says no name of the script: its user has just typed it."""
    problem = Problem(what="something is odd", file=file, line=line)
    workload = Workload(framework="megatron-lm", problems=(problem,))
    assert lines(Adviser().advise(workload), "long")[-1] == f"problem  {place}something is odd"


@pytest.mark.parametrize("words", [1, 10, 30, 60, 400])
def test_a_long_problem_is_cut_where_it_says_what_is_wrong_and_keeps_what_to_do(words: int) -> None:
    what = " ".join(["something, or other,"] * words)
    workload = Workload(framework="megatron-lm", problems=(Problem(what=what, line=4, hint="ask for 8 GPUs"),))
    told = next(line for line in lines(Adviser().advise(workload)) if line.startswith("problem"))
    assert told.startswith("problem  line 4: something")
    assert told.endswith("; ask for 8 GPUs")
    assert len(told) <= LABEL_WIDTH + MAX_PROBLEM


@pytest.mark.parametrize("length", [100, 140, 150, 160, 5000])
def test_a_hint_that_leaves_no_room_stands_alone(length: int) -> None:
    hint = "take the other one " * (length // 19)
    workload = Workload(framework="megatron-lm", problems=(Problem(what="it is odd " * 40, hint=hint),))
    told = next(line for line in lines(Adviser().advise(workload)) if line.startswith("problem"))
    assert "take the other one" in told
    assert len(told) <= LABEL_WIDTH + MAX_PROBLEM


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
        for detail in Detail:
            assert all(line.isprintable() for line in lines(advice, detail))
            assert all(line.isprintable() for line in lines(advice, detail, ascii_only=True))


def test_the_file_name_is_made_harmless_too(adviser: Adviser) -> None:
    workload = read_script(megatron_script("--micro-batch-size 0"), file=f"a{HOSTILE}\nb.sh")
    assert complete(workload).plan is None
    assert all(line.isprintable() for line in lines(adviser.advise(workload)))


def test_a_reason_of_several_assumptions_is_said_once_and_a_configuration_is_named(adviser: Adviser) -> None:
    script = "#SBATCH -N 4 --gpus-per-node=8\ntorchrun -m torchtitan.train --job.config_file job.toml\n"
    toml = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\nseq_len = 4096\n'
    toml += "[parallelism]\ntensor_parallel_degree = 2\n"
    told = read_script(f"#!/bin/bash\n{script}", file="job.sh", files={"job.toml": toml})
    text = "\n".join(lines(adviser.advise(told), Detail.LONG)).replace("\n          ", "")
    assert "job.toml: seq 4096 line 6" in text
    assert text.count("catalogue") == 1


def test_a_problem_in_a_configuration_names_that_file_and_is_told_once(adviser: Adviser) -> None:
    script = (
        "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8\nsrun accelerate launch --config_file fsdp.yaml run_clm.py"
    )
    script += " --model_name_or_path meta-llama/Meta-Llama-3-8B --block_size 8192 --per_device_train_batch_size 4\n"
    yaml = "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\nnum_machines: 2\n"
    yaml += "mixed_precision: bf16\nnum_processes: 4\n"
    told = lines(adviser.advise(read_script(script, file="job.sh", files={"fsdp.yaml": yaml})))
    found = [line for line in told if line.startswith("problem")]
    assert len(found) == 1
    assert "fsdp.yaml:6: DP 4 is stated (num_processes: 4)" in found[0]
