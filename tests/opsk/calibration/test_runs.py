"""Reading a table of runs: what is stated, what is assumed, and what cannot be."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from opsk.calibration.runs import Run, parse_runs, read_runs
from opsk.costmodel.inputs import MEMORY_INPUTS, TIME_INPUTS
from opsk.errors import InputError
from opsk.workload.plan import Loss, Optimizer, Recompute, Sharding, Software, States
from tests.fakes.tables_of_runs import row, table


def one(**columns: str) -> Run:
    """Read the stated row with other cells."""
    (run,) = parse_runs(table(row(**columns))).runs
    return run


def assumed(run: Run) -> dict[str, object]:
    return {entry.field: entry.value for entry in run.assumed}


def test_a_row_that_states_everything_has_every_input_stated() -> None:
    run = one()
    assert run.states_time_inputs
    assert run.states_memory_inputs
    assert not TIME_INPUTS & assumed(run).keys()


@pytest.mark.parametrize(
    ("column", "field"),
    [
        ("ffn_hidden", "model.ffn"),
        ("heads", "model.heads"),
        ("micro_batch", "plan.micro_batch"),
        ("global_batch", "plan.global_batch"),
        ("recompute", "plan.recompute"),
        ("sharding", "plan.sharding"),
        ("precision", "plan.precision"),
        ("vocab", "model.vocab"),
        ("seq_len", "model.seq"),
    ],
)
def test_what_is_left_out_is_assumed_with_a_reason(column: str, field: str) -> None:
    run = one(**{column: ""})
    entry = next(entry for entry in run.assumed if entry.field == field)
    assert entry.why
    assert run.states_memory_inputs == (field not in MEMORY_INPUTS)


def test_a_fabric_is_assumed_only_where_it_is_used() -> None:
    assert "cluster.nic_gbps" not in assumed(one())
    assert assumed(one(gpus="16", dp="2", global_batch="8"))["cluster.nic_gbps"] == pytest.approx(200)


def test_layers_and_width_are_found_from_the_number_of_parameters() -> None:
    # GPT-3 175B: 96 layers of 12,288 (Brown et al. 2020, table 2.1)
    run = one(params_b="175", layers="", hidden="", heads="", kv_heads="", ffn_hidden="", tp="8")
    assert (run.model.layers, run.model.hidden) == (96, 12288)
    assert run.parameters == pytest.approx(175e9, rel=0.02)


def test_the_layers_of_a_known_width_fit_the_parameters() -> None:
    # BLOOM: 70 layers of 14,336 with 250,880 rows of vocabulary are 176.2 B (its model card)
    run = one(
        params_b="176.2", layers="", hidden="14336", heads="112", kv_heads="112", ffn_hidden="57344", vocab="250880"
    )
    assert run.model.layers == 70


def test_a_public_model_fills_in_what_its_name_tells() -> None:
    blank = dict.fromkeys(("layers", "hidden", "heads", "kv_heads", "ffn_hidden", "vocab"), "")
    run = one(model="LLAMA3_70B", arch="llama", params_b="70", **blank)
    # Llama 3 70B (its config.json): 80 layers, 64 heads with 8 of keys and values, MLP 28,672 wide
    assert (run.model.layers, run.model.kv_heads, run.model.ffn, run.model.vocab) == (80, 8, 28672, 128256)
    assert "model.layers" in assumed(run)


def test_a_public_model_of_another_size_is_not_taken() -> None:
    run = one(model="LLAMA3_70B", arch="llama", layers="12", kv_heads="")
    assert run.model.kv_heads == run.model.heads


def test_the_split_of_a_model_that_states_none_is_the_smallest_that_fits() -> None:
    run = one(params_b="", tp="", pp="", dp="", gpus="64", global_batch="64", micro_batch="1")
    assert run.plan.tp > 1
    assert run.plan.gpus == 64
    assert {"plan.tp", "plan.pp"} <= assumed(run).keys()


def test_a_missing_axis_follows_from_the_others_and_is_not_assumed() -> None:
    run = one(gpus="64", pp="", dp="4", global_batch="64")
    assert run.plan.pp == 2
    assert "plan.pp" not in assumed(run)


def test_software_and_its_ways_follow_from_words_of_the_source() -> None:
    new = one(
        source="pytorch/torchtitan performance", arch="llama", sharding="zero3/fsdp", tp="1", dp="8", global_batch="32"
    )
    assert new.plan.software is Software.PYTORCH
    assert new.plan.states is States.AUTOCAST
    assert new.plan.sharding is Sharding.ZERO3
    assert new.model.flash_attention
    old = one(source="Megatron-LM, SC21 (2021)")
    assert old.plan.software is Software.MEGATRON
    assert not old.model.flash_attention
    assert one(source="NVIDIA NeMo 24.07", gpu="H100").plan.software is Software.MEGATRON_CORE
    assert one(source="bigscience: BLOOM").plan.software is Software.DEEPSPEED


def test_settings_are_read_from_the_notes() -> None:
    notes = "pure bf16 weights; paged AdamW 8-bit; chunked cross entropy; torch.compile; recompute on"
    run = one(source="torchtune", notes=notes, precision="bf16")
    assert run.plan.states is States.PURE_16BIT
    assert run.plan.optimizer is Optimizer.PAGED_ADAM_8BIT
    assert run.plan.loss is Loss.CHUNKED
    assert run.plan.compiled


def test_cumulative_steps_keep_what_the_rows_before_switched_on() -> None:
    notes = ("cumulative step: base", "cumulative step: + compile", "cumulative step: + 8-bit AdamW")
    runs = parse_runs(table(*(row(id=f"t-{place}", notes=text) for place, text in enumerate(notes)))).runs
    assert [run.plan.compiled for run in runs] == [False, True, True]
    assert [run.plan.optimizer is Optimizer.ADAM_8BIT for run in runs] == [False, False, True]


def test_latent_attention_is_read_from_the_notes() -> None:
    run = one(
        arch="moe",
        experts="256",
        topk="8",
        notes="MLA (q_lora 1536, kv_lora 512, qk 128+64, v 128); first 3 layers dense",
    )
    assert (run.model.q_lora_rank, run.model.kv_lora_rank, run.model.head_dim, run.model.v_head_dim) == (
        1536,
        512,
        192,
        128,
    )
    assert run.model.dense_layers == 3


def test_a_gpu_is_the_variant_with_the_stated_memory() -> None:
    assert one(gpu_mem_gb="40").cluster.node.gpu.name == "a100-sxm-40gb"
    assert one(gpu_mem_gb="80").cluster.node.gpu.name == "a100-sxm-80gb"
    # two dies of 64 GB are one MI250X package
    package = one(gpu="MI250X", gpu_mem_gb="128").cluster.node.gpu
    assert package.memory_bytes == pytest.approx(2 * 64 * 2**30, rel=0.01)
    assert package.peak_flop_per_s["fp16"] == pytest.approx(383e12, rel=0.01)


def test_a_cluster_that_the_source_names_gives_its_nodes() -> None:
    # Summit: six V100 a node (ORNL); two groups of three with NVLink between them
    run = one(
        gpu="V100", gpu_mem_gb="32", gpus="12", gpus_per_node="", tp="6", dp="2", global_batch="8", notes="on Summit"
    )
    assert (run.cluster.node.gpus, run.cluster.node.hb_domain_gpus) == (6, 3)
    assert run.cluster.node.gpu.name == "v100-sxm2-32gb"


def test_rows_with_the_same_machine_share_it() -> None:
    first, second = parse_runs(table(row(id="a-1"), row(id="a-2"))).runs
    assert first.cluster is second.cluster


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"layers": "-5"}, "layers"),
        ({"layers": "=cmd|' /C calc'!A0"}, "layers"),
        ({"hidden": "9" * 400}, "hidden"),
        ({"seq_len": "inf"}, "seq_len"),
        ({"micro_batch": "1.5"}, "micro_batch"),
        ({"gpus": "1000000000"}, "gpus"),
        ({"gpu": "abacus"}, "abacus"),
        ({"gpu": ""}, "gpu"),
        ({"precision": "fp3"}, "precision"),
        ({"precision": "fp8"}, "fp8"),
        ({"sharding": "yes"}, "sharding"),
        ({"recompute": "some"}, "recompute"),
        ({"tp": "3"}, "tp 3"),
        ({"layers": "", "params_b": ""}, "params_b"),
        ({"heads": "64", "kv_heads": "7"}, "kv_heads"),
    ],
)
def test_an_impossible_row_is_told_and_kills_no_other(columns: dict[str, str], words: str) -> None:
    runs = parse_runs(table(row(id="good-1"), row(id="bad-1", **columns), row(id="good-2")))
    assert [run.id for run in runs.runs] == ["good-1", "good-2"]
    (bad,) = runs.unpredictable
    assert bad.id == "bad-1"
    assert words in bad.why


@pytest.mark.parametrize("empty", ["nan", "NaN", "NA", "n/a", "null", "-"])
def test_what_programs_write_into_an_empty_cell_is_empty(empty: str) -> None:
    assert one(micro_batch=empty).plan == one(micro_batch="").plan


def test_a_rate_counts_where_the_batch_of_a_timed_step_is_not_known() -> None:
    run = one(global_batch="", iter_time_s="3.0", tflops_per_gpu="150")
    assert (run.measured.step_s, run.measured.tflops_per_gpu, run.is_time_scored) == (None, 150, True)
    assert not one(global_batch="", iter_time_s="3.0", tflops_per_gpu="", tokens_per_s_per_gpu="").is_time_scored


def test_all_that_is_wrong_with_a_row_is_told_at_once() -> None:
    (bad,) = parse_runs(table(row(layers="-1", heads="x", micro_batch="nan"))).unpredictable
    assert all(name in bad.why for name in ("layers", "heads"))


def test_a_measurement_that_is_no_number_is_told_and_the_row_predicted() -> None:
    run = one(iter_time_s="about 3", peak_mem_gb="-1")
    assert run.measured.step_s is None
    assert run.measured.peak_mem_bytes is None
    assert any("iter_time_s" in problem for problem in run.problems)


def test_columns_may_be_absent_or_unknown() -> None:
    (run,) = parse_runs("id,gpu,gpus,model,colour\nx-1,H100,8,Llama-3-8B,red\n").runs
    assert run.model.layers == 32
    assert run.measured.step_s is None


def test_a_text_without_a_known_column_is_no_table() -> None:
    with pytest.raises(InputError, match="no column"):
        parse_runs("a,b\n1,2\n")


def test_a_table_without_rows_is_empty() -> None:
    assert len(parse_runs("id,gpu,gpus\n")) == 0


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.csv"):
        read_runs(tmp_path / "none.csv")
    (tmp_path / "latin.csv").write_bytes(b"id,gpu\n\xff,\xfe\n")
    with pytest.raises(InputError, match="UTF-8"):
        read_runs(tmp_path / "latin.csv")


def test_what_the_source_recalls_from_memory_is_no_measurement() -> None:
    run = one(iter_time_s="37.8", mfu="0.5", from_memory="yes (iter_time_s, dp)")
    assert run.measured.step_s is None
    assert run.measured.mfu == 0.5


def test_times_that_mean_nothing_are_not_scored() -> None:
    assert one(iter_time_s="1.4").is_time_scored
    assert not one(iter_time_s="1.4", notes="INCONSISTENT: two times").is_time_scored
    assert not one(iter_time_s="1.4", notes="toy model: time is launch-bound").is_time_scored
    assert not one(iter_time_s="1.4", global_batch="").is_time_scored
    assert one(tokens_per_s_per_gpu="900", global_batch="").is_time_scored
    assert one(notes="too close to OOM", iter_time_s="1").is_time_scored
    assert one(notes="OOM on 80GB GPUs").measured.is_oom


def test_old_software_recomputes_all_where_nothing_fits_without() -> None:
    run = one(layers="48", recompute="", micro_batch="8", global_batch="8", source="Megatron-LM 2021")
    assert run.plan.recompute is Recompute.FULL


@pytest.mark.shared
def test_the_measured_runs_are_all_predictable(runs_of_the_fit: Path) -> None:
    runs = read_runs(runs_of_the_fit)
    assert len(runs.runs) == 620
    assert not runs.unpredictable


@pytest.mark.shared
def test_about_320_rows_state_every_time_input_and_about_66_every_memory_input(runs_of_the_fit: Path) -> None:
    # the notes of the table count about 320 and about 66; toy models left out
    runs = read_runs(runs_of_the_fit).runs
    timed = Counter(run.source for run in runs if run.states_time_inputs and run.source != "mgold")
    assert 310 <= timed.total() <= 330
    measured = [run for run in runs if run.measured.peak_mem_bytes and run.states_memory_inputs]
    device = [run for run in measured if run.measured.mem_definition == "device" and not run.is_memory_unusable]
    assert 60 <= len(device) <= 72


def test_recipes_that_pipeline_tensor_parallelism_are_known_by_their_software() -> None:
    assert one(source="NVIDIA NeMo 24.07", gpu="H100").plan.tp_overlap
    assert one(source="torchtitan", notes="torch.compile + async TP").plan.tp_overlap
    assert not one(source="Megatron-LM 2021").plan.tp_overlap


def test_what_a_row_says_and_the_prediction_cannot_follow_is_told() -> None:
    run = one(arch="mamba", vpp="4", pp="1", tp="4", dp="8", gpus="16")
    words = " | ".join(run.problems)
    assert "arch is 'mamba'" in words
    assert "vpp 4 has no meaning with one stage" in words
    assert "dp 8 x tp x pp x cp 4 is not the number of GPUs: dp 4 is taken" in words


def test_cumulative_notes_are_told_with_and_without_a_row_before() -> None:
    notes = "cumulative step: + compile"
    runs = parse_runs(table(row(id="a-1", notes=notes), row(id="a-2", notes=notes))).runs
    assert "there is no row before" in " ".join(runs[0].problems)
    assert "what the source's rows before say holds here too" in " ".join(runs[1].problems)
