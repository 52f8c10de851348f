"""Reads the kinds of layers of a hybrid model from its ``config.json``.

Source: ``configuration_*.py`` and ``modeling_*.py`` of each family in transformers, or of the checkpoint.
"""

from __future__ import annotations

from typing import Any

from opsk.workload.huggingface import families
from opsk.workload.huggingface.config_shape import MAX_COUNT, ConfigShape
from opsk.workload.model import Mixer, count_layer_kinds

_LINEAR = frozenset({"linear_attention", "mamba", "mamba2", "recurrent"})
"""Words of ``layer_types`` and ``layers_block_type`` for layers whose mixer is not attention."""
_BLOCKS = {"attention": "*", "mamba": "M", "mlp": "-", "moe": "E"}
"""Words of Nemotron's ``layers_block_type``, and their letters in ``hybrid_override_pattern``."""


def read_hybrid(config: ConfigShape) -> None:
    """Add the kinds of the layers to ``config``, whose sizes and experts must have been read."""
    family = config.family
    if family == "nemotron_h":
        _nemotron(config)
    elif family in ("bamba", "granitemoehybrid", "falcon_h1"):
        _mamba2(config)
    elif family == "jamba":
        _jamba(config)
    elif isinstance(config.values.get("linear_attn_config"), dict):
        _kimi(config, config.values["linear_attn_config"])
    elif "linear_num_value_heads" in config.values:
        _gated_deltanet(config)
    elif isinstance(config.values.get("attn_type_list"), list) or family == "minimax":
        _lightning(config)
    elif family in families.UNREAD_HYBRIDS:
        what = f"{family} has layers that are no attention; they are counted as if they were"
        config.doubt(what, config.or_family(""), "expect times and memory to differ")
    _sparse_attention(config)
    if family in ("llama4", "llama4_text"):
        _chunks(config)


def read_count(values: Any, key: str, minimum: int = 1) -> int | None:
    """Return the count of a key, ``None`` where it is not a valid count."""
    value = values.get(key)
    return value if type(value) is int and minimum <= value < MAX_COUNT else None


def _state_all(config: ConfigShape, mixer: Mixer, layers: int, key: str, **sizes: int | None) -> None:
    """State a mixer and its sizes, or report the missing sizes."""
    missing = [name for name, size in sizes.items() if size is None]
    if missing or not layers:
        if missing:
            what = f"the {mixer} layers lack {', '.join(missing)}; they are counted as attention"
            config.doubt(what, config.or_family(key), "expect times and memory to differ")
        return
    config.state("mixer", mixer, config.or_family(key))
    config.state("mixer_layers", layers, config.or_family(key))
    for name, size in sizes.items():
        config.state(name, size, config.or_family(key))


def _read_layer_kinds(config: ConfigShape, *keys: str) -> tuple[list[str], str]:
    """Return the kinds that the file lists, one a layer, and their key."""
    layers = config.fields.get("layers") or 0
    for key in keys:
        kinds = config.values.get(key)
        if isinstance(kinds, list) and len(kinds) == layers and all(isinstance(kind, str) for kind in kinds):
            return kinds, key
    return [], ""


def _nemotron(config: ConfigShape) -> None:
    """Read Nemotron-H: every layer is a mixer, an MLP or experts alone, behind one norm; no biases."""
    listed, key = _read_layer_kinds(config, "layers_block_type")
    pattern = config.values.get("hybrid_override_pattern")
    if not isinstance(pattern, str):
        pattern = "".join(_BLOCKS.get(kind, "?") for kind in listed)
    else:
        key = "hybrid_override_pattern"
    kinds = count_layer_kinds(pattern)
    if kinds is None:
        config.doubt("the kinds of the layers are not known", config.or_family(key), "expect the real need to differ")
        return
    attention, mamba, dense, experts = kinds
    if not experts:
        for name in ("experts", "top_k", "shared_experts", "expert_ffn", "router_bias"):
            config.forget(name)
    elif dense:
        config.doubt("dense MLP layers beside experts are counted as experts", config.or_family(key), "")
    else:
        config.state("router_bias", True, config.or_family(""))
    config.state("layers", attention + mamba + dense + experts, config.or_family(key))
    config.state("mlp_layers", dense + experts, config.or_family(key))
    config.state("norms_per_layer", 1, config.or_family(""))
    for name in ("norm_bias", "dropout"):
        config.state(name, False, config.or_family(""))
    if (width := read_count(config.values, "moe_shared_expert_intermediate_size")) and experts:
        config.state("shared_ffn", width, config.or_family("moe_shared_expert_intermediate_size"))
    if read_count(config.values, "moe_latent_size"):
        what = "experts that work on a narrower latent are counted at the full width"
        config.doubt(what, config.or_family("moe_latent_size"), "expect the real need to be lower")
    values = config.values
    _state_all(
        config,
        Mixer.MAMBA2,
        mamba,
        key,
        mixer_heads=read_count(values, "mamba_num_heads"),
        mixer_head_dim=read_count(values, "mamba_head_dim"),
        mixer_groups=read_count(values, "n_groups") or read_count(values, "mamba_num_groups"),
        mixer_state=read_count(values, "ssm_state_size") or read_count(values, "mamba_state_dim"),
        mixer_conv=read_count(values, "conv_kernel") or 4,
        mixer_chunk=read_count(values, "chunk_size") or 256,
    )


def _mamba2(config: ConfigShape) -> None:
    """Read the Mamba-2 layers of Bamba, Granite 4 and Falcon-H1; the latter runs them in parallel with attention."""
    values, layers = config.values, config.fields.get("layers") or 0
    kinds, key = _read_layer_kinds(config, "layer_types", "layers_block_type")
    attention = values.get("attn_layer_indices")
    mamba = sum(kind in _LINEAR for kind in kinds)
    if config.family == "falcon_h1":
        mamba, key = layers, "mamba_n_heads"
        config.state("mixer_beside", True, config.or_family(""))
    elif not kinds and isinstance(attention, list):
        mamba, key = max(layers - len(attention), 0), "attn_layer_indices"
    heads, hidden = read_count(values, "mamba_n_heads"), config.fields.get("hidden") or 0
    width = read_count(values, "mamba_d_head")
    if width is None and heads:
        inner = read_count(values, "mamba_d_ssm") or (read_count(values, "mamba_expand") or 2) * hidden
        width = inner // heads or None
    if config.family == "granitemoehybrid" and not config.fields.get("experts"):
        config.state_if(
            "ffn", read_count(values, "shared_intermediate_size"), config.or_family("shared_intermediate_size")
        )
    if isinstance(values.get("mamba_rms_norm"), bool):
        config.state("mixer_norm", values["mamba_rms_norm"], config.or_family("mamba_rms_norm"))
    _state_all(
        config,
        Mixer.MAMBA2,
        mamba,
        key,
        mixer_heads=heads,
        mixer_head_dim=width,
        mixer_groups=read_count(values, "mamba_n_groups") or 1,
        mixer_state=read_count(values, "mamba_d_state"),
        mixer_conv=read_count(values, "mamba_d_conv") or 4,
        mixer_chunk=read_count(values, "mamba_chunk_size") or 256,
    )


def _jamba(config: ConfigShape) -> None:
    """Read Jamba: Mamba layers, except for one with attention in each period."""
    values, layers, hidden = config.values, config.fields.get("layers") or 0, config.fields.get("hidden") or 0
    period, offset = read_count(values, "attn_layer_period") or 8, read_count(values, "attn_layer_offset", 0)
    attention = len(range(4 if offset is None else offset, layers, period))
    inner = (read_count(values, "mamba_expand") or 2) * hidden
    _state_all(
        config,
        Mixer.MAMBA,
        layers - attention,
        "attn_layer_period",
        mixer_heads=inner or None,
        mixer_head_dim=1,
        mixer_groups=1,
        mixer_state=read_count(values, "mamba_d_state") or 16,
        mixer_conv=read_count(values, "mamba_d_conv") or 4,
        mixer_rank=read_count(values, "mamba_dt_rank") or -(-hidden // 16) or None,
    )


def _gated_deltanet(config: ConfigShape) -> None:
    """Read gated DeltaNet of Qwen3-Next and Qwen3.5, and the gate of their attention."""
    values, layers = config.values, config.fields.get("layers") or 0
    kinds, key = _read_layer_kinds(config, "layer_types")
    linear = sum(kind in _LINEAR for kind in kinds)
    if not kinds:
        key = "full_attention_interval"
        linear = layers - layers // (read_count(values, key) or 4)
    if values.get("attn_output_gate", True) is True:
        config.state("attention_gate", True, config.or_family("attn_output_gate"))
    _state_all(
        config,
        Mixer.GATED_DELTANET,
        linear,
        key,
        mixer_heads=read_count(values, "linear_num_value_heads"),
        mixer_head_dim=read_count(values, "linear_value_head_dim"),
        mixer_groups=read_count(values, "linear_num_key_heads"),
        mixer_state=read_count(values, "linear_key_head_dim"),
        mixer_conv=read_count(values, "linear_conv_kernel_dim") or 4,
    )


def _kimi(config: ConfigShape, linear: dict[str, Any]) -> None:
    """Read Kimi's delta attention, whose gates have the rank of a head."""
    layers = linear.get("kda_layers")
    heads, width = read_count(linear, "num_heads"), read_count(linear, "head_dim")
    _state_all(
        config,
        Mixer.KDA,
        len(layers) if isinstance(layers, list) else 0,
        "linear_attn_config",
        mixer_heads=heads,
        mixer_head_dim=width,
        mixer_groups=heads,
        mixer_state=width,
        mixer_conv=read_count(linear, "short_conv_kernel_size") or 4,
        mixer_rank=width,
    )


def _lightning(config: ConfigShape) -> None:
    """Read MiniMax's lightning attention, which has the heads of attention, keys and values for each."""
    values, sizes = config.values, config.fields
    kinds, key = _read_layer_kinds(config, "layer_types")
    marks = values.get("attn_type_list")
    linear = sum(kind in _LINEAR for kind in kinds)
    if isinstance(marks, list):
        linear, key = marks[: sizes.get("layers") or 0].count(0), "attn_type_list"
    heads, width = sizes.get("heads"), read_count(values, "head_dim")
    if width is None and heads:
        width = (sizes.get("hidden") or 0) // heads or None
    _state_all(
        config,
        Mixer.LIGHTNING,
        linear,
        key,
        mixer_heads=heads,
        mixer_head_dim=width,
        mixer_groups=heads,
        mixer_state=width,
    )


def _sparse_attention(config: ConfigShape) -> None:
    """Read the indexer of DeepSeek's sparse attention; that of version 4 chooses among compressed keys."""
    names = {"index_heads": "index_n_heads", "index_head_dim": "index_head_dim", "index_top_k": "index_topk"}
    sizes = {name: read_count(config.values, key) for name, key in names.items()}
    if config.family == "deepseek_v4" or "compress_ratios" in config.values:
        what = "attention to compressed keys and hyper-connections are not counted as such"
        config.doubt(what, config.or_family("compress_ratios"), "expect times and memory to differ")
    elif all(sizes.values()):
        for name, size in sizes.items():
            config.state(name, size, config.or_family(names[name]))


def _chunks(config: ConfigShape) -> None:
    """Read the chunks of Llama 4, to which layers with rotary positions attend: three in four unless listed."""
    chunk, layers = read_count(config.values, "attention_chunk_size"), config.fields.get("layers") or 0
    if chunk is None:
        return
    kinds, key = _read_layer_kinds(config, "layer_types")
    rotary = config.values.get("no_rope_layers")
    chunked = layers - layers // 4
    if kinds:
        chunked = kinds.count("chunked_attention")
    elif isinstance(rotary, list) and len(rotary) == layers:
        chunked, key = rotary.count(1), "no_rope_layers"
    if chunked:
        config.state("attention_window", chunk, config.or_family("attention_chunk_size"))
        config.state("windowed_layers", chunked, config.or_family(key))
        config.state("chunked_windows", True, config.or_family("attention_chunk_size"))
