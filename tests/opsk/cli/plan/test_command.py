from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from opsk.cli.main import opsk
from opsk.cli.plan import spread as best_plan_spread
from tests.opsk.cli.plan.asking import HELD, JOB, document, refusal, run

STATED = """\
cluster = "superpod-h100"
gpus = 16
[model]
like = "llama-3-8b"
seq = 4096
[plan]
global_batch = 32
precision = "bf16"
states = "mixed"
software = "megatron-core"
"""
HOSTILE = "\x1b[31mred[red]x[/red]\n$(touch /tmp/opsk-was-here)\u202e"


@pytest.fixture
def stated(tmp_path: Path) -> str:
    path = tmp_path / "request.toml"
    path.write_text(STATED)
    return str(path)


def test_the_document_has_what_programs_rely_on():
    found = document(*JOB, *HELD)
    assert found.keys() >= {"space", "evaluated", "bounded", "feasible", "seconds", "best"}
    assert found["evaluated"] + found["bounded"] == found["space"]
    assert 0 < found["feasible"] <= found["evaluated"]
    best = found["best"][0]
    assert best.keys() >= {"plan", "memory", "time", "placement"}
    assert best["memory"].keys() >= {"capacity_bytes", "total_bytes", "components", "fit_probability"}
    assert best["time"].keys() >= {"step_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "components"}
    assert best["time"]["step_s"].keys() >= {"low", "expected", "high"}
    assert {"tp", "pp", "vpp", "cp", "ep", "dp", "sharding", "micro_batch", "global_batch"} <= best["plan"].keys()
    assert found["fixed"] == {"tp": [2], "sharding": ["zero1"], "recompute": ["none"]}
    assert not found["interrupted"]


def test_plans_come_fastest_first_and_keep_what_was_given():
    found = document(*JOB, *HELD)
    times = [one["time"]["step_s"]["expected"] for one in found["best"]]
    assert times == sorted(times)
    for one in found["best"]:
        plan = one["plan"]
        assert (plan["tp"], plan["sharding"], plan["recompute"]) == (2, "zero1", "none")
        assert plan["tp"] * plan["pp"] * plan["cp"] * plan["dp"] == plan["gpus"] == 16
        assert plan["global_batch"] == 32


def test_the_best_plan_has_the_numbers_that_predict_gives_it(stated: str, tmp_path: Path):
    """The contract is one cost model: to the last digit, through both commands."""
    for best in document(stated, "--top", "3")["best"]:
        lines = ['cluster = "superpod-h100"', "[model]", 'like = "llama-3-8b"', "seq = 4096", "[plan]"]
        fields = {name: value for name, value in best["plan"].items() if name != "gpus"}
        lines += [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
        path = tmp_path / "plan.toml"
        path.write_text("\n".join(lines))
        result = CliRunner().invoke(opsk, ["predict", str(path), "--json"], standalone_mode=False)
        predicted = json.loads(result.stdout)
        for part in ("plan", "memory", "time", "energy", "verdict"):
            assert best[part] == predicted[part], part


def test_an_exhaustive_search_counts_all_and_finds_the_same():
    all_, some = document(*JOB, "--tp", "2", "--exhaustive"), document(*JOB, "--tp", "2")
    assert all_["evaluated"] == all_["space"] == some["space"]
    assert all_["feasible_is_exact"]
    assert [one["plan"] for one in all_["best"]] == [one["plan"] for one in some["best"]]


def test_people_see_the_plans_the_settings_and_what_was_assumed():
    text = run(*JOB, *HELD).stdout
    lines = text.splitlines()
    assert lines[0] == (
        "llama-3-8b · 16 × h100-sxm (superpod-h100) · batch 32 · seq 8192 · tp 2 · sharding zero1 · recompute none"
    )
    assert lines[1].endswith("can run")
    assert "TP2" in text
    assert "--tensor-model-parallel-size 2" in text
    assert "assumed: model.seq 8192" in text.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--gpus", "-5"), "gpus is -5, must be at least 1"),
        (("--gpus", "0"), "gpus is 0, must be at least 1"),
        (("--gpus", "abc"), "gpus: 'abc' is not an integer"),
        (("--gpus", "99999999999999999999"), "out of range"),
        (("--gpus", "2000000000"), "gpus is 2000000000: out of range"),
        (("--global-batch", "x"), "plan.global_batch: 'x' is not an integer"),
        (("--global-batch", "0"), "global_batch is 0, must be at least 1"),
        (("--tp", "-1"), "tp is -1, must be at least 1"),
        (("--memory-margin", "200%"), "memory-margin '200%' is not a part of a GPU's memory"),
        (("--memory-margin", "foo"), "memory-margin 'foo'"),
        (("--memory-margin=-5%",), "memory-margin '-5%'"),
        (("--memory-margin", "200GiB"), "memory-margin '200GiB'"),
        (("--gpu-counts", "8,x"), "gpu-counts: 'x' is not a number of GPUs"),
        (("--gpu-counts", "8,0"), "gpu-counts: '0' is not a number of GPUs"),
        (("--gpu-counts", ","), "gpu-counts: ',' names no number"),
        (("--gpu-counts", "9" * 5000), "is not a number of GPUs"),
        (("--model", "nonesuch"), "'nonesuch' is not a known public model"),
        (("--cluster", "nonesuch"), "unknown cluster 'nonesuch'"),
        (("--sharding", "bogus"), "'bogus' is none of none, zero1, zero2, zero3"),
        (("--precision", "fp8", "--cluster", "superpod-a100"), "precision fp8 needs fp8"),
        (("--cluster", "summit"), "precision bf16 needs bf16, v100-sxm2-16gb has fp16, fp32"),
        (("--nodes", "3"), "gpus is 16, nodes 3 have 24"),
        (("--nodes", "1", "--gpus-per-node", "16"), "gpus_per_node is 16, a dgx-h100 has 8"),
        (("--framework", "deepspeed", "--software", "pytorch"), "--framework deepspeed means deepspeed"),
    ],
)
def test_nonsense_is_refused_by_name(arguments: tuple[str, ...], words: str):
    error = refusal(*JOB, *arguments)
    assert words in error.message
    assert error.hint


def test_all_that_is_missing_is_named_at_once():
    message = refusal("--model", "llama-3-8b").message
    assert "--cluster" in message
    assert "--gpus or --nodes" in message
    assert "--global-batch" in message


def test_a_number_that_cannot_be_is_not_called_missing():
    assert "missing" not in refusal(*JOB, "--gpus", "abc").message


def test_formats_that_the_gpu_has_are_offered():
    assert refusal(*JOB, "--cluster", "summit").hint == "give --precision fp32|fp16"


def test_nothing_given_is_wrong_usage():
    result = run()
    assert result.exception is not None
    assert "PLAN.toml" in str(result.exception)


@pytest.mark.parametrize("content", [b"model = [\n", b"\xff\xfe\x00", b"[plan]\ntp = 'x'\n", b"plan = 3\n"])
def test_broken_files_are_refused_in_one_line(tmp_path: Path, content: bytes):
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    message = refusal(str(path)).message
    assert message.startswith(str(path))
    assert "\n" not in message


def test_a_request_from_standard_input():
    result = run("-", "--json", *HELD, stdin=STATED)
    assert json.loads(result.stdout)["gpus"] == 16


def test_an_impossible_request_names_the_constraint_and_the_nearest_that_is_not():
    error = refusal(*JOB, "--tp", "7")
    assert "ruled out by tp 7" in error.message
    assert "tp 4 or 8" in error.hint


@pytest.mark.parametrize(
    ("words", "what", "nearest"),
    [
        (("--dp", "3"), "ruled out by dp 3", "dp 2 or 4"),
        (("--micro-batch", "3", "--dp", "8"), "micro_batch 3", "micro_batch 2 or 4"),
        (("--framework", "deepspeed", "--vpp", "2"), "vpp 2", "vpp 1"),
        (("--framework", "fsdp", "--pp", "4"), "pp 4; framework fsdp", "pp 1, or framework any"),
    ],
)
def test_a_request_without_any_legal_plan_ends_with_2_and_the_nearest_that_has_one(
    words: tuple[str, ...], what: str, nearest: str
):
    error = refusal(*JOB, *words)
    assert error.exit_status == 2
    assert what in error.message
    assert nearest in error.hint


def test_a_field_of_a_model_that_nobody_knows_is_named_with_the_nearest(tmp_path: Path):
    path = tmp_path / "request.toml"
    path.write_text(STATED.replace("seq = 4096", "seq = 4096\nkv_head = 8"))
    error = refusal(str(path))
    assert error.exit_status == 2
    assert "model.kv_head: no such key; did you mean kv_heads?" in error.message


def test_a_framework_that_cannot_is_named():
    error = refusal(*JOB, "--framework", "fsdp", "--pp", "2")
    assert "pp 2" in error.message
    assert "framework" in error.message


def test_a_schedule_that_no_framework_has_is_named_with_the_way_to_search_it():
    error = refusal(*JOB, "--schedule", "dualpipe")
    assert "schedule dualpipe" in error.message
    assert "framework any" in error.hint
    assert document(*JOB, *HELD, "--pp", "2", "--schedule", "zero-bubble-2", "--framework", "any")["best"]


def test_the_plans_to_choose_from_say_in_what_they_are_the_best_and_on_what_that_rests():
    found = document(*JOB)
    first, *others = found["choices"]
    assert first["roles"][0] == "take"
    assert first["runs"] + first["runs_elsewhere"] > 0
    assert first["plan"]["tp"] * first["plan"]["pp"] * first["plan"]["dp"] * first["plan"]["cp"] == 16
    assert first["frameworks"]
    roles = {role for choice in found["choices"] for role in choice["roles"]}
    assert roles >= {"take", "fastest", "simplest", "conventional", "roomiest"}
    assert [one["slower_by"] for one in others] == sorted(one["slower_by"] for one in others)
    assert found["settings"]["refused"] == []
    assert found["releases"].keys() == {"megatron", "fsdp", "deepspeed", "torchtitan"}


def test_nothing_that_fits_is_bad_news_with_what_would_help():
    """An 8B model with Adam needs 16 bytes a parameter, 128 GB: no GPU of 80 GB holds it alone."""
    result = run("--model", "llama-3-8b", "--cluster", "superpod-h100", "--gpus", "1", "--global-batch", "1", "--json")
    found = json.loads(result.stdout)
    assert result.return_value == 1
    assert found["best"] == []
    assert found["feasible"] == 0
    assert found["refused"][0]["needed_bytes"] > found["refused"][0]["capacity_bytes"]
    assert found["nearest"]["gpus"] in (2, 4, 8)


def test_the_one_constraint_that_keeps_plans_from_fitting_is_named():
    arguments = (*JOB, "--sharding", "none", "--tp", "1", "--pp", "1")
    found = document(*arguments)
    assert found["best"] == []
    fits_with = {one["constraint"]: one for one in found["fits_with"]}
    assert fits_with["sharding"]["nearest"] == ["zero1", "zero2", "zero3"]
    assert fits_with["tp"]["asked"] == "1"
    # each that is named really leaves some
    for name, one in fits_with.items():
        others = {"sharding": "none", "tp": "1", "pp": "1"} | {name: one["nearest"][0]}
        flags = [word for axis, value in others.items() for word in (f"--{axis}", value)]
        assert document(*JOB, *flags)["best"], name
    assert "In place of sharding none: some plan may run with sharding zero1" in run(*arguments).stdout


def test_a_margin_that_leaves_no_room_is_named_with_the_largest_that_does():
    found = document(*JOB, *HELD, "--memory-margin", "99%")
    (named,) = [one for one in found["fits_with"] if one["constraint"] == "memory_margin"]
    assert named["asked"] == "99%"
    largest = int(named["nearest"][0].rstrip("%"))
    assert document(*JOB, *HELD, "--memory-margin", f"{largest}%")["best"]
    assert not document(*JOB, *HELD, "--memory-margin", f"{largest + 1}%")["best"]


@pytest.mark.parametrize(("margin", "left"), [("10%", 0.9), ("7.9GiB", None), ("0%", 1.0)])
def test_a_margin_is_taken_off_every_gpu(margin: str, left: float | None):
    whole = document(*JOB, *HELD)["capacity_bytes"]
    expected = whole * left if left is not None else whole - 7.9 * 2**30
    assert document(*JOB, *HELD, "--memory-margin", margin)["capacity_bytes"] == pytest.approx(expected, rel=1e-6)


def test_each_number_of_gpus_has_its_plan_to_take():
    found = document(*JOB, *HELD, "--gpu-counts", "8,32", "--pareto")
    assert [one["gpus"] for one in found["by_gpus"]] == [8, 16, 32]
    for one in found["by_gpus"]:
        alone = document(*JOB, *HELD, "--gpus", str(one["gpus"]))
        sure = alone["best_fitting"] or alone["best"]
        assert one["best"]["plan"] == sure[0]["plan"]
        assert one["best"]["step_s"] == sure[0]["time"]["step_s"]["expected"]
    assert {one["gpus"] for one in found["pareto"]} == {8, 16, 32}
    assert "The plan to take with each number of GPUs" in run(*JOB, *HELD, "--gpu-counts", "8,32").stdout


def test_no_plan_of_the_front_beats_another():
    front = document(*JOB, *HELD, "--gpu-counts", "8", "--pareto")["pareto"]
    costs = [
        (one["step_s"] / one["plan"]["global_batch"], one["needed_bytes"], one["step_j"], one["gpus"]) for one in front
    ]
    assert len(front) > 1
    for one in costs:
        assert not any(all(a <= b for a, b in zip(other, one, strict=True)) for other in costs if other is not one)


def test_other_batches_are_tried_when_the_batch_need_not_be_kept():
    """31 sequences are prime: they can be shared by 1 or 31 replicas, never by 2, 4, 8 or 16."""
    batch = (*JOB[:-1], "31")
    kept, free = (document(*batch, *HELD, *more) for more in ((), ("--no-keep-batch",)))
    assert {one["plan"]["dp"] for one in kept["best"]} == {1}
    tried = {one["plan"]["global_batch"] for one in free["best"]}
    assert tried & {28, 30, 32}
    assert all(abs(batch - 31) <= 3.1 for batch in tried)

    def rate(one: dict[str, Any]) -> float:
        return float(one["plan"]["global_batch"] / one["time"]["step_s"]["expected"])

    assert rate(free["best"][0]) > rate(kept["best"][0])
    rates = [rate(one) for one in free["best"]]
    assert rates == sorted(rates, reverse=True)


def test_what_if_compares_with_the_plan_to_take():
    found = document(*JOB, *HELD, "--what-if")
    answers = {(one["what"], one["value"]): one for one in found["what_if"]}
    first = (found["best_fitting"] or found["best"])[0]
    same = answers["micro_batch", str(first["plan"]["micro_batch"])]
    assert same["relative"] == pytest.approx(1)
    # held axes are not asked about
    assert not {"tp", "sharding", "recompute"} & {what for what, _ in answers}
    assert {("sequence_parallel", "no"), ("sequence_parallel", "yes"), ("memory_margin", "5%")} <= answers.keys()
    with_more = answers["nics", "16 a node"]
    assert with_more["relative"] <= 1 + 1e-9


@pytest.mark.parametrize("framework", ["megatron", "fsdp", "deepspeed", "torchtitan"])
def test_a_framework_limits_the_plans_and_gives_its_settings(framework: str):
    found = document(*JOB, "--framework", framework, "--top", "2")
    assert found["best"]
    for one in found["best"]:
        assert framework in one["frameworks"]
    assert found["settings"]["framework"] == framework
    assert found["settings"]["refused"] == []
    assert found["settings"]["pasted"]


def test_an_older_release_of_megatron_is_megatron_too():
    found = document(*JOB, *HELD, "--framework", "megatron", "--software", "megatron")
    assert found["best"][0]["plan"]["software"] == "megatron"


def test_the_whole_run_is_told_as_predict_tells_it(stated: str, tmp_path: Path):
    length = ("--tokens", "1e12", "--checkpoint-asynchronous")
    found = document(stated, *HELD, *length)
    sure = (found["best_fitting"] or found["best"])[0]["plan"]
    flags = ("--tp", "2", "--pp", str(sure["pp"]), "--vpp", str(sure["vpp"]), "--cp", str(sure["cp"]),
             "--micro-batch", str(sure["micro_batch"]), "--schedule", sure["schedule"],
             "--shard-gpus", str(sure["shard_gpus"]), *HELD[2:],
             "--sequence-parallel" if sure["sequence_parallel"] else "--no-sequence-parallel")  # fmt: skip
    predicted = json.loads(CliRunner().invoke(opsk, ["predict", stated, *flags, *length, "--json"],
                                              standalone_mode=False).stdout)  # fmt: skip
    assert found["run"] == predicted["run"]
    assert found["checkpoint"] == predicted["checkpoint"]
    assert "checkpoint.mtbf_s" in {one["field"] for one in found["assumed"]}
    assert "The whole run with the first: " in run(stated, *HELD, *length).stdout
    assert "run" not in document(stated, *HELD)


def test_a_script_is_written_with_the_plan(tmp_path: Path):
    path = tmp_path / "run.sbatch"
    found = document(*JOB, *HELD, "--sbatch", str(path))
    assert found["script"] == {"file": str(path), "framework": "megatron", "why": None}
    text = path.read_text()
    assert text.startswith("#!/bin/bash")
    assert "--tensor-model-parallel-size 2" in text
    assert "#SBATCH --nodes=2" in text


@pytest.mark.parametrize("where", ["there/run.sbatch", "."])
def test_a_script_that_cannot_be_written_is_refused_before_the_search(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(best_plan_spread, "search_in_processes", None)  # a call would be a TypeError
    assert str(tmp_path) in refusal(*JOB, *HELD, "--sbatch", str(tmp_path / where)).message


def test_a_script_of_somebody_is_left_alone(tmp_path: Path):
    path = tmp_path / "mine.sbatch"
    path.write_text("mine")
    assert "is there already" in refusal(*JOB, *HELD, "--sbatch", str(path)).message
    assert path.read_text() == "mine"


def test_gpus_that_fill_no_nodes_have_plans_but_no_script(tmp_path: Path):
    job = (*JOB[:-4], "--gpus", "12", "--global-batch", "24")
    assert document(*job, "--tp", "2")["best"]
    assert "12 GPUs do not fill nodes" in refusal(*job, "--tp", "2", "--sbatch", str(tmp_path / "x")).message


def test_no_script_without_a_plan_is_bad_news_beside_the_answer(tmp_path: Path):
    path = tmp_path / "run.sbatch"
    result = run(*JOB[:-4], "--gpus", "1", "--global-batch", "1", "--sbatch", str(path))
    assert result.return_value == 1
    assert "No plan fits into" in result.stdout
    assert "no script was written: no plan can run" in result.stdout
    assert not path.exists()


@pytest.mark.parametrize("name", [HOSTILE, "[bold]big[/bold]", "[/]", ":warning:", "x" * 3000])
def test_hostile_names_are_shown_as_they_are(name: str, tmp_path: Path):
    path = tmp_path / "run.sbatch"
    text = run(*JOB, *HELD, "--model-name", name, "--sbatch", str(path)).stdout
    assert "\x1b" not in text
    assert "\u202e" not in text
    joined = text.replace("\n", "")
    for mark in ("[red]x[/red]", "[bold]big[/bold]", "[/]", ":warning:"):
        assert (mark in joined) == (mark in name)
    lines = path.read_text().splitlines()
    assert not any(line.startswith("$(touch") for line in lines)
    shell = subprocess.run(["bash", "-n", str(path)], check=False)
    assert shell.returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("--model", "mixtral-8x7b", "--ep", "8"),
        ("--model", "t5-11b", "--cluster", "titan", "--tp", "2"),
        ("--model", "llama-3-8b", "--lora-rank", "16", "--tp", "1"),
        ("--model", "llama-3-8b", "--precision", "fp8", "--tp", "2"),
        ("--model", "llama-3-8b", "--model-seq", "1000000", "--tp", "8", "--cp", "2"),
        ("--model", "llama-3-8b", "--cluster", "gb200-nvl72", "--tp", "2"),
        ("--model", "llama-3-8b", "--cluster", "crusher", "--tp", "8"),
        ("--model", "llama-3-8b", "--global-batch", "1", "--tp", "8"),
        ("--model", "llama-3-8b", "--gpus", "13", "--global-batch", "13"),
    ],
)
def test_models_and_machines_of_all_kinds_are_answered(arguments: tuple[str, ...]):
    result = run(*JOB, *arguments, "--top", "2")
    assert result.exception is None, result.exception
    assert result.return_value in (0, 1)
    assert "plans: " in result.stdout


def test_json_alone_goes_to_stdout_and_nothing_to_a_stderr_that_nobody_watches():
    done = subprocess.run(
        [sys.executable, "-m", "opsk.cli.main", "plan", *JOB, *HELD, "--what-if", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert json.loads(done.stdout)["best"]
    assert done.stderr == ""
