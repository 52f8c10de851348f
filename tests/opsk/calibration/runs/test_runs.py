"""Reading a table of runs: what is stated, what is assumed, and what cannot be."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from opsk.calibration.runs.runs import Run, parse_runs, read_runs
from opsk.costmodel.uncertainty.inputs import MEMORY_INPUTS, TIME_INPUTS
from opsk.errors import InputError
from opsk.workload.plan import (
    AdapterFormat,
    Attention,
    LoraTargets,
    Loss,
    Optimizer,
    OptimizerStep,
    Precision,
    QkvLayout,
    Recompute,
    Sharding,
    Software,
    States,
)
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
    run = one(gpus="16", dp="2", nic_gbps="200", **{column: ""})
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


def test_what_a_framework_does_holds_where_a_row_does_not_say() -> None:
    new = one(software="torchtitan", source_date="2025", arch="llama", sharding="", tp="1", dp="8", global_batch="32")
    assert new.plan.software is Software.PYTORCH
    assert new.plan.states is States.AUTOCAST
    assert new.plan.sharding is Sharding.ZERO3
    assert new.model.flash_attention
    assert {"plan.states", "plan.sharding", "model.flash_attention"} <= assumed(new).keys()
    old = one(source_date="2021")
    assert old.plan.software is Software.MEGATRON
    assert not old.model.flash_attention
    assert one(software="nemo", source_date="", container="nemo:24.07", gpu="H100").plan.tp_overlap
    assert one(software="megatron-deepspeed").plan.software is Software.DEEPSPEED


def test_a_trainer_that_shards_as_deepspeed_does_runs_it() -> None:
    columns = {"software": "hf-trainer", "tp": "1", "dp": "8", "global_batch": "32"}
    assert one(**columns, sharding="zero2").plan.software is Software.DEEPSPEED
    assert one(**columns, sharding="zero3/fsdp", dp_kind="fsdp").plan.software is Software.PYTORCH


def test_a_trainer_splits_no_model_and_shards_what_does_not_fit_whole() -> None:
    columns = {"software": "peft", "gpu": "A10G", "gpu_mem_gb": "24", "tp": "", "pp": "", "dp": "", "sharding": ""}
    columns |= {"model": "Llama 3 8B", "gpus": "4", "global_batch": "", "finetuning": "full", "recompute": ""}
    for name in ("params_b", "layers", "hidden", "heads", "kv_heads", "ffn_hidden", "vocab", "micro_batch", "arch"):
        columns[name] = ""
    run = one(**columns)
    assert (run.plan.tp, run.plan.pp, run.plan.sharding) == (1, 1, Sharding.ZERO3)  # 16 bytes x 8e9 a replica
    assert "do not fit" in next(entry.why for entry in run.assumed if entry.field == "plan.sharding")
    assert one(**columns | {"finetuning": "lora"}).plan.sharding is Sharding.NONE


def test_a_pipeline_whose_batch_nobody_states_has_micro_batches_for_its_stages() -> None:
    columns = {"software": "torchtitan", "source_date": "2025-01", "gpus": "64", "tp": "2", "pp": "8", "dp": "4"}
    run = one(**columns, sharding="zero3/fsdp", dp_kind="fsdp", global_batch="", micro_batch="1")
    assert run.plan.micro_batches >= 8


def test_torchtitan_recomputes_at_least_selectively_unless_told_otherwise() -> None:
    columns = {"software": "torchtitan", "source_date": "2025-01", "arch": "llama", "tp": "1", "dp": "8"}
    assert one(**columns, global_batch="32", recompute="").plan.recompute is not Recompute.NONE
    assert one(**columns, global_batch="32", recompute="none").plan.recompute is Recompute.NONE


def test_settings_have_columns_and_notes_decide_nothing() -> None:
    columns = {
        "software": "torchtune", "precision": "bf16", "param_dtype": "bf16", "master_dtype": "none",
        "optimizer": "paged-adam8bit", "loss_kernel": "chunked", "torch_compile": "yes",
    }  # fmt: skip
    plan = one(**columns).plan
    assert plan.states is States.PURE_16BIT
    assert plan.optimizer is Optimizer.PAGED_ADAM_8BIT
    assert plan.loss is Loss.CHUNKED
    assert plan.compiled
    words = "DeepSpeed ZeRO-3; LoRA rank 8; paged AdamW 8-bit; torch.compile; no flash attention; tp4 pp2; unbalanced"
    assert one(**columns, notes=words).plan == plan


def test_an_optimizer_steps_as_its_column_or_its_framework_says() -> None:
    columns = {"software": "hf-trainer", "source_date": "2024-05", "tp": "1", "dp": "8", "global_batch": "32"}
    assert one(**columns).plan.optimizer_step is OptimizerStep.FOREACH
    assert one(**columns, optimizer_impl="fused").plan.optimizer_step is OptimizerStep.FUSED
    assert one(optimizer_impl="in-backward").plan.optimizer_step is OptimizerStep.IN_BACKWARD
    assert one().plan.optimizer_step is OptimizerStep.FUSED


def test_formats_of_states_are_those_of_their_columns() -> None:
    columns = {"software": "megatron-deepspeed", "param_dtype": "bf16", "master_dtype": "fp32", "precision": "bf16"}
    assert one(**columns, grad_dtype="fp32").plan.states is States.MIXED
    assert one(**columns, grad_dtype="bf16").plan.states is States.MIXED_16BIT_GRADIENTS


def test_replicas_that_keep_16_bit_weights_beside_fp32_ones_do_not_run_under_autocast() -> None:
    # ATorch's 3D runs (atr-009): fp16 parameters, fp32 master weights, ZeRO-1; FSDP's rows name what it gathers
    columns = {"software": "atorch", "param_dtype": "fp16", "grad_dtype": "", "master_dtype": "fp32"}
    columns["precision"] = "fp16"
    assert one(**columns, sharding="zero1").plan.states is States.MIXED_16BIT_GRADIENTS
    assert one(**columns, sharding="zero3/fsdp", dp_kind="fsdp").plan.states is States.AUTOCAST


def test_what_is_trained_of_a_model_is_read() -> None:
    plan = one(finetuning="qlora", lora_rank="8").plan
    assert (plan.lora_rank, plan.base_bits) == (8, 4)
    assert one(finetuning="lora", lora_rank="16").plan.base_bits == 16
    assert "plan.lora_rank" in assumed(one(finetuning="lora"))
    assert one(finetuning="full").plan.lora_rank == 0


def test_fine_tuning_takes_what_its_framework_does_where_a_row_does_not_say() -> None:
    columns = {
        "software": "ms-swift", "source_date": "2024", "finetuning": "lora", "task": "sft", "arch": "llama", "tp": "1",
        "pp": "1", "gpus": "1", "recompute": "", "seq_len": "", "micro_batch": "", "global_batch": "",
    }  # fmt: skip
    run = one(**columns)
    assert run.plan.recompute is Recompute.FULL
    assert run.plan.micro_batch == 1
    assert run.plan.lora_targets is LoraTargets.ATTENTION
    assert run.plan.adapter_format is AdapterFormat.AUTOCAST
    assert run.plan.reentrant
    assert run.plan.reduces_16bit
    assert run.plan.varied_lengths
    assert run.model.seq == 512
    assert {"plan.recompute", "plan.micro_batch", "plan.varied_lengths", "model.seq"} <= assumed(run).keys()
    stated = one(**columns, packed="yes", lora_targets="all", adapter_format="base", reentrant="no").plan
    assert not stated.varied_lengths
    assert not stated.reentrant
    assert (stated.lora_targets, stated.adapter_format) == (LoraTargets.ALL, AdapterFormat.BASE)


def test_a_run_of_litgpt_has_what_its_code_does() -> None:
    columns = {"software": "litgpt", "source_date": "2023-10", "finetuning": "qlora", "arch": "llama", "gpus": "1"}
    run = one(**columns, tp="1", pp="1", loss_kernel="chunked")
    assert run.plan.states is States.PURE_16BIT
    assert run.plan.loss is Loss.FP32_KERNEL  # all chunks are kept, in fp32
    assert run.plan.qkv_layout is QkvLayout.PACKED
    told = {"plan.lora_dropout", "plan.keeps_base_inputs", "plan.quantised_head"}
    assert told <= assumed(run).keys()
    assert run.plan.lora_dropout
    assert run.plan.keeps_base_inputs
    assert run.plan.quantised_head
    # bitsandbytes 0.43.2 of July 2024 keeps them no longer
    assert not one(**{**columns, "source_date": "2024-10"}, tp="1", pp="1").plan.keeps_base_inputs
    stated = one(**columns, tp="1", pp="1", lora_dropout="no", quantised_head="no")
    assert not stated.plan.lora_dropout
    assert not told & assumed(stated).keys() - {"plan.keeps_base_inputs"}
    assert not one(**{**columns, "finetuning": "lora"}, tp="1", pp="1").plan.quantised_head


@pytest.mark.parametrize(
    ("model", "vocab"),
    [("Llama2-1B", 32000), ("llama 2 7B", 32000), ("LLaMA 13B", 128256), ("llama-1B", 128256), ("Llama 3.1", 128256)],
)
def test_the_name_of_a_model_tells_its_tokenizer(model: str, vocab: int) -> None:
    run = one(model=model, arch="llama", vocab="", params_b="1.3", source_date="2024-10", software="pytorch")
    assert run.model.vocab == vocab


def test_the_vocabulary_of_a_small_model_is_no_more_than_half_of_it() -> None:
    columns = {"model": "tiny", "arch": "llama", "vocab": "", "source_date": "2026-06", "software": "pytorch"}
    small, large = (one(**columns, params_b=size).model.vocab for size in ("0.03", "8"))
    assert (small, large) == (32000, 128256)


@pytest.mark.parametrize(
    ("software", "loss"),
    [("pytorch", Loss.RECOMPUTED), ("trl", Loss.RECOMPUTED_FP32), ("torchtune", Loss.CHUNKED)],
)
def test_a_loss_in_chunks_is_what_its_software_does(software: str, loss: Loss) -> None:
    columns = {"arch": "llama", "tp": "1", "pp": "1", "software": software, "source_date": "2026-05"}
    assert one(**columns, loss_kernel="chunked").plan.loss is loss
    assert one(**columns, loss_kernel="stored-chunks").plan.loss is Loss.CHUNKED


def test_tensor_parallelism_of_pytorch_is_on_distributed_tensors() -> None:
    columns = {"arch": "llama", "tp": "2", "pp": "1"}
    assert one(**columns, software="torchtitan").plan.distributed_tensors
    assert not one(**columns, software="nanotron").plan.distributed_tensors
    assert not one(**columns, software="pytorch", distributed_tensors="no").plan.distributed_tensors


def test_tf32_is_fp32_on_a_gpu_without_it() -> None:
    columns = {"arch": "llama", "software": "pytorch", "precision": "tf32"}
    assert one(**columns, gpu="A100").plan.precision is Precision.TF32
    assert one(**columns, gpu="V100").plan.precision is Precision.FP32


def test_a_usual_batch_that_does_not_fit_was_smaller() -> None:
    columns = {
        "arch": "llama",
        "software": "hf-trainer",
        "task": "sft",
        "tp": "1",
        "pp": "1",
        "seq_len": "16384",
        "layers": "4",
    }
    columns |= {
        "source_date": "2025-01",
        "micro_batch": "",
        "global_batch": "",
        "recompute": "full",
        "sharding": "zero3/fsdp",
    }
    run = one(**columns)
    assert run.plan.micro_batch < 8
    assert one(**{**columns, "seq_len": "512"}).plan.micro_batch == 8
    assert one(**columns, notes="OOM").plan.micro_batch == 8


def test_a_quantised_base_of_peft_is_checkpointed_and_old_models_multiply_out_their_scores() -> None:
    columns = {"arch": "llama", "tp": "1", "pp": "1", "software": "peft", "recompute": "", "attention_kernel": ""}
    assert one(**columns, finetuning="qlora").plan.recompute is Recompute.FULL
    assert one(**columns, source_date="2023-09").plan.attention is Attention.AUTO
    assert not one(**columns, source_date="2023-09").model.flash_attention
    assert one(**columns, source_date="2024-01").model.flash_attention


def test_a_fused_loss_is_that_of_its_framework_and_a_compiled_one_too() -> None:
    columns = {"arch": "llama", "tp": "1", "pp": "1", "loss_kernel": "fused"}
    assert one(**columns, software="hf-trainer").plan.loss is Loss.FP32_KERNEL
    assert one(**columns, software="llm-foundry").plan.loss is Loss.KERNEL
    titan = {**columns, "software": "torchtitan", "loss_kernel": ""}
    assert one(**titan, torch_compile="yes").plan.loss is Loss.KERNEL
    assert one(**titan, torch_compile="no").plan.loss is Loss.PLAIN


def test_a_compiled_model_returns_a_compiled_loss_unless_its_blocks_are_compiled_one_by_one() -> None:
    columns = {
        "software": "of ones own",
        "arch": "llama",
        "tp": "1",
        "pp": "1",
        "loss_kernel": "",
        "torch_compile": "yes",
    }
    assert one(**columns, sharding="none").plan.loss is Loss.KERNEL
    assert one(**columns, sharding="zero3/fsdp").plan.loss is Loss.PLAIN


def test_fused_layers_leave_the_loss_as_it_is() -> None:
    columns = {"software": "pytorch", "arch": "llama", "tp": "1", "pp": "1", "loss_kernel": "", "layer_kernels": "te"}
    assert one(**columns).plan.compiled
    assert one(**columns).plan.loss is Loss.PLAIN
    assert one(**columns, torch_compile="yes").plan.loss is Loss.KERNEL


def test_nothing_copies_the_logits_of_a_program_of_its_own_in_16_bits_to_fp32() -> None:
    columns = {"arch": "llama", "tp": "1", "pp": "1", "param_dtype": "bf16", "master_dtype": "none", "loss_kernel": ""}
    own = one(**columns, software="pytorch")
    assert own.plan.loss is Loss.NATIVE
    assert "plan.loss" in assumed(own)
    assert one(**columns | {"master_dtype": "fp32"}, software="pytorch").plan.loss is Loss.PLAIN
    # HuggingFace's loss copies them (transformers/loss/loss_utils.py, logits.float())
    assert one(**columns, software="hf-trainer").plan.loss is Loss.PLAIN
    stated = one(**columns | {"loss_kernel": "native", "master_dtype": ""}, software="pytorch")
    assert stated.plan.loss is Loss.NATIVE
    assert one(**columns | {"loss_kernel": "plain"}, software="pytorch").plan.loss is Loss.PLAIN


def test_what_a_program_does_with_logits_gradients_and_its_loop_is_read() -> None:
    columns = {"tp": "2", "pp": "1", "arch": "llama", "sequence_parallel": "yes"}
    own = one(**columns, software="of ones own", reduce_dtype="fp32").plan
    assert (own.gathers_logits, own.bare_loop, own.reduces_fp32) == (True, False, True)
    assert not one(**columns, software="torchtitan").plan.gathers_logits
    assert one(**columns, software="pytorch").plan.bare_loop
    assert not one(**columns, software="pytorch", bare_loop="no", gathers_logits="no").plan.bare_loop


def test_nanotron_shares_layers_and_head_out_by_parameters() -> None:
    # 24 layers of 4 x 2048^2 + 3 x 4096 x 2048 = 42 M parameters and a head of 103 M: a stage of four has 278 M, the
    # seventh layer passes that; 7, 7, 6 and 4 layers are taken as 7, 7, 7 and 3, for those between are even
    columns = {
        "software": "nanotron", "arch": "llama", "layers": "24", "hidden": "2048", "heads": "32", "ffn_hidden": "4096",
        "kv_heads": "32", "vocab": "50257", "tp": "1", "pp": "4", "dp": "2", "gpus": "8", "global_batch": "16",
        "micro_batch": "2",
    }  # fmt: skip
    plan = one(**columns, source_date="2024-07").plan
    assert (plan.first_stage_layers, plan.last_stage_layers) == (7, 4)
    assert plan.fused_norms
    assert plan.keeps_gathered
    assert not one(**columns, source_date="2025-01").plan.keeps_gathered


def test_picotron_is_in_16_bits_whole_and_splits_no_states() -> None:
    # huggingface/picotron, train.py: model.to(dtype), F.cross_entropy on its output, and AdamW without fused=True
    run = one(software="picotron", arch="llama", source_date="2025", sharding="", tp="1", dp="8", global_batch="32")
    plan = run.plan
    assert (plan.states, plan.loss, plan.sharding) == (States.PURE_16BIT, Loss.NATIVE, Sharding.NONE)
    assert (plan.optimizer_step, plan.bare_loop) == (OptimizerStep.FOREACH, True)


def test_atorch_has_autocast_over_fsdp_without_a_policy() -> None:
    columns = {"software": "atorch", "gpus": "8", "dp": "8", "tp": "1", "pp": "1", "global_batch": "8"}
    sharded = one(**columns, sharding="zero3/fsdp", dp_kind="fsdp").plan
    assert sharded.gathers_fp32
    assert sharded.keeps_kv_cache
    stated = one(**columns, sharding="zero3/fsdp", dp_kind="fsdp", gathers_fp32="no", keeps_kv_cache="no").plan
    assert not stated.gathers_fp32
    assert not stated.keeps_kv_cache
    assert not one(**columns, sharding="zero1").plan.gathers_fp32


def test_litgpt_flattens_adapters_and_adds_up_128_samples_unsharded() -> None:
    columns = {"software": "litgpt", "task": "sft", "finetuning": "lora", "gpus": "2", "dp": "2", "tp": "1", "pp": "1"}
    columns |= {"micro_batch": "4", "global_batch": "", "grad_accum": ""}
    run = one(**columns, sharding="zero3/fsdp", dp_kind="fsdp")
    assert run.plan.flat_adapters
    assert run.plan.accumulates_unsharded
    assert run.plan.global_batch == 128
    assert "plan.global_batch" in {assumption.field for assumption in run.assumed}
    assert one(**columns | {"global_batch": "16"}).plan.global_batch == 16
    assert one(**columns | {"micro_batch": "3"}).plan.global_batch != 128


def test_a_model_of_which_only_the_name_tells_the_size_is_predicted() -> None:
    columns = {
        "layers": "",
        "hidden": "",
        "heads": "",
        "kv_heads": "",
        "ffn_hidden": "",
        "params_b": "",
        "arch": "llama",
    }
    run = one(**columns, model="Something-7B of ours")
    assert run.parameters == pytest.approx(7e9, rel=0.05)


def test_the_batch_of_a_step_follows_from_what_is_stated() -> None:
    columns = {"gpus": "64", "dp": "8", "micro_batch": "2", "global_batch": ""}
    assert one(**columns, grad_accum="3").plan.global_batch == 48
    assert one(**columns, local_batch="4").plan.global_batch == 32
    assert one(**columns, batch_tokens="131072").plan.global_batch == 64
    assert "plan.global_batch" not in assumed(one(**columns, grad_accum="3"))


def test_latent_attention_has_columns() -> None:
    run = one(
        arch="moe", experts="256", topk="8", q_lora_rank="1536", kv_lora_rank="512", qk_nope_dim="128",
        qk_rope_dim="64", v_head_dim="128", dense_layers="3",
    )  # fmt: skip
    widths = (run.model.q_lora_rank, run.model.kv_lora_rank, run.model.head_dim, run.model.v_head_dim)
    assert widths == (1536, 512, 192, 128)
    assert run.model.dense_layers == 3


def test_a_gpu_is_the_variant_with_the_stated_memory() -> None:
    assert one(gpu_mem_gb="40").cluster.node.gpu.name == "a100-sxm-40gb"
    assert one(gpu_mem_gb="80").cluster.node.gpu.name == "a100-sxm-80gb"
    # two dies of 64 GB are one MI250X package
    package = one(gpu="MI250X", gpu_mem_gb="128").cluster.node.gpu
    assert package.memory_bytes == pytest.approx(2 * 64 * 2**30, rel=0.01)
    assert package.peak_flop_per_s["fp16"] == pytest.approx(383e12, rel=0.01)


@pytest.mark.parametrize(
    ("columns", "gpu"),
    [
        ({"source_date": "2023-05"}, "a100-sxm-80gb"),
        ({"source_date": "2025-05"}, "h100-sxm"),
        ({"gpu_mem_gb": "48"}, "l40s"),
        ({"gpu_mem_gb": "80", "source_date": "2025"}, "h100-sxm"),
        ({"gpu_mem_gb": "192"}, "b200-sxm"),
    ],
)
def test_a_run_on_a_gpu_that_nobody_states_is_predicted_in_memory(columns: dict[str, str], gpu: str) -> None:
    run = one(**{"gpu": "", "gpu_mem_gb": "", "peak_mem_gb": "40", **columns})
    assert run.cluster.node.gpu.name == gpu
    assert "cluster.gpu" in {assumption.field for assumption in run.assumed}
    assert not run.is_time_scored


def test_a_trainer_that_splits_no_model_has_its_experts_whole() -> None:
    columns = {"software": "axolotl", "gpus": "8", "dp": "8", "tp": "1", "pp": "1", "ep": "", "experts": "8"}
    columns |= {"arch": "moe", "topk": "2", "sharding": "zero3/fsdp", "dp_kind": "fsdp", "global_batch": "8"}
    assert one(**columns).plan.ep == 1
    assert one(**columns | {"ep": "4"}).plan.ep == 4


def test_experts_are_split_only_where_a_row_that_states_its_layout_says_so() -> None:
    columns = {"arch": "moe", "experts": "8", "topk": "2", "ep": "", "gpus": "64", "global_batch": "64"}
    columns |= {"params_b": "", "layers": "16", "hidden": "2048", "heads": "16", "kv_heads": "16", "ffn_hidden": "8192"}
    stated = one(**columns, tp="4", pp="2", dp="8")
    assert stated.plan.ep == 1
    assert "plan.ep" in assumed(stated)
    assert one(**columns, tp="", pp="", dp="").plan.ep > 1
    # the 48 layers of 6,144, eight times as wide, do not fit so
    large = columns | {"layers": "48", "hidden": "6144", "heads": "64", "kv_heads": "64", "ffn_hidden": "24576"}
    assert one(**large, tp="4", pp="2", dp="8").plan.ep == 8
    assert "plan.ep" not in assumed(one(**columns | {"ep": "1"}, tp="4", pp="2", dp="8"))


def test_a_node_of_new_amd_gpus_has_a_400_gbit_nic_for_each() -> None:
    node = one(gpu="MI355X", gpu_mem_gb="288", gpus="16", dp="2", global_batch="8").cluster.node
    assert (node.gpu.name, node.nics, node.nic.bytes_per_s) == ("mi355x", 8, 50e9)


def test_a_cluster_that_the_source_names_gives_its_nodes() -> None:
    # Summit: six V100 a node (ORNL); two groups of three with NVLink between them
    run = one(
        gpu="V100", gpu_mem_gb="32", gpus="12", gpus_per_node="", tp="6", dp="2", global_batch="8", system="summit"
    )
    assert (run.cluster.node.gpus, run.cluster.node.hb_domain_gpus) == (6, 3)
    assert run.cluster.node.gpu.name == "v100-sxm2-32gb"


def test_a_node_of_another_size_than_summit_is_linked_whole() -> None:
    # an eight-GPU server of V100 of 16 GB is no Summit node, whose sockets link three GPUs each by two NVLinks
    columns = {"gpu": "V100", "gpu_mem_gb": "16", "gpus": "8", "tp": "8", "dp": "1", "global_batch": "8"}
    node = one(**columns, gpus_per_node="8").cluster.node
    assert (node.gpus, node.hb_domain_gpus, node.gpu.hb_bytes_per_s) == (8, 8, 150e9)
    assert one(**columns, gpus_per_node="4").cluster.node.hb_domain_gpus == 4
    six = one(**columns | {"gpus": "12", "tp": "6", "dp": "2"}, gpus_per_node="6").cluster.node
    assert (six.gpus, six.hb_domain_gpus, six.gpu.hb_bytes_per_s) == (6, 3, 100e9)


def test_a_run_is_no_older_than_its_pytorch() -> None:
    columns = {"software": "nanogpt", "source_date": "2023-02", "attention_kernel": "", "gpu": "A100"}
    assert not one(**columns).model.flash_attention
    assert one(**columns, torch_version="2.0.0.dev20230201").model.flash_attention
    assert not one(**columns, torch_version="1.13.1").model.flash_attention


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


def test_columns_may_be_absent_and_unknown_ones_are_named() -> None:
    runs = parse_runs("id,gpu,gpus,model,colour\nx-1,H100,8,Llama-3-8B,red\n")
    (run,) = runs.runs
    assert run.model.layers == 32
    assert run.measured.step_s is None
    assert runs.unknown_columns == ("colour",)


@pytest.mark.parametrize(
    ("column", "value"),
    [("attention_kernel", "flash9"), ("loss_kernel", "best"), ("torch_compile", "maybe"), ("offload", "everything")],
)
def test_a_value_that_a_column_does_not_have_is_named_and_taken_as_not_stated(column: str, value: str) -> None:
    run = one(**{column: value})
    assert any(column in problem and value in problem for problem in run.problems)
    assert run.plan == one(**{column: ""}).plan


def test_a_framework_that_nobody_knows_is_named() -> None:
    run = one(software="my-trainer", tp="1", dp="8", global_batch="32")
    assert run.plan.software is Software.PYTORCH
    assert "software 'my-trainer' is not known" in " ".join(run.problems)


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
    assert not one(iter_time_s="1.4", toy="yes").is_time_scored
    assert not one(iter_time_s="1.4", global_batch="").is_time_scored
    assert one(tokens_per_s_per_gpu="900", global_batch="").is_time_scored
    assert one(notes="too close to OOM", iter_time_s="1").is_time_scored
    assert one(notes="OOM on 80GB GPUs").measured.is_oom


def test_old_software_recomputes_all_where_nothing_fits_without() -> None:
    run = one(layers="48", recompute="", micro_batch="8", global_batch="8", source_date="2021")
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
    assert one(software="nemo", source_date="2024-07", gpu="H100").plan.tp_overlap
    assert not one(software="nemo", source_date="2024-07", gpu="H100", tp_comm_overlap="no").plan.tp_overlap
    assert one(software="torchtitan", tp_comm_overlap="async").plan.tp_overlap
    assert not one(source_date="2021").plan.tp_overlap


def test_what_a_row_says_and_the_prediction_cannot_follow_is_told() -> None:
    run = one(arch="mamba", vpp="4", pp="1", tp="4", dp="8", gpus="16")
    words = " | ".join(run.problems)
    assert "arch is 'mamba'" in words
    assert "vpp 4 has no meaning with one stage" in words
    assert "dp 8 x tp x pp x cp 4 is not the number of GPUs: dp 4 is taken" in words
