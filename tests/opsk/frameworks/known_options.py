"""Option names that were looked up in each framework's own argument parser, with the place; names only.

A name that is printed and not here must be looked up before it is added.
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


MEGATRON = _names("""
    --recompute-modules --fine-grained-activation-offloading --offload-modules --optimizer-offload-fraction
    --fp8-param-gather --reuse-grad-buf-for-mxfp8-param-ag --main-grads-dtype --main-params-dtype --exp-avg-dtype
    --exp-avg-sq-dtype --cross-entropy-loss-fusion
    --num-layers --hidden-size --ffn-hidden-size --num-attention-heads --group-query-attention --num-query-groups
    --kv-channels --seq-length --max-position-embeddings --vocab-size --make-vocab-size-divisible-by
    --position-embedding-type --normalization --swiglu --untie-embeddings-and-output-weights --disable-bias-linear
    --add-qkv-bias --attention-dropout --hidden-dropout --qk-layernorm --attention-backend --softmax-type --window-size
    --window-attn-skip-freq --multi-latent-attention --q-lora-rank --kv-lora-rank --qk-head-dim --qk-pos-emb-head-dim
    --v-head-dim --mtp-num-layers --num-experts --moe-router-topk --moe-ffn-hidden-size --moe-layer-freq
    --moe-shared-expert-intermediate-size --moe-shared-expert-gate --moe-router-score-function
    --moe-router-enable-expert-bias
    --moe-router-pre-softmax --moe-expert-capacity-factor --moe-pad-expert-input-to-capacity
    --moe-router-load-balancing-type --moe-token-dispatcher-type --moe-flex-dispatcher-backend --moe-permute-fusion
    --overlap-moe-expert-parallel-comm --moe-grouped-gemm --tensor-model-parallel-size
    --pipeline-model-parallel-size --num-virtual-stages-per-pipeline-rank --decoder-first-pipeline-num-layers
    --decoder-last-pipeline-num-layers --pipeline-model-parallel-layout --account-for-embedding-in-pipeline-split
    --account-for-loss-in-pipeline-split --cpu-offloading-num-layers --context-parallel-size
    --expert-model-parallel-size
    --expert-tensor-parallel-size --sequence-parallel --tp-comm-overlap --use-distributed-optimizer
    --num-distributed-optimizer-instances --use-megatron-fsdp --data-parallel-sharding-strategy --ckpt-format
    --no-gradient-accumulation-fusion --overlap-grad-reduce --overlap-param-gather --recompute-granularity
    --recompute-method --recompute-num-layers --grad-reduce-in-bf16 --optimizer-cpu-offload
    --use-precision-aware-optimizer --micro-batch-size --global-batch-size --bf16 --fp16 --fp8-format --fp8-recipe
    --fp4-format --fp4-recipe --optimizer --train-iters --lr --lr-decay-style --lr-warmup-fraction --weight-decay
    --clip-grad --data-path --split --tokenizer-type --tokenizer-model --save --load --save-interval --log-interval
    --log-throughput --eval-iters
    """)
"""``megatron/training/arguments.py`` of NVIDIA/Megatron-LM, tag core_v0.19.0 and main (0.20) of August 2026.

Part of them are made from the fields of ``TransformerConfig`` and other configuration classes.
"""

MEGATRON_SINCE_0_12 = MEGATRON - _names(
    "--use-megatron-fsdp --fp4-format --fp4-recipe --softmax-type --window-size --window-attn-skip-freq "
    "--pipeline-model-parallel-layout --cpu-offloading-num-layers --moe-shared-expert-gate"
)
"""Those that core_v0.12.0 has as well."""

DEEPSPEED = _names("""
    --num-layers --hidden-size --ffn-hidden-size --num-attention-heads --num-key-value-heads --kv-channels --seq-length
    --max-position-embeddings --vocab-size --make-vocab-size-divisible-by --use-rotary-position-embeddings
    --normalization --swiglu --untie-embeddings-and-output-weights --disable-bias-linear --attention-dropout
    --hidden-dropout --no-query-key-layer-scaling --use-flash-attn-v2 --num-experts --topk --expert-interval
    --moe-train-capacity-factor --disable-moe-token-dropping --tensor-model-parallel-size
    --pipeline-model-parallel-size --no-pipeline-parallel --ds-sequence-parallel-size --moe-expert-parallel-size
    --create-moe-param-group --enable-expert-tensor-parallelism --sequence-parallel --zero-stage
    --checkpoint-activations --deepspeed-activation-checkpointing --recompute-granularity --cpu-optimizer
    --remote-device --micro-batch-size --global-batch-size --bf16 --fp16 --optimizer --train-iters --lr
    --lr-decay-style --lr-warmup-fraction --weight-decay --clip-grad --data-path --data-impl --split --tokenizer-type
    --tokenizer-model --save --load --save-interval --log-interval --eval-iters --deepspeed --deepspeed_config
    """)
"""``megatron/arguments.py`` of deepspeedai/Megatron-DeepSpeed, main of July 2025; the last two are
``deepspeed.add_config_arguments`` (``deepspeed/__init__.py``)."""

DEEPSPEED_JSON = _names("""
    train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps steps_per_print gradient_clipping
    zero_optimization bf16 fp16 data_types
    """)
"""``docs/_pages/config-json.md`` of deepspeedai/DeepSpeed, August 2026."""

FSDP = _names("""
    --mixed_precision --multi_gpu --use_fsdp --fsdp_version --fsdp_reshard_after_forward --fsdp_auto_wrap_policy
    --fsdp_transformer_layer_cls_to_wrap --fsdp_state_dict_type --fsdp_activation_checkpointing --fsdp_offload_params
    --use_parallelism_config --parallelism_config_dp_replicate_size --parallelism_config_dp_shard_size
    --parallelism_config_cp_size --parallelism_config_cp_comm_strategy --num_machines --num_processes --machine_rank
    --main_process_ip --main_process_port
    """)
"""``src/accelerate/commands/launch.py`` of huggingface/accelerate, v1.14.0."""

TRAINER = _names("""
    --config_name --tokenizer_name --train_file --block_size --per_device_train_batch_size --gradient_accumulation_steps
    --bf16 --fp16 --optim --gradient_checkpointing --torch_compile --use_liger_kernel --do_train --max_steps
    --learning_rate --output_dir --save_steps --logging_steps --report_to
    """)
"""``run_clm.py`` (the first four) and ``src/transformers/training_args.py`` of huggingface/transformers, 4.57."""

TORCHTITAN = {
    "job": {"description", "dump_folder", "config_file"},
    "experimental": {"custom_import"},
    "model": {"name", "flavor", "converters", "hf_assets_path"},
    "optimizer": {"name", "lr"},
    "training": {
        *("seq_len", "local_batch_size", "global_batch_size", "dtype", "mixed_precision_param"),
        *("mixed_precision_reduce", "enable_cpu_offload", "dataset", "steps"),
    },
    "parallelism": {
        *("data_parallel_replicate_degree", "data_parallel_shard_degree", "fsdp_reshard_after_forward"),
        *("tensor_parallel_degree", "enable_async_tensor_parallel", "context_parallel_degree"),
        *("pipeline_parallel_degree", "expert_parallel_degree", "expert_tensor_parallel_degree"),
        *("pipeline_parallel_schedule", "pipeline_parallel_microbatch_size", "module_fqns_per_model_part"),
        *("pipeline_parallel_layers_per_stage", "pipeline_parallel_first_stage_less_layers"),
        "pipeline_parallel_last_stage_less_layers",
    },
    "activation_checkpoint": {"mode", "selective_ac_option"},
    "compile": {"enable", "components"},
    "quantize.linear.float8": {
        *("enable_fsdp_float8_all_gather", "precompute_float8_dynamic_scale_for_fsdp", "filter_fqns"),
    },
}
"""``torchtitan/config/job_config.py`` of pytorch/torchtitan, v0.2.2."""
