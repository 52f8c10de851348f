"""The JSON document of ``opsk check``: its keys are a contract with programs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.rails import find_rails
from opsk.hardware.catalog import cluster
from opsk.text import to_json_values
from opsk.workload.advice_record import AdviceRecord, Verdict
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.advice.rendering.document import document, record
from opsk_jobcheck.scripts.script import read_script
from tests.fakes.launch_scripts import megatron_script

FITS = (
    "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 --micro-batch-size 1 --global-batch-size 128 "
    "--sequence-parallel --use-distributed-optimizer"
)
SCRIPTS = {
    "fits": megatron_script(FITS),
    "oom": megatron_script("--micro-batch-size 4 --global-batch-size 256"),
    "unknown": megatron_script("--micro-batch-size $1"),
    "no training": "#!/bin/bash\nhostname\n",
}
TOP = {
    "verdict", "workload", "memory", "time", "placement", "interference", "suggestions", "assumed", "problems",
    "waste",
}  # fmt: skip
MODEL = {"name", "layers", "hidden", "ffn", "heads", "kv_heads", "vocab", "seq"}
PLAN = {
    "nodes", "gpus_per_node", "gpus", "tp", "pp", "vpp", "cp", "ep", "dp", "sharding", "sequence_parallel", "recompute",
    "precision", "micro_batch", "global_batch",
}  # fmt: skip
MEMORY = {"capacity_bytes", "total_bytes", "components", "fit_probability"}
TIME = {"step_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "components"}
SUPERPOD = Adviser(cluster=cluster("superpod-h100"), cluster_from="superpod-h100")


def answer(script: str, adviser: Adviser = SUPERPOD) -> dict[str, Any]:
    """Return the document as a program reads it."""
    advice = adviser.advise(read_script(script, file="job.sh"))
    parsed: dict[str, Any] = json.loads(json.dumps(to_json_values(document(advice)), allow_nan=False))
    return parsed


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_every_key_of_the_contract_is_always_there(script: str) -> None:
    found = answer(script)
    assert found.keys() >= TOP
    assert found["workload"].keys() >= {"framework", "model", "plan", "evidence"}
    assert found["workload"]["model"].keys() >= MODEL
    assert found["workload"]["plan"].keys() >= PLAN
    assert found["memory"].keys() >= MEMORY
    assert found["time"].keys() >= TIME
    for entry in found["workload"]["evidence"]:
        assert entry.keys() == {"field", "value", "file", "line", "text"}
    for entry in found["problems"]:
        assert entry.keys() == {"what", "file", "line", "hint"}


@pytest.mark.parametrize(("name", "verdict"), [("fits", "fits"), ("oom", "oom"), ("unknown", "unknown")])
def test_the_verdict_is_a_word(name: str, verdict: str) -> None:
    assert answer(SCRIPTS[name])["verdict"] == verdict


def test_predictions_are_ranges() -> None:
    found = answer(SCRIPTS["fits"])
    ranges = [found["memory"]["total_bytes"], *(found["time"][name] for name in TIME - {"components"})]
    for entry in ranges:
        assert entry.keys() == {"low", "expected", "high"}
        assert entry["low"] <= entry["expected"] <= entry["high"]


def test_components_add_up() -> None:
    found = answer(SCRIPTS["fits"])
    assert sum(found["memory"]["components"].values()) == pytest.approx(found["memory"]["total_bytes"]["expected"])
    assert sum(found["time"]["components"].values()) == pytest.approx(found["time"]["step_s"]["expected"])


def test_what_cannot_be_told_is_null() -> None:
    found = answer(SCRIPTS["unknown"])
    assert found["workload"]["plan"]["micro_batch"] is None
    assert found["memory"]["total_bytes"] is None
    assert found["time"]["step_s"] is None
    assert found["why_unknown"]
    assert found["memory"]["capacity_bytes"] > 0


def test_suggestions_say_what_to_set_and_what_it_leads_to() -> None:
    suggestions = answer(SCRIPTS["oom"])["suggestions"]
    assert len(suggestions) >= 2
    for entry in suggestions:
        assert entry["verdict"] == "fits"
        assert entry["flags"]
        assert entry["what"]
        assert entry["plan"]["global_batch"] == 256
        assert min(entry["memory_bytes"], entry["step_s"], entry["step_ratio"], entry["fit_probability"]) > 0


def test_waste_says_what_it_costs_and_what_to_do() -> None:
    (found,) = answer(SCRIPTS["fits"].replace("batch-size 128", "batch-size 8"))["waste"]
    assert found.keys() == {"kind", "what", "cost_share", "advice", "change"}
    assert found["kind"] == "pipeline-bubble"
    assert 0.2 < found["cost_share"] < 1
    assert found["change"]["flags"]
    assert found["change"]["verdict"] == "fits"
    assert 0 < found["change"]["step_ratio"] < 1


def test_a_gpu_that_nobody_knows_has_no_capacity() -> None:
    found = answer(SCRIPTS["fits"].replace("--gpus-per-node=8", "--gres=gpu:h900:8"))
    assert (found["cluster"]["name"], found["cluster"]["gpu"]) == ("superpod-h100", None)
    assert found["memory"]["capacity_bytes"] is None


def test_no_cluster_is_null() -> None:
    assert answer(SCRIPTS["fits"], Adviser())["cluster"]["name"] is None


def test_a_placement_is_compared_with_the_default() -> None:
    rails = find_rails(rail_optimized_fabric(nodes=16, hcas=8, leaves=16, spines=4))
    placed = answer(SCRIPTS["fits"], Adviser(cluster=SUPERPOD.cluster, rails=rails))["placement"]
    assert len(placed["nodes"]) == 8
    assert 0 <= placed["versus_default"]["rail_local_fraction"] <= placed["rail_local_fraction"] <= 1


@pytest.mark.parametrize("name", ["fits", "oom"])
def test_the_record_of_a_job_says_the_same_as_the_document(name: str) -> None:
    advice = SUPERPOD.advise(read_script(SCRIPTS[name], file="job.sh"))
    found, kept = answer(SCRIPTS[name]), record(advice, script_hash="abc")
    assert AdviceRecord.parse(kept.render()) == kept
    assert (kept.verdict, kept.hash) == (found["verdict"], "abc")
    # a record keeps six significant digits
    assert kept.mem_bytes == pytest.approx(found["memory"]["total_bytes"]["expected"], rel=1e-5)
    assert kept.step_s == pytest.approx(found["time"]["step_s"]["expected"], rel=1e-5)


def test_the_record_of_an_unknown_job_has_a_verdict_alone() -> None:
    advice = SUPERPOD.advise(read_script(SCRIPTS["unknown"], file="job.sh"))
    assert record(advice) == AdviceRecord(verdict=Verdict.UNKNOWN)
