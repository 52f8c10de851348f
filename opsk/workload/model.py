"""Defines the shape of the trained network.

``ModelShape`` is complete and is the input of the cost model. ``StatedModel`` holds what a script or a config states:
every field may be missing, and a missing field means "unknown".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import StrEnum

from opsk.errors import InputError


class Mixer(StrEnum):
    """A kind of layer that passes a state of fixed size from token to token.

    ``mamba``: Gu and Dao 2023 (arXiv 2312.00752); ``mamba2``: Dao and Gu 2024 (arXiv 2405.21060); ``gated-deltanet``:
    Yang et al. 2024 (arXiv 2412.06464); ``kda``: Kimi Linear (arXiv 2510.26692); ``lightning``: MiniMax-01 (arXiv
    2501.08313).
    """

    NONE = "none"
    MAMBA = "mamba"
    MAMBA2 = "mamba2"
    GATED_DELTANET = "gated-deltanet"
    KDA = "kda"
    LIGHTNING = "lightning"


USUAL_CHUNKS = {
    Mixer.NONE: 1,
    Mixer.MAMBA: 1,
    Mixer.MAMBA2: 256,
    Mixer.GATED_DELTANET: 64,
    Mixer.KDA: 64,
    Mixer.LIGHTNING: 256,
}
"""Tokens that a kernel works on at a time: ``chunk_size`` of mamba_ssm's Mamba2, 64 in flash-linear-attention's delta
rules, ``block_size`` of MiniMax's lightning attention. Mamba's scan has no chunks that cost products."""


def count_layer_kinds(pattern: str) -> tuple[int, int, int, int] | None:
    """Return how many layers are attention, Mamba, dense MLP and experts; ``None`` for an invalid pattern.

    The letters are those of Megatron Core's ``hybrid_override_pattern``: ``*``, ``M``, ``-`` and ``E``; ``|`` ends a
    pipeline stage, and what follows a ``/`` is multi-token prediction.

    Examples
    --------
    >>> count_layer_kinds("M-M*ME")
    (1, 3, 1, 1)
    """
    main = pattern.partition("/")[0].replace("|", "")
    if not main or set(main) - set("*M-E"):
        return None
    attention, mamba, dense, experts = (main.count(letter) for letter in "*M-E")
    return attention, mamba, dense, experts


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedModel:
    """The part of a model's shape that a script states; ``None`` means "unknown".

    Sizes count elements: ``hidden`` is the width of the residual stream, ``ffn`` the inner width of the dense MLP,
    ``expert_ffn`` the inner width of one routed expert, ``seq`` the tokens of one training sequence.
    ``vocab`` is the number of rows of the embedding as allocated, padding included, where that is stated. The rest are
    details as `ModelShape` has them.
    """

    name: str | None = None
    layers: int | None = None
    hidden: int | None = None
    ffn: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    vocab: int | None = None
    seq: int | None = None
    gated_mlp: bool | None = None
    experts: int | None = None
    top_k: int | None = None
    shared_experts: int | None = None
    expert_ffn: int | None = None
    tied_embeddings: bool | None = None
    learned_positions: bool | None = None
    flash_attention: bool | None = None
    q_lora_rank: int | None = None
    kv_lora_rank: int | None = None
    qk_rope_dim: int | None = None
    v_head_dim: int | None = None
    dense_layers: int | None = None
    dense_interleaved: bool | None = None
    shared_ffn: int | None = None
    shared_gate: bool | None = None
    router_bias: bool | None = None
    position_rows: int | None = None
    attention_sinks: bool | None = None
    attention_window: int | None = None
    windowed_layers: int | None = None
    qkv_bias: bool | None = None
    output_bias: bool | None = None
    mlp_bias: bool | None = None
    norm_bias: bool | None = None
    head_bias: bool | None = None
    qk_norm: bool | None = None
    qk_norm_whole: bool | None = None
    norms_per_layer: int | None = None
    embedding_norm: bool | None = None
    mixer: Mixer | None = None
    mixer_layers: int | None = None
    mixer_heads: int | None = None
    mixer_head_dim: int | None = None
    mixer_groups: int | None = None
    mixer_state: int | None = None
    mixer_conv: int | None = None
    mixer_chunk: int | None = None
    mixer_rank: int | None = None
    mixer_norm: bool | None = None
    mixer_beside: bool | None = None
    mlp_layers: int | None = None
    attention_gate: bool | None = None
    chunked_windows: bool | None = None
    index_heads: int | None = None
    index_head_dim: int | None = None
    index_top_k: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredParts:
    """What a model holds and stores that was measured layer by layer, because it is no plain transformer.

    Parameters
    ----------
    parameters, frozen_parameters
        Those that are trained, and those of frozen models next to it, which are held in 16 bits.
    sample_bytes, sample_fp32_bytes
        What the backward of one sample needs, computed in 16 bits under autocast and in fp32 [bytes].
    checkpointed_bytes, part_bytes
        The same where only inputs of parts are stored, and what the largest part restores; 0 where the model has no
        checkpoints [bytes].
    tensor_bytes
        The largest tensor of a sample: gradients of that size live while its layer's backward runs [bytes].
    is_contrastive, is_loss_local
        Whether the loss compares all samples of all ranks, and whether a rank compares only its own with them.
    """

    parameters: int
    frozen_parameters: int = 0
    sample_bytes: int
    sample_fp32_bytes: int
    checkpointed_bytes: int = 0
    part_bytes: int = 0
    tensor_bytes: int = 0
    is_contrastive: bool = False
    is_loss_local: bool = False


_MAY_BE_ZERO = (
    *("experts", "top_k", "shared_experts", "expert_ffn", "q_lora_rank", "kv_lora_rank", "qk_rope_dim", "v_head_dim"),
    *("dense_layers", "shared_ffn", "mtp_layers", "encoder_layers", "encoder_seq", "position_rows"),
    *("attention_window", "windowed_layers", "norms_per_layer", "relative_positions"),
    *("mixer_layers", "mixer_heads", "mixer_head_dim", "mixer_groups", "mixer_state", "mixer_conv", "mixer_chunk"),
    *("mixer_rank", "mlp_layers", "index_heads", "index_head_dim", "index_top_k", "frozen_parameters"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A complete transformer, as the cost model takes it.

    Parameters
    ----------
    layers, hidden, ffn, heads, kv_heads, head_dim, vocab, seq
        As in `StatedModel`; ``ffn`` is the dense MLP's inner width.
    gated_mlp
        True for SwiGLU and GeGLU (three matrices), False for two.
    experts, top_k, shared_experts, expert_ffn
        Mixture of experts: routed experts a layer, experts a token, shared experts a layer, inner width of one expert;
        ``experts`` is 0 for a dense model.
    tied_embeddings
        True when the output head reuses the input embedding.
    learned_positions
        True when there is a trained table of ``seq`` x ``hidden`` positions.
    flash_attention
        True when the attention matrix is never stored.
    q_lora_rank, kv_lora_rank, qk_rope_dim, v_head_dim
        Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): ranks of the compressed query (0: not compressed)
        and of the compressed keys and values (0: no latent attention), rotary part of a head, width of a value head.
        ``head_dim`` is then the width of a query head, rotary part included.
    dense_layers, dense_interleaved
        Layers of a mixture-of-experts model that have the dense MLP (``ffn``) instead of experts, and whether these are
        between the others (Llama 4) instead of before them (DeepSeek).
    shared_ffn
        Summed inner width of the shared experts; 0 is ``shared_experts`` x ``expert_ffn``.
    shared_gate
        True when a learned gate weighs the shared experts (Qwen2-MoE).
    router_bias
        True when the router adds a number to each expert's score (DeepSeek-V3, gpt-oss).
    capacity_factor
        Tokens an expert takes over the mean, the rest being dropped and short ones padded; 0 drops nothing.
    expert_imbalance
        Tokens of the busiest expert-parallel rank over the mean; 1 is forced balance.
    mtp_layers
        Multi-token-prediction layers after the last one, each with a projection of 2 ``hidden`` and the head again.
    encoder_layers, encoder_seq
        Layers and tokens of the encoder of an encoder-decoder model; its decoder (``layers``, ``seq``) has cross
        attention in each layer then.
    position_rows
        Rows of the table of learned positions; 0 is ``seq``.
    relative_positions
        Rows of the table of relative positions, one column a head, of which encoder and decoder have one each (T5).
    attention_sinks
        True when each head has a learned score that takes attention away from all tokens (gpt-oss).
    attention_window, windowed_layers
        Tokens that attention looks back in ``windowed_layers`` of the layers (sliding window); 0 is all.
    qkv_bias, output_bias, mlp_bias, norm_bias, dropout
        Biases of the projections into attention, out of it, of the MLP, of the norms, and whether dropout is applied;
        ``None`` is the style of the model: yes with a plain MLP (GPT-2, GPT-3), no with a gated one (Llama).
    head_bias
        True when the output head has a bias (GPT-J, Phi-2).
    qk_norm, qk_norm_whole
        Whether queries and keys are normalised; head by head with one vector for all (Qwen3), or with a vector as wide
        as all heads (OLMo 2).
    norms_per_layer
        Norms of one layer: 2, 1 where attention and MLP share one (Falcon-7B), 4 with norms after both (Gemma 2); 0
        where no norm of the model, the final one included, has parameters (OLMo).
    embedding_norm
        True when the embedding is normalised (BLOOM).
    mixer, mixer_layers
        Mixer that replaces attention in ``mixer_layers`` of the layers (`Mixer`).
    mixer_heads, mixer_head_dim, mixer_groups, mixer_state
        Heads of such a layer and the width of one (their product is the inner width), groups of heads that share an
        input and an output of the state (B and C of Mamba-2; key heads of a delta rule), and the length of each (the
        state of a head has ``mixer_state`` x ``mixer_head_dim`` elements). Mamba has one group, and heads of width 1.
    mixer_conv, mixer_chunk, mixer_rank
        Tokens of the causal convolution (0: none), tokens of a chunk (0: usual), and rank of the step size (Mamba) or
        of the gates (Kimi).
    mixer_norm
        Whether the mixer's output (of Mamba: its step size, B and C, as in Jamba) is normalised.
    mixer_beside
        True where attention and mixer run in parallel in ``mixer_layers`` (Falcon-H1).
    mlp_layers
        Layers that are an MLP (dense or experts) alone; every other is attention or a mixer alone then (Nemotron-H). 0
        is an MLP in every layer.
    attention_gate
        True when a gate as wide as the query weighs the output of attention (Qwen3-Next).
    chunked_windows
        True when windows do not slide, but tokens attend to their own chunk of the sequence (Llama 4).
    index_heads, index_head_dim, index_top_k
        Sparse attention (DeepSeek-V3.2): heads of the indexer that scores all tokens, their width, and the tokens that
        attention uses of these.
    frozen_parameters
        Parameters of frozen models beside it, each GPU holding them whole in 16 bits: the tower that reads images.
    measured
        What was measured of a model that is no plain transformer; its memory is computed from that. Layers, widths and
        ``seq`` are then those of a transformer with as many parameters and as much work for a sample.

    Raises
    ------
    InputError
        Names every field that is out of range.
    """

    name: str = "model"
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    seq: int
    gated_mlp: bool = False
    experts: int = 0
    top_k: int = 0
    shared_experts: int = 0
    expert_ffn: int = 0
    tied_embeddings: bool = True
    learned_positions: bool = False
    flash_attention: bool = True
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    qk_rope_dim: int = 0
    v_head_dim: int = 0
    dense_layers: int = 0
    dense_interleaved: bool = False
    shared_ffn: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    capacity_factor: float = 0.0
    expert_imbalance: float = 1.0
    mtp_layers: int = 0
    encoder_layers: int = 0
    encoder_seq: int = 0
    position_rows: int = 0
    relative_positions: int = 0
    attention_sinks: bool = False
    attention_window: int = 0
    windowed_layers: int = 0
    qkv_bias: bool | None = None
    output_bias: bool | None = None
    mlp_bias: bool | None = None
    norm_bias: bool | None = None
    dropout: bool | None = None
    head_bias: bool = False
    qk_norm: bool = False
    qk_norm_whole: bool = False
    norms_per_layer: int = 2
    embedding_norm: bool = False
    mixer: Mixer = Mixer.NONE
    mixer_layers: int = 0
    mixer_heads: int = 0
    mixer_head_dim: int = 0
    mixer_groups: int = 0
    mixer_state: int = 0
    mixer_conv: int = 0
    mixer_chunk: int = 0
    mixer_rank: int = 0
    mixer_norm: bool = True
    mixer_beside: bool = False
    mlp_layers: int = 0
    attention_gate: bool = False
    chunked_windows: bool = False
    index_heads: int = 0
    index_head_dim: int = 0
    index_top_k: int = 0
    frozen_parameters: int = 0
    measured: MeasuredParts | None = None

    def __post_init__(self) -> None:
        """Validate the shape; the error lists all that is wrong."""
        if self.mixer not in tuple(Mixer):
            known = ", ".join(Mixer)
            raise InputError(f"model {self.name}: mixer {str(self.mixer)[:40]!r} is not known", hint=f"one of {known}")
        object.__setattr__(self, "mixer", Mixer(self.mixer))
        wrong = [
            f"{name} is {value}, must be at least 1"
            for name in ("layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab", "seq")
            if (value := getattr(self, name)) < 1
        ]
        wrong += [
            f"{name} is {value}, must not be negative" for name in _MAY_BE_ZERO if (value := getattr(self, name)) < 0
        ]
        if self.kv_heads >= 1 and self.heads % self.kv_heads:
            wrong.append(f"heads {self.heads} is not a multiple of kv_heads {self.kv_heads}")
        if self.experts and not 1 <= self.top_k <= self.experts:
            wrong.append(f"top_k {self.top_k} is not between 1 and experts {self.experts}")
        if self.experts and self.expert_ffn < 1:
            wrong.append("expert_ffn is missing for a mixture of experts")
        if self.dense_layers > self.layers:
            wrong.append(f"dense_layers {self.dense_layers} is more than layers {self.layers}")
        if self.windowed_layers > self.layers:
            wrong.append(f"windowed_layers {self.windowed_layers} is more than layers {self.layers}")
        if self.encoder_layers and self.encoder_seq < 1:
            wrong.append("encoder_seq is missing for an encoder")
        if self.kv_lora_rank and not (self.v_head_dim and 0 < self.qk_rope_dim < self.head_dim):
            wrong.append("latent attention (kv_lora_rank) needs v_head_dim, and qk_rope_dim below head_dim")
        wrong += self._wrong_mixers()
        if not self.capacity_factor >= 0 or math.isinf(self.capacity_factor):
            wrong.append(f"capacity_factor is {self.capacity_factor}, must be 0 or more")
        if not 1 <= self.expert_imbalance < math.inf:
            wrong.append(f"expert_imbalance is {self.expert_imbalance}, must be at least 1")
        if wrong:
            raise InputError(f"model {self.name}: " + "; ".join(wrong))

    @property
    def attention_layers(self) -> int:
        """Layers that have attention."""
        return self.layers - self.mlp_layers - (0 if self.mixer_beside else self.mixer_layers)

    def _wrong_mixers(self) -> list[str]:
        """Return the errors in the kinds of the layers."""
        wrong = []
        if self.mixer_layers + self.mlp_layers > self.layers:
            parts = f"mixer_layers {self.mixer_layers} and mlp_layers {self.mlp_layers}"
            wrong.append(f"{parts} are more than layers {self.layers}")
        if self.mixer_layers and self.mixer is Mixer.NONE:
            wrong.append("mixer_layers without a mixer")
        if self.mixer_layers and self.mixer is not Mixer.NONE:
            needed = ["mixer_heads", "mixer_head_dim", "mixer_groups", "mixer_state"]
            needed += ["mixer_rank"] if self.mixer in (Mixer.MAMBA, Mixer.KDA) else []
            wrong += [f"{name} is missing for the mixer {self.mixer}" for name in needed if not getattr(self, name)]
        if self.mixer_groups > 0 and self.mixer_heads % self.mixer_groups:
            wrong.append(f"mixer_heads {self.mixer_heads} is not a multiple of mixer_groups {self.mixer_groups}")
        if self.windowed_layers > max(self.attention_layers, 0) and self.mixer_layers + self.mlp_layers:
            wrong.append(
                f"windowed_layers {self.windowed_layers} is more than the {self.attention_layers} with attention"
            )
        if self.mlp_layers and self.dense_layers:
            wrong.append("dense_layers beside experts are not modelled where layers are an MLP alone (mlp_layers)")
        if self.index_top_k and not (self.index_heads and self.index_head_dim):
            wrong.append("sparse attention (index_top_k) needs index_heads and index_head_dim")
        return wrong

    def has(self, detail: str) -> bool:
        """Return whether a style field (``qkv_bias``, ``dropout``) is set; the default depends on ``gated_mlp``."""
        stated: bool | None = getattr(self, detail)
        return (not self.gated_mlp) if stated is None else stated


MODEL_FIELDS = tuple(field.name for field in fields(StatedModel))
