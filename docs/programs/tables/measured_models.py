"""Measures what models that are no plain transformers store for their backward, and writes the table of them.

``python docs/programs/tables/measured_models.py`` needs torch, torchvision, timm, transformers, diffusers and
open_clip_torch; where torch is missing it says so and does nothing. Every model is built as these packages build it and
run forward on tensors without data (``FakeTensorMode``), so that neither a GPU nor the memory of the model is needed.
Fused attention stores queries, keys, values, its output and a statistic a row. Only the numbers are written: facts, no
code and no weights.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

try:
    import torch
    import torch.utils.checkpoint
    from torch import nn
    from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
    from torch.nn import functional
except ImportError:  # the rest of this file is not run then
    sys.exit("torch is not installed: nothing is measured")

from measured_names import CLIP, MORE_NAMES, TIMM, TORCHVISION
from saved_tensors import PRODUCTS, SMALL, Saved, add_flop, count, counting, flop, make_images, measure_sample

TARGET = Path(__file__).parents[3] / "opsk/workload/public_models/catalogue/measured.tsv"
HEAD = (
    "# Written by docs/programs/tables/measured_models.py, a tab between: kind, what size counts, size, trained,\n"
    "# frozen parameters next to them, bytes that a sample stores in 16 bits, in fp32, with checkpoints, and of the\n"
    "# largest checkpointed part, with adapters on a frozen base, of these with checkpoints, of the largest tensor,\n"
    "# FLOP of a sample's forward, source, names.\n"
)
SECONDS_16_KHZ, SECONDS = 16_000, 10
TEXT_TOKENS = 77
WHISPER_TOKENS = 225
"""Tokens of a transcript, as the example of transformers cuts them (``generation_max_length``)."""
_ATTENTION = re.compile(r"(to_q|to_k|to_v|to_out\.0)$")
_FROZEN_SD15, _FROZEN_SD2 = 83_653_863 + 123_060_480, 83_653_863 + 340_387_840
_FROZEN_SDXL = 83_653_863 + 123_060_480 + 694_659_840
_FROZEN_SD3, _FROZEN_FLUX, _FROZEN_PIXART = 83_819_683 + 123_650_304 + 694_659_840, 83_819_683 + 123_060_480, 83_653_863
"""Parameters of the autoencoder and of the text encoders CLIP L, OpenCLIP H and G. T5 XXL's encoder is left out: its
4.8 B parameters are freed or offloaded once the texts are encoded."""


class _Attention(torch.autograd.Function):
    """Fused attention as far as memory goes."""

    @staticmethod
    def forward(context: Any, query: Any, key: Any, value: Any) -> Any:
        output = query.new_empty(*query.shape[:-1], value.shape[-1])
        statistic = query.new_empty(query.shape[:-1], dtype=torch.float32)
        context.save_for_backward(query, key, value, output, statistic)
        flop[0] += 2 * query.numel() * key.shape[-2] * 2
        return output

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        """Nothing goes backward here."""
        raise NotImplementedError


def _attend(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> Any:
    if torch.is_autocast_enabled("cuda"):
        query, key, value = (part.to(torch.bfloat16) for part in (query, key, value))
    return _Attention.apply(query, key, value)


def _checkpoint(function: Callable[..., Any], *args: Any, **settings: Any) -> Any:
    """Run a part whose inputs alone are stored; remember the part that stores the most."""
    for name in ("use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop"):
        settings.pop(name, None)
    outer = counting[-1]
    inner = Saved(own=outer.own)
    counting.append(inner)
    with torch.autograd.graph.saved_tensors_hooks(inner.pack, lambda tensor: tensor):
        result = function(*args, **settings)
    counting.pop()
    for value in (*args, *settings.values()):
        if isinstance(value, torch.Tensor):
            outer.pack(value)
    outer.part = max(outer.part, inner.total)
    return result


def _space(*args: Any, **settings: Any) -> Any:
    """Return numbers with values, which constructors read."""
    with unset_fake_temporarily(), torch.device("cpu"):
        return _linspace(*args, **{**settings, "device": "cpu"})


_linspace = torch.linspace
torch.linspace = _space
functional.scaled_dot_product_attention = _attend
torch.utils.checkpoint.checkpoint = _checkpoint
for _name in [name for name in dir(nn.init) if name.endswith("_") and not name.startswith("_")]:
    setattr(nn.init, _name, lambda tensor, *args, **settings: tensor)

import diffusers  # noqa: E402  (all of these take the functions above)
import open_clip  # noqa: E402
import timm  # noqa: E402
import torchvision  # noqa: E402
import transformers  # noqa: E402
from timm.models.vision_transformer import Block  # noqa: E402


class _Adapted(nn.Module):
    """A frozen linear layer with an adapter of rank 4."""

    def __init__(self, base: Any) -> None:
        super().__init__()
        self.base = base
        self.first = nn.Linear(base.in_features, 4, bias=False)
        self.last = nn.Linear(4, base.out_features, bias=False)

    def forward(self, value: Any, *_: Any) -> Any:
        """Add the adapter."""
        return self.base(value) + self.last(self.first(value))


def _adapt(model: Any) -> Any:
    """Freeze a model and give its attention adapters."""
    model.requires_grad_(False)
    for name, module in [*model.named_modules()]:
        if _ATTENTION.search(name) and isinstance(module, nn.Linear):
            owner, _, last = name.rpartition(".")
            setattr(model.get_submodule(owner), last, _Adapted(module))
    return model


def _turn_on_checkpoints(model: Any) -> bool:
    """Return whether a model has checkpoints, which are on then."""
    if isinstance(model, Dit):
        model.is_checkpointed = True
        return True
    for name in ("set_grad_checkpointing", "enable_gradient_checkpointing", "gradient_checkpointing_enable"):
        method = getattr(model, name, None)
        if method is not None:
            try:
                method()
            except (ValueError, AssertionError, NotImplementedError, AttributeError):
                return False
            return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A model to measure; ``inputs`` makes those of a batch."""

    kind: str
    unit: str
    size: int
    build: Callable[[], Any]
    inputs: Callable[[int], Any]
    source: str
    names: tuple[str, ...]
    frozen: int = 0
    has_adapters: bool = False


def measure(entry: Entry) -> str:
    """Return the row of a model."""
    with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda"):
        model = entry.build()
        model.train()
        parameters = sum(part.numel() for part in model.parameters())
        stored, _, largest = measure_sample(model, entry.inputs, is_16_bit=True)
        flop[0] = 0
        hooks = [part.register_forward_hook(add_flop) for part in model.modules() if isinstance(part, PRODUCTS)]
        full = (
            count(model, entry.inputs, SMALL, is_16_bit=False).total // SMALL
        )  # nothing is cast, so nothing is shared
        work = flop[0] // SMALL
        for hook in hooks:
            hook.remove()
        checkpointed, part = 0, 0
        if _turn_on_checkpoints(model):
            checkpointed, part, _ = measure_sample(model, entry.inputs, is_16_bit=True)
        adapted, adapted_checkpointed = 0, 0
        if entry.has_adapters:
            torch.set_default_dtype(torch.bfloat16)
            model = _adapt(entry.build().train())
            adapted, _, _ = measure_sample(model, entry.inputs, is_16_bit=True)
            _turn_on_checkpoints(model)
            adapted_checkpointed, _, _ = measure_sample(model, entry.inputs, is_16_bit=True)
            torch.set_default_dtype(torch.float32)
    if not part:
        checkpointed = 0
    numbers = (entry.size, parameters, entry.frozen, stored, full, checkpointed, part, adapted, adapted_checkpointed)
    words = (entry.kind, entry.unit, *map(str, (*numbers, largest, work)), entry.source, " ".join(entry.names))
    return "\t".join(words)


def _list_torchvision() -> Iterator[Entry]:
    for name in TORCHVISION.split():
        size = 299 if name == "inception_v3" else 224
        names = (name, *MORE_NAMES.get(name, ()))
        build = partial(getattr(torchvision.models, name))
        if name in ("inception_v3", "googlenet"):
            build = partial(build, aux_logits=False, init_weights=False)
        source = f"torchvision {torchvision.__version__.partition('+')[0]}"
        inputs = partial(make_images, size)
        yield Entry(kind="image", unit="pixels", size=size, build=build, inputs=inputs, source=source, names=names)


def _build_without_data(build: Callable[[], nn.Module]) -> nn.Module:
    """Build a model on the CPU, as some read numbers from tensors while they are built, and return it without data."""
    with unset_fake_temporarily(), torch.device("cpu"):
        model = build()
    for module in model.modules():
        for name, value in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(torch.empty(value.shape, dtype=value.dtype)))
        for name, value in list(module.named_buffers(recurse=False)):
            setattr(module, name, torch.empty(value.shape, dtype=value.dtype))
    return model


def _list_timm() -> Iterator[Entry]:
    for name in TIMM.split():
        config = timm.models.get_pretrained_cfg(name)
        size = config.input_size[-1] if config is not None else 224
        names = (name, *MORE_NAMES.get(name, ()))
        source = f"timm {timm.__version__}"
        inputs, build = partial(make_images, size), partial(_build_without_data, partial(timm.create_model, name))
        yield Entry(kind="image", unit="pixels", size=size, build=build, inputs=inputs, source=source, names=names)


def _make_clip(config: dict[str, Any]) -> Any:
    kind = open_clip.CoCa if "multimodal_cfg" in config else open_clip.CLIP
    return kind(**{key: value for key, value in config.items() if key not in ("custom_text", "tokenizer_kwargs")})


def _make_pairs(size: int, tokens: int, batch: int) -> tuple[Any, ...]:
    return torch.empty(batch, 3, size, size), torch.zeros(batch, tokens, dtype=torch.long)


def _list_clip() -> Iterator[Entry]:
    for name in CLIP.split():
        config = open_clip.get_model_config(name)
        size = config["vision_cfg"].get("image_size", 224)
        tokens = config["text_cfg"].get("context_length", TEXT_TOKENS)
        names = (f"openclip-{name}", name, *MORE_NAMES.get(name, ()))
        yield Entry(
            kind="clip",
            unit="pixels",
            size=size,
            build=partial(_make_clip, config),
            inputs=partial(_make_pairs, size, tokens),
            source=f"open_clip {open_clip.__version__}: both towers",
            names=names,
        )


def _make_sound(batch: int) -> dict[str, Any]:
    return {"input_values": torch.empty(batch, SECONDS * SECONDS_16_KHZ)}


def _make_speech(kind: str, **sizes: Any) -> Any:
    config = getattr(transformers, f"{kind}Config")(**sizes, attn_implementation="sdpa", mask_time_prob=0.0)
    config.layerdrop = 0.0
    model = getattr(transformers, f"{kind}ForCTC")(config)
    model.freeze_feature_encoder()
    return model


_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
_STABLE = {"feat_extract_norm": "layer", "do_stable_layer_norm": True, "conv_bias": True}
_1B = {"hidden_size": 1280, "num_hidden_layers": 48, "num_attention_heads": 16, "intermediate_size": 5120}
_2B = {"hidden_size": 1920, "num_hidden_layers": 48, "num_attention_heads": 16, "intermediate_size": 7680}
_SPEECH: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("Wav2Vec2", {}, "facebook/wav2vec2-base facebook/wav2vec2-base-960h facebook/wav2vec2-base-100h"),
    ("Wav2Vec2", _LARGE, "facebook/wav2vec2-large facebook/wav2vec2-large-960h"),
    (
        "Wav2Vec2",
        {**_LARGE, **_STABLE},
        "facebook/wav2vec2-large-lv60 facebook/wav2vec2-large-960h-lv60-self facebook/wav2vec2-large-xlsr-53"
        " facebook/wav2vec2-xls-r-300m facebook/wav2vec2-large-robust facebook/mms-300m"
        " jonatasgrosman/wav2vec2-large-xlsr-53-english",
    ),
    (
        "Wav2Vec2",
        {**_1B, **_STABLE},
        "facebook/wav2vec2-xls-r-1b facebook/mms-1b facebook/mms-1b-all facebook/mms-1b-fl102",
    ),
    ("Wav2Vec2", {**_2B, **_STABLE}, "facebook/wav2vec2-xls-r-2b"),
    ("Hubert", {}, "facebook/hubert-base-ls960 TencentGameMate/chinese-hubert-base rinna/japanese-hubert-base"),
    ("Hubert", {**_LARGE, **_STABLE}, "facebook/hubert-large-ll60k facebook/hubert-large-ls960-ft"),
    ("Hubert", {**_1B, **_STABLE}, "facebook/hubert-xlarge-ll60k facebook/hubert-xlarge-ls960-ft"),
    ("UniSpeechSat", {}, "microsoft/unispeech-sat-base microsoft/unispeech-sat-base-plus"),
    ("UniSpeechSat", {**_LARGE, **_STABLE}, "microsoft/unispeech-sat-large"),
    ("Data2VecAudio", {}, "facebook/data2vec-audio-base facebook/data2vec-audio-base-960h"),
    ("Data2VecAudio", _LARGE, "facebook/data2vec-audio-large facebook/data2vec-audio-large-960h"),
)


def _list_speech() -> Iterator[Entry]:
    for kind, sizes, names in _SPEECH:
        yield Entry(
            kind="speech",
            unit="seconds",
            size=SECONDS,
            build=partial(_make_speech, kind, **sizes),
            inputs=_make_sound,
            source=f"transformers {transformers.__version__} ({kind}), its feature encoder frozen",
            names=tuple(names.split()),
        )
    for layers, width, heads, vocab, names in (
        (4, 384, 6, 51865, "openai/whisper-tiny openai/whisper-tiny.en"),
        (6, 512, 8, 51865, "openai/whisper-base openai/whisper-base.en"),
        (12, 768, 12, 51865, "openai/whisper-small openai/whisper-small.en"),
        (24, 1024, 16, 51865, "openai/whisper-medium openai/whisper-medium.en"),
        (32, 1280, 20, 51865, "openai/whisper-large openai/whisper-large-v2 openai/whisper-large-v1"),
        (32, 1280, 20, 51866, "openai/whisper-large-v3"),
        (4, 1280, 20, 51866, "openai/whisper-large-v3-turbo"),
        (2, 1280, 20, 51866, "distil-whisper/distil-large-v3 distil-whisper/distil-large-v2"),
    ):
        is_turbo = width == 1280 and layers < 32
        yield Entry(
            kind="speech",
            unit="windows",
            size=1,
            build=partial(_make_whisper, layers, 32 if is_turbo else layers, width, heads, vocab),
            inputs=partial(_make_spectrogram, 128 if vocab == 51866 else 80, vocab),
            source=f"transformers {transformers.__version__} (Whisper): 30 s, {WHISPER_TOKENS} tokens and their loss",
            names=tuple(names.split()),
        )


def _make_whisper(layers: int, encoder: int, width: int, heads: int, vocab: int) -> Any:
    sizes = {"d_model": width, "encoder_attention_heads": heads, "decoder_attention_heads": heads}
    config = transformers.WhisperConfig(
        vocab_size=vocab,
        num_mel_bins=128 if vocab == 51866 else 80,
        encoder_layers=encoder,
        decoder_layers=layers,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        max_target_positions=448,
        attn_implementation="sdpa",
        use_cache=False,
        **sizes,
    )
    return transformers.WhisperForConditionalGeneration(config)


def _make_spectrogram(bands: int, vocab: int, batch: int) -> dict[str, Any]:
    tokens = torch.zeros(batch, WHISPER_TOKENS, dtype=torch.long)
    return {"input_features": torch.empty(batch, bands, 3000), "decoder_input_ids": tokens, "labels": tokens}


class Dit(nn.Module):
    """A diffusion transformer as in Peebles and Xie (arXiv 2212.09748, figure 3): adaLN-zero, 4 latent channels."""

    def __init__(self, layers: int, width: int, heads: int, patch: int) -> None:
        super().__init__()
        self.heads = heads
        self.into = nn.Conv2d(4, width, patch, patch)
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.label = nn.Embedding(1001, width)
        self.blocks = nn.ModuleList(Block(width, heads, 4.0, qkv_bias=True) for _ in range(layers))
        self.scales = nn.ModuleList(nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width)) for _ in range(layers))
        for block in self.blocks:
            block.norm1, block.norm2 = (nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.scale = nn.Sequential(nn.SiLU(), nn.Linear(width, 2 * width))
        self.out = nn.Linear(width, patch * patch * 8)
        self.is_checkpointed = False

    def _run(self, index: int, stream: Any, given: Any) -> Any:
        block = self.blocks[index]
        shift, scale, gate, shift_2, scale_2, gate_2 = self.scales[index](given)[:, None].chunk(6, dim=-1)
        stream = stream + gate * block.attn(block.norm1(stream) * (1 + scale) + shift)
        return stream + gate_2 * block.mlp(block.norm2(stream) * (1 + scale_2) + shift_2)

    def forward(self, latents: Any, steps: Any, labels: Any) -> Any:
        """Predict noise."""
        stream = self.into(latents).flatten(2).transpose(1, 2)
        given = self.time(steps) + self.label(labels)
        for index in range(len(self.blocks)):
            run = partial(self._run, index)
            stream = _checkpoint(run, stream, given) if self.is_checkpointed else run(stream, given)
        shift, scale = self.scale(given)[:, None].chunk(2, dim=-1)
        return self.out(self.norm(stream) * (1 + scale) + shift)


def _make_latents(side: int, batch: int) -> tuple[Any, ...]:
    return torch.empty(batch, 4, side, side), torch.empty(batch, 256), torch.zeros(batch, dtype=torch.long)


def _list_dit() -> Iterator[Entry]:
    for letter, layers, width, heads in (
        ("S", 12, 384, 6),
        ("B", 12, 768, 12),
        ("L", 24, 1024, 16),
        ("XL", 28, 1152, 16),
    ):
        for patch in (2, 4, 8):
            names = [f"DiT-{letter}-{patch}", f"SiT-{letter}-{patch}"]
            names += ["facebook/DiT-XL-2-256", "facebook/DiT-XL-2-512"] if (letter, patch) == ("XL", 2) else []
            yield Entry(
                kind="diffusion",
                unit="pixels",
                size=256,
                build=partial(Dit, layers, width, heads, patch),
                inputs=partial(_make_latents, 32),
                source="DiT (arXiv 2212.09748, tables 1 and 4); SiT (arXiv 2401.08740)",
                names=tuple(names),
                frozen=83_653_863,
            )


def _make_text_inputs(
    channels: int, side: int, width: int, batch: int, *, pooled: int = 0, tokens: int = TEXT_TOKENS
) -> dict[str, Any]:
    given: dict[str, Any] = {
        "sample" if not pooled or pooled < 0 else "hidden_states": torch.empty(batch, channels, side, side),
        "timestep": torch.zeros(batch),
        "encoder_hidden_states": torch.empty(batch, tokens, width),
    }
    if pooled > 0:
        given["pooled_projections"] = torch.empty(batch, pooled)
    if pooled < 0:
        given["added_cond_kwargs"] = {"text_embeds": torch.empty(batch, 1280), "time_ids": torch.empty(batch, 6)}
    return given


def _make_pixart_inputs(side: int, batch: int) -> dict[str, Any]:
    return {
        "hidden_states": torch.empty(batch, 4, side, side),
        "timestep": torch.zeros(batch),
        "encoder_hidden_states": torch.empty(batch, 120, 4096),
        "added_cond_kwargs": {"resolution": torch.empty(batch, 2), "aspect_ratio": torch.empty(batch, 1)},
    }


def _make_flux_inputs(side: int, batch: int) -> dict[str, Any]:
    tokens = (side // 2) ** 2
    return {
        "hidden_states": torch.empty(batch, tokens, 64),
        "timestep": torch.zeros(batch),
        "guidance": torch.zeros(batch),
        "pooled_projections": torch.empty(batch, 768),
        "encoder_hidden_states": torch.empty(batch, 512, 4096),
        "txt_ids": torch.zeros(512, 3),
        "img_ids": torch.zeros(tokens, 3),
    }


_XL = {
    "block_out_channels": (320, 640, 1280),
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    "transformer_layers_per_block": [1, 2, 10],
    "attention_head_dim": [5, 10, 20],
    "cross_attention_dim": 2048,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": 2816,
    "use_linear_projection": True,
}
_SD2 = {"cross_attention_dim": 1024, "attention_head_dim": [5, 10, 20, 20], "use_linear_projection": True}
_SD3 = {
    "sample_size": 128,
    "num_layers": 24,
    "attention_head_dim": 64,
    "num_attention_heads": 24,
    "joint_attention_dim": 4096,
    "caption_projection_dim": 1536,
    "pooled_projection_dim": 2048,
    "out_channels": 16,
    "pos_embed_max_size": 192,
}
_SD35_LARGE = {
    **_SD3,
    "num_layers": 38,
    "num_attention_heads": 38,
    "caption_projection_dim": 2432,
    "qk_norm": "rms_norm",
}
_SD35_MEDIUM = {**_SD3, "pos_embed_max_size": 384, "qk_norm": "rms_norm", "dual_attention_layers": tuple(range(13))}
_PIXART = {"sample_size": 128, "use_additional_conditions": True, "caption_channels": 4096}
_DIFFUSERS: tuple[tuple[str, dict[str, Any], int, Callable[[int], Any], int, str], ...] = (
    (
        "UNet2DConditionModel",
        {"cross_attention_dim": 768},
        512,
        partial(_make_text_inputs, 4, 64, 768),
        _FROZEN_SD15,
        "runwayml/stable-diffusion-v1-5 stable-diffusion-v1-5/stable-diffusion-v1-5 CompVis/stable-diffusion-v1-4"
        " CompVis/stable-diffusion-v1-1 CompVis/stable-diffusion-v1-2 CompVis/stable-diffusion-v1-3"
        " SG161222/Realistic_Vision_V5.1_noVAE Lykon/dreamshaper-8 prompthero/openjourney nitrosocke/mo-di-diffusion",
    ),
    (
        "UNet2DConditionModel",
        _SD2,
        512,
        partial(_make_text_inputs, 4, 64, 1024),
        _FROZEN_SD2,
        "stabilityai/stable-diffusion-2-base stabilityai/stable-diffusion-2-1-base stabilityai/stable-diffusion-2"
        " stabilityai/stable-diffusion-2-1 stabilityai/sd-turbo",
    ),
    (
        "UNet2DConditionModel",
        _XL,
        1024,
        partial(_make_text_inputs, 4, 128, 2048, pooled=-1),
        _FROZEN_SDXL,
        "stabilityai/stable-diffusion-xl-base-1.0 stabilityai/stable-diffusion-xl-base-0.9 stabilityai/sdxl-turbo"
        " playgroundai/playground-v2.5-1024px-aesthetic cagliostrolab/animagine-xl-3.1 SG161222/RealVisXL_V4.0",
    ),
    (
        "PixArtTransformer2DModel",
        {"sample_size": 64, "caption_channels": 4096},
        512,
        partial(_make_pixart_inputs, 64),
        _FROZEN_PIXART,
        "PixArt-alpha/PixArt-XL-2-512x512 PixArt-alpha/PixArt-XL-2-256x256",
    ),
    (
        "PixArtTransformer2DModel",
        _PIXART,
        1024,
        partial(_make_pixart_inputs, 128),
        _FROZEN_PIXART,
        "PixArt-alpha/PixArt-XL-2-1024-MS PixArt-alpha/PixArt-Sigma-XL-2-1024-MS",
    ),
    (
        "SD3Transformer2DModel",
        _SD3,
        1024,
        partial(_make_text_inputs, 16, 128, 4096, pooled=2048, tokens=154),
        _FROZEN_SD3,
        "stabilityai/stable-diffusion-3-medium-diffusers stabilityai/stable-diffusion-3-medium",
    ),
    (
        "SD3Transformer2DModel",
        _SD35_MEDIUM,
        1024,
        partial(_make_text_inputs, 16, 128, 4096, pooled=2048, tokens=154),
        _FROZEN_SD3,
        "stabilityai/stable-diffusion-3.5-medium",
    ),
    (
        "SD3Transformer2DModel",
        _SD35_LARGE,
        1024,
        partial(_make_text_inputs, 16, 128, 4096, pooled=2048, tokens=154),
        _FROZEN_SD3,
        "stabilityai/stable-diffusion-3.5-large stabilityai/stable-diffusion-3.5-large-turbo",
    ),
    (
        "FluxTransformer2DModel",
        {"guidance_embeds": True},
        1024,
        partial(_make_flux_inputs, 128),
        _FROZEN_FLUX,
        "black-forest-labs/FLUX.1-dev black-forest-labs/FLUX.1-schnell",
    ),
)


def _list_diffusers() -> Iterator[Entry]:
    for kind, config, size, inputs, frozen, names in _DIFFUSERS:
        yield Entry(
            kind="diffusion",
            unit="pixels",
            size=size,
            build=partial(getattr(diffusers, kind), **config),
            inputs=inputs,
            source=f"diffusers {diffusers.__version__} ({kind}, as its config.json)",
            names=tuple(names.split()),
            frozen=frozen,
            has_adapters=True,
        )


def main() -> None:
    """Measure all models, or those of the families that are named, and write the table."""
    families = {
        "torchvision": _list_torchvision,
        "timm": _list_timm,
        "clip": _list_clip,
        "speech": _list_speech,
        "dit": _list_dit,
        "diffusers": _list_diffusers,
    }
    rows, known = [], set[str]()
    for name in sys.argv[1:] or families:
        for entry in families[name]():
            if known & set(entry.names):
                continue
            known |= set(entry.names)
            try:
                row = measure(entry)
            except (RuntimeError, TypeError, ValueError, AttributeError, KeyError) as error:
                print(f"left out {entry.names[0]}: {type(error).__name__} {str(error)[:200]}", file=sys.stderr)
                continue
            print(row, flush=True)
            rows.append(row)
    if not sys.argv[1:]:
        TARGET.write_text(HEAD + "".join(f"{row}\n" for row in rows))


if __name__ == "__main__":
    main()
