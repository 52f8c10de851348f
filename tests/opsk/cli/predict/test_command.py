from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from opsk.app.inputs.named_inputs import load_cluster
from opsk.cli.main import opsk
from opsk.errors import OpskError

PLAN = """
cluster = "titan"
[model]
name = "gpt-22b"
layers = 48
hidden = 6144
ffn = 24576
heads = 64
vocab = 51200
seq = 2048
learned_positions = true
flash_attention = false
gated_mlp = false
tied_embeddings = true
[plan]
software = "megatron"
states = "mixed"
tp = 8
sequence_parallel = true
recompute = "selective"
precision = "fp16"
micro_batch = 4
global_batch = 4
"""


@pytest.fixture
def plan_file(tmp_path: Path) -> str:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return str(path)


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(opsk, ["predict", *arguments], input=stdin, standalone_mode=False)


def test_a_plan_file_is_answered_in_json(plan_file: str):
    result = run(plan_file, "--json")
    document = json.loads(result.stdout)
    assert result.return_value == 0
    assert document["verdict"] == "tight"  # 61 of 79 GiB, within a range that other software's memory gave
    assert document["memory"].keys() >= {"capacity_bytes", "total_bytes", "components", "fit_probability"}
    assert document["time"].keys() >= {"step_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "components"}
    assert document["energy"].keys() >= {"step_j", "j_per_token"}
    assert document["plan"]["gpus"] == 8
    # Korthikanti et al. 2022, table 5: 1.10 s
    assert document["time"]["step_s"]["expected"] == pytest.approx(1.10, rel=0.08)


def test_people_get_the_verdict_first(plan_file: str):
    lines = run(plan_file).stdout.splitlines()
    assert lines[0].startswith("gpt-22b · 8 × a100-sxm-80gb (titan) · TP8")
    assert next(line for line in lines if line.startswith("memory")).startswith("memory  ! tight")
    assert any(line.startswith("speed") and "TFLOP/s/GPU" in line for line in lines)
    assert any(line.startswith("energy") for line in lines)
    # everything that matters is stated
    assert not any(line.startswith("assumed") for line in lines)


def test_flags_beat_the_file(plan_file: str):
    document = json.loads(run(plan_file, "--json", "--tp", "4", "--pp", "2", "--model-layers", "24").stdout)
    assert document["plan"]["gpus"] == 8
    assert (document["plan"]["tp"], document["model"]["layers"]) == (4, 24)
    # what was not overridden stays
    assert document["plan"]["recompute"] == "selective"


def test_flags_alone_make_a_plan():
    model = (
        "--model-layers 24 --model-hidden 2304 --model-ffn 9216 --model-heads 24 --model-vocab 51200 --model-seq 2048"
    )
    result = run(*model.split(), "--nodes", "4", "--gpus-per-node", "8", "--global-batch", "512", "--cluster", "titan",
                 "--json")  # fmt: skip
    # dp is fixed by 4 nodes of 8 GPUs
    assert json.loads(result.stdout)["plan"]["dp"] == 32


@pytest.mark.parametrize("job", [("--gpus", "32"), ("--nodes", "4"), ("--nodes", "4", "--gpus", "32")])
def test_gpus_or_whole_nodes_of_the_cluster_fix_the_data_parallel_size(job: tuple[str, ...]):
    result = run("--model", "llama-3-8b", "--cluster", "superpod-h100", "--tp", "2", *job, "--json")
    # 4 nodes of 8 GPUs, 2 a replica
    assert json.loads(result.stdout)["plan"]["dp"] == 16


def test_the_memory_that_decides_is_named_where_it_is_tight(root: Path):
    plan = str(root / "examples/plans/llama3-70b-64.toml")
    memory = json.loads(run(plan, "--json").stdout)["memory"]
    given_back = memory["components"]["slack"] + memory["components"]["fragmentation"]
    needed = memory["needed_bytes"]["expected"] / 2**30
    assert needed == pytest.approx((memory["total_bytes"]["expected"] - given_back) / 2**30)
    text = " ".join(run(plan).stdout.split())
    assert f"the chance is that of {needed:.1f} GiB (" in text


def test_a_plan_from_standard_input():
    assert json.loads(run("-", "--json", stdin=PLAN).stdout)["model"]["name"] == "gpt-22b"


def test_running_out_of_memory_is_bad_news(plan_file: str):
    result = run(plan_file, "--tp", "1", "--dp", "8", "--global-batch", "32")
    assert result.return_value == 1
    assert "✗ will run out of memory" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--nodes", "2", "--gpus-per-node", "8", "--dp", "1"), "8 GPUs, nodes 2 x gpus_per_node 8 is 16"),
        (("--gpus", "16", "--dp", "1"), "8 GPUs, gpus is 16"),
        (("--gpus", "24", "--nodes", "2"), "gpus is 24, nodes 2 x gpus_per_node 8 is 16"),
        (("--gpus", "0"), "gpus is 0, must be at least 1"),
        (("--tp", "5"), "heads 64 is not a multiple of tp 5"),
        (("--pp", "7", "--cp", "3"), "seq 2048 is not a multiple of 2 x cp 3"),
        (("--dp", "4096", "--global-batch", "16384"), "= 32768 GPUs, cluster titan has 1040"),
        (("--precision", "fp8"), "precision fp8 needs fp8, a100-sxm-80gb has bf16"),
        (("--cluster", "no-such-cluster"), "no-such-cluster"),
        (("--cluster", "/no/such/file.toml"), "/no/such/file.toml: No such file or directory"),
        (("--micro-batch", "3"), "global batch 4 is not a multiple of micro batch 3"),
        (("--model-layers", "0"), "layers is 0"),
    ],
)
def test_what_cannot_be_is_one_clear_line(plan_file: str, arguments: tuple[str, ...], words: str):
    result = run(plan_file, *arguments)
    assert isinstance(result.exception, OpskError)
    assert words in result.exception.message
    assert "\n" not in result.exception.message
    assert result.exception.exit_status == 2


def test_every_broken_rule_is_named_at_once(plan_file: str):
    message = run(plan_file, "--tp", "5", "--pp", "11").exception.message  # type: ignore[union-attr]
    assert "tp 5" in message
    assert "pp 11" in message


def test_a_plan_without_cluster_says_how_to_name_one(tmp_path: Path):
    path = tmp_path / "plan.toml"
    path.write_text(PLAN.replace('cluster = "titan"', ""))
    error = run(str(path)).exception
    assert isinstance(error, OpskError)
    assert "no cluster is given" in error.message
    assert "give --cluster" in error.message


@pytest.mark.parametrize("text", ["layers=" + "9" * 5000, "a=" + "[" * 5000, "\x1b]0;gotcha\x07", "[model"])
def test_hostile_plan_files_are_refused_in_one_printable_line(text: str):
    error = run("-", stdin=text).exception
    assert isinstance(error, OpskError)
    assert error.message.isprintable()


def test_a_hostile_model_name_reaches_no_terminal(tmp_path: Path):
    path = tmp_path / "plan.toml"
    path.write_text(PLAN.replace("gpt-22b", "\\u001b]0;gotcha\\u0007[bold]x[/bold]"))
    out = run(str(path)).stdout
    assert "\x1b]0" not in out
    assert "[bold]x[/bold]" in out


def test_the_site_names_the_cluster_where_nobody_else_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    site, path = tmp_path / "opsk.toml", tmp_path / "plan.toml"
    site.write_text('cluster = "titan"\n')
    path.write_text(PLAN.replace('cluster = "titan"', ""))
    monkeypatch.setenv("OPSK_CONFIG", str(site))
    assert json.loads(run(str(path), "--json").stdout)["cluster"]["name"] == "titan"


def test_a_cluster_file_is_read(tmp_path: Path):
    path = tmp_path / "site.toml"
    path.write_text('name = "vega"\nlike = "titan"\nnodes = 3\n')
    assert load_cluster(str(path)).nodes == 3


def test_memory_time_and_energy_come_in_parts(plan_file: str):
    document = json.loads(run(plan_file, "--json", "--pp", "2").stdout)
    memory, time, energy = document["memory"], document["time"], document["energy"]
    assert memory["allocated_bytes"] <= memory["reserved_bytes"] <= memory["device_bytes"]
    assert memory["device_bytes"] == memory["total_bytes"]["expected"]
    assert isinstance(memory["moment"], str)
    for axis in ("tp", "cp", "ep", "pp", "dp"):
        parts = time["communication"][axis]
        assert 0 <= parts["exposed_s"] <= parts["total_s"] * (1 + 1e-9)
        assert parts["exposed_s"] == time["components"][axis]
    assert energy.keys() >= {"step_j", "j_per_token", "gpu_w", "host_w", "network_w", "job_w", "components"}
    assert sum(energy["components"].values()) == pytest.approx(energy["step_j"]["expected"])


def test_a_public_model_needs_only_its_plan():
    result = run("--model", "llama-3-8b", "--cluster", "superpod-h100", "--nodes", "1", "--gpus-per-node", "8",
                 "--software", "pytorch", "--model-seq", "4096", "--json")  # fmt: skip
    document = json.loads(result.stdout)
    assert (document["model"]["hidden"], document["model"]["seq"], document["plan"]["dp"]) == (4096, 4096, 8)
    assumed = {entry["field"]: entry for entry in document["assumed"]}
    assert assumed["plan.sharding"]["value"] == "zero3"
    assert assumed["plan.sharding"]["why"]
    assert "model.seq" not in assumed


def test_a_config_file_is_a_model(tmp_path: Path):
    config = {
        **{"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 512, "intermediate_size": 1536},
        **{"num_attention_heads": 8, "vocab_size": 32000, "max_position_embeddings": 2048},
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    document = json.loads(run("--model", str(path), "--cluster", "superpod-h100", "--json").stdout)
    assert (document["model"]["layers"], document["model"]["seq"]) == (4, 2048)


def test_what_is_assumed_is_listed_and_widens_the_ranges(plan_file: str):
    text = Path(plan_file).read_text()
    stated = json.loads(run(plan_file, "--json").stdout)
    less = text.replace('software = "megatron"\n', "").replace('precision = "fp16"\n', "")
    guessed = json.loads(run("-", "--json", "--software", "megatron", stdin=less).stdout)
    assert stated["assumed"] == []
    assert [entry["field"] for entry in guessed["assumed"]] == ["plan.precision"]
    for part, name in (("time", "step_s"), ("memory", "total_bytes")):
        before, after = stated[part][name], guessed[part][name]
        assert after["high"] / after["expected"] > before["high"] / before["expected"]


def test_a_whole_run_takes_its_steps_and_the_time_that_checkpoints_cost(plan_file: str):
    arguments = ("--steps", "1000", "--pue", "1.25", "--checkpoint-write-bytes-per-s", "1e9", "--json")
    document = json.loads(run(plan_file, *arguments).stdout)
    plain = json.loads(run(plan_file, "--json").stdout)
    checkpoint, whole, energy = document["checkpoint"], document["run"], document["energy"]
    assert energy["step_j"]["expected"] == pytest.approx(1.25 * plain["energy"]["step_j"]["expected"])
    lost = checkpoint["lost_fraction"]
    assert 0 < lost < 1
    step_s = document["time"]["step_s"]["expected"]
    assert whole["time_s"]["expected"] == pytest.approx(1000 * step_s / (1 - lost))
    assert whole["energy_kwh"]["expected"] == pytest.approx(1000 * energy["step_j"]["expected"] / (1 - lost) / 3.6e6)
    # batch 4 of 2048 tokens
    assert whole["tokens"] == 1000 * 4 * 2048
    assert [entry["field"] for entry in document["assumed"]] == ["checkpoint.mtbf_s"]


def test_everything_that_is_wrong_is_one_error_with_status_two(plan_file: str):
    arguments = ("--tp", "5", "--pp", "11", "--precision", "fp9", "--model-seq=-1", "--pue", "nan", "--nodes", "2",
                 "--gpus-per-node", "16", "--cluster", "superpod-h100", "--dp", "x")  # fmt: skip
    error = run(plan_file, *arguments).exception
    assert isinstance(error, OpskError)
    assert error.exit_status == 2
    for words in (
        "plan.dp: 'x' is not an integer",
        "plan.precision: 'fp9' is none of",
        "run.pue is nan: must be finite",
        "model: seq is -1, must be at least 1",
        "heads 64 is not a multiple of tp 5",
        "ffn 24576 is not a multiple of tp 5",
        "layers 48 is not a multiple of pp 11 x vpp 1 = 11",
        "gpus_per_node 16, a dgx-h100 has 8",
    ):
        assert words in error.message


def test_an_unknown_cluster_does_not_hide_what_is_wrong_with_the_plan(plan_file: str):
    error = run(plan_file, "--cluster", "nope", "--tp", "5").exception
    assert isinstance(error, OpskError)
    assert "nope" in error.message
    assert "heads 64 is not a multiple of tp 5" in error.message


def test_an_efficiency_file_changes_the_answer(plan_file: str, tmp_path: Path):
    path = tmp_path / "site.toml"
    path.write_text("[gpu.ampere]\nmatmul_fraction = 0.1\n")
    usual, slow = (
        json.loads(run(plan_file, "--json", *more).stdout)["time"]["step_s"]["expected"]
        for more in ((), ("--efficiency", str(path)))
    )
    assert slow > 2 * usual
