"""Finds public models that are as large as one whose name tells nothing but its size: ``our-lab/Story-3B``."""

from __future__ import annotations

import re
from functools import cache, lru_cache

from opsk.workload.model import Mixer, ModelShape
from opsk.workload.public_models.lookup import Kind, iterate_listed, normalise_words, public_model, public_models

_SIZE = re.compile(r"([a-z]{2,20})?(\d{1,3}(?:\.\d{1,2})?)([bm])")
"""A size, behind the letters of a name where people leave the hyphen out (``Story7B``)."""
_UNITS = {"b": 10**9, "m": 10**6}
_OTHER = re.compile(
    r"\w*(vl|vlm|vla|moe|mamba|rwkv|vision|visual|audio|speech|voice|whisper|video|image|clip|vit|diffusion|omni|multimodal"
    r"|mm|ocr|gptq|awq|gguf|exl|mlx|fp8|fp4|\d-?bit|int\d|asr|tts|encoder|dit|unet|llava|blip|musicgen|hybrid|loop\w*|lstm"
    r"|amba|idefics|florence|ovis|molmo|pixtral|kosmos|fuyu|gemma3n|moondream|minicpm|cog\w*|gr00t|hyena\w*|caduceus|evo|griffin"
    r"|recurrent\w*|lfm|chronos|timesfm|moirai|sdxl|flux|bert\w*|esm|geneformer|scgpt)\d*"
    r"|v|vl\d*|h\d|tokens?|toks?|samples?|steps?|ctx|context|a\d+(\.\d+)?b|\d+x\d+(\.\d+)?b"
)
"""Words of models that are no plain transformers of text, and of numbers that are no size of a model."""
SHARES = (0.95, 1.5)
"""Parameters of a model that counts as as large as a name says, over what it says."""
MAX_OF_KIND = 3
"""Models with the most logits of a token, and with the most activations, that are returned."""


@lru_cache(maxsize=256)
def find_as_large(name: str) -> tuple[str, ...]:
    """Return models of the catalogue that have as many parameters as a name tells, or some more; none for other names.

    Examples
    --------
    >>> find_as_large("our-lab/Story-7B")[0], find_as_large("our-lab/Story"), find_as_large("our-lab/Story-7B-VL")
    ('baichuan2-7b', (), ())
    """
    words = normalise_words(name).split("-")
    sizes = [match for word in words if (match := _SIZE.fullmatch(word))]
    if len(sizes) != 1 or any(map(_OTHER.fullmatch, (*words, sizes[0][1] or ""))):
        return ()
    _, number, unit = sizes[0].groups()
    parameters = float(number) * _UNITS[unit]
    low, high = (share * parameters for share in SHARES)
    rows = [(count, key) for count, key in _list_sizes() if low <= count <= high]
    if all(shape_count < parameters for shape_count, _ in rows):
        return ()
    shapes = {key: shape for key in (key for _, key in rows) if (shape := public_model(key)) is not None}
    by_words = sorted(shapes, key=lambda key: -shapes[key].vocab * shapes[key].hidden)
    by_layers = sorted(shapes, key=lambda key: -shapes[key].layers * shapes[key].hidden)
    return tuple(sorted(dict.fromkeys((*by_words[:MAX_OF_KIND], *by_layers[:MAX_OF_KIND]))))


@cache
def _list_sizes() -> tuple[tuple[int, str], ...]:
    """Return the parameters and the names of the decoders that have neither experts nor layers of other kinds."""
    rows = [(model.parameters, key) for key, model in public_models().items() if _is_plain(model.shape)]
    listed = [(shape, names[0]) for kind, shape, names in iterate_listed() if kind is Kind.DECODER and _is_plain(shape)]
    return tuple(sorted([*rows, *((_count(shape), key) for shape, key in listed)]))


def _is_plain(shape: ModelShape) -> bool:
    """Return whether a model has neither experts nor layers of other kinds."""
    return shape.experts <= 1 and not shape.encoder_layers and shape.mixer is Mixer.NONE


def _count(shape: ModelShape) -> int:
    """Return the parameters of a model: those of its matrices."""
    width = shape.head_dim * (2 * shape.heads + 2 * shape.kv_heads)
    layer = shape.hidden * (width + (3 if shape.gated_mlp else 2) * shape.ffn)
    return shape.layers * layer + shape.vocab * shape.hidden * (1 if shape.tied_embeddings else 2)
