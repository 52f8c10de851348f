"""Computes the memory of an inference engine: weights, KV cache, CUDA graphs, and the context that they leave room for.

vLLM takes a share of the GPU's memory (``--gpu-memory-utilization``, 0.9 unless told otherwise): it loads the weights,
runs one batch of ``max_num_batched_tokens`` to measure the activations, and gives the rest to the KV cache
(vllm/v1/worker/gpu_worker.py, ``determine_available_memory``). It refuses to start where one sequence of the longest
length does not fit into that (vllm/v1/core/kv_cache_utils.py, ``check_enough_kv_cache_memory``). CUDA graphs come on
top. SGLang's ``--mem-fraction-static`` is the share of weights and KV cache, activations and graphs outside of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from opsk.costmodel.memory.interval import Interval
from opsk.costmodel.sizes.parameters import total_parameters
from opsk.units import GIB
from opsk.workload.model import Mixer, ModelShape

GRAPHS = Interval(low=0.3 * GIB, expected=1.0 * GIB, high=3.0 * GIB)
"""CUDA graphs of an engine that is not eager [bytes]: vLLM's log says 0.3 to 3 GiB for models of 0.5 B to 70 B."""
WORKING = Interval(low=0.3 * GIB, expected=1.5 * GIB, high=5.0 * GIB)
"""Activations of a batch of prefill, sampler and context of an engine, before any cache [bytes]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory:
    """Memory of one GPU of an inference engine [bytes], and what its cache holds.

    Parameters
    ----------
    weights
        Weights, split over tensor-parallel ranks.
    token
        KV cache of one token.
    budget
        What the engine may take.
    cache
        What remains for the KV cache, as a range.
    sequence
        KV cache and weights and work that one sequence of the longest length needs, as a range.
    context_tokens
        Tokens that the cache holds, all sequences together, as expected.
    """

    weights: float
    token: float
    budget: float
    cache: Interval
    sequence: Interval
    context_tokens: int


def cache_bytes_per_token(model: ModelShape, tp: int, *, element_bytes: float = 2.0) -> float:
    """Return the KV cache of one token on one of ``tp`` GPUs [bytes].

    Keys and values of all layers with attention: 2 x layers x key-value heads x width (Kwon et al. 2023, arXiv
    2309.06180, section 2); heads are repeated where there are fewer than ranks. Latent attention stores one latent and
    one rotary key a token and layer on each rank (DeepSeek-V2, arXiv 2405.04434, section 2.1.2). Windows are counted as
    whole sequences: an upper bound.
    """
    layers = model.attention_layers if model.mixer is not Mixer.NONE else model.layers
    if model.kv_lora_rank:
        return layers * (model.kv_lora_rank + model.qk_rope_dim) * element_bytes
    heads = max(model.kv_heads / tp, 1.0)
    return 2.0 * layers * heads * model.head_dim * element_bytes


def engine_memory(
    model: ModelShape,
    *,
    capacity_bytes: float,
    memory_share: float,
    tp: int = 1,
    pp: int = 1,
    weight_bytes: float = 2.0,
    length: int = 0,
    cache_element_bytes: float = 2.0,
) -> EngineMemory:
    """Return the memory of one GPU of an engine.

    Parameters
    ----------
    capacity_bytes
        Memory of the GPU.
    memory_share
        Share of it that the engine may take, as vLLM takes it.
    tp, pp
        Tensor and pipeline parallelism.
    weight_bytes
        Bytes of a weight: 2 in 16 bits, 1 in FP8, about 0.6 in 4 bits with scales.
    length
        Tokens of the longest sequence.
    """
    weights = total_parameters(model) * weight_bytes / (tp * pp)
    token = cache_bytes_per_token(model, tp, element_bytes=cache_element_bytes) / pp
    budget = memory_share * capacity_bytes
    cache = Interval(
        low=budget - weights - WORKING.high,
        expected=budget - weights - WORKING.expected,
        high=budget - weights - WORKING.low,
    )
    one = weights + token * max(length, 1)
    return EngineMemory(
        weights=weights,
        token=token,
        budget=budget,
        cache=cache,
        sequence=Interval(low=one + WORKING.low, expected=one + WORKING.expected, high=one + WORKING.high),
        context_tokens=max(int(cache.expected / token), 0) if token else 0,
    )
