"""Lists what a HuggingFace ``model_type`` fixes that its ``config.json`` need not state.

Only what the family's architecture, or the default of its configuration class in transformers 4, makes certain.
Source: ``src/transformers/models/<family>/configuration_*.py`` and ``modeling_*.py``.
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


GATED = _names("""
    aquila arctic baichuan bamba chatglm cohere cohere2 dbrx deepseek deepseek_v2 deepseek_v3 ernie4_5 ernie4_5_moe
    exaone
    exaone4 falcon_h1 gemma gemma2 gemma3 gemma3_text glm glm4 glm4_moe glm_moe_dsa gpt_oss granite granitemoe
    granitemoehybrid hunyuan internlm internlm2 deepseek_v32 deepseek_v4 kimi_linear minimax minimax_m1 minimax_text_01
    qwen3_next qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text
    internlm3 jamba kimi_k2 llama llama4 llama4_text minicpm minicpm3 ministral mistral mixtral olmo olmo2 olmo3
    olmoe orion phi3 phimoe qwen qwen2 qwen2_moe qwen3 qwen3_moe seed_oss smollm3 stablelm xverse yi
""")
"""Three matrices in the MLP (SwiGLU, GeGLU)."""
PLAIN = _names("""
    bloom codegen falcon gpt2 gpt_bigcode gpt_neo gpt_neox gptj mpt nemotron nemotron_h opt persimmon phi starcoder2
""")
"""Two matrices in the MLP."""
GATED_ACTIVATIONS = frozenset({"silu", "swish", "swiglu", "geglu"})
PLAIN_ACTIVATIONS = frozenset({"gelu_new", "gelu_fast", "relu", "relu2"})
"""Activation names that decide for a family in neither list; plain ``gelu`` is used by both kinds."""

TIED = _names("""
    bloom cohere cohere2 falcon gemma gemma2 gemma3 gemma3_text gpt2 gpt_bigcode gpt_neo mpt opt starcoder2 t5 umt5
""")
UNTIED = _names("""
    bamba deepseek_v32 falcon_h1 kimi_linear minimax minimax_m1 minimax_text_01 nemotron_h qwen3_next
    baichuan codegen dbrx deepseek_v2 deepseek_v3 glm4_moe gpt_neox gpt_oss gptj granite internlm2 jamba llama
    llama4_text mistral mixtral nemotron olmo olmo2 olmoe persimmon phi phi3 phimoe qwen qwen2 qwen2_moe qwen3
    qwen3_moe stablelm
""")
"""Value of ``tie_word_embeddings`` when the file does not give it."""

LEARNED_POSITIONS = frozenset({"gpt2", "gpt_bigcode", "gpt_neo", "opt"})
NO_LEARNED_POSITIONS = (GATED | PLAIN) - LEARNED_POSITIONS
ALL_HEADS = _names("""
    bloom codegen gpt2 gpt_neo gpt_neox gptj opt
""")
"""No grouped heads: every query head has its own key and value."""
HEADS_BY_DEFAULT = frozenset({"llama", "phi", "phi3", "olmo", "deepseek_v2", "internlm"})
"""``num_key_value_heads`` left out is ``num_attention_heads``."""
FOUR_TIMES = _names("""
    bloom codegen falcon gpt2 gpt_bigcode gpt_neo gptj mpt
""")
"""The inner width of the MLP left out is four times the hidden size."""
HALF_FFN = frozenset({"qwen"})
"""``intermediate_size`` counts both halves of the gated MLP's first product."""
NOT_DECODERS = _names("""
    albert bert bart clip deberta deberta-v2 distilbert electra esm mbart modernbert mt5 pegasus roberta siglip t5 vit
    wav2vec2 whisper xlm-roberta
""")
ENCODER_DECODERS = frozenset({"t5", "mt5", "umt5"})
"""Encoder-decoder models whose shape is read."""
UNREAD_HYBRIDS = _names("falcon_mamba lfm2 lfm2_moe mamba mamba2 recurrent_gemma rwkv zamba zamba2")
"""Families whose layers without attention are counted as attention."""

ONE_NORM = frozenset({"codegen", "cohere", "cohere2", "gptj", "phi"})
"""Attention and MLP run side by side after one norm."""
FOUR_NORMS = frozenset({"gemma2", "gemma3", "gemma3_text", "glm4"})
"""Norms before and after attention and MLP."""
NO_NORM_PARAMETERS = frozenset({"olmo"})
NORM_WITH_BIAS = _names("""
    bloom codegen falcon gpt2 gpt_bigcode gpt_neo gpt_neox gptj nemotron opt persimmon phi phimoe stablelm starcoder2
""")
EMBEDDING_NORM = frozenset({"bloom"})
NORMS_QK_BY_HEAD = _names("""
    exaone4 gemma3 gemma3_text qwen3 qwen3_moe qwen3_next qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text
""")
NORMS_QK_WHOLE = frozenset({"olmo2", "olmo3", "olmoe"})
HEAD_BIAS = frozenset({"codegen", "gptj", "phi"})
ROUTER_BIAS = _names("deepseek_v3 deepseek_v32 glm4_moe glm_moe_dsa gpt_oss kimi_k2 kimi_linear")
SHARED_GATE = _names("qwen2_moe qwen3_next qwen3_5_moe qwen3_5_moe_text")

QKV_BIAS = _names("bloom gpt2 gpt_bigcode gpt_neox opt persimmon phi qwen qwen2 qwen2_moe starcoder2 gpt_oss chatglm")
NO_QKV_BIAS = _names("codegen gpt_neo gptj mpt")
OUTPUT_BIAS = _names("bloom gpt2 gpt_bigcode gpt_neo gpt_neox gpt_oss opt persimmon phi starcoder2")
NO_OUTPUT_BIAS = _names("chatglm codegen glm glm4 glm4_moe gptj mpt qwen qwen2 qwen2_moe stablelm")
MLP_BIAS = _names("bloom codegen gpt2 gpt_bigcode gpt_neo gpt_neox gpt_oss gptj opt persimmon phi starcoder2")
"""Biases that the family fixes, whatever the file states for others."""

HEAD_DIM = {"gemma": 256, "gemma2": 256, "gemma3_text": 256, "qwen3": 128, "qwen3_moe": 128}
"""Width of a head where the file does not give it and it is not hidden / heads."""
SLIDING = {"cohere2": (4, 3), "gemma2": (2, 1), "gemma3": (6, 5), "gemma3_text": (6, 5), "gpt_oss": (2, 1)}
"""Period of layers, and how many layers of a period have a sliding window."""
ALWAYS_SLIDING = _names("mistral mixtral ministral phi3 starcoder2")
"""All layers have the window that ``sliding_window`` states."""
